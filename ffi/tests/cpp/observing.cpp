// Tests statistics from any thread, and warnings that are reported immediately.

#include <slotline.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "check.hpp"

using Options = slotline::options;
using slotline::warning_kind;
using namespace std::chrono_literals;

/// A dataset of numbers in which sample `slow` takes `time`, and sample `bad` fails.
struct numbers {
  std::size_t slow = 1000, bad = 1000;
  std::chrono::milliseconds time = 0ms;
  std::size_t size() const { return 200; }
  std::vector<slotline::field> fields() const { return {slotline::fixed<std::int64_t>("number")}; }
  void read(std::size_t index, slotline::sample& sample) const {
    if (index == slow) std::this_thread::sleep_for(time);
    if (index == bad) throw std::runtime_error("scratched");
    sample.write(0, static_cast<std::int64_t>(index));
  }
};

void statistics_can_be_read_while_the_loop_runs() {
  for (const std::size_t workers : {0u, 2u}) {
    slotline::loader loader(numbers{}, Options().batch_size(4).num_workers(workers));
    std::atomic<bool> done{false};
    std::uint64_t reads = 0;
    std::thread other([&] {
      std::uint64_t last = 0;
      for (; !done; ++reads) {
        const slotline_stats stats = loader.stats();
        CHECK(stats.batches >= last && stats.num_workers == workers && !loader.verdict().empty());
        CHECK(loader.stats_json().front() == '{' && loader.size() == 50 && loader.depth() >= 2);
        last = stats.batches;
      }
    });
    for (int epoch = 0; epoch < 40; ++epoch)
      for (auto& batch : loader) CHECK(batch.size() == 4);
    done = true;
    other.join();
    CHECK(reads > 0 && loader.stats().batches == 2000);
  }
}

constexpr std::size_t LARGE = 2 << 20;
const std::vector<std::uint8_t> large(LARGE, 7);

/// A dataset whose samples sleep for `time`, and then take long to write.
struct heavy {
  std::chrono::milliseconds time;
  std::size_t size() const { return 20; }
  std::vector<slotline::field> fields() const { return {slotline::fixed<std::uint8_t>("bytes", {std::int64_t(LARGE)})}; }
  void read(std::size_t, slotline::sample& sample) const {
    std::this_thread::sleep_for(time);
    sample.write(0, large);
  }
};

struct heavy_stream {
  std::chrono::milliseconds time;
  struct cursor {
    std::chrono::milliseconds time;
    int left;
    bool next(slotline::sample& sample) {
      if (left-- == 0) return false;
      std::this_thread::sleep_for(time);
      sample.write(0, large);
      return true;
    }
  };
  std::vector<slotline::field> fields() const { return heavy{time}.fields(); }
  cursor open(const slotline::worker&) const { return {time, 20}; }
};

/// Returns the times that a loader's threads spent reading and writing.
template <class Dataset>
std::pair<double, double> times(std::chrono::milliseconds time, std::size_t workers, bool collates = false) {
  Options options = Options().batch_size(2).num_workers(workers).help(workers == 0);
  if (collates)
    options.collate([](slotline::samples& samples) {
      while (samples.next()) continue;
      return 0;
    });
  slotline::loader loader(Dataset{time}, options);
  for (auto& batch : loader) (void)batch;
  const slotline_stats stats = loader.stats();
  return {stats.worker_reading + stats.caller_reading, stats.worker_writing + stats.caller_writing};
}

void what_a_dataset_writes_counts_as_writing() {
  const auto check = [](std::pair<double, double> quick, std::pair<double, double> slow) {
    CHECK(quick.second > quick.first);
    // There are 20 samples that sleep for 20 ms each.
    CHECK(slow.first >= 0.4 && slow.first > 3 * slow.second && slow.second > 0);
  };
  for (const std::size_t workers : {0u, 1u}) {
    check(times<heavy>(0ms, workers), times<heavy>(20ms, workers));
    check(times<heavy>(0ms, workers, true), times<heavy>(20ms, workers, true));
  }
  const auto by_worker = [](std::chrono::milliseconds time) {
    slotline::loader loader(heavy_stream{time}, Options().batch_size(2).num_workers(1));
    for (auto& batch : loader) (void)batch;
    const slotline_stats stats = loader.stats();
    return std::make_pair(stats.worker_reading, stats.worker_writing);
  };
  check(by_worker(0ms), by_worker(20ms));
}

/// A copy of a warning.
struct heard {
  warning_kind kind;
  std::string message;
  std::int64_t index, task, worker;
  double seconds;
  std::thread::id thread;
};

/// The list of warnings that a loader has reported.
class list {
 public:
  void add(const slotline::warning& warning) {
    const std::lock_guard<std::mutex> lock(mutex_);
    all_.push_back({warning.kind(), warning.message(), warning.index(), warning.task(), warning.worker(),
                    warning.time().count(), std::this_thread::get_id()});
  }
  std::vector<heard> of(warning_kind kind) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::vector<heard> some;
    for (const heard& one : all_)
      if (one.kind == kind) some.push_back(one);
    return some;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<heard> all_;
};

