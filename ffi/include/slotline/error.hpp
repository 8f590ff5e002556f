// Failures, as a value (status) and as an exception (error).
#ifndef SLOTLINE_ERROR_HPP
#define SLOTLINE_ERROR_HPP

#include <cstdint>
#include <exception>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>

#include "../slotline.h"
#include "raise.hpp"
#include "sanitize.hpp"

namespace slotline {

/// The kind of a failure; the values of `slotline_status`.
enum class code : std::int32_t {
  ok = SLOTLINE_OK,
  end = SLOTLINE_END,
  invalid = SLOTLINE_ERROR_INVALID,
  build = SLOTLINE_ERROR_BUILD,
  source = SLOTLINE_ERROR_SOURCE,
  sample = SLOTLINE_ERROR_SAMPLE,
  panic = SLOTLINE_ERROR_PANIC,
  bad_samples = SLOTLINE_ERROR_BAD_SAMPLES,
  timeout = SLOTLINE_ERROR_TIMEOUT,
  held = SLOTLINE_ERROR_HELD,
  worker_init = SLOTLINE_ERROR_WORKER_INIT,
  sampler = SLOTLINE_ERROR_SAMPLER,
  state = SLOTLINE_ERROR_STATE,
  stopped = SLOTLINE_ERROR_STOPPED,
  device = SLOTLINE_ERROR_DEVICE,
  worker_died = SLOTLINE_ERROR_WORKER_DIED,
  collate = SLOTLINE_ERROR_COLLATE,
};

/// A call that failed. what() contains the whole chain of causes.
///
/// If a callback threw (a dataset, a collate function, worker_init or a sampler), cause() is that
/// exception. The thrown error is then also a std::nested_exception that contains it, so
/// std::rethrow_if_nested(error) throws it, too.
class error : public std::runtime_error {
 public:
  error(slotline::code code, const std::string& message, std::int64_t index = -1, std::int64_t task = -1,
        std::int64_t worker = -1, std::exception_ptr cause = nullptr)
      : std::runtime_error(message), code_(code), index_(index), task_(task), worker_(worker), cause_(std::move(cause)) {}

  slotline::code code() const noexcept { return code_; }
  /// The dataset index of the sample that failed; -1 if the error is not about one sample.
  std::int64_t index() const noexcept { return index_; }
  /// The number of the batch in its pass; -1 if the error is not about one batch.
  std::int64_t task() const noexcept { return task_; }
  /// The index of the worker that failed; -1 if there is none, or if it was the calling thread.
  std::int64_t worker() const noexcept { return worker_; }
  /// The exception that the callback threw; null if no callback did, or if it ran in a worker
  /// process, which transfers only the message.
  std::exception_ptr cause() const noexcept { return cause_; }
  /// Throws the callback's exception, or this error if cause() is null.
  [[noreturn]] void rethrow_cause() const {
    if (cause_) std::rethrow_exception(cause_);
    detail::raise(*this);
  }

 private:
  slotline::code code_;
  std::int64_t index_, task_, worker_;
  std::exception_ptr cause_;
};

namespace detail {

/// The type name of C API payloads that are a std::exception_ptr. It depends on the standard
/// library, which defines the layout.
#ifdef _LIBCPP_VERSION
inline constexpr const char* exception_type = "std::exception_ptr of libc++";
#else
inline constexpr const char* exception_type = "std::exception_ptr";
#endif

}  // namespace detail

/// The result of a call, for code without exceptions: OK, the end of a pass, or a failure.
class [[nodiscard]] status {
 public:
  status() noexcept = default;
  /// Takes ownership of the error, which may be null.
  status(slotline_status code, slotline_error* error) noexcept : code_(code), error_(error) {}
  /// Creates a failure with this message.
  status(slotline::code code, const std::string& message) noexcept
      : status(static_cast<slotline_status>(code), slotline_error_new(static_cast<slotline_status>(code), message.c_str())) {}

  slotline::code code() const noexcept { return static_cast<slotline::code>(code_); }
  bool ok() const noexcept { return code_ == SLOTLINE_OK; }
  explicit operator bool() const noexcept { return ok(); }
  bool at_end() const noexcept { return code_ == SLOTLINE_END; }

  /// The message with the whole chain of causes; valid as long as the status.
  const char* message() const noexcept {
    const char* text = error_ ? slotline_error_message(error_.get()) : nullptr;
    return text ? text : ok() ? "" : at_end() ? "the pass has ended" : "no error object";
  }
  /// The same as the members of slotline::error.
  std::int64_t index() const noexcept { return error_ ? slotline_error_index(error_.get()) : -1; }
  std::int64_t task() const noexcept { return error_ ? slotline_error_task(error_.get()) : -1; }
  std::int64_t worker() const noexcept { return error_ ? slotline_error_worker(error_.get()) : -1; }

