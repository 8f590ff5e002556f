// Measures how long the loop waits for each batch: the distribution of the time of `next()`. If libtorch's headers are
// installed, measures libtorch's DataLoader, too. The section "latency" of the report builds and runs this program.
//
// To build it by hand, in this folder, after `cargo build --release -p slotline-c`:
//
//   T=$(python3 -c 'import importlib.util as u; print(u.find_spec("torch").submodule_search_locations[0])')
//   g++ -std=c++20 -O3 -I"$T/include" -I"$T/include/torch/csrc/api/include" -I../../../ffi/include latency.cpp -o latency
//       ../../../target/release/libslotline.a -L"$T/lib" -Wl,-rpath,"$T/lib" -Wl,--allow-shlib-undefined
//       -ltorch_cpu -lc10 -pthread -ldl -lm      (one line)
//
// Use: latency BATCHES STEP ROUNDS, for example `latency 1000000 0 5`. A batch is one sample of four numbers and a label, in
// order. Between two batches the loop computes for STEP microseconds, as a training step does. Workers have no other work, so
// with two of them there is usually a batch in the ring.
//
//   floor                  no loader: two readings of the clock, one after the other. All rows contain this.
//   slotline, 0            the loop's thread makes the batches
//   slotline, 2            two workers on any core; the loop makes batches itself when it would wait (the default)
//   slotline, 2, no help   the same, but the loop only waits
//   slotline, 2, spread    worker i runs on the i-th core
//   slotline, 2, apart     both workers on the last core, the loop on the first one
//   slotline, 2, real time the same, without help; the loop has the priority SCHED_FIFO 10, and the memory is locked
//   libtorch, 0 and 2      a map-style dataset and Stack
//   libtorch, 2, apart     the loop on the first core, its workers on the last one
//
// A round runs each of them once, in rotating order. A line of the output has the median over the rounds of each percentile, in
// nanoseconds, and the largest maximum. BATCHES is at least 1,000; each contender runs a pass of 1,000 batches first. A contender
// that fails, as "real time" does without the right to it, is left out of the table, and the reason comes on stderr.

#include <slotline.hpp>

#if __has_include(<torch/torch.h>)
#include <torch/torch.h>
#define WITH_TORCH
#endif

#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

using Clock = std::chrono::steady_clock;

// The cores on which the loop's thread and the workers run; see the table above.
enum class Place { any, spread, apart, real_time };

struct Contender {
  const char* name;
  enum { floor, slotline, libtorch } kind;
  std::size_t workers;
  bool help;
  Place place;
};

const Contender contenders[] = {
    {"floor", Contender::floor, 0, true, Place::any},
    {"slotline, 0", Contender::slotline, 0, true, Place::any},
    {"slotline, 2", Contender::slotline, 2, true, Place::any},
    {"slotline, 2, no help", Contender::slotline, 2, false, Place::any},
    {"slotline, 2, spread", Contender::slotline, 2, true, Place::spread},
    {"slotline, 2, apart", Contender::slotline, 2, true, Place::apart},
    {"slotline, 2, real time", Contender::slotline, 2, false, Place::real_time},
#ifdef WITH_TORCH
    {"libtorch, 0", Contender::libtorch, 0, true, Place::any},
    {"libtorch, 2", Contender::libtorch, 2, true, Place::any},
    {"libtorch, 2, apart", Contender::libtorch, 2, true, Place::apart},
#endif
};

void require(bool done, const char* what) {
  if (!done) throw std::runtime_error(std::string(what) + ": " + std::strerror(errno));
}

int last_core() { return static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)) - 1; }

// Pins the calling thread, and the threads that it starts later, to the cores from `first` to `last`.
void run_on(int first, int last) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  for (int core = first; core <= last; ++core) CPU_SET(core, &cores);
  require(sched_setaffinity(0, sizeof cores, &cores) == 0, "the loop's thread cannot be pinned");
}

