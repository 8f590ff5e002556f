// Warnings, which are passed to a user's function.
#ifndef SLOTLINE_WARNING_HPP
#define SLOTLINE_WARNING_HPP

#include <chrono>
#include <cstdint>

#include "../slotline.h"

namespace slotline {

/// The kind of a warning; the values of SLOTLINE_WARNING_…. Later versions may add values.
enum class warning_kind : std::uint32_t {
  many_workers = SLOTLINE_WARNING_MANY_WORKERS,
  no_batch = SLOTLINE_WARNING_NO_BATCH,
  not_locked = SLOTLINE_WARNING_NOT_LOCKED,
  nothing_to_pin = SLOTLINE_WARNING_NOTHING_TO_PIN,
  overlong = SLOTLINE_WARNING_OVERLONG,
  kept = SLOTLINE_WARNING_KEPT,
  fast_forward = SLOTLINE_WARNING_FAST_FORWARD,
  not_bound = SLOTLINE_WARNING_NOT_BOUND,
  unknown_cores = SLOTLINE_WARNING_UNKNOWN_CORES,
  /// A sample takes longer than options::watchdog allows.
  stuck = SLOTLINE_WARNING_STUCK,
  /// A sample was skipped or replaced (options::skip_errors, options::replace_errors).
  bad_sample = SLOTLINE_WARNING_BAD_SAMPLE,
  /// A worker process ended or was killed, and was replaced.
  worker_replaced = SLOTLINE_WARNING_WORKER_REPLACED,
  /// A worker process ended, and was not replaced.
  worker_lost = SLOTLINE_WARNING_WORKER_LOST,
  spilled = SLOTLINE_WARNING_SPILLED,
  /// The loader was destroyed, but some of its threads were still in user code after
  /// `close_timeout`.
  left_behind = SLOTLINE_WARNING_LEFT_BEHIND,
  other = SLOTLINE_WARNING_OTHER,
};

/// A problem that does not stop a loader (options::on_warning). Valid only during the call that receives it.
class warning {
 public:
  explicit warning(const slotline_warning& raw) noexcept : raw_(raw) {}
  warning(const warning&) = delete;
  warning& operator=(const warning&) = delete;

  warning_kind kind() const noexcept { return static_cast<warning_kind>(raw_.kind); }
  /// What happened, and what to do about it.
  const char* message() const noexcept { return raw_.message; }
  /// The dataset index of the sample; -1 if the warning is not about one sample.
  std::int64_t index() const noexcept { return raw_.index; }
  /// The number of the batch in its pass; -1 if the warning is not about one batch.
  std::int64_t task() const noexcept { return raw_.task; }
  /// The index of the worker; -1 if there is none, or if it is the thread that requests batches.
  std::int64_t worker() const noexcept { return raw_.worker; }
  /// For warning_kind::stuck, how long the thread has spent on the sample; otherwise 0.
  std::chrono::duration<double> time() const noexcept { return std::chrono::duration<double>(raw_.seconds); }

 private:
  const slotline_warning& raw_;
};

}  // namespace slotline

#endif