  /// The same as cause() of slotline::error.
  std::exception_ptr cause() const noexcept {
    const void* payload = error_ ? slotline_error_payload(error_.get(), detail::exception_type) : nullptr;
    detail::taken_over(payload);
    return payload ? *static_cast<const std::exception_ptr*>(payload) : nullptr;
  }

  /// Throws slotline::error unless the status is OK. With `rethrow`, throws the callback's own
  /// exception if there is one.
  void raise(bool rethrow = false) const {
    if (ok()) return;
#ifdef SLOTLINE_EXCEPTIONS
    const std::exception_ptr thrown = cause();
    if (thrown && rethrow) std::rethrow_exception(thrown);
    if (thrown) {
      try {
        std::rethrow_exception(thrown);
      } catch (...) {
        std::throw_with_nested(error(code(), message(), index(), task(), worker(), thrown));
      }
    }
#else
    static_cast<void>(rethrow);  // Here exceptions of other libraries cannot be thrown.
#endif
    detail::raise(error(code(), message(), index(), task(), worker()));
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

/// Calls a function of the C API, and throws slotline::error if it fails.
template <class Function, class... Arguments>
void check(Function function, Arguments... arguments) {
  slotline_error* error = nullptr;
  const slotline_status code = function(arguments..., &error);
  if (code != SLOTLINE_OK) status(code, error).raise();
}

/// Thrown for a failure that was already reported to the C API.
class reported : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
};

/// A `drop` function of the C API for objects created with new.
template <class T>
void deleted(void* user) noexcept {
  taken_over(user);
  delete static_cast<T*>(user);
}

#ifdef SLOTLINE_EXCEPTIONS
/// Returns the message of an exception and of those nested in it.
inline std::string messages(const std::exception_ptr& thrown) {
  try {
    std::rethrow_exception(thrown);
  } catch (const error& one) {
    return one.what();  // The message includes the causes.
  } catch (const std::exception& one) {
#ifdef __cpp_rtti  // Without RTTI it is unknown whether another exception is nested in it.
    const auto* nested = dynamic_cast<const std::nested_exception*>(&one);
    const std::exception_ptr inner = nested ? nested->nested_ptr() : nullptr;
    if (inner) return one.what() + (": " + messages(inner));
#endif
    return one.what();
  } catch (...) {
    return "an exception that is not a std::exception";
  }
}

inline void fail_with(slotline_failure* failure, const char* message, std::exception_ptr* thrown) noexcept {
  slotline_fail_with(failure, message, thrown, exception_type, deleted<std::exception_ptr>);
}
inline void fail_with(slotline_sample* sample, const char* message, std::exception_ptr* thrown) noexcept {
  slotline_sample_fail_with(sample, message, thrown, exception_type, deleted<std::exception_ptr>);
}

/// Runs a user's function called from C, through which exceptions must not pass. An exception and
/// its messages are passed to `failure`, a slotline_failure or a slotline_sample.
template <class Function, class Failure>
std::int32_t guarded(Function&& function, Failure* failure) noexcept {
  try {
    return std::forward<Function>(function)();
  } catch (const reported&) {
    // The failure was already reported in more detail.
  } catch (...) {
    const std::exception_ptr thrown = std::current_exception();
    std::string message = "no memory";
    try {
      message = messages(thrown);
    } catch (...) {
      // There is not enough memory for the messages.
    }
    auto* payload = new (std::nothrow) std::exception_ptr(thrown);
    handed_over(payload);
    fail_with(failure, message.c_str(), payload);
  }
  return -1;
}
#else
/// Runs a user's function called from C. Without exceptions, the function reports failures itself.
template <class Function, class Failure>
std::int32_t guarded(Function&& function, Failure*) noexcept {
  return std::forward<Function>(function)();
}
#endif

/// Deletes a handle of the C API with its free function.
template <class Handle, void (*Free)(Handle*)>
struct freed {
  void operator()(Handle* handle) const noexcept { Free(handle); }
};
template <class Handle, void (*Free)(Handle*)>
using owned = std::unique_ptr<Handle, freed<Handle, Free>>;

/// Returns the bytes that a function of the C API returns for a handle.
template <class Handle>
status try_text(slotline_status (*function)(Handle*, slotline_bytes**, slotline_error**), Handle* handle, std::string& out) {
  slotline_bytes* raw = nullptr;
  status result = call(function, handle, &raw);
  const owned<slotline_bytes, slotline_bytes_free> bytes(raw);
  if (raw) out.assign(reinterpret_cast<const char*>(slotline_bytes_data(raw)), slotline_bytes_len(raw));
  return result;
}
template <class Handle>
std::string text(slotline_status (*function)(Handle*, slotline_bytes**, slotline_error**), Handle* handle) {
  std::string out;
  try_text(function, handle, out).raise();
  return out;
}

}  // namespace detail
}  // namespace slotline

#endif
