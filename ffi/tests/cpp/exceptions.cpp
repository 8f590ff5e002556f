// Tests that exceptions from user code reach the loop as the same objects, with the sample or batch
// where they happened.

#include <slotline.hpp>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "check.hpp"

using Options = slotline::options;
using slotline::code;

/// The number of `silent`s that exist.
std::atomic<int> alive{0};

/// A user's exception with an additional member.
struct silent : std::runtime_error {
  int sensor;
  explicit silent(int number) : std::runtime_error("sensor " + std::to_string(number) + " is silent"), sensor(number) {
    ++alive;
  }
  silent(const silent& other) : std::runtime_error(other), sensor(other.sensor) { ++alive; }
  ~silent() override { --alive; }
};

/// The place in the user code that throws.
enum class place { nowhere, read, open, next, collate, worker_init, sampler, batch_sampler };

/// Throws `silent(7)`, nested in an exception of another type if `nested`.
[[noreturn]] void fail(bool nested = false) {
  try {
    throw silent(7);
  } catch (...) {
    if (nested) std::throw_with_nested(std::out_of_range("no reading"));
    throw;
  }
}

/// A dataset of ten numbers, of which the number 5 fails if `fails` is set.
struct numbers {
  place fails = place::nowhere;
  bool nested = false;
  std::size_t size() const { return 10; }
  std::vector<slotline::field> fields() const { return {slotline::fixed<std::int64_t>("number")}; }
  void read(std::size_t index, slotline::sample& sample) const {
    if (fails == place::read && index == 5) fail(nested);
    sample.write(0, static_cast<std::int64_t>(index));
  }
};

/// A stream of three numbers for each worker, of which the last fails.
struct stream {
  place fails;
  struct cursor {
    place fails;
    std::int64_t at;
    bool next(slotline::sample& sample) {
      if (fails == place::next && at == 2) {
        ++at;
        fail();
      }
      return at < 3 && (sample.write(0, at++), true);
    }
  };
  std::vector<slotline::field> fields() const { return {slotline::fixed<std::int64_t>("number")}; }
  cursor open(const slotline::worker&) const {
    if (fails == place::open) fail();
    return {fails, 0};
  }
};

/// Makes a loader with batches of two in which the user code at `where` throws.
slotline::loader failing(place where, std::size_t workers, Options options = Options()) {
  options.num_workers(workers);
  if (where == place::batch_sampler) {
    options.batch_sampler(slotline::batch_sampler::from(2, [](std::uint64_t, std::uint64_t, std::uint64_t batch) {
      if (batch == 2) fail();
      return std::optional<std::vector<std::size_t>>({batch, batch + 1});
    }));
    return slotline::loader(numbers{}, options);
  }
  options.batch_size(2);
  if (where == place::open || where == place::next) return slotline::loader(stream{where}, options);
  if (where == place::collate)
    options.collate([](slotline::samples& samples) {
      std::int64_t sum = 0;
      while (samples.next()) sum += samples.field<std::int64_t>(0)[0];
      if (sum == 4 + 5) fail();
      return sum;
    });
  if (where == place::worker_init)
    options.worker_init([](const slotline::worker& worker) {
      if (worker.id() == 0) fail();
    });
  if (where == place::sampler)
    options.sampler(slotline::sampler::from(10, [](std::uint64_t, std::uint64_t, slotline::span<std::uint64_t>) { fail(); }));
  return slotline::loader(numbers{where}, options);
}

/// The outcome of a pass: its first error and the number of its batches.
struct outcome {
  std::optional<slotline::error> error;
  int batches = 0;
};

outcome run(slotline::loader& loader) {
  outcome result;
  try {
    slotline::pass pass = loader.epoch();
    for (bool more = true; more;) {
      try {
        for (auto& batch : pass) {
          (void)batch;
          ++result.batches;
        }
        more = false;
      } catch (const slotline::error& error) {
        if (!result.error) result.error = error;
      }
    }
  } catch (const slotline::error& error) {
    result.error = error;
  }
  return result;
}

