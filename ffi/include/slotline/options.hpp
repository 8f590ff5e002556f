// The options of a loader.
#ifndef SLOTLINE_OPTIONS_HPP
#define SLOTLINE_OPTIONS_HPP

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "collate.hpp"
#include "error.hpp"
#include "failure.hpp"
#include "flag.hpp"
#include "generator.hpp"
#include "memory.hpp"
#include "user_dataset.hpp"
#include "ranks.hpp"
#include "sampler.hpp"
#include "warning.hpp"

namespace slotline {

/// How waiting threads wait.
enum class wait_strategy : std::uint32_t {
  /// Spin briefly, yield briefly, then sleep until woken up.
  park = SLOTLINE_WAIT_PARK,
  /// Spin briefly, then yield repeatedly.
  backoff = SLOTLINE_WAIT_BACKOFF,
  /// Spin without yielding: each waiting thread occupies a whole core.
  spin = SLOTLINE_WAIT_SPIN,
};

/// What happens if the caller requests the next batch while it holds more than `hold` batches.
enum class on_held : std::uint32_t {
  /// More memory is allocated, up to `memory_limit` and what the system allows.
  grow = SLOTLINE_ON_HELD_GROW,
  /// The calling thread waits until another thread frees a batch.
  wait = SLOTLINE_ON_HELD_WAIT,
  /// Requesting the next batch is an error until a batch is freed.
  fail = SLOTLINE_ON_HELD_FAIL,
};

/// The maximum number of bad samples (samples that cannot be read) in a pass.
class budget {
 public:
  /// Any number, but at most half of 1,000 samples in a row.
  budget() = default;
  template <class Number, class = std::enable_if_t<std::is_integral_v<Number> && !std::is_same_v<Number, bool>>>
  static budget samples(Number samples) {
    if constexpr (std::is_signed_v<Number>)
      if (samples < 0) detail::raise(error(code::build, "budget::samples is negative; for no limit, leave the budget out"));
    return {static_cast<std::size_t>(samples), -1};
  }
  /// Deleted: for a share, use `share`.
  static budget samples(double) = delete;
  /// At most this share of the pass's samples, from 0 to 1.
  static budget share(double share) {
    if (!(share >= 0 && share <= 1)) detail::raise(error(code::build, "budget::share is not from 0 to 1"));
    return {SIZE_MAX, share};
  }

 private:
  friend class options;
  budget(std::size_t samples, double share) noexcept : samples_(samples), share_(share) {}
  std::size_t samples_ = SIZE_MAX;
  double share_ = -1;
};

namespace detail {

/// A command that starts worker processes, and the bytes that are passed to them.
struct command {
  std::vector<std::string> strings;
  /// The strings as the C API takes them, followed by a null pointer.
  std::vector<const char*> words;
  std::string setup;

  command(std::vector<std::string> given, std::string told) : strings(std::move(given)), setup(std::move(told)) {
    for (const std::string& word : strings) words.push_back(word.c_str());
    words.push_back(nullptr);
  }
  command(const command&) = delete;
  command& operator=(const command&) = delete;
};

}  // namespace detail

/// The options of a loader, with the names and meanings of torch's `DataLoader`:
/// `options().batch_size(64).shuffle(true).num_workers(4)`. Defaults are in parentheses.
class options {
 public:
  options() noexcept { slotline_options_init(&raw_, sizeof raw_); }

