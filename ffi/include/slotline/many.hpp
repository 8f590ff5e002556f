// Bulk reads of user-defined datasets.
#ifndef SLOTLINE_MANY_HPP
#define SLOTLINE_MANY_HPP

#include <cstddef>
#include <cstdint>
#include <vector>

#include "error.hpp"
#include "raise.hpp"
#include "sample.hpp"
#include "types.hpp"

namespace slotline {

/// Takes the samples of a bulk read, in order. Valid only during the call that receives it, on its thread.
class put {
 public:
  put(slotline_put* raw, const std::vector<field>& fields) noexcept : raw_(raw), fields_(fields) {}
  put(const put&) = delete;
  put& operator=(const put&) = delete;

  /// Puts the next sample: calls `write(slotline::sample&)` at once. If it throws, the bulk read fails with that exception, as
  /// the error of this sample.
  template <class Write>
  void operator()(const Write& write) {
    const call<Write> given{write, fields_};
    const slotline_status result = slotline_put_sample(raw_, call<Write>::run, const_cast<call<Write>*>(&given));
    if (result == SLOTLINE_OK) return;
#ifdef SLOTLINE_EXCEPTIONS
    detail::raise(detail::reported("the sample could not be put"));
#endif
    // Without exceptions the samples after this one are not put, either, and the bulk read fails once it returns.
  }

 private:
  template <class Write>
  struct call {
    const Write& write;
    const std::vector<field>& fields;
    static std::int32_t run(void* user, std::size_t, slotline_sample* raw) noexcept {
      return detail::guarded(
          [&] {
            const auto& self = *static_cast<const call*>(user);
            sample row(raw, self.fields);
            self.write(row);
            return 0;
          },
          raw);
    }
  };

  slotline_put* raw_;
  const std::vector<field>& fields_;
};

}  // namespace slotline

#endif
