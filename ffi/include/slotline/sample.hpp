// A sample that a user-defined dataset writes.
#ifndef SLOTLINE_SAMPLE_HPP
#define SLOTLINE_SAMPLE_HPP

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <limits>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "error.hpp"
#include "sanitize.hpp"
#include "span.hpp"
#include "types.hpp"

namespace slotline {
namespace detail {

/// Whether a type is a single element rather than a range: a number, or a type for which `dtype_of`
/// was specialized.
template <class T, class = void>
inline constexpr bool is_element = std::is_trivially_copyable_v<T>;
template <class T>
inline constexpr bool is_element<T, std::void_t<decltype(std::data(std::declval<const T&>()))>> = false;

}  // namespace detail

/// The random numbers of a sample, for the distributions of <random>. They are the same for any
/// number of workers.
class sample_rng {
 public:
  using result_type = std::uint64_t;
  explicit sample_rng(slotline_sample* sample) noexcept : sample_(sample) {}
  static constexpr result_type min() noexcept { return 0; }
  static constexpr result_type max() noexcept { return std::numeric_limits<result_type>::max(); }
  result_type operator()() noexcept { return slotline_sample_random(sample_); }

 private:
  slotline_sample* sample_;
};

/// The row of a batch that a sample is written to, one field after another. Valid only during the
/// call that receives it, on its thread.
class sample {
 public:
  sample(slotline_sample* raw, const std::vector<field>& fields) noexcept : raw_(raw), fields_(fields) {}
  sample(const sample&) = delete;
  sample& operator=(const sample&) = delete;
#ifdef SLOTLINE_SANITIZE_THREAD
  ~sample() {
    for (const void* row : rows_) detail::handed_over(row);
  }
#endif

  /// Returns the memory of a field of fixed shape, to be written in place. Its content is
  /// undefined; all elements must be written.
  template <class T>
  span<T> row(std::size_t field) {
    expect(field, dtype_of<T>);
    std::size_t bytes = 0;
    void* data = slotline_sample_row(raw_, field, &bytes);
    if (!data) detail::raise(std::invalid_argument("field " + fields_[field].name + " has no row to write in place: use write"));
#ifdef SLOTLINE_SANITIZE_THREAD
    detail::taken_over(data);
    rows_.push_back(data);
#endif
    return {static_cast<T*>(data), bytes / sizeof(T)};
  }

  /// Writes a field of any kind, by copying its elements.
  template <class T>
  void write(std::size_t field, span<const T> values) {
    if (!try_write(field, values))
      detail::raise(detail::reported("field " + fields_[field].name + " does not accept " + std::to_string(values.size()) +
                             " elements"));
  }

  /// Writes a field from an array, a std::vector or a std::array.
  template <class Range, class T = std::remove_cv_t<std::remove_pointer_t<decltype(std::data(std::declval<Range&>()))>>>
  void write(std::size_t field, const Range& values) {
    write(field, span<const T>(std::data(values), std::size(values)));
  }

  /// Writes a field of one number.
  template <class T, class = std::enable_if_t<detail::is_element<T>>>
  void write(std::size_t field, T value) {
    write(field, span<const T>(&value, 1));
  }

  /// Writes an array, a vector or one number like `write`, but without exceptions: returns false if
  /// the field does not accept that number of elements. The sample then fails for this reason,
  /// unless the field is written afterwards.
  template <class T>
  bool try_write(std::size_t field, span<const T> values) {
    expect(field, dtype_of<T>);
    return slotline_sample_write(raw_, field, values.data(), values.size()) == SLOTLINE_OK;
  }
  template <class Value>
  bool try_write(std::size_t field, const Value& value) {
    if constexpr (detail::is_element<Value>) {
      return try_write(field, span<const Value>(&value, 1));
    } else {
      return try_write(field, span<const std::remove_cv_t<std::remove_pointer_t<decltype(std::data(value))>>>(value));
    }
  }

  /// Writes a padded field as the mask of another padded field that has `elements` elements: as many
  /// times `present`, and then zeros. Throws slotline::error if there are too many.
  template <class T>
  void mask(std::size_t field, std::size_t elements, T present = T(1)) {
    if (!try_mask(field, elements, present))
      detail::raise(detail::reported("field " + fields_[field].name + " does not accept a mask of " +
                                     std::to_string(elements) + " elements"));
  }
  /// Does the same without exceptions: returns false where `mask` throws.
  template <class T>
  bool try_mask(std::size_t field, std::size_t elements, T present = T(1)) {
    expect(field, dtype_of<T>);
    return slotline_sample_mask(raw_, field, &present, elements) == SLOTLINE_OK;
  }

  /// Makes the sample fail with this message, like an exception: `return sample.fail("empty
  /// file");`
  void fail(const std::string& message) noexcept {
    slotline_sample_fail(raw_, message.c_str());
    failed_ = true;
  }
  bool failed() const noexcept { return failed_; }

  /// The sample's random numbers, for augmentation.
  sample_rng rng() const noexcept { return sample_rng(raw_); }
  /// The sample's position in the pass, from 0.
  std::uint64_t position() const noexcept { return slotline_sample_position(raw_); }
  /// The number of the pass, from 0.
  std::uint32_t epoch() const noexcept { return slotline_sample_epoch(raw_); }
  /// The index of the worker that reads the sample; -1 in the thread that requests batches.
  std::int64_t worker() const noexcept { return slotline_sample_worker(raw_); }
  /// Whether the sample is no longer needed; the dataset should then let it fail.
  bool is_stopping() const noexcept { return slotline_sample_is_stopping(raw_) != 0; }
  /// A file descriptor that is readable while `is_stopping` is true, for `poll`; -1 if there is
  /// none. It must not be read or closed.
  int stop_fd() const noexcept { return slotline_sample_stop_fd(raw_); }

  slotline_sample* raw() const noexcept { return raw_; }

 private:
  void expect(std::size_t field, dtype type) const {
    if (field >= fields_.size())
      detail::raise(std::out_of_range("field is " + std::to_string(field) + ", but the number of fields is " +
                              std::to_string(fields_.size())));
    if (fields_[field].type != type)
      detail::raise(std::invalid_argument("field " + fields_[field].name + " is " + name_of(fields_[field].type) + ", not " +
                                  name_of(type)));
  }

  slotline_sample* raw_;
  const std::vector<field>& fields_;
  bool failed_ = false;
#ifdef SLOTLINE_SANITIZE_THREAD
  /// The rows that callbacks write in place.
  std::vector<const void*> rows_;
#endif
};

}  // namespace slotline

#endif
