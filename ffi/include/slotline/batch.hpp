// Batches and their tensors.
#ifndef SLOTLINE_BATCH_HPP
#define SLOTLINE_BATCH_HPP

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "error.hpp"
#include "sanitize.hpp"
#include "span.hpp"
#include "types.hpp"

namespace slotline {

/// The lengths or strides of a tensor. They are copied, so they stay valid after the tensor.
class dims {
 public:
  dims(const std::int64_t* values, std::size_t size) noexcept : size_(size) { std::copy_n(values, size, values_); }

  const std::int64_t* data() const noexcept { return values_; }
  std::size_t size() const noexcept { return size_; }
  bool empty() const noexcept { return size_ == 0; }
  const std::int64_t* begin() const noexcept { return values_; }
  const std::int64_t* end() const noexcept { return values_ + size_; }
  /// Not bounds-checked, as in std::vector.
  std::int64_t operator[](std::size_t i) const noexcept { return values_[i]; }

 private:
  std::int64_t values_[SLOTLINE_MAX_DIMS];
  std::size_t size_;
};

/// A field of a batch, in the memory that the workers wrote. The tensor, and everything it points
/// to, is valid as long as the batch.
class tensor {
 public:
  explicit tensor(const slotline_tensor& raw) noexcept : raw_(raw) {}

  const char* name() const noexcept { return raw_.name; }
  slotline::dtype dtype() const noexcept { return static_cast<slotline::dtype>(raw_.dtype); }
  slotline::kind kind() const noexcept { return static_cast<slotline::kind>(raw_.kind); }
  /// The lengths of the dimensions. The first dimension is the sample, or, for a packed field, the
  /// item of any sample.
  dims shape() const noexcept { return {raw_.shape, raw_.ndim}; }
  /// The strides, in elements, not bytes.
  dims strides() const noexcept { return {raw_.strides, raw_.ndim}; }
  const void* data() const noexcept { return raw_.data; }
  std::size_t bytes() const noexcept { return raw_.bytes; }
  /// Padded field: the number of elements of each sample. Packed field: the offsets at which the
  /// items of each sample begin, followed by the end of the last sample. Fixed field: empty.
  span<const std::int64_t> ends() const noexcept { return {raw_.ends, raw_.num_ends}; }

 protected:
  slotline_tensor raw_;
};

/// A tensor with elements of type T: a span of all its elements.
template <class T>
class view : public tensor {
 public:
  /// Throws slotline::error if the elements have another type.
  explicit view(const slotline_tensor& raw) : tensor(raw) {
    if (dtype() != dtype_of<T>) detail::raise(error(code::invalid, mismatch(*this)));
  }

  /// Creates a view without exceptions: OK and a view, or the failure.
  static status try_make(const tensor& field, std::optional<view>& out) {
    if (field.dtype() != dtype_of<T>) return {code::invalid, mismatch(field)};
    out.emplace(view(field));
    return {};
  }

  const T* data() const noexcept { return static_cast<const T*>(raw_.data); }
  std::size_t size() const noexcept { return raw_.bytes / sizeof(T); }
  const T* begin() const noexcept { return data(); }
  const T* end() const noexcept { return data() + size(); }
  /// Not bounds-checked, as in std::vector.
  const T& operator[](std::size_t i) const noexcept { return data()[i]; }
  operator span<const T>() const noexcept { return {data(), size()}; }

  /// The i-th row of the first dimension. Throws std::out_of_range.
  span<const T> row(std::size_t i) const {
    const std::size_t rows = raw_.ndim == 0 ? 1 : static_cast<std::size_t>(raw_.shape[0]);
    if (i >= rows)
      detail::raise(std::out_of_range("row is " + std::to_string(i) + ", but there are " + std::to_string(rows) + " rows"));
    const std::size_t row = size() / rows;
    return {data() + i * row, row};
  }

 private:
  /// Creates a view of a field that is known to have this type.
  explicit view(const tensor& field) noexcept : tensor(field) {}

