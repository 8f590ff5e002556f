// Reporting failures of callbacks without exceptions.
#ifndef SLOTLINE_FAILURE_HPP
#define SLOTLINE_FAILURE_HPP

#include <string>

#include "error.hpp"

namespace slotline {

/// Receives the reason why a callback fails, as an alternative to an exception. Valid only during
/// the call that receives it, on its thread.
class failure {
 public:
  explicit failure(slotline_failure* raw) noexcept : raw_(raw) {}
  failure(const failure&) = delete;
  failure& operator=(const failure&) = delete;

  /// Makes the callback fail with this message, like an exception: `return failure.fail("no index
  /// today");`. The callback's return value is then ignored.
  void fail(const std::string& message) noexcept {
    slotline_fail(raw_, message.c_str());
    failed_ = true;
  }
  bool failed() const noexcept { return failed_; }

 private:
  slotline_failure* raw_;
  bool failed_ = false;
};

}  // namespace slotline

#endif