  /// The number of samples in a batch (1).
  options& batch_size(std::size_t samples) {
    // Rejects negative numbers; -1 would otherwise mean no batching.
    if (samples > INT64_MAX)
      detail::raise(error(code::build, "batch_size is negative or too large; to turn batching off, use no_batches()"));
    return set(raw_.batch_size, samples);
  }
  /// No batching: a pass returns single samples, whose tensors lack the first dimension.
  options& no_batches() { return set(raw_.batch_size, SLOTLINE_NO_BATCHES); }
  /// The number of workers (0: the thread that requests batches loads them).
  options& num_workers(std::size_t workers) { return set(raw_.num_workers, workers); }
  /// Whether workers are processes (no: threads). Only on Linux. A crash then ends only one worker,
  /// not the program. Unless a command starts the workers (spawn), the dataset runs in a copy of
  /// the program's memory from when the loader was created, with a single thread; see
  /// `slotline_options`.
  options& processes(flag on = true) { return set(raw_.processes, on); }
  /// How many times in total a worker process that has ended is replaced by a new one (0). Requires
  /// processes().
  options& restart_workers(std::size_t times) { return set(raw_.restart_workers, times); }
  /// The time that a sample may take (no limit). If it takes longer, its worker process is killed
  /// and replaced, and the sample counts as bad. Rounded up to milliseconds. Requires processes().
  options& sample_timeout(std::chrono::nanoseconds time) { return set(raw_.sample_timeout_ms, milliseconds(time)); }
  /// Starts each worker process with a command instead of forking it: a program, usually this one
  /// itself, "/proc/self/exe", and its arguments. The program must call `work_if_spawned` first in
  /// its main, which receives `setup`, any bytes. Requires processes(); not available for streams,
  /// or with round_robin or worker_init.
  options& spawn(std::vector<std::string> command, std::string setup = {}) {
    for (const std::string& word : command)
      if (word.find('\0') != std::string::npos) detail::raise(error(code::invalid, "the command of spawn contains a NUL"));
    command_ = std::make_shared<const detail::command>(std::move(command), std::move(setup));
    return *this;
  }
  /// The number of batches to prefetch per worker (2, or more if batches are small).
  options& prefetch_factor(std::size_t batches) { return set(raw_.prefetch_factor, nonzero("prefetch_factor", batches)); }
  /// The number of batches that the caller holds while it requests the next one (1). Memory for
  /// them is allocated when the loader is created.
  options& hold(std::size_t batches) { return set(raw_.hold, batches); }
  /// Divides each pass among ranks: this loader loads the share of one rank. See `world_size` in
  /// `slotline_options`.
  options& ranks(const slotline::ranks& which) {
    raw_.rank = which.rank;
    return set(raw_.world_size, which.world_size);
  }
  /// Whether each pass has a new random order (no).
  options& shuffle(flag on = true) { return set(raw_.shuffle, on); }
  /// The order of the passes, instead of shuffle.
  options& sampler(slotline::sampler order) {
    if (!order.raw()) detail::raise(error(code::invalid, "the sampler was moved from"));
    sampler_ = std::move(order);
    return *this;
  }
  /// The batches of the passes as lists of indices, instead of batch_size, shuffle, sampler and
  /// drop_last.
  options& batch_sampler(slotline::batch_sampler batches) {
    if (!batches.raw()) detail::raise(error(code::invalid, "the batch sampler was moved from"));
    batch_sampler_ = std::move(batches);
    return *this;
  }
  /// The seed of `shuffle` and of the samples' random numbers (drawn from the process's default
  /// generator). A sampler has its own seed.
  options& seed(std::uint64_t seed) {
    raw_.has_seed = 1;
    return set(raw_.seed, seed);
  }
  /// The generator that `shuffle` and the samples' random numbers are drawn from, instead of using
  /// a seed. It may be shared.
  options& generator(slotline::generator generator) {
    generator_ = std::move(generator);
    return *this;
  }
  /// Whether to leave out the last batch if it is not full (no).
  options& drop_last(flag on = true) { return set(raw_.drop_last, on); }
  /// Whether batches come in order (yes). Otherwise they come as soon as they are finished.
  options& in_order(flag on) { return set(raw_.in_order, on); }
  /// The maximum time to wait for a batch (no limit). Rounded up to milliseconds.
  options& timeout(std::chrono::nanoseconds time) { return set(raw_.timeout_ms, milliseconds(time)); }
  /// The time after which a slow sample is reported to on_warning and in loader::stats_json
  /// (never). Rounded up to milliseconds.
  options& watchdog(std::chrono::nanoseconds time) { return set(raw_.watchdog_ms, milliseconds(time)); }
  /// How long the loader's destructor waits until its threads have left user code (5 s). Threads
  /// that have not left by then are abandoned, and a warning is issued. With
  /// `std::chrono::nanoseconds::max()` it waits without limit, so that no user code runs once the
  /// loader is destroyed. A loader for a device also waits up to this long for its copies.
  options& close_timeout(std::chrono::nanoseconds time) {
    const bool for_ever = time == std::chrono::nanoseconds::max();
    return set(raw_.close_timeout_ms, for_ever ? UINT64_MAX : nonzero("close_timeout", milliseconds(time)));
  }
  /// Whether the memory of batches is page-locked (no).
  options& pin_memory(flag on = true) { return set(raw_.pin_memory, on); }
  /// Whether all passes share one base seed and one call of worker_init per worker (no).
  options& persistent_workers(flag on = true) { return set(raw_.persistent_workers, on); }
  /// The maximum memory of the loader, in bytes (no limit).
  options& memory_limit(std::size_t bytes) { return set(raw_.memory_limit, nonzero("memory_limit", bytes)); }
  /// The number of samples that a worker takes at a time (chosen by measurement).
  options& part_size(std::size_t samples) { return set(raw_.part_size, nonzero("part_size", samples)); }
  /// Runs in each worker before it loads anything in a pass. If it throws, or calls `worker.fail`,
  /// the pass begins with an error and continues with the other workers.
  options& worker_init(std::function<void(const worker&)> function) {
    worker_init_ = std::move(function);
    return *this;
  }
  /// Makes batches with a function `T collate(slotline::samples&)`; `batch.made<T>()` then returns
  /// its result. Several workers call it concurrently.
  template <class Collate>
  options& collate(Collate function) {
    using calls = detail::collate_calls<Collate>;
    collate_user_ = std::make_shared<const Collate>(std::move(function));
    collate_ = calls::collate;
    return *this;
  }
  /// Allocates the memory that batches are written into with a function of the number of bytes, for
  /// example memory that a device can read (by default, the library allocates it). The function is
  /// called when the loader is created, and later for each batch that the caller keeps beyond
  /// `hold`. Not available with processes, collate functions, or a loader for a device.
  options& allocate(std::function<memory(std::size_t bytes)> function) {
    allocate_ = std::move(function);
    return *this;
  }
  /// Calls a function with each warning immediately, including the watchdog's reports. It runs in
  /// the thread that detects the problem: the one that creates or uses the loader, the watchdog's,
  /// or the one that monitors worker processes. So it may run in several threads concurrently, and
  /// it delays them. It may stop the loader. Exceptions from it are ignored.
  options& on_warning(std::function<void(const warning&)> function) {
    on_warning_ = std::move(function);
    return *this;
  }
  /// Whether `epoch`, `next` and loops throw a callback's own exception, instead of a
  /// slotline::error that contains it as its cause() and also knows the sample and the batch (no).
  /// Errors of slotline itself are a slotline::error in any case.
  options& rethrow(flag on = true) { return set(rethrow_, on); }
  /// What happens if the caller holds more batches than `hold` (on_held::grow).
  options& on_held(slotline::on_held what) { return set(raw_.on_held, static_cast<std::uint32_t>(what)); }
  /// Whether workers make batches in turn, as torch's do (no: any free worker makes the next
  /// batch).
  options& round_robin(flag on = true) { return set(raw_.round_robin, on); }
  /// Whether the thread that requests batches also loads samples instead of waiting (yes, unless
  /// in_order is off or there is a worker_init).
  options& help(flag on) { return set(raw_.help, on); }
  options& wait_strategy(slotline::wait_strategy how) { return set(raw_.wait_strategy, static_cast<std::uint32_t>(how)); }
  /// Worker i runs on the i-th core that this process may use, wrapping around.
  options& affinity_spread() { return set(raw_.affinity, SLOTLINE_AFFINITY_SPREAD); }
  /// Worker i runs on the i-th of these cores, wrapping around.
  options& affinity(std::vector<std::size_t> cores) {
    cores_ = std::move(cores);
    return set(raw_.affinity, SLOTLINE_AFFINITY_CORES);
  }
  /// Samples that are packed or padded to the longest and do not fit into their batch get additional
  /// memory from the heap, for that batch (by default they are bad samples).
  options& spill_overflow() { return set(raw_.on_overflow, SLOTLINE_OVERFLOW_SPILL); }
  /// Bad samples are left out of their batch, instead of turning it into an error.
  options& skip_errors(budget most = {}) { return on_error(SLOTLINE_ON_ERROR_SKIP, most); }
  /// Another sample replaces a bad one. Not available for streams.
  options& replace_errors(budget most = {}) { return on_error(SLOTLINE_ON_ERROR_REPLACE, most); }

