// Batches of any type, made by a user's collate function.
#ifndef SLOTLINE_COLLATE_HPP
#define SLOTLINE_COLLATE_HPP

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "batch.hpp"
#include "error.hpp"
#include "failure.hpp"

namespace slotline {

/// The samples of a batch, one after another, for a collate function. Valid only during that call,
/// on its thread.
class samples {
 public:
  samples(slotline_samples* raw, slotline_failure* failure) : raw_(raw), failure_(failure), fields_(MAX_FIELDS) {
    for (slotline_tensor& field : fields_) field.struct_size = sizeof field;
  }
  samples(const samples&) = delete;
  samples& operator=(const samples&) = delete;
  ~samples() { tell(detail::handed_over); }

  /// Reads the next sample; returns false after the last one. Throws if the sample cannot be read.
  /// If the collate function lets that exception through, the batch fails with the sample's error,
  /// its exception and its index; if it catches the exception, it can continue with the next
  /// sample.
  bool next() {
    const slotline_status result = read();
    if (result != SLOTLINE_OK && result != SLOTLINE_END) detail::raise(detail::reported("a sample cannot be read"));
    return result == SLOTLINE_OK;
  }
  /// Works like `next` without exceptions: returns false also if the sample cannot be read. If the
  /// collate function then returns, the batch fails with the sample's error; if it calls this
  /// again, it continues with the next sample.
  bool try_next() noexcept {
    const slotline_status result = read();
    unread_ = result != SLOTLINE_OK && result != SLOTLINE_END;
    return result == SLOTLINE_OK;
  }
  /// Whether the last call of `try_next` returned false because the sample could not be read,
  /// rather than after the last sample.
  bool unread() const noexcept { return unread_; }
  /// Makes the batch fail with this message, like an exception from the collate function, whose
  /// return value is then ignored.
  void fail(const std::string& message) noexcept { failure_.fail(message); }
  bool failed() const noexcept { return failure_.failed(); }
  /// The maximum number of samples that are left.
  std::size_t left() const noexcept { return slotline_samples_left(raw_); }

  /// Returns a field of the current sample, without the batch dimension. Valid until the next call
  /// of next(). Throws slotline::error if the field does not exist or has another type.
  template <class T>
  view<T> field(std::size_t field) const {
    if (field >= fields_.size() || !fields_[field].name)
      detail::raise(error(code::invalid,
                          "field " + std::to_string(field) + " does not exist, or no sample was read; call next()"));
    return view<T>(fields_[field]);
  }

 private:
  slotline_status read() noexcept {
    tell(detail::handed_over);
    unread_ = false;
    const slotline_status result = slotline_samples_next(raw_, fields_.data(), fields_.size());
    if (result == SLOTLINE_OK) tell(detail::taken_over);
    return result;
  }
  /// Informs ThreadSanitizer about the current sample.
  void tell(void (*how)(const void*) noexcept) const noexcept {
    for (const slotline_tensor& field : fields_)
      if (field.name) detail::tell_rows(how, field, 1);
  }

  static constexpr std::size_t MAX_FIELDS = 64;
  slotline_samples* raw_;
  failure failure_;
  bool unread_ = false;
  std::vector<slotline_tensor> fields_;
};

namespace detail {

/// The callbacks of the C API for a collate function.
template <class Collate>
struct collate_calls {
  using made = decltype(std::declval<const Collate&>()(std::declval<samples&>()));

  static std::int32_t collate(void* user, slotline_samples* raw, void** batch, slotline_failure* failure) noexcept {
    return guarded(
        [&] {
          const use call(user);
          samples given(raw, failure);
          const auto& function = *static_cast<const Collate*>(static_cast<const std::shared_ptr<const void>*>(user)->get());
          std::unique_ptr<collated> base(new collated_as<made>(function(given)));
          if (given.failed() || given.unread()) return -1;
          handed_over(base.get());
          *batch = base.release();
          return 0;
        },
        failure);
  }
};

}  // namespace detail
}  // namespace slotline

#endif