const place PLACES[] = {place::read,        place::open,    place::next,         place::collate,
                        place::worker_init, place::sampler, place::batch_sampler};

code code_of(place where) {
  switch (where) {
    case place::collate: return code::collate;
    case place::worker_init: return code::worker_init;
    case place::sampler:
    case place::batch_sampler: return code::sampler;
    default: return code::sample;
  }
}

void every_callbacks_exception_is_the_cause_of_the_error() {
  for (const std::size_t workers : {0u, 1u, 2u})
    for (const place where : PLACES) {
      if (where == place::worker_init && workers == 0) continue;
      slotline::loader loader = failing(where, workers);
      const outcome result = run(loader);
      CHECK(result.error && result.error->code() == code_of(where));
      const slotline::error& error = *result.error;
      const std::string what = error.what();
      CHECK(has(what, "sensor 7 is silent") && !has(what, "panic"));
      try {
        error.rethrow_cause();
      } catch (const silent& thrown) {
        CHECK(thrown.sensor == 7);
      }
      // Only the index of a failed sample is set.
      const bool is_sample = where == place::read || where == place::next;
      CHECK(error.index() == (where == place::read ? 5 : where == place::next ? 2 : -1));
      CHECK(has(what, "sample ") == is_sample);
      if (where == place::read || where == place::collate || where == place::batch_sampler) CHECK(error.task() == 2);
      if (where == place::collate) CHECK(has(what, "the collate function failed for batch 2 in "));
      if (where == place::batch_sampler) CHECK(has(what, "the batch sampler failed when it was asked for batch 2"));
      if (where == place::worker_init) CHECK(error.worker() == 0);
      if (where == place::read || where == place::collate) CHECK(result.batches == 4);
    }
  CHECK(alive == 0);
}

void with_rethrow_the_loop_throws_the_exception_itself() {
  for (const std::size_t workers : {0u, 2u})
    for (const place where : PLACES) {
      if (where == place::worker_init && workers == 0) continue;
      slotline::loader loader = failing(where, workers, Options().rethrow());
      bool caught = false;
      try {
        for (auto& batch : loader) (void)batch;
      } catch (const silent& thrown) {
        caught = thrown.sensor == 7;
      }
      CHECK(caught);
    }
  slotline::loader loader = failing(place::read, 0, Options().rethrow());
  loader.epoch();
  CHECK(loader.next() && loader.next());
  try {
    loader.next();
    CHECK(false && "the third batch");
  } catch (const silent&) {
  }
  // The pass continues. Errors of slotline itself are slotline::error.
  CHECK(loader.next().value().batch_index() == 3);
  loader.stop();
  try {
    loader.next();
    CHECK(false && "a batch of a stopped loader");
  } catch (const slotline::error& error) {
    CHECK(error.code() == code::stopped && !error.cause());
  }
}

void nested_exceptions_are_kept_and_their_messages_joined() {
  slotline::loader loader(numbers{place::read, true}, Options().num_workers(1));
  bool outer = false, inner = false;
  try {
    for (auto& batch : loader) (void)batch;
  } catch (const slotline::error& error) {
    CHECK(has(error.what(), "no reading: sensor 7 is silent"));
    try {
      std::rethrow_if_nested(error);
    } catch (const std::out_of_range& thrown) {
      outer = true;
      try {
        std::rethrow_if_nested(thrown);
      } catch (const silent& cause) {
        inner = cause.sensor == 7;
      }
    }
  }
  CHECK(outer && inner);
}