 private:
  friend class loader;
  using init = std::function<void(const worker&)>;
  using listener = std::function<void(const warning&)>;
  using allocator = std::function<memory(std::size_t)>;
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
  /// Rejects 0, which means the default in the C API.
  static std::size_t nonzero(const char* option, std::size_t value) {
    if (value == 0) detail::raise(error(code::build, std::string(option) + " is 0; set it to at least 1, or leave it out"));
    return value;
  }
  static std::uint64_t milliseconds(std::chrono::nanoseconds time) {
    if (time.count() < 0) detail::raise(error(code::build, "a time is negative; for no limit, set it to 0 or leave it out"));
    return static_cast<std::uint64_t>(std::chrono::ceil<std::chrono::milliseconds>(time).count());
  }

  /// Returns the options for the C API. They share ownership of the functions, and point into this
  /// object.
  slotline_options raw() const {
    slotline_options raw = raw_;
    raw.cores = cores_.data();
    if (command_) {
      raw.spawn = command_->words.data();
      raw.spawn_setup = reinterpret_cast<const std::uint8_t*>(command_->setup.data());
      raw.spawn_setup_len = command_->setup.size();
    }
    raw.num_cores = cores_.size();
    raw.generator = generator_.raw();
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
              const detail::use call(user);
              slotline::failure report(failure);
              (*static_cast<const init*>(user))(worker(*whose, &report));
              return report.failed() ? -1 : 0;
            },
            failure);
      };
      raw.worker_init_drop = detail::deleted<init>;
      raw.worker_init_user = new init(worker_init_);
    }
    if (allocate_) {
      raw.allocate = [](void* user, std::size_t bytes, slotline_memory* out, slotline_failure* failure) -> std::int32_t {
        return detail::guarded(
            [&] {
              const detail::turn call(user);
              memory given = (*static_cast<const allocator*>(user))(bytes);
              out->user = new std::shared_ptr<void>(std::move(given.owner));
              out->drop = detail::deleted<std::shared_ptr<void>>;
              out->data = given.data;
              out->len = given.size;
              return 0;
            },
            failure);
      };
      raw.allocate_drop = detail::deleted<allocator>;
      raw.allocate_user = new allocator(allocate_);
    }
    if (on_warning_) {
      raw.on_warning = [](void* user, const slotline_warning* given) {
        // An exception has no receiver, so it is ignored.
        detail::guarded([&] { return (*static_cast<const listener*>(user))(warning(*given)), 0; },
                        static_cast<slotline_failure*>(nullptr));
      };
      raw.on_warning_drop = detail::deleted<listener>;
      raw.on_warning_user = new listener(on_warning_);
    }
    return raw;
  }

  slotline_options raw_{};
  std::vector<std::size_t> cores_;
  std::shared_ptr<const detail::command> command_;
  slotline::generator generator_;
  std::optional<slotline::sampler> sampler_;
  std::optional<slotline::batch_sampler> batch_sampler_;
  init worker_init_;
  listener on_warning_;
  allocator allocate_;
  bool rethrow_ = false;
  slotline_collate collate_ = nullptr;
  shared collate_user_;
};

}  // namespace slotline

#endif
