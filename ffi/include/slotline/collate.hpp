// Batches of any type, made by a function of one's own.
#ifndef SLOTLINE_COLLATE_HPP
#define SLOTLINE_COLLATE_HPP

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <typeinfo>
#include <utility>
#include <vector>

#include "batch.hpp"
#include "error.hpp"

namespace slotline {

/// The samples of a batch, one after the other, for a collate function. Good for the call that got it, on its thread.
class samples {
 public:
  explicit samples(slotline_samples* raw) : raw_(raw), fields_(MOST_FIELDS) {
    for (slotline_tensor& field : fields_) field.struct_size = sizeof field;
  }
  samples(const samples&) = delete;
  samples& operator=(const samples&) = delete;

  /// Reads the next sample; false after the last one. Throws where it cannot be read: what leaves the collate function then is
  /// the sample's error, with its index; or catch it, and go on with the next.
  bool next() {
    const slotline_status said = slotline_samples_next(raw_, fields_.data(), fields_.size());
    if (said != SLOTLINE_OK && said != SLOTLINE_END) throw detail::said("a sample cannot be read");
    return said == SLOTLINE_OK;
  }
  /// How many are left, at most.
  std::size_t left() const noexcept { return slotline_samples_left(raw_); }

  /// A field of the current sample, without the dimension of the samples. Good until the next one. Throws slotline::error where
  /// there is none, or its type is another.
  template <class T>
  view<T> field(std::size_t field) const {
    if (field >= fields_.size() || !fields_[field].name)
      throw error(code::invalid, "there is no field " + std::to_string(field) + ", or no sample: next() gives one");
    return view<T>(fields_[field]);
  }

 private:
  static constexpr std::size_t MOST_FIELDS = 64;
  slotline_samples* raw_;
  std::vector<slotline_tensor> fields_;
};

namespace detail {

/// The callbacks of the C API for a function that makes batches of some type.
template <class Collate>
struct collate_calls {
  using made = decltype(std::declval<const Collate&>()(std::declval<samples&>()));

  static std::int32_t collate(void* user, slotline_samples* raw, void** batch, slotline_failure* failure) noexcept {
    return guarded(
        [&] {
          samples given(raw);
          const auto& function = *static_cast<const Collate*>(static_cast<const std::shared_ptr<const void>*>(user)->get());
          collated* base = new collated_as<made>(function(given));
          *batch = base;
          return 0;
        },
        [&](const char* what) { slotline_fail(failure, what); });
  }
};

}  // namespace detail
}  // namespace slotline

#endif
