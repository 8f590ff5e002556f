// Batches, and the tensors in them.
#ifndef SLOTLINE_BATCH_HPP
#define SLOTLINE_BATCH_HPP

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <tuple>
#include <typeinfo>
#include <utility>

#include "error.hpp"
#include "span.hpp"
#include "types.hpp"

namespace slotline {

/// A tensor's lengths or strides: numbers of its own, which are good also when the tensor is gone.
class dims {
 public:
  dims(const std::int64_t* values, std::size_t size) noexcept : size_(size) { std::copy_n(values, size, values_); }

  const std::int64_t* data() const noexcept { return values_; }
  std::size_t size() const noexcept { return size_; }
  bool empty() const noexcept { return size_ == 0; }
  const std::int64_t* begin() const noexcept { return values_; }
  const std::int64_t* end() const noexcept { return values_ + size_; }
  /// Not checked, as in std::vector.
  std::int64_t operator[](std::size_t i) const noexcept { return values_[i]; }

 private:
  std::int64_t values_[SLOTLINE_MAX_DIMS];
  std::size_t size_;
};

/// One field of a batch: a tensor where the workers wrote it. It and all it points to are good as long as the batch.
class tensor {
 public:
  explicit tensor(const slotline_tensor& raw) noexcept : raw_(raw) {}

  const char* name() const noexcept { return raw_.name; }
  slotline::dtype dtype() const noexcept { return static_cast<slotline::dtype>(raw_.dtype); }
  slotline::kind kind() const noexcept { return static_cast<slotline::kind>(raw_.kind); }
  /// The first dimension is the samples, or the items of all samples of a packed field.
  dims shape() const noexcept { return {raw_.shape, raw_.ndim}; }
  /// In elements, not bytes.
  dims strides() const noexcept { return {raw_.strides, raw_.ndim}; }
  const void* data() const noexcept { return raw_.data; }
  std::size_t bytes() const noexcept { return raw_.bytes; }
  /// Of a ragged field how many elements each sample has; of a packed one where the items of each begin, and where those of
  /// the last one end. Else empty.
  span<const std::int64_t> ends() const noexcept { return {raw_.ends, raw_.num_ends}; }

 protected:
  slotline_tensor raw_;
};

/// A tensor whose elements are known to be T: a span of all of them.
template <class T>
class view : public tensor {
 public:
  /// Throws slotline::error where they are not.
  explicit view(const slotline_tensor& raw) : tensor(raw) {
    if (dtype() != dtype_of<T>)
      throw error(code::invalid, std::string("field ") + name() + " is " + name_of(dtype()) + ", not " +
                                     name_of(dtype_of<T>));
  }

  const T* data() const noexcept { return static_cast<const T*>(raw_.data); }
  std::size_t size() const noexcept { return raw_.bytes / sizeof(T); }
  const T* begin() const noexcept { return data(); }
  const T* end() const noexcept { return data() + size(); }
  /// Not checked, as in std::vector.
  const T& operator[](std::size_t i) const noexcept { return data()[i]; }
  operator span<const T>() const noexcept { return {data(), size()}; }

  /// The i-th place of the first dimension. Throws std::out_of_range.
  span<const T> row(std::size_t i) const {
    const std::size_t rows = raw_.ndim == 0 ? 1 : static_cast<std::size_t>(raw_.shape[0]);
    if (i >= rows) throw std::out_of_range("row " + std::to_string(i) + " of " + std::to_string(rows));
    const std::size_t row = size() / rows;
    return {data() + i * row, row};
  }
};

namespace detail {

/// What a collate function made, whatever its type.
struct collated {
  explicit collated(const std::type_info& of) noexcept : type(of) {}
  virtual ~collated() = default;
  const std::type_info& type;
};
template <class T>
struct collated_as : collated {
  explicit collated_as(T&& it) : collated(typeid(T)), made(std::move(it)) {}
  T made;
};

/// A DLPack tensor's own way to go.
struct dlpack_deleter {
  template <class Managed>
  void operator()(Managed* tensor) const {
    if (tensor->deleter) tensor->deleter(tensor);
  }
};

}  // namespace detail

/// A DLPack tensor that nobody has taken yet: give `release()` to the importer. Needs dlpack.h, or torch's copy of it.
template <class Managed>
using dlpack = std::unique_ptr<Managed, detail::dlpack_deleter>;

/// A lease on a batch: tensors that lie where the workers wrote them. Its end, on any thread and in any order, also after the
/// loader's, makes room for another one.
class batch {
 public:
  /// None: what `loader::try_next` fills.
  batch() noexcept = default;
  /// Takes over a batch of the C API.
  explicit batch(slotline_batch* raw) noexcept : raw_(raw) {}