  static std::string mismatch(const tensor& field) {
    return std::string("field ") + field.name() + " is " + name_of(field.dtype()) + ", not " + name_of(dtype_of<T>);
  }
};

#ifdef SLOTLINE_HAS_IMAGE
/// Options for `batch::mix`: blends pictures, with a weight from the distribution Beta(alpha, alpha).
/// Each rank should have its own seed.
inline slotline_mix mixup(std::size_t num_classes, std::uint64_t seed, double alpha = 1) noexcept {
  slotline_mix options{};
  options.struct_size = sizeof options;
  options.num_classes = num_classes;
  options.seed = seed;
  options.alpha = alpha;
  return options;
}
/// Options for `batch::mix`: replaces a rectangle of each picture.
inline slotline_mix cutmix(std::size_t num_classes, std::uint64_t seed, double alpha = 1) noexcept {
  slotline_mix options = mixup(num_classes, seed, alpha);
  options.cut = 1;
  return options;
}
#endif

namespace detail {

/// The result of a collate function, as a base class for results of any type.
struct collated {
  explicit collated(const char* tag) noexcept : type(tag) {}
  virtual ~collated() = default;
  /// The address of a tag that identifies the type.
  const char* type;
};
template <class T>
struct collated_as : collated {
  explicit collated_as(T&& it) : collated(&type_tag<T>), made(std::move(it)) {}
  T made;
};

/// Informs ThreadSanitizer about each row of a field of fixed shape, since callbacks write rows
/// individually.
inline void tell_rows([[maybe_unused]] void (*tell)(const void*) noexcept, [[maybe_unused]] const slotline_tensor& field,
                      [[maybe_unused]] std::size_t rows) noexcept {
#ifdef SLOTLINE_SANITIZE_THREAD
  if (field.kind != SLOTLINE_FIXED) return;
  for (std::size_t i = 0; i < rows; ++i) tell(static_cast<const char*>(field.data) + i * (field.bytes / rows));
#endif
}

/// Frees a batch, so that its rows may be written again.
inline void free_batch(slotline_batch* raw) noexcept {
#ifdef SLOTLINE_SANITIZE_THREAD
  for (std::size_t i = 0; slotline_batch_device(raw) < 0 && i < slotline_batch_num_fields(raw); ++i) {
    slotline_tensor field;
    field.struct_size = sizeof field;
    if (slotline_batch_field(raw, i, &field, nullptr) == SLOTLINE_OK)
      tell_rows(handed_over, field, slotline_batch_len(raw));
  }
#endif
  slotline_batch_free(raw);
}

/// Calls a DLPack tensor's deleter.
struct dlpack_deleter {
  template <class Managed>
  void operator()(Managed* tensor) const {
    if (tensor->deleter) tensor->deleter(tensor);
  }
};

}  // namespace detail

/// A DLPack tensor that was not imported yet: pass `release()` to the importer. Requires dlpack.h,
/// or torch's copy of it.
template <class Managed>
using dlpack = std::unique_ptr<Managed, detail::dlpack_deleter>;

/// A batch, which owns the memory that the workers wrote its tensors into. Destroying it makes the
/// memory available for another batch. It may be destroyed on any thread, in any order, even after
/// the loader.
class batch {
 public:
  /// Creates an empty batch, to be filled by `loader::try_next`.
  batch() noexcept = default;
  /// Takes ownership of a batch of the C API.
  explicit batch(slotline_batch* raw) noexcept : raw_(raw) {}

  explicit operator bool() const noexcept { return raw_ != nullptr; }
  /// The number of samples.
  std::size_t size() const noexcept { return slotline_batch_len(raw_.get()); }
  /// The number of the batch in its pass, from 0.
  std::size_t batch_index() const noexcept { return slotline_batch_index(raw_.get()); }
  /// The number of the pass, from 0.
  std::uint32_t epoch() const noexcept { return slotline_batch_epoch(raw_.get()); }
  /// The dataset index of each sample.
  span<const std::int64_t> indices() const& noexcept SLOTLINE_LIFETIMEBOUND {
    return {slotline_batch_indices(raw_.get()), size()};
  }
  std::size_t num_fields() const noexcept { return slotline_batch_num_fields(raw_.get()); }

