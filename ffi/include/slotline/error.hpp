// What went wrong: as a value (status), and as an exception (error).
#ifndef SLOTLINE_ERROR_HPP
#define SLOTLINE_ERROR_HPP

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include "../slotline.h"

namespace slotline {

/// What kind of failure it is; the numbers of `slotline_status`.
enum class code : std::int32_t {
  ok = SLOTLINE_OK,
  end = SLOTLINE_END,
  invalid = SLOTLINE_INVALID,
  build = SLOTLINE_BUILD,
  source = SLOTLINE_SOURCE,
  sample = SLOTLINE_SAMPLE,
  panic = SLOTLINE_PANIC,
  bad_samples = SLOTLINE_BAD_SAMPLES,
  timeout = SLOTLINE_TIMEOUT,
  held = SLOTLINE_HELD,
  worker_init = SLOTLINE_WORKER_INIT,
  sampler = SLOTLINE_SAMPLER,
  state = SLOTLINE_STATE,
  stopped = SLOTLINE_STOPPED,
  device = SLOTLINE_DEVICE,
};

/// A call that failed. what() has the whole chain of reasons.
class error : public std::runtime_error {
 public:
  error(slotline::code code, const std::string& message, std::int64_t index = -1, std::int64_t task = -1,
        std::int64_t worker = -1)
      : std::runtime_error(message), code_(code), index_(index), task_(task), worker_(worker) {}

  slotline::code code() const noexcept { return code_; }
  /// The dataset's index of the sample that failed; -1 where it was none.
  std::int64_t index() const noexcept { return index_; }
  /// The number of the batch in its pass; -1 where it was none.
  std::int64_t task() const noexcept { return task_; }
  /// The worker that met it; -1 where it was none, or the calling thread.
  std::int64_t worker() const noexcept { return worker_; }

 private:
  slotline::code code_;
  std::int64_t index_, task_, worker_;
};

/// What a call said, for those who want no exceptions: OK, the end of a pass, or what failed.
class [[nodiscard]] status {
 public:
  status() noexcept = default;
  /// Takes the error, which may be null.
  status(slotline_status code, slotline_error* error) noexcept : code_(code), error_(error) {}

  slotline::code code() const noexcept { return static_cast<slotline::code>(code_); }
  bool ok() const noexcept { return code_ == SLOTLINE_OK; }
  explicit operator bool() const noexcept { return ok(); }
  bool at_end() const noexcept { return code_ == SLOTLINE_END; }

  /// The whole chain of reasons; lives as long as the status.
  const char* message() const noexcept {
    const char* text = error_ ? slotline_error_message(error_.get()) : nullptr;
    return text ? text : ok() ? "" : at_end() ? "the pass is over" : "no error object";
  }
  /// As in slotline::error.
  std::int64_t index() const noexcept { return error_ ? slotline_error_index(error_.get()) : -1; }
  std::int64_t task() const noexcept { return error_ ? slotline_error_task(error_.get()) : -1; }
  std::int64_t worker() const noexcept { return error_ ? slotline_error_worker(error_.get()) : -1; }

  /// Throws slotline::error unless it is OK.
  void raise() const {
    if (!ok()) throw error(code(), message(), index(), task(), worker());
  }

 private:
  struct free {
    void operator()(slotline_error* error) const noexcept { slotline_error_free(error); }
  };
  slotline_status code_ = SLOTLINE_OK;
  std::unique_ptr<slotline_error, free> error_;
};

namespace detail {

/// Calls a function of the C API whose last parameter is `slotline_error**`.
template <class Function, class... Arguments>
status call(Function function, Arguments... arguments) noexcept {
  slotline_error* error = nullptr;
  const slotline_status code = function(arguments..., &error);
  return {code, error};
}

/// The same, and throws.
template <class Function, class... Arguments>
void check(Function function, Arguments... arguments) {
  slotline_error* error = nullptr;
  const slotline_status code = function(arguments..., &error);
  if (code != SLOTLINE_OK) status(code, error).raise();
}

/// A failure that was said already, below C.
class said : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
};

/// Runs a user's function below C: nothing may be thrown through that. `fail` is told what an exception said.
template <class Function, class Fail>
std::int32_t guarded(Function&& function, Fail&& fail) noexcept {
  try {
    return std::forward<Function>(function)();
  } catch (const said&) {
    // Where it was said there is more than here.
  } catch (const std::exception& exception) {
    fail(exception.what());
  } catch (...) {
    fail("an exception that is no std::exception");
  }
  return -1;
}

/// A handle of the C API with its function that frees it.
template <class Handle, void (*Free)(Handle*)>
struct freed {
  void operator()(Handle* handle) const noexcept { Free(handle); }
};
template <class Handle, void (*Free)(Handle*)>
using owned = std::unique_ptr<Handle, freed<Handle, Free>>;

/// What a function of the C API says of a handle, in bytes.
template <class Handle>
std::string text(slotline_status (*function)(Handle*, slotline_bytes**, slotline_error**), Handle* handle) {
  slotline_bytes* raw = nullptr;
  check(function, handle, &raw);
  const owned<slotline_bytes, slotline_bytes_free> bytes(raw);
  return {reinterpret_cast<const char*>(slotline_bytes_data(raw)), slotline_bytes_len(raw)};
}

/// A `drop` function of the C API for what was made by new.
template <class T>
void deleted(void* user) noexcept {
  delete static_cast<T*>(user);
}

}  // namespace detail
}  // namespace slotline

#endif