  explicit operator bool() const noexcept { return raw_ != nullptr; }
  /// How many samples.
  std::size_t size() const noexcept { return slotline_batch_len(raw_.get()); }
  /// Its number in the pass.
  std::size_t task() const noexcept { return slotline_batch_task(raw_.get()); }
  /// The pass.
  std::uint32_t epoch() const noexcept { return slotline_batch_epoch(raw_.get()); }
  /// The dataset's index of each sample.
  span<const std::int64_t> indices() const noexcept { return {slotline_batch_indices(raw_.get()), size()}; }
  std::size_t num_fields() const noexcept { return slotline_batch_num_fields(raw_.get()); }

  /// A field by its number or name. Throws slotline::error where there is none.
  slotline::tensor tensor(std::size_t field) const { return slotline::tensor(raw_tensor(field)); }
  slotline::tensor tensor(const std::string& field) const { return slotline::tensor(raw_tensor(field)); }

  /// The same, where its type is known; throws slotline::error where it is another.
  template <class T>
  view<T> field(std::size_t field) const {
    return view<T>(raw_tensor(field));
  }
  template <class T>
  view<T> field(const std::string& field) const {
    return view<T>(raw_tensor(field));
  }

  /// The first fields at once: `auto [images, labels] = batch.fields<float, std::int64_t>();`
  template <class... T>
  std::tuple<view<T>...> fields() const {
    return fields_of<T...>(std::index_sequence_for<T...>());
  }

  /// A field as a DLPack tensor, which keeps the batch's memory for itself until its deleter is called (on any thread, also
  /// after the batch): `at::fromDLPackVersioned(batch.dlpack(0).release())`.
  template <class Managed = DLManagedTensorVersioned>
  slotline::dlpack<Managed> dlpack(std::size_t field) const {
    Managed* out = nullptr;
    detail::check(slotline_batch_dlpack, raw_.get(), field, &out);
    return slotline::dlpack<Managed>(out);
  }
  /// The same in the older form: `at::fromDLPack(batch.dlpack_unversioned(0).release())`.
  template <class Managed = DLManagedTensor>
  slotline::dlpack<Managed> dlpack_unversioned(std::size_t field) const {
    Managed* out = nullptr;
    detail::check(slotline_batch_dlpack_unversioned, raw_.get(), field, &out);
    return slotline::dlpack<Managed>(out);
  }

  /// What the collate function made; throws slotline::error where it made nothing, or something else.
  template <class T>
  T& made() const {
    auto* base = static_cast<detail::collated*>(slotline_batch_user(raw_.get()));
    if (!base) throw error(code::invalid, "the batch was made by no collate function");
    if (base->type != typeid(T)) throw error(code::invalid, "the collate function makes batches of another type");
    return static_cast<detail::collated_as<T>*>(base)->made;
  }

  slotline_batch* raw() const noexcept { return raw_.get(); }

 private:
  slotline_tensor raw_tensor(std::size_t field) const {
    slotline_tensor out;
    out.struct_size = sizeof out;
    detail::check(slotline_batch_field, raw_.get(), field, &out);
    return out;
  }
  slotline_tensor raw_tensor(const std::string& field) const {
    slotline_tensor out;
    out.struct_size = sizeof out;
    detail::check(slotline_batch_field_by_name, raw_.get(), field.c_str(), &out);
    return out;
  }

  template <class... T, std::size_t... I>
  std::tuple<view<T>...> fields_of(std::index_sequence<I...>) const {
    return {field<T>(I)...};
  }

  detail::owned<slotline_batch, slotline_batch_free> raw_;
};

}  // namespace slotline

#endif