// A guard that gives the loop's thread the core and the priority of a contender's place. The destructor undoes this, also
// if the constructor failed.
struct Placed {
  Placed() = default;
  explicit Placed(Place place) : Placed() {
    if (place == Place::apart || place == Place::real_time) run_on(0, 0);
    if (place == Place::real_time) {
      sched_param priority{};
      priority.sched_priority = 10;
      require(sched_setscheduler(0, SCHED_FIFO, &priority) == 0, "no priority of real time");
      require(mlockall(MCL_CURRENT | MCL_FUTURE) == 0, "memory cannot be locked");
    }
  }
  ~Placed() {
    munlockall();
    sched_param priority{};
    sched_setscheduler(0, SCHED_OTHER, &priority);
    try {
      run_on(0, last_core());
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
    }
  }
};

// The waits of a pass, in nanoseconds. All of the memory is written before the pass, so that no page is new in it.
struct Waits {
  explicit Waits(std::size_t batches) : of(batches, 1) {}
  std::vector<std::uint32_t> of;
  std::size_t count = 0;
  std::chrono::microseconds step{0};

  template <class Next>
  bool time(Next&& next) {
    const auto begin = Clock::now();
    const bool more = next();
    const auto end = Clock::now();
    if (more && count < of.size()) {
      const auto wait = std::chrono::duration_cast<std::chrono::nanoseconds>(end - begin).count();
      of[count++] = static_cast<std::uint32_t>(std::min<std::int64_t>(wait, UINT32_MAX));
    }
    while (Clock::now() - end < step) {
    }
    return more;
  }
};

struct Rows {
  explicit Rows(std::size_t count) : numbers(count * 4), labels(count) {
    for (std::size_t i = 0; i < count; ++i) {
      for (std::size_t j = 0; j < 4; ++j) numbers[4 * i + j] = static_cast<float>(i + j);
      labels[i] = static_cast<std::int64_t>(i);
    }
  }
  std::vector<float> numbers;
  std::vector<std::int64_t> labels;
};

#ifdef WITH_TORCH
namespace data = torch::data;

struct Examples : data::Dataset<Examples> {
  explicit Examples(std::shared_ptr<Rows> rows)
      : rows(rows), count(rows->labels.size()),
        numbers(torch::from_blob(rows->numbers.data(), {static_cast<std::int64_t>(count), 4})),
        labels(torch::from_blob(rows->labels.data(), {static_cast<std::int64_t>(count)}, torch::kInt64)) {}
  data::Example<> get(std::size_t i) override {
    const auto row = static_cast<std::int64_t>(i);
    return {numbers[row], labels[row]};
  }
  std::optional<std::size_t> size() const override { return count; }
  std::shared_ptr<Rows> rows;
  std::size_t count;
  torch::Tensor numbers, labels;
};

// Times a pass of libtorch's loader, and returns the sum of the labels.
std::int64_t pass_of_libtorch(const Contender& contender, const std::shared_ptr<Rows>& rows, Waits& waits) {
  const Placed placed;
  auto options = data::DataLoaderOptions(1).workers(contender.workers).enforce_ordering(true);
  if (contender.place == Place::apart) run_on(last_core(), last_core());  // workers inherit it
  auto loader = data::make_data_loader<data::samplers::SequentialSampler>(Examples(rows).map(data::transforms::Stack<>()), options);
  auto at = loader->begin();
  if (contender.place == Place::apart) run_on(0, 0);
  std::int64_t sum = at->target.data_ptr<std::int64_t>()[0];
  while (waits.time([&] { return ++at != loader->end(); })) sum += at->target.data_ptr<std::int64_t>()[0];
  return sum;
}
#endif

