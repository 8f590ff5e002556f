// Tests the C++ layer in a program compiled without exceptions and without RTTI.

#include <slotline.hpp>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "check.hpp"

using slotline::code;

/// Returns whether a call failed with this code, and with these words in its message; otherwise
/// prints the result.
static bool failed(const slotline::status& result, code how, const char* words) {
  if (result.code() == how && std::strstr(result.message(), words)) return true;
  std::fprintf(stderr, "code %d: %s\n", static_cast<int>(result.code()), result.message());
  return false;
}

struct picky {
  std::size_t size() const { return 10; }
  std::vector<slotline::field> fields() const { return {slotline::fixed<std::int64_t>("number")}; }
  void read(std::size_t index, slotline::sample& sample) const {
    if (index == 7) return sample.fail("seven is refused");
    sample.write(0, std::int64_t(index));
  }
};

/// The dataset `picky` with bulk reads.
struct picky_store : picky {
  void read_many(slotline::span<const std::size_t> indices, slotline::sample_sink& sink) const {
    for (const std::size_t index : indices) sink([&](slotline::sample& sample) { read(index, sample); });
  }
  void prefetch(std::size_t) const {}
};

struct countdown {
  struct cursor {
    std::int64_t left;
    bool next(slotline::sample& sample) {
      if (left == 2) sample.fail("two is refused");
      else sample.write(0, left);
      return left-- > 0;
    }
  };
  std::vector<slotline::field> fields() const { return {slotline::fixed<std::int64_t>("left")}; }
  cursor open(const slotline::worker&) const { return {3}; }
};

/// A stream that one of its workers cannot open.
struct halves : countdown {
  cursor open(const slotline::worker& worker) const {
    if (worker.id() == 1) worker.fail("the second half is missing");
    return {1};
  }
};

/// A dataset of samples with various lengths, one of them too long.
struct lengths {
  std::size_t size() const { return 4; }
  std::vector<slotline::field> fields() const { return {slotline::fixed<float>("values", {2}), slotline::fixed<int>("one")}; }
  void read(std::size_t index, slotline::sample& sample) const {
    const std::vector<float> values(index == 2 ? 3 : 2, 1.0F);
    sample.try_write(1, int(index));
    if (sample.try_write(0, values) != (index != 2)) std::abort();
  }
};

static void datasets() {
  std::optional<slotline::dataset> digits, other;
  CHECK(failed(slotline::dataset::try_open("nothing:here", digits), code::invalid, "expected digits") && !digits);
  CHECK(slotline::dataset::try_open("digits", digits).ok() && digits->size() == 1797);

  CHECK(failed(slotline::dataset::try_make(std::shared_ptr<picky>(), other), code::invalid, "is null") && !other);
  CHECK(slotline::dataset::try_make(std::make_shared<picky>(), other).ok() && other->size() == 10);
  CHECK(failed(slotline::dataset::try_concat({*digits, *other}, other), code::invalid, "field"));
  CHECK(failed(slotline::dataset::try_stack({*digits, *other}, other), code::invalid, "1797"));
  CHECK(failed(other->try_subset({10}, other), code::invalid, "10"));
  CHECK(other->try_subset({7, 1}, other).ok() && other->size() == 2);

  std::vector<slotline::array> arrays;
  arrays.emplace_back("x", std::vector<float>(3));
  arrays.emplace_back("y", std::vector<float>(4));
  CHECK(failed(slotline::dataset::try_of(std::move(arrays), other), code::invalid, "3") && other->size() == 2);
}

