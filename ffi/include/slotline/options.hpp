// How a loader loads.
#ifndef SLOTLINE_OPTIONS_HPP
#define SLOTLINE_OPTIONS_HPP

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "collate.hpp"
#include "error.hpp"
#include "own.hpp"
#include "sampler.hpp"

namespace slotline {

/// How threads wait.
enum class wait_strategy : std::uint32_t {
  /// Spin a little, yield a little, then sleep until woken.
  park = SLOTLINE_WAIT_PARK,
  /// Spin a little, then yield over and over.
  backoff = SLOTLINE_WAIT_BACKOFF,
  /// Spin: each waiting thread takes a whole core.
  spin = SLOTLINE_WAIT_SPIN,
};

/// What happens when more batches are kept than `hold` and the next one is asked for.
enum class on_held : std::uint32_t {
  /// More memory is taken, as far as `memory_limit` and the system allow it.
  grow = SLOTLINE_ON_HELD_GROW,
  /// The thread that asks waits until another one frees a batch.
  wait = SLOTLINE_ON_HELD_WAIT,
  /// Asking is an error until a batch is freed.
  fail = SLOTLINE_ON_HELD_FAIL,
};

/// How many bad samples a pass may have.
class budget {
 public:
  /// Any number of them.
  budget() = default;
  static budget samples(std::size_t samples) noexcept { return {samples, -1}; }
  /// A share of the pass's samples, from 0 to 1.
  static budget share(double share) {
    if (!(share >= 0 && share <= 1)) throw error(code::build, "budget::share is not from 0 to 1");
    return {SIZE_MAX, share};
  }

 private:
  friend class options;
  budget(std::size_t samples, double share) noexcept : samples_(samples), share_(share) {}
  std::size_t samples_ = SIZE_MAX;
  double share_ = -1;
};

/// The options of a loader, with torch's names and meanings: `options().batch_size(64).shuffle(true).num_workers(4)`.
class options {
 public:
  options() noexcept { slotline_options_init(&raw_, sizeof raw_); }

  /// Samples in a batch (1).
  options& batch_size(std::size_t samples) {
    // Negative numbers, of which one would stand for no batches.
    if (samples > INT64_MAX) throw error(code::build, "batch_size is negative or too large; no_batches() is an option of its own");
    return set(raw_.batch_size, samples);
  }
  /// The samples themselves instead of batches: tensors lack the first dimension.
  options& no_batches() { return set(raw_.batch_size, SLOTLINE_NO_BATCHES); }
  /// How many threads load (0: all is done in the thread that asks for batches).
  options& num_workers(std::size_t threads) { return set(raw_.num_workers, threads); }
  /// Batches that are loaded ahead for each worker (2, or more if they are small).
  options& prefetch_factor(std::size_t batches) { return set(raw_.prefetch_factor, some("prefetch_factor", batches)); }
  /// Batches that are kept while the next one is asked for (1): there is memory for them from the start.
  options& hold(std::size_t batches) { return set(raw_.hold, batches); }
  /// Whether each pass has a new random order (no).
  options& shuffle(bool on = true) { return set(raw_.shuffle, on); }
  /// An order of one's own, instead of shuffle.
  options& sampler(slotline::sampler order) {
    if (!order.raw()) throw error(code::invalid, "the sampler was moved to somewhere else before");
    sampler_ = std::move(order);
    return *this;
  }
  /// Batches of one's own, instead of batch_size, shuffle, sampler and drop_last.
  options& batch_sampler(slotline::batch_sampler batches) {
    if (!batches.raw()) throw error(code::invalid, "the batch sampler was moved to somewhere else before");
    batch_sampler_ = std::move(batches);
    return *this;
  }
  /// Where the random numbers of `shuffle` and of samples come from (the process's default generator). A sampler has its own.
  options& seed(std::uint64_t seed) {
    raw_.has_seed = 1;
    return set(raw_.seed, seed);
  }
  /// Whether a last batch that is not full is left out (no).
  options& drop_last(bool on = true) { return set(raw_.drop_last, on); }
  /// Whether batches come in order (yes), or as they are finished.
  options& in_order(bool on) { return set(raw_.in_order, on); }
  /// How long the wait for one batch may take (for ever). Rounded up to milliseconds.
  options& timeout(std::chrono::nanoseconds time) { return set(raw_.timeout_ms, milliseconds(time)); }
  /// How long a sample may take before it is reported (for ever). Rounded up to milliseconds.
  options& watchdog(std::chrono::nanoseconds time) { return set(raw_.watchdog_ms, milliseconds(time)); }
  /// Whether the memory of batches is locked (no).
  options& pin_memory(bool on = true) { return set(raw_.pin_memory, on); }
  /// Whether there is one base seed, and one worker_init, for all passes (no).
  options& persistent_workers(bool on = true) { return set(raw_.persistent_workers, on); }
  /// The most bytes that the loader may take (no limit).
  options& memory_limit(std::size_t bytes) { return set(raw_.memory_limit, some("memory_limit", bytes)); }
  /// Samples that a worker claims at once (by measurement).
  options& part_size(std::size_t samples) { return set(raw_.part_size, some("part_size", samples)); }
  /// Runs in each worker before it loads anything in a pass. What it throws is an error at the pass's beginning, which goes on
  /// with the other workers.
  options& worker_init(std::function<void(const worker&)> function) {
    worker_init_ = std::move(function);
    return *this;
  }
  /// Makes batches by a function of one's own, `T collate(slotline::samples&)`; `batch.made<T>()` then is what it made. It is
  /// called in workers, several at once.
  template <class Collate>
  options& collate(Collate function) {
    using calls = detail::collate_calls<Collate>;
    collate_user_ = std::make_shared<const Collate>(std::move(function));
    collate_ = calls::collate;
    return *this;
  }
  /// What happens when more batches are kept than that (on_held::grow).
  options& on_held(slotline::on_held what) { return set(raw_.on_held, static_cast<std::uint32_t>(what)); }
  /// Whether workers make batches in turn, as torch's do (no: whoever is free loads).
  options& round_robin(bool on = true) { return set(raw_.round_robin, on); }
  /// Whether the thread that asks for batches loads while it waits (yes but with in_order off or a worker_init).
  options& help(bool on) { return set(raw_.help, on); }
  options& wait_strategy(slotline::wait_strategy how) { return set(raw_.wait_strategy, static_cast<std::uint32_t>(how)); }
  /// Worker i runs on the i-th core that this process may use, and so on from the start.
  options& affinity_spread() { return set(raw_.affinity, SLOTLINE_AFFINITY_SPREAD); }
  /// Worker i runs on the i-th of these cores, and so on from the start.
  options& affinity(std::vector<std::size_t> cores) {
    cores_ = std::move(cores);
    return set(raw_.affinity, SLOTLINE_AFFINITY_CORES);
  }
  /// Packed samples that find no room in their batch get memory from the heap, for that batch (they are bad samples).
  options& spill_overflow() { return set(raw_.on_overflow, SLOTLINE_OVERFLOW_SPILL); }
  /// A batch goes without its bad samples, instead of being an error.
  options& skip_errors(budget most = {}) { return on_error(SLOTLINE_ON_ERROR_SKIP, most); }
  /// Another sample takes the place of a bad one. Not for streams.
  options& replace_errors(budget most = {}) { return on_error(SLOTLINE_ON_ERROR_REPLACE, most); }

