// Tests how long a loader's destructor and `next_within` wait for threads that run the dataset's
// code, and the warning about threads that still run it after that time.

#include <slotline.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "check.hpp"

using namespace std::chrono_literals;

void await(const std::function<bool()>& condition) {
  for (int i = 0; i < 60000 && !condition(); ++i) std::this_thread::sleep_for(1ms);
  CHECK(condition());
}

/// The state of a dataset in which sample 1 waits until `may_go_on` is set.
struct state {
  std::atomic<bool> waits{false}, may_go_on{false}, done{false};
};
struct slow {
  std::shared_ptr<state> shared;
  std::size_t size() const { return 2; }
  std::vector<slotline::field> fields() const { return {slotline::fixed<std::int64_t>("number")}; }
  void read(std::size_t index, slotline::sample& sample) const {
    if (index == 1) {
      shared->waits = true;
      await([this] { return shared->may_go_on.load(); });
      shared->done = true;
    }
    sample.write(0, static_cast<std::int64_t>(index));
  }
};

/// What was observed while a loader was destroyed.
struct end {
  bool done;
  std::vector<std::string> left_behind;
  std::chrono::nanoseconds took;
};

/// Destroys a loader while its worker is reading sample 1, which waits for `time`, or forever if
/// `time` is zero.
end destroy_busy(std::chrono::nanoseconds close_timeout, std::chrono::milliseconds time) {
  auto shared = std::make_shared<state>();
  end result{};
  auto options = slotline::options().num_workers(1).help(false).close_timeout(close_timeout);
  options.on_warning([&result](const slotline::warning& warning) {
    CHECK(warning.kind() == slotline::warning_kind::left_behind);
    result.left_behind.emplace_back(warning.message());
  });
  auto loader = std::make_unique<slotline::loader>(slow{shared}, options);
  CHECK(loader->try_epoch());
  slotline::batch batch;
  CHECK(loader->try_next(batch));
  await([&] { return shared->waits.load(); });
  std::thread other([&] {
    std::this_thread::sleep_for(time);
    if (time != 0ms) shared->may_go_on = true;
  });
  const auto start = std::chrono::steady_clock::now();
  loader.reset();
  result.took = std::chrono::steady_clock::now() - start;
  result.done = shared->done;
  other.join();
  shared->may_go_on = true;
  // The worker destroys the dataset once it has left the dataset's code.
  await([&] { return shared.use_count() == 1; });
  CHECK(shared->done);
  return result;
}

void await_the_next_batch() {
  auto shared = std::make_shared<state>();
  slotline::loader loader(slow{shared}, slotline::options().num_workers(1).help(false));
  CHECK(loader.try_epoch() && loader.next_within(1min) && !loader.is_ready());
  const auto start = std::chrono::steady_clock::now();
  for (const auto patience : {-1ms, 0ms, 50ms})
    CHECK(thrown([&] { loader.next_within(patience); }).code() == slotline::code::timeout);
  CHECK(std::chrono::steady_clock::now() - start >= 50ms);
  shared->may_go_on = true;
  await([&] { return loader.is_ready(); });
  slotline::batch batch;
  CHECK(loader.try_next_within(0ms, batch) && batch.batch_index() == 1);
  CHECK(!loader.next_within(1min) && loader.is_ready());
}

int main() {
  await_the_next_batch();
  const end left = destroy_busy(50ms, 0ms);
  CHECK(!left.done && left.took >= 50ms);
  CHECK(left.left_behind.size() == 1 && left.left_behind[0].find("close_timeout") != std::string::npos);

  const end waited = destroy_busy(std::chrono::nanoseconds::max(), 200ms);
  CHECK(waited.done && waited.left_behind.empty());
  std::puts("ok");
}