static void fields_and_states() {
  std::optional<slotline::loader> loader;
  CHECK(slotline::loader::try_make(picky{}, slotline::options().batch_size(2), loader).ok());
  CHECK(loader->try_epoch().ok());
  slotline::batch batch;
  CHECK(loader->try_next(batch).ok());
  std::optional<slotline::view<std::int64_t>> numbers;
  CHECK(failed(batch.try_field(1, numbers), code::invalid, "1") && !numbers);
  CHECK(failed(batch.try_field("letter", numbers), code::invalid, "letter") && !numbers);
  CHECK(batch.try_field("number", numbers).ok() && (*numbers)[1] == 1);
  CHECK(batch.try_field(0, numbers).ok() && numbers->size() == 2);
  std::optional<slotline::view<float>> floats;
  CHECK(failed(batch.try_field(0, floats), code::invalid, "field number is i64, not f32") && !floats);

  std::string state;
  CHECK(loader->try_state(state).ok());
  CHECK(slotline::loader::try_make(picky{}, slotline::options().batch_size(2), loader).ok());
  CHECK(failed(loader->try_load_state("damaged"), code::state, "state"));
  CHECK(loader->try_load_state(state).ok() && loader->try_epoch().ok() && loader->try_next(batch).ok() && batch.batch_index() == 1);
}

/// Returns the first failure of a pass that has at most ten results.
static slotline::status first_failure(const slotline::dataset& dataset, const slotline::options& options) {
  slotline::loader loader(dataset, options);
  slotline::status started = loader.try_epoch();
  if (!started) return started;
  slotline::batch batch;
  for (int i = 0; i < 10; ++i) {
    slotline::status next = loader.try_next(batch);
    if (!next) return next;
  }
  std::abort();
}

static void callbacks_fail() {
  const slotline::dataset numbers = picky{};
  const auto two = slotline::options().num_workers(2);
  CHECK(failed(first_failure(halves{}, two), code::sample, "the second half is missing"));
  CHECK(failed(first_failure(lengths{}, {}), code::sample, "values"));
  auto options = two;
  options.worker_init([](const slotline::worker& worker) { worker.fail("no tables"); });
  CHECK(failed(first_failure(numbers, options), code::worker_init, "no tables"));

  using indices = slotline::span<std::uint64_t>;
  auto no_order = [](std::uint64_t, std::uint64_t, indices, slotline::failure& failure) { failure.fail("no order"); };
  options = slotline::options().sampler(slotline::sampler::from(3, no_order));
  CHECK(failed(first_failure(numbers, options), code::sampler, "no order"));

  using batch = std::optional<std::vector<std::size_t>>;
  auto no_batch = [](std::uint64_t, std::uint64_t, std::uint64_t number, slotline::failure& failure) -> batch {
    if (number == 1) failure.fail("no second batch");
    return std::vector<std::size_t>{0};
  };
  options = slotline::options().batch_sampler(slotline::batch_sampler::from(2, no_batch));
  CHECK(failed(first_failure(numbers, options), code::sampler, "no second batch"));
  auto long_batch = [](std::uint64_t, std::uint64_t, std::uint64_t) -> batch { return std::vector<std::size_t>{0, 1, 2}; };
  options = slotline::options().batch_sampler(slotline::batch_sampler::from(2, long_batch));
  CHECK(failed(first_failure(numbers, options), code::sampler, "3 indices, but max_batch_size is 2"));
}

static void collate_functions_fail() {
  const auto ten = slotline::options().batch_size(10);
  auto options = ten;
  options.collate([](slotline::samples& samples) {
    samples.fail("no batch today");
    return 0;
  });
  CHECK(failed(first_failure(picky{}, options), code::collate, "no batch today"));

  // A sample that cannot be read fails the batch, unless the function continues after it.
  auto stops = [](slotline::samples& samples) {
    while (samples.try_next()) continue;
    return samples.unread();
  };
  options = ten;
  const slotline::status stopped = first_failure(picky{}, options.collate(stops));
  CHECK(failed(stopped, code::sample, "seven is refused") && stopped.index() == 7);
  auto continues = [](slotline::samples& samples) {
    std::size_t read = 0;
    do {
      while (samples.try_next()) ++read;
    } while (samples.unread());
    return read;
  };
  options = ten;
  slotline::loader loader(picky{}, options.collate(continues));
  for (auto& batch : loader) CHECK(batch.made<std::size_t>() == 9);
}