  /// Returns a field by number or name. Throws slotline::error if it does not exist.
  slotline::tensor tensor(std::size_t field) const& SLOTLINE_LIFETIMEBOUND { return slotline::tensor(raw_tensor(field)); }
  slotline::tensor tensor(const std::string& field) const& SLOTLINE_LIFETIMEBOUND { return slotline::tensor(raw_tensor(field)); }

  /// The number of the device that the batch is on, or is being copied to; -1 for the host.
  int device() const noexcept { return slotline_batch_device(raw_.get()); }
#ifdef SLOTLINE_HAS_CUDA
  /// For a batch on a device: makes a stream, a `cudaStream_t`, wait for the copy; the host does
  /// not wait. The batch's memory is not reused before the work that was launched on the stream has
  /// finished.
  void ready_on(void* stream) const { detail::check(slotline_batch_ready_on, raw_.get(), stream); }
  /// Releases a batch on a device: its memory is reused once the stream has reached this point.
  void release_on(void* stream) { detail::check(slotline_batch_release_on, raw_.release(), stream); }
  /// Blocks the calling thread until the batch is completely copied to the device.
  void wait() const { detail::check(slotline_batch_wait, raw_.get()); }
#endif

  /// Returns a field with elements of type T, on the host. Throws slotline::error if it has another
  /// type. For a batch on a device, use `tensor`, which has device addresses for kernels on streams
  /// that the batch was made ready on.
  template <class T>
  view<T> field(std::size_t field) const& SLOTLINE_LIFETIMEBOUND {
    try_on_host().raise();
    return view<T>(raw_tensor(field));
  }
  template <class T>
  view<T> field(const std::string& field) const& SLOTLINE_LIFETIMEBOUND {
    try_on_host().raise();
    return view<T>(raw_tensor(field));
  }

  /// Returns a field by number or name, without exceptions: OK and a view, or the failure. The view
  /// is valid as long as the batch.
  template <class T, class Field>
  status try_field(const Field& field, std::optional<view<T>>& out) const& {
    slotline_tensor raw;
    status result = try_on_host();
    if (result) result = try_raw_tensor(field, raw);
    return result ? view<T>::try_make(slotline::tensor(raw), out) : std::move(result);
  }

  /// Returns the first fields of the batch: `auto [images, labels] = batch.fields<float,
  /// std::int64_t>();`
  template <class... T>
  std::tuple<view<T>...> fields() const& SLOTLINE_LIFETIMEBOUND {
    return fields_of<T...>(std::index_sequence_for<T...>());
  }

  /// Returns a field as a DLPack tensor: `at::fromDLPackVersioned(batch.dlpack(0).release())`. The
  /// tensor keeps the batch's memory alive until its deleter is called (on any thread, even after
  /// the batch was destroyed). For a batch on a device, the tensor is for use on `stream`, which
  /// waits for the copy.
  template <class Managed = DLManagedTensorVersioned>
  slotline::dlpack<Managed> dlpack(std::size_t field, void* stream = nullptr) const {
    Managed* out = nullptr;
    detail::check(slotline_batch_dlpack, raw_.get(), field, stream, &out);
    return slotline::dlpack<Managed>(out);
  }
  /// Returns a field as a DLPack tensor in the layout before DLPack 1.0:
  /// `at::fromDLPack(batch.dlpack_unversioned(0).release())`.
  template <class Managed = DLManagedTensor>
  slotline::dlpack<Managed> dlpack_unversioned(std::size_t field, void* stream = nullptr) const {
    Managed* out = nullptr;
    detail::check(slotline_batch_dlpack_unversioned, raw_.get(), field, stream, &out);
    return slotline::dlpack<Managed>(out);
  }

#ifdef SLOTLINE_HAS_IMAGE
  /// Mixes the pictures of a field in place, each with the one before it, and returns the mixed labels:
  /// `options.num_classes` weights for each sample. The field `labels` has the classes, one
  /// `std::int64_t` for each sample. The options are those of `mixup` or `cutmix`; set `channels_last` if
  /// the pictures have their channels last. Do this before a DLPack tensor of the batch exists.
  std::vector<float> mix(std::size_t pictures, std::size_t labels, const slotline_mix& options) {
    std::vector<float> out(size() * options.num_classes);
    detail::check(slotline_batch_mix, raw_.get(), pictures, labels, &options, out.data(), out.size());
    return out;
  }
#endif