void the_watchdogs_reports_are_told(std::size_t workers) {
  list warnings;
  slotline::loader loader(numbers{13, 1000, 700ms}, Options()
                                                        .batch_size(10)
                                                        .num_workers(workers)
                                                        .help(workers == 0)
                                                        .watchdog(50ms)
                                                        .on_warning([&](const slotline::warning& warning) {
                                                          warnings.add(warning);
                                                          throw std::runtime_error("nobody hears it");
                                                        }));
  for (auto& batch : loader) (void)batch;
  std::vector<heard> stuck;
  // On a busy machine other samples may be late, too.
  for (const heard& one : warnings.of(warning_kind::stuck))
    if (one.index == 13) stuck.push_back(one);
  CHECK(stuck.size() == 1 && stuck[0].task == 1 && stuck[0].worker == std::int64_t(workers) - 1);
  CHECK(stuck[0].seconds >= 0.05 && stuck[0].seconds < 10 && stuck[0].thread != std::this_thread::get_id());
  CHECK(workers == 0 || has(stuck[0].message, "worker 0 has been working on sample 13 of batch 1"));
}

void the_watchdog_can_stop_the_loop() {
  std::atomic<slotline_loader*> raw{nullptr};
  slotline::loader loader(numbers{3, 1000, 2s},
                          Options().num_workers(1).help(false).watchdog(20ms).on_warning([&](const slotline::warning&) {
                            if (slotline_loader* known = raw) slotline_loader_stop(known);
                          }));
  raw = loader.raw();
  try {
    for (auto& batch : loader) (void)batch;
    CHECK(false && "the end of a stopped pass");
  } catch (const slotline::error& error) {
    CHECK(error.code() == slotline::code::stopped);
  }
}

void bad_samples_and_held_batches_are_told_once(std::size_t workers) {
  list warnings;
  const auto listen = [&](const slotline::warning& warning) { warnings.add(warning); };
  const Options options = Options().batch_size(10).num_workers(workers).help(workers == 0).skip_errors().on_warning(listen);
  slotline::loader loader(numbers{1000, 13}, options);
  for (int epoch = 0; epoch < 2; ++epoch)
    for (auto& batch : loader) (void)batch;
  const std::vector<heard> bad = warnings.of(warning_kind::bad_sample);
  CHECK(bad.size() == 1 && bad[0].index == 13 && bad[0].task == 1 && bad[0].worker == std::int64_t(workers) - 1);
  CHECK(has(bad[0].message, "sample 13 of batch 1 is bad, in ") && has(bad[0].message, ": scratched"));
  CHECK(workers != 0 || bad[0].thread == std::this_thread::get_id());
  std::vector<slotline::batch> kept;
  for (auto& batch : loader) kept.push_back(std::move(batch));
  CHECK(workers != 0 || warnings.of(warning_kind::kept).size() == 1);
}

void warnings_of_making_a_loader_are_told_and_the_function_is_destroyed() {
  auto token = std::make_shared<int>(0);
  list warnings;
  {
    const auto listen = [&warnings, token](const slotline::warning& warning) { warnings.add(warning); };
    slotline::loader loader(numbers{}, Options().batch_size(300).drop_last().on_warning(listen));
    CHECK(warnings.of(warning_kind::no_batch).size() == 1 && token.use_count() > 1);
  }
  CHECK(token.use_count() == 1);
}

#if defined(__linux__)
/// A dataset of numbers that ends its process when it reads 7.
struct deadly : numbers {
  void read(std::size_t index, slotline::sample& sample) const {
    if (index == 7) std::_Exit(3);
    numbers::read(index, sample);
  }
};

void ended_worker_processes_are_told() {
  list warnings;
  const auto listen = [&](const slotline::warning& warning) { warnings.add(warning); };
  const Options options = Options().batch_size(10).num_workers(2).processes().skip_errors().on_warning(listen);
  {
    slotline::loader loader(deadly{}, Options(options).restart_workers(1));
    std::size_t samples = 0;
    for (auto& batch : loader) samples += batch.size();
    CHECK(samples == 199);
  }
  const std::vector<heard> replaced = warnings.of(warning_kind::worker_replaced);
  CHECK(replaced.size() == 1 && replaced[0].worker >= 0 && has(replaced[0].message, "exit"));
  CHECK(warnings.of(warning_kind::bad_sample).size() == 1);
  slotline::loader late(numbers{9, 1000, 60000ms}, Options(options).sample_timeout(1s));
  for (auto& batch : late) (void)batch;
  // The thread that replaces the worker may report it after the last batch. On a busy machine other
  // samples may be late, too.
  for (int i = 0; i < 60000 && warnings.of(warning_kind::worker_replaced).size() < 2; ++i) std::this_thread::sleep_for(1ms);
  CHECK(warnings.of(warning_kind::worker_replaced).size() >= 2);
  slotline::loader lost(deadly{}, options);
  try {
    for (auto& batch : lost) (void)batch;
  } catch (const slotline::error&) {
  }
  CHECK(warnings.of(warning_kind::worker_lost).size() == 1);
}
#endif

int main() {
#if defined(__linux__)
  ended_worker_processes_are_told();
#endif
  statistics_can_be_read_while_the_loop_runs();
  what_a_dataset_writes_counts_as_writing();
  the_watchdog_can_stop_the_loop();
  for (const std::size_t workers : {0u, 1u}) {
    the_watchdogs_reports_are_told(workers);
    bad_samples_and_held_batches_are_told_once(workers);
  }
  warnings_of_making_a_loader_are_told_and_the_function_is_destroyed();
  std::puts("ok");
}
