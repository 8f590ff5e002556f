// The loader: batches, pass after pass.
#ifndef SLOTLINE_LOADER_HPP
#define SLOTLINE_LOADER_HPP

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

using pass = basic_pass<slotline_loader, batch, slotline_batch, slotline_loader_next>;

/// Loads a dataset's batches. Moving it is fine, also within a pass; only `stop` may be called while another thread uses it.
class loader {
 public:
  /// Throws slotline::error where the options do not go together.
  explicit loader(const dataset& dataset, const options& options = {}) {
    slotline_loader* raw = nullptr;
    const slotline_options given = options.raw();
    detail::check(slotline_loader_new, dataset.raw(), &given, &raw);
    raw_.reset(raw);
  }

  /// Starts a pass: `for (auto& batch : loader.epoch())`.
  pass epoch() & {
    detail::check(slotline_loader_epoch, raw_.get());
    return pass(raw_.get());
  }
  /// A loader without a name would be gone before the first batch.
  pass epoch() && = delete;
  /// The same, without `.epoch()`.
  pass::iterator begin() { return epoch().begin(); }
  end_of_pass end() noexcept { return {}; }

  /// The next batch of the pass, or none at its end. Throws slotline::error in the place of a batch that failed.
  std::optional<batch> next() {
    batch out;
    const status said = try_next(out);
    if (said.at_end()) return std::nullopt;
    said.raise();
    return out;
  }

  /// Starts a pass, without exceptions.
  status try_epoch() noexcept { return detail::call(slotline_loader_epoch, raw_.get()); }

  /// The next batch, without exceptions: OK and a batch, the end, or what failed in its place.
  status try_next(batch& out) noexcept {
    out = batch();
    slotline_batch* raw = nullptr;
    status said = detail::call(slotline_loader_next, raw_.get(), &raw);
    if (raw) out = batch(raw);
    return said;
  }

  /// From any thread: from now on `epoch` and `next` say code::stopped, one that waits at once.
  void stop() noexcept { slotline_loader_stop(raw_.get()); }

  /// How many batches a pass has; -1 if only its end will tell.
  std::int64_t size() const noexcept { return slotline_loader_len(raw_.get()); }
  /// The most samples that a batch has.
  std::size_t batch_size() const noexcept { return slotline_loader_batch_size(raw_.get()); }
  /// How many batches there can be at once: being filled, ready, or held.
  std::size_t depth() const noexcept { return slotline_loader_depth(raw_.get()); }
  /// The bytes that the loader takes for batches and for the order of a pass.
  std::size_t memory_ceiling() const noexcept { return slotline_loader_memory_ceiling(raw_.get()); }
  /// The number of the pass that the next `epoch` starts, from 0.
  std::uint32_t next_epoch() const noexcept { return slotline_loader_next_epoch(raw_.get()); }

  /// Where the loader is, at any time in a pass or between two: bytes to be stored, for any process and machine.
  std::string state() { return detail::text(slotline_loader_state, raw_.get()); }
  /// Goes on from there, with the same data and options (but for the number of workers and the like): the next `epoch` gives
  /// the rest of that pass.
  void load_state(const std::string& state) {
    detail::check(slotline_loader_load_state, raw_.get(), reinterpret_cast<const std::uint8_t*>(state.data()),
                  state.size());
  }

  /// What the loader did since it was made; times are in seconds. Any thread may ask at any time.
  slotline_stats stats() const {
    slotline_stats out{};
    out.struct_size = sizeof out;
    detail::check(slotline_loader_stats, raw_.get(), &out);
    return out;
  }
  /// All of it, worker by worker, as JSON.
  std::string stats_json() const { return detail::text(slotline_loader_stats_json, raw_.get()); }
  /// What held the loop back, in words.
  std::string verdict() const { return detail::text(slotline_loader_verdict, raw_.get()); }
  /// What the loader noticed, a line each: memory that cannot be locked, and the like.
  std::string warnings() { return detail::text(slotline_loader_warnings, raw_.get()); }

  slotline_loader* raw() const noexcept { return raw_.get(); }

 private:
  detail::owned<slotline_loader, slotline_loader_free> raw_;
};

}  // namespace slotline

#endif
