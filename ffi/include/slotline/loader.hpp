// The loader, which delivers batches in passes.
#ifndef SLOTLINE_LOADER_HPP
#define SLOTLINE_LOADER_HPP

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "batch.hpp"
#include "dataset.hpp"
#include "error.hpp"
#include "options.hpp"
#include "pass.hpp"
#include "span.hpp"

namespace slotline {

/// Loads a dataset's batches. It can be moved, even during a pass, but not while another thread
/// uses it. Only one thread at a time may use it; meanwhile, any thread may call `stop`, `stats`,
/// `stats_json`, `verdict` and the functions that return constants, such as `size`.
class loader {
 public:
  /// Throws slotline::error if the options exclude each other.
  explicit loader(const dataset& dataset, const options& options = {}) : rethrow_(options.rethrow_) {
    slotline_loader* raw = nullptr;
    const slotline_options given = options.raw();
    detail::check(slotline_loader_new, dataset.raw(), &given, &raw);
    raw_.reset(raw);
  }

  /// Creates a loader without exceptions: OK and a loader, or the failure.
  static status try_make(const dataset& dataset, const options& options, std::optional<loader>& out) {
    slotline_loader* raw = nullptr;
    const slotline_options given = options.raw();
    status result = detail::call(slotline_loader_new, dataset.raw(), &given, &raw);
    if (raw) out.emplace(loader(raw, options.rethrow_));
    return result;
  }

#ifdef SLOTLINE_HAS_CUDA
  /// Creates a loader that delivers batches on a device, copied from page-locked memory. Except for
  /// the size, zeros in `device` are the defaults. Throws slotline::error, also if there is no
  /// driver.
  loader(const dataset& dataset, const options& options, slotline_device_options device) : rethrow_(options.rethrow_) {
    slotline_loader* raw = nullptr;
    try_on_device(dataset, options, device, raw).raise();
    raw_.reset(raw);
  }
  /// Creates a loader for a device, without exceptions.
  static status try_make(const dataset& dataset, const options& options, slotline_device_options device,
                         std::optional<loader>& out) {
    slotline_loader* raw = nullptr;
    status result = try_on_device(dataset, options, device, raw);
    if (raw) out.emplace(loader(raw, options.rethrow_));
    return result;
  }
#endif

  /// Starts a pass: `for (auto& batch : loader.epoch())`.
  pass epoch() & {
    try_epoch().raise(rethrow_);
    return pass(raw_.get(), rethrow_);
  }
  /// Deleted: a temporary loader would be destroyed before the first batch.
  pass epoch() && = delete;
  /// Starts a pass, like `epoch()`.
  pass::iterator begin() { return epoch().begin(); }
  end_of_pass end() noexcept { return {}; }

  /// Returns the next batch of the pass, or nothing at its end. Throws slotline::error in place of a batch that failed.
  next_batch next() {
    batch out;
    const status result = try_next(out);
    if (result.at_end()) return std::nullopt;
    result.raise(rethrow_);
    return out;
  }

  /// Starts a pass, without exceptions.
  status try_epoch() noexcept { return detail::call(slotline_loader_epoch, raw_.get()); }

  /// Returns the next batch, without exceptions: OK and a batch, the end of the pass, or the
  /// failure in the batch's place.
  status try_next(batch& out) noexcept {
    out = batch();
    slotline_batch* raw = nullptr;
    status result = detail::call(slotline_loader_next, raw_.get(), &raw);
    if (raw) out = batch(raw);
    return result;
  }

  /// Works like `next`, but waits at most `patience`, regardless of the timeout, and then throws a
  /// slotline::error with code::timeout; the next call requests the same batch. With workers, this
  /// thread does not load samples while it waits. Rounded up to milliseconds; 0 returns a batch only
  /// if it is ready. Not available for a device.
  next_batch next_within(std::chrono::nanoseconds patience) {
    batch out;
    const status result = try_next_within(patience, out);
    if (result.at_end()) return std::nullopt;
    result.raise(rethrow_);
    return out;
  }
  /// Works like `next_within`, without exceptions.
  status try_next_within(std::chrono::nanoseconds patience, batch& out) noexcept {
    const auto time = std::max<std::int64_t>(0, std::chrono::ceil<std::chrono::milliseconds>(patience).count());
    out = batch();
    slotline_batch* raw = nullptr;
    status result = detail::call(slotline_loader_next_within, raw_.get(), static_cast<std::uint64_t>(time), &raw);
    if (raw) out = batch(raw);
    return result;
  }
  /// Whether the next batch, an error instead of it, or the end of the pass is ready, so that `next`
  /// neither waits nor loads samples. Without workers no batch is ever ready; for a device it is
  /// always true.
  bool is_ready() noexcept { return slotline_loader_is_ready(raw_.get()) != 0; }