 private:
  friend class loader;
  friend class device_loader;
  using init = std::function<void(const worker&)>;
  using shared = std::shared_ptr<const void>;

  template <class Field, class Value>
  options& set(Field& field, Value value) noexcept {
    field = static_cast<Field>(value);
    return *this;
  }
  options& on_error(std::uint32_t what, const budget& most) noexcept {
    raw_.on_error = what;
    raw_.bad_samples = most.samples_;
    return set(raw_.bad_share, most.share_);
  }
  /// 0 would stand for the default there.
  static std::size_t some(const char* option, std::size_t value) {
    if (value == 0) throw error(code::build, std::string(option) + " is 0; leave it out, or say at least 1");
    return value;
  }
  static std::uint64_t milliseconds(std::chrono::nanoseconds time) {
    if (time.count() < 0) throw error(code::build, "a time is negative; leave it out, or say 0, for none");
    return static_cast<std::uint64_t>(std::chrono::ceil<std::chrono::milliseconds>(time).count());
  }

  /// What the C API is told, which takes over a share of the functions; it points into these options.
  slotline_options raw() const {
    slotline_options raw = raw_;
    raw.cores = cores_.data();
    raw.num_cores = cores_.size();
    raw.sampler = sampler_ ? sampler_->raw() : nullptr;
    raw.batch_sampler = batch_sampler_ ? batch_sampler_->raw() : nullptr;
    if (collate_) {
      raw.collate = collate_;
      raw.collate_drop_batch = [](void* batch) { delete static_cast<detail::collated*>(batch); };
      raw.collate_drop = detail::deleted<shared>;
      raw.collate_user = new shared(collate_user_);
    }
    if (worker_init_) {
      raw.worker_init = [](void* user, const slotline_worker* whose, slotline_failure* failure) -> std::int32_t {
        return detail::guarded(
            [&] {
              (*static_cast<const init*>(user))(worker(*whose));
              return 0;
            },
            [&](const char* what) { slotline_fail(failure, what); });
      };
      raw.worker_init_drop = detail::deleted<init>;
      raw.worker_init_user = new init(worker_init_);
    }
    return raw;
  }

  slotline_options raw_{};
  std::vector<std::size_t> cores_;
  std::optional<slotline::sampler> sampler_;
  std::optional<slotline::batch_sampler> batch_sampler_;
  init worker_init_;
  slotline_collate collate_ = nullptr;
  shared collate_user_;
};

}  // namespace slotline

#endif