/// Returns an exception from code that is compiled with exceptions, such as another library.
std::exception_ptr thrown_elsewhere();

struct elsewhere : picky {
  void read(std::size_t, slotline::sample& sample) const {
    auto* payload = new std::exception_ptr(thrown_elsewhere());
    slotline_sample_fail_with(sample.raw(), "it failed elsewhere", payload, slotline::detail::exception_type,
                              slotline::detail::deleted<std::exception_ptr>);
  }
};

int main(int count, char** words) {
  // Functions that would throw end the program with the message.
  if (count > 1 && std::strcmp(words[1], "elsewhere") == 0) {
    slotline::loader failing(elsewhere{});
    for (auto& batch : failing) CHECK(!batch);
    return 0;
  }
  if (count > 1) slotline::dataset::open(words[1]);

  datasets();
  fields_and_states();
  callbacks_fail();
  collate_functions_fail();

  std::optional<slotline::dataset> digits;
  CHECK(slotline::dataset::try_open("digits", digits).ok());

  std::optional<slotline::loader> loader;
  const slotline::status result = slotline::loader::try_make(*digits, slotline::options().prefetch_factor(2), loader);
  CHECK(!result && result.code() == slotline::code::build && std::strstr(result.message(), "num_workers") && !loader);

  for (const std::size_t workers : {std::size_t{0}, std::size_t{2}}) {
    CHECK(slotline::loader::try_make(picky{}, slotline::options().num_workers(workers), loader).ok());
    CHECK(loader->try_epoch().ok());
    std::int64_t sum = 0, refused = 0;
    slotline::batch batch;
    for (;;) {
      const slotline::status next = loader->try_next(batch);
      if (next.at_end()) break;
      if (next) sum += batch.field<std::int64_t>(0)[0];
      else refused += next.index() == 7 && std::strstr(next.message(), "seven is refused") && !next.cause();
    }
    CHECK(sum == 45 - 7 && refused == 1);
  }

  CHECK(slotline::loader::try_make(countdown{}, slotline::options(), loader).ok() && loader->try_epoch().ok());
  slotline::batch batch;
  CHECK(loader->try_next(batch).ok() && batch.field<std::int64_t>(0)[0] == 3);
  CHECK(loader->try_next(batch).code() == slotline::code::sample);

  CHECK(slotline::loader::try_make(picky_store{}, slotline::options().batch_size(5), loader).ok());
  CHECK(loader->try_epoch().ok() && loader->try_next(batch).ok() && batch.field<std::int64_t>(0)[4] == 4);
  const slotline::status refused = loader->try_next(batch);
  CHECK(refused.index() == 7 && std::strstr(refused.message(), "seven is refused"));

  const slotline::dataset doubled = slotline::dataset(picky{}).subset({5, 7}).map(
      {slotline::fixed<std::int64_t>("double")}, [](const slotline::batch& source, slotline::sample& sample) {
        sample.write(0, 2 * source.field<std::int64_t>(0)[0]);
      });
  CHECK(doubled.try_get(0, batch).ok() && batch.field<std::int64_t>(0)[0] == 10);
  CHECK(doubled.try_get(1, batch).code() == slotline::code::sample && !batch);

  auto sums = [](slotline::samples& samples) {
    std::vector<std::int64_t> numbers;
    while (samples.next()) numbers.push_back(samples.field<std::int64_t>(1)[0]);
    return numbers;
  };
  slotline::loader made(*digits, slotline::options().batch_size(100).collate(sums));
  std::size_t samples = 0;
  for (auto& one : made) samples += one.made<std::vector<std::int64_t>>().size();
  CHECK(samples == 1797);

  std::puts("ok");
  return 0;
}