  /// Stops the loader. `epoch` and `next` then fail with code::stopped; a waiting call returns
  /// immediately. Can be called from any thread, and on Linux in a signal handler; the loader must
  /// not be destroyed before the handler has returned.
  void stop() noexcept { slotline_loader_stop(raw_.get()); }

  /// The number of batches in a pass; -1 if it is not known in advance.
  std::int64_t size() const noexcept { return slotline_loader_len(raw_.get()); }
  /// The maximum number of samples in a batch.
  std::size_t batch_size() const noexcept { return slotline_loader_batch_size(raw_.get()); }
  /// The number of batches that can exist at the same time: being filled, ready, or held by the
  /// caller.
  std::size_t depth() const noexcept { return slotline_loader_depth(raw_.get()); }
  /// The maximum memory that the loader allocates for batches and for the order of a pass, in
  /// bytes.
  std::size_t memory_ceiling() const noexcept { return slotline_loader_memory_ceiling(raw_.get()); }
  /// The number of the pass that the next `epoch` starts, from 0.
  std::uint32_t next_epoch() const noexcept { return slotline_loader_next_epoch(raw_.get()); }

  /// Returns the position of the loader, during a pass or between passes, as bytes that any process
  /// on any machine can load.
  std::string state() { return detail::text(slotline_loader_state, raw_.get()); }
  /// Works like `state`, without exceptions.
  status try_state(std::string& out) { return detail::try_text(slotline_loader_state, raw_.get(), out); }
  /// Resumes from a state, with the same data and options (options such as the number of workers
  /// may differ): the next `epoch` delivers the rest of that pass.
  void load_state(const std::string& state) {
    try_load_state(state).raise();
  }
  /// Works like `load_state`, without exceptions.
  status try_load_state(const std::string& state) noexcept {
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(state.data());
    return detail::call(slotline_loader_load_state, raw_.get(), bytes, state.size());
  }

  /// Returns statistics since the loader was created; times are in seconds. Can be called from any
  /// thread at any time.
  slotline_stats stats() const {
    slotline_stats out{};
    out.struct_size = sizeof out;
    detail::check(slotline_loader_stats, raw_.get(), &out);
    return out;
  }
  /// Returns all statistics, also for each worker, as JSON. Can be called from any thread at any
  /// time.
  std::string stats_json() const { return detail::text(slotline_loader_stats_json, raw_.get()); }
  /// Returns a text about what has limited the loader's speed. Can be called from any thread at any
  /// time.
  std::string verdict() const { return detail::text(slotline_loader_verdict, raw_.get()); }
  /// Returns the loader's warnings, one per line, for example that memory cannot be page-locked.
  /// Only the thread that uses the loader may call this. To receive warnings immediately, on any
  /// thread, including those about slow samples, use `options::on_warning`.
  std::string warnings() { return detail::text(slotline_loader_warnings, raw_.get()); }

  slotline_loader* raw() const noexcept { return raw_.get(); }

 private:
  loader(slotline_loader* raw, bool rethrow) noexcept : raw_(raw), rethrow_(rethrow) {}

#ifdef SLOTLINE_HAS_CUDA
  static status try_on_device(const dataset& dataset, const options& options, slotline_device_options device,
                              slotline_loader*& out) {
    device.struct_size = sizeof device;
    const slotline_options given = options.raw();
    return detail::call(slotline_loader_new_on_device, dataset.raw(), &given, &device, &out);
  }
#endif

  detail::owned<slotline_loader, slotline_loader_free> raw_;
  bool rethrow_;
};

}  // namespace slotline

#endif