void exceptions_of_any_type_are_carried() {
  struct odd : numbers {
    void read(std::size_t, slotline::sample&) const { throw 5; }
  };
  // A nested_exception that was created outside of a handler contains no exception.
  struct hollow : std::runtime_error, std::nested_exception {
    hollow() : std::runtime_error("hollow") {}
  };
  struct holding : numbers {
    void read(std::size_t, slotline::sample&) const { throw hollow(); }
  };
  slotline::loader first(odd{}, Options().rethrow());
  int caught = 0;
  try {
    first.epoch().begin();
  } catch (const int number) {
    caught = number;
  }
  CHECK(caught == 5);
  slotline::loader second(holding{}, Options());
  const outcome result = run(second);
  CHECK(has(result.error->what(), ": hollow"));
}

void a_status_has_the_cause() {
  slotline::loader loader = failing(place::read, 0);
  slotline::batch batch;
  CHECK(!slotline::status().cause() && loader.try_epoch());
  CHECK(loader.try_next(batch) && loader.try_next(batch));
  const slotline::status failed = loader.try_next(batch);
  CHECK(!failed && failed.index() == 5);
  try {
    std::rethrow_exception(failed.cause());
  } catch (const silent& thrown) {
    CHECK(thrown.sensor == 7);
  }
  // The exception outlives the status.
  std::exception_ptr kept;
  {
    slotline::loader again = failing(place::sampler, 0);
    kept = again.try_epoch().cause();
  }
  CHECK(kept && alive == 2);
}

void a_sample_that_fails_in_a_collate_function_keeps_its_exception_and_index() {
  const auto summing = [](bool catches) {
    return [catches](slotline::samples& samples) {
      std::int64_t sum = 0;
      for (bool more = true; more;) {
        try {
          while (samples.next()) sum += samples.field<std::int64_t>(0)[0];
          more = false;
        } catch (const std::exception&) {
          if (!catches) throw;
        }
      }
      return sum;
    };
  };
  slotline::loader loader(numbers{place::read}, Options().batch_size(2).collate(summing(false)));
  const outcome result = run(loader);
  CHECK(result.error->code() == code::sample && result.error->index() == 5 && result.error->task() == 2);
  try {
    result.error->rethrow_cause();
  } catch (const silent& thrown) {
    CHECK(thrown.sensor == 7);
  }
  slotline::loader patient(numbers{place::read}, Options().batch_size(2).collate(summing(true)));
  CHECK(!run(patient).error);
}

void a_sample_beyond_the_budget_is_the_cause() {
  slotline::loader loader(numbers{place::read}, Options().skip_errors(slotline::budget::samples(0)));
  const outcome result = run(loader);
  CHECK(result.error->code() == code::bad_samples && result.error->cause());
}

void exceptions_that_nobody_takes_are_destroyed() {
  struct failing_all : numbers {
    void read(std::size_t, slotline::sample&) const { fail(true); }
  };
  for (const bool skips : {false, true}) {
    Options options = Options().num_workers(2).prefetch_factor(2);
    if (skips) options.skip_errors();
    slotline::loader loader(failing_all{}, options);
    for (int pass = 0; pass < 20; ++pass) CHECK(loader.try_epoch());
    slotline::batch batch;
    (void)loader.try_next(batch);
  }
  CHECK(alive == 0);
}

#if defined(__linux__)
void only_the_message_leaves_a_worker_process() {
  slotline::loader loader = failing(place::read, 1, Options().processes().rethrow());
  const outcome result = run(loader);
  CHECK(result.error && result.error->index() == 5 && has(result.error->what(), "sensor 7 is silent"));
  CHECK(!result.error->cause() && result.batches == 4);
}
#endif

int main() {
#if defined(__linux__)
  only_the_message_leaves_a_worker_process();
#endif
  every_callbacks_exception_is_the_cause_of_the_error();
  with_rethrow_the_loop_throws_the_exception_itself();
  nested_exceptions_are_kept_and_their_messages_joined();
  exceptions_of_any_type_are_carried();
  a_status_has_the_cause();
  a_sample_that_fails_in_a_collate_function_keeps_its_exception_and_index();
  a_sample_beyond_the_budget_is_the_cause();
  exceptions_that_nobody_takes_are_destroyed();
  CHECK(alive == 0);
  std::puts("ok");
}
