// The C++ layer in a program without exceptions, and without RTTI.

#include <slotline.hpp>

#include <cstdio>
#include <cstring>
#include <optional>
#include <vector>

#define CHECK(condition)                                                    \
  do {                                                                      \
    if (!(condition)) {                                                     \
      std::fprintf(stderr, "line %d: %s is false\n", __LINE__, #condition); \
      return 1;                                                             \
    }                                                                       \
  } while (false)

struct picky {
  std::size_t size() const { return 10; }
  std::vector<slotline::field> fields() const { return {slotline::fixed<std::int64_t>("number")}; }
  void read(std::size_t index, slotline::sample& sample) const {
    if (index == 7) return sample.fail("seven is refused");
    sample.write(0, std::int64_t(index));
  }
};

/// The same, in bulk.
struct picky_store : picky {
  void read_many(slotline::span<const std::size_t> indices, slotline::put& put) const {
    for (const std::size_t index : indices) put([&](slotline::sample& sample) { read(index, sample); });
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

int main(int count, char** words) {
  std::optional<slotline::dataset> digits;
  slotline::status result = slotline::dataset::try_open("nothing:here", digits);
  CHECK(!result && result.code() == slotline::code::invalid && !digits);
  CHECK(slotline::dataset::try_open("digits", digits).ok() && digits->size() == 1797);

  std::optional<slotline::loader> loader;
  result = slotline::loader::try_make(*digits, slotline::options().prefetch_factor(2), loader);
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

  // What throws otherwise ends the program with the message.
  if (count > 1) slotline::dataset::open(words[1]);
  std::puts("ok");
  return 0;
}