// Times a pass over these rows, and checks its labels.
void pass(const Contender& contender, const std::shared_ptr<Rows>& rows, Waits& waits) {
  const std::size_t count = rows->labels.size();
  std::int64_t sum = 0;
  if (contender.kind == Contender::floor) {
    for (std::size_t i = 0; waits.time([&] { return i < count; }); ++i) sum += static_cast<std::int64_t>(i);
  } else if (contender.kind == Contender::slotline) {
    auto options = slotline::options().num_workers(contender.workers);
    if (contender.workers > 0) options.help(contender.help);
    if (contender.place == Place::spread) options.affinity_spread();
    if (contender.place == Place::apart || contender.place == Place::real_time)
      options.affinity({static_cast<std::size_t>(last_core())});
    const auto size = static_cast<std::int64_t>(count);
    slotline::loader loader(slotline::dataset::of({slotline::array("numbers", rows->numbers.data(), {size, 4}, rows),
                                                   slotline::array("label", rows->labels.data(), {size}, rows)}),
                            options);
    const Placed placed(contender.place);
    loader.epoch();
    std::optional<slotline::batch> batch;
    while (waits.time([&] {
      batch = loader.next();  // this also frees the previous batch
      return batch.has_value();
    }))
      sum += batch->field<std::int64_t>(1)[0];
  } else {
#ifdef WITH_TORCH
    sum = pass_of_libtorch(contender, rows, waits);
#endif
  }
  const auto all = static_cast<std::int64_t>(count);
  if (sum != all * (all - 1) / 2) throw std::runtime_error(std::string(contender.name) + ": a wrong sum of labels");
}

// The percentiles, and the maximum, that are printed.
constexpr double shares[] = {0.5, 0.99, 0.999, 0.9999};
using Line = std::vector<std::uint32_t>;

Line line(Waits& waits) {
  std::sort(waits.of.begin(), waits.of.begin() + static_cast<std::ptrdiff_t>(waits.count));
  Line result;
  for (double share : shares) result.push_back(waits.of[static_cast<std::size_t>(share * double(waits.count - 1))]);
  result.push_back(waits.of[waits.count - 1]);
  return result;
}

int main(int count, char** words) try {
  const long batches = count == 4 ? std::atol(words[1]) : 0, step = count == 4 ? std::atol(words[2]) : 0;
  const long rounds = count == 4 ? std::atol(words[3]) : 0;
  if (batches < 1000 || step < 0 || rounds < 1) {
    std::fputs("use: latency BATCHES STEP ROUNDS\n", stderr);
    return 2;
  }
#ifdef WITH_TORCH
  at::set_num_threads(1);  // only the loader's workers run in parallel
#endif
  const auto rows = std::make_shared<Rows>(batches), few = std::make_shared<Rows>(1000);
  constexpr std::size_t size = std::size(contenders);
  std::vector<std::vector<Line>> lines(size);
  std::vector<std::string> failures(size);
  for (long round = 0; round < rounds; ++round) {
    for (std::size_t turn = 0; turn < size; ++turn) {
      const std::size_t i = (turn + static_cast<std::size_t>(round)) % size;
      if (!failures[i].empty()) continue;
      Waits warm(1000), waits(static_cast<std::size_t>(batches));
      waits.step = std::chrono::microseconds(step);
      try {
        pass(contenders[i], few, warm);
        pass(contenders[i], rows, waits);
        lines[i].push_back(line(waits));
      } catch (const std::exception& error) {
        failures[i] = error.what();
      }
    }
  }
  std::printf("%-24s %9s %9s %9s %9s %11s\n", "", "p50", "p99", "p99.9", "p99.99", "maximum");
  for (std::size_t i = 0; i < size; ++i) {
    if (!failures[i].empty()) {
      std::fprintf(stderr, "%s: %s\n", contenders[i].name, failures[i].c_str());
      continue;
    }
    std::printf("%-24s", contenders[i].name);
    for (std::size_t column = 0; column <= std::size(shares); ++column) {
      std::vector<std::uint32_t> values;
      for (const Line& one : lines[i]) values.push_back(one[column]);
      std::sort(values.begin(), values.end());
      const bool largest = column == std::size(shares);
      std::printf(largest ? " %11u\n" : " %9u", largest ? values.back() : values[values.size() / 2]);
    }
  }
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
