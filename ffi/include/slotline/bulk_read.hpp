// Bulk reads of user-defined datasets.
#ifndef SLOTLINE_BULK_READ_HPP
#define SLOTLINE_BULK_READ_HPP

#include <cstddef>
#include <cstdint>
#include <vector>

#include "error.hpp"
#include "raise.hpp"
#include "sample.hpp"
#include "types.hpp"

namespace slotline {

/// Receives the samples of a bulk read, in order. Valid only during the call that receives it, on
/// its thread.
class sample_sink {
 public:
  sample_sink(slotline_sample_sink* raw, const std::vector<field>& fields) noexcept : raw_(raw), fields_(fields) {}
  sample_sink(const sample_sink&) = delete;
  sample_sink& operator=(const sample_sink&) = delete;

  /// Stores the next sample, by calling `write(slotline::sample&)` before it returns. If that
  /// throws, the bulk read fails with that exception, as the error of this sample.
  template <class Write>
  void operator()(const Write& write) {
    const call<Write> given{write, fields_};
    const slotline_status result = slotline_sample_sink_put(raw_, call<Write>::run, const_cast<call<Write>*>(&given));
    if (result == SLOTLINE_OK) return;
#ifdef SLOTLINE_EXCEPTIONS
    detail::raise(detail::reported("the sample could not be put"));
#endif
    // Without exceptions, later samples are not stored either, and the bulk read fails once the
    // user's function returns.
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

  slotline_sample_sink* raw_;
  const std::vector<field>& fields_;
};

}  // namespace slotline

#endif