  /// Returns the result of the collate function. Throws slotline::error if there is none, or if it
  /// has another type.
  template <class T>
  T& made() const& SLOTLINE_LIFETIMEBOUND {
    auto* base = static_cast<detail::collated*>(slotline_batch_user(raw_.get()));
    if (!base) detail::raise(error(code::invalid, "the batch was not made by a collate function"));
    detail::taken_over(base);
    if (base->type != &detail::type_tag<T>)
      detail::raise(error(code::invalid, "the collate function makes batches of another type"));
    return static_cast<detail::collated_as<T>*>(base)->made;
  }

  /// Deleted: the batch would be destroyed before the view. Give the batch a name.
  void indices() && = delete;
  template <class Field>
  void tensor(const Field&) && = delete;
  template <class T, class Field>
  void field(const Field&) && = delete;
  template <class T, class Field>
  void try_field(const Field&, std::optional<view<T>>&) && = delete;
  template <class... T>
  void fields() && = delete;
  template <class T>
  void made() && = delete;

  slotline_batch* raw() const noexcept { return raw_.get(); }
  /// Releases ownership of the batch of the C API, which the caller must free.
  slotline_batch* release() noexcept { return raw_.release(); }

 private:
  /// Fails for a batch on a device, whose memory the host cannot read.
  status try_on_host() const noexcept {
    if (device() < 0) return {};
    return {code::invalid, "the batch is on a device; take tensor(i), and read it on a stream that the batch is ready on"};
  }

  /// Informs ThreadSanitizer that this thread now reads a field.
  void taken_over([[maybe_unused]] const slotline_tensor& field) const noexcept {
#ifdef SLOTLINE_SANITIZE_THREAD
    if (device() < 0) detail::tell_rows(detail::taken_over, field, size());
#endif
  }

  slotline_tensor raw_tensor(std::size_t field) const {
    slotline_tensor out;
    out.struct_size = sizeof out;
    detail::check(slotline_batch_field, raw_.get(), field, &out);
    taken_over(out);
    return out;
  }
  slotline_tensor raw_tensor(const std::string& field) const {
    slotline_tensor out;
    try_raw_tensor(field, out).raise();
    return out;
  }
  template <class Field>
  status try_raw_tensor(const Field& field, slotline_tensor& out) const {
    out.struct_size = sizeof out;
    status result;
    if constexpr (std::is_convertible_v<const Field&, std::string>)
      result = detail::call(slotline_batch_field_by_name, raw_.get(), std::string(field).c_str(), &out);
    else
      result = detail::call(slotline_batch_field, raw_.get(), static_cast<std::size_t>(field), &out);
    if (result) taken_over(out);
    return result;
  }

  template <class... T, std::size_t... I>
  std::tuple<view<T>...> fields_of(std::index_sequence<I...>) const {
    return {field<T>(I)...};
  }

  detail::owned<slotline_batch, detail::free_batch> raw_;
};

/// A batch, or nothing at the end of a pass. After `loader.epoch()`: `while (auto batch =
/// loader.next()) train(batch->field<float>(0));`
class next_batch : public std::optional<batch> {
 public:
  using std::optional<batch>::optional;

  batch* operator->() & noexcept { return std::optional<batch>::operator->(); }
  const batch* operator->() const& noexcept { return std::optional<batch>::operator->(); }
  /// Deleted: in `loader.next()->field<float>(0)` the batch would be destroyed before the view. Give the batch a name.
  void operator->() && = delete;
};

}  // namespace slotline

#endif
