// Tests worker processes that a command starts, in C++: this program again, with its task as the
// argument.

#include <slotline.hpp>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "check.hpp"

struct multiples {
  std::int64_t of;
  /// The index of a sample that is never finished; SIZE_MAX for none.
  std::size_t late = SIZE_MAX;

  std::size_t size() const { return 10; }
  std::vector<slotline::field> fields() const { return {slotline::fixed<std::int64_t>("multiple")}; }
  void read(std::size_t index, slotline::sample& sample) const {
    while (index == late) std::this_thread::sleep_for(std::chrono::seconds(1));
    sample.write(0, static_cast<std::int64_t>(index) * of);
  }
};

struct stream {
  struct cursor {
    bool next(slotline::sample&) { return false; }
  };
  std::vector<slotline::field> fields() const { return {slotline::fixed<std::int64_t>("multiple")}; }
  cursor open(const slotline::worker&) const { return {}; }
};

slotline::dataset digits(const std::string&) { return slotline::dataset::open("digits"); }

/// Returns options for two workers that are started with the task `what`.
slotline::options doing(const std::string& what, std::string setup = {}) {
  return slotline::options().num_workers(2).batch_size(4).processes().spawn({"/proc/self/exe", what}, std::move(setup));
}

std::vector<std::int64_t> all(slotline::loader& loader) {
  std::vector<std::int64_t> values;
  for (auto& batch : loader)
    for (const std::int64_t value : batch.field<std::int64_t>(batch.num_fields() - 1)) values.push_back(value);
  return values;
}

void classes_are_made_by_workers() {
  const slotline::options options = [] {
    const slotline::options given = doing("multiplies", "3");
    return slotline::options(given);
  }();
  slotline::loader loader(multiples{3}, options), other(multiples{4}, options);
  const std::vector<std::int64_t> triples = {0, 3, 6, 9, 12, 15, 18, 21, 24, 27};
  // The samples come from the workers' datasets, not from the loader's.
  CHECK(all(loader) == triples && all(other) == triples);
}

void datasets_are_made_by_workers() {
  slotline::loader threads(slotline::dataset::open("digits"), slotline::options().batch_size(4));
  slotline::loader processes(slotline::dataset::open("digits"), doing("reads digits"));
  const std::vector<std::int64_t> labels = all(processes);
  CHECK(labels.size() == 1797 && labels == all(threads));
}

void zeros_in_the_setup_arrive() {
  slotline::loader loader(multiples{5}, doing("counts", std::string("\0\xff\0\0\0", 5)));
  CHECK(all(loader)[1] == 5);
}

void exceptions_of_make_are_errors_of_the_loader() {
  const auto refusal = [](const char* what) {
    slotline::loader loader(multiples{3}, doing(what, "three"));
    return thrown([&] { all(loader); });
  };
  CHECK(refusal("throws").code() == slotline::code::worker_died && has(refusal("throws").what(), "the file is missing"));
  CHECK(has(refusal("multiplies").what(), "could not start: stoll"));
  CHECK(has(refusal("throws a number").what(), "an exception that is not a std::exception"));
  CHECK(has(refusal("streams").what(), "its dataset is a stream"));
  CHECK(has(refusal("reads digits").what(), "its dataset has 1797 samples, and the loader's has 10"));
}

void a_late_sample_is_an_error() {
  slotline::loader loader(multiples{3}, doing("is late").sample_timeout(std::chrono::seconds(1)));
  slotline::pass pass = loader.epoch();
  std::size_t samples = 0;
  const auto read_rest = [&] { for (auto& batch : pass) samples += batch.size(); };
  const slotline::error late = thrown(read_rest);
  CHECK(late.code() == slotline::code::sample && late.index() == 6);
  read_rest();
  CHECK(samples == 6);
}

void wrong_options_are_refused() {
  using slotline::code;
  const auto refusal = [](const slotline::options& options) {
    return thrown([&] { slotline::loader(multiples{3}, options); });
  };
  const auto workers = slotline::options().num_workers(1);
  CHECK(refusal(slotline::options(workers).spawn({"true"})).code() == code::build);
  CHECK(refusal(slotline::options(workers).sample_timeout(std::chrono::seconds(1))).code() == code::build);
  CHECK(refusal(slotline::options(workers).processes().spawn({})).code() == code::invalid);
  CHECK(thrown([] { slotline::options().spawn({std::string("a\0b", 3)}); }).code() == code::invalid);
  CHECK(thrown([] { slotline::loader(stream{}, doing("works")); }).code() == code::build);
}

int main(int, char** arguments) {
  const std::string what = arguments[1] ? arguments[1] : "";
  if (what == "multiplies")
    slotline::work_if_spawned([](const std::string& setup) { return multiples{std::stoll(setup)}; });
  if (what == "reads digits") slotline::work_if_spawned(digits);
  if (what == "counts")
    slotline::work_if_spawned([](const std::string& setup) {
      return multiples{setup == std::string("\0\xff\0\0\0", 5) ? static_cast<std::int64_t>(setup.size()) : 0};
    });
  if (what == "throws")
    slotline::work_if_spawned([](const std::string&) -> slotline::dataset { throw std::runtime_error("the file is missing"); });
  if (what == "throws a number") slotline::work_if_spawned([](const std::string&) -> slotline::dataset { throw 5; });
  if (what == "streams") slotline::work_if_spawned([](const std::string&) { return stream{}; });
  if (what == "is late") slotline::work_if_spawned([](const std::string&) { return multiples{3, 6}; });
  CHECK(what.empty());
  slotline::work_if_spawned(digits);
  classes_are_made_by_workers();
  datasets_are_made_by_workers();
  zeros_in_the_setup_arrive();
  exceptions_of_make_are_errors_of_the_loader();
  a_late_sample_is_an_error();
  wrong_options_are_refused();
  std::puts("ok");
}
