// Tests datasets made of other datasets, and datasets by pointer and reference.

#include <cstdint>

/// The first members of the struct in dlpack.h.
struct DLManagedTensorVersioned {
  std::uint32_t major, minor;
  void* manager_ctx;
  void (*deleter)(DLManagedTensorVersioned*);
};

#include <slotline.hpp>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "check.hpp"

using slotline::dataset;
using Fields = std::vector<slotline::field>;
using Indices = std::vector<std::size_t>;

/// A dataset of the numbers from `first`, in a field with a name.
struct numbers {
  std::int64_t first;
  std::size_t count;
  std::string name = "number";
  std::size_t size() const { return count; }
  Fields fields() const { return {slotline::fixed<std::int64_t>(name)}; }
  void read(std::size_t index, slotline::sample& sample) const { sample.write(0, first + std::int64_t(index)); }
};

/// A dataset with fields of all kinds, and random numbers.
struct mixed {
  std::size_t size() const { return 20; }
  Fields fields() const {
    return {slotline::fixed<bool>("even"), slotline::padded_to_max<std::int16_t>("padded", 4),
            slotline::packed<double>("packed", 7), slotline::fixed<std::uint64_t>("noise", {2})};
  }
  void read(std::size_t index, slotline::sample& sample) const {
    sample.row<bool>(0)[0] = index % 2 == 0;
    sample.write(1, std::vector<std::int16_t>(index % 5, std::int16_t(index)));
    sample.write(2, std::vector<double>(index % 7, double(index)));
    auto rng = sample.rng();
    sample.write(3, std::vector<std::uint64_t>{rng(), rng()});
  }
};

/// Returns the elements of a field over a pass.
template <class T>
std::vector<T> pass(const dataset& dataset, std::size_t field, std::size_t workers = 0, bool processes = false) {
  auto options = slotline::options().batch_size(3).num_workers(workers).seed(5);
  if (processes) options.processes();
  slotline::loader loader(dataset, options);
  std::vector<T> all;
  for (auto& batch : loader) {
    const auto view = batch.field<T>(field);
    all.insert(all.end(), view.begin(), view.end());
  }
  return all;
}

using Numbers = std::vector<std::int64_t>;

void subsets() {
  const dataset ten = numbers{0, 10};
  const dataset some = ten.subset({3, 1, 4, 1});
  CHECK(some.size() == 4 && pass<std::int64_t>(some, 0) == Numbers({3, 1, 4, 1}));
  CHECK(pass<std::int64_t>(some.subset({2, 0}), 0, 2) == Numbers({4, 3}));
  CHECK(ten.subset({}).size() == 0);
  const auto error = thrown([&] { some.subset({0, 4}); });
  CHECK(error.code() == slotline::code::invalid && has(error.what(), "indices[1] is 4, but the dataset has only 4"));
}

/// Tests that random parts are those of torch.utils.data.random_split.
void random_splits() {
  const dataset ten = numbers{0, 10};
  slotline::generator generator(42);
  auto parts = ten.random_split({3, 7}, generator);
  CHECK(parts.size() == 2);
  CHECK(pass<std::int64_t>(parts[0], 0) == Numbers({2, 6, 1}));
  CHECK(pass<std::int64_t>(parts[1], 0) == Numbers({8, 4, 5, 0, 9, 3, 7}));
  // The generator has advanced, so the parts are other ones.
  CHECK(pass<std::int64_t>(ten.random_split({3, 7}, generator)[0], 0) != Numbers({2, 6, 1}));
  parts = ten.random_split(std::vector<double>{0.33, 0.33, 0.34}, slotline::generator(42));
  CHECK(parts[0].size() == 4 && parts[1].size() == 3 && parts[2].size() == 3);
  CHECK(pass<std::int64_t>(parts[0], 0) == Numbers({2, 6, 1, 8}));
  slotline::manual_seed(42);
  CHECK(pass<std::int64_t>(ten.random_split({0.3, 0.7})[0], 0) == Numbers({2, 6, 1}));
  CHECK(has(thrown([&] { ten.random_split({3, 6}); }).what(), "add up to 9, but the dataset has 10 samples"));
  CHECK(has(thrown([&] { ten.random_split({0.5, 0.4}); }).what(), "add up to 0.9"));
}

void concatenations() {
  const dataset all = dataset::concat({numbers{0, 2}, numbers{0, 0}, numbers{10, 3}});
  for (const std::size_t workers : Indices{0, 2}) CHECK(pass<std::int64_t>(all, 0, workers) == Numbers({0, 1, 10, 11, 12}));
  CHECK(dataset::concat({numbers{0, 0}}).size() == 0);
  const auto error = thrown([] { dataset::concat({numbers{0, 2}, mixed()}); });
  CHECK(error.code() == slotline::code::invalid && has(error.what(), "even") && has(error.what(), "number"));
  CHECK(has(thrown([] { dataset::concat({}); }).what(), "empty"));
}

/// Tests that callbacks that write fields of all kinds work at any position in a stack, and that
/// each part has its own random numbers.
void stacks() {
  const dataset levels = dataset::of({slotline::array("level", std::vector<float>(20, 0.5f))});
  const dataset others = dataset(mixed()).map(
      {slotline::fixed<std::uint64_t>("other noise", {2})},
      [](const slotline::batch& source, slotline::sample& sample) { sample.write(0, source.field<std::uint64_t>(3)); });
  const dataset both = dataset::stack({numbers{100, 20}, mixed(), levels, others});
  slotline::loader loader(both, slotline::options().batch_size(20).num_workers(2));
  for (auto& batch : loader) {
    CHECK(batch.size() == 20 && batch.num_fields() == 7);
    const auto number = batch.field<std::int64_t>("number");
    const auto even = batch.field<bool>("even");
    const auto padded = batch.field<std::int16_t>("padded");
    const auto packed = batch.field<double>("packed");
    const auto noise = batch.field<std::uint64_t>("noise"), other = batch.field<std::uint64_t>("other noise");
    for (std::size_t i = 0; i < 20; ++i) {
      CHECK(number[i] == std::int64_t(100 + i) && even[i] == (i % 2 == 0));
      CHECK(padded.ends()[i] == std::int64_t(i % 5) && padded.row(i)[0] == std::int16_t(i % 5 ? i : 0));
      CHECK(packed.ends()[i + 1] - packed.ends()[i] == std::int64_t(i % 7));
      CHECK(noise.row(i)[0] != other.row(i)[0]);
    }
    CHECK(batch.field<float>("level")[19] == 0.5f);
  }
  // Fields whose names are only their positions are renamed; other names must be unique.
  const auto digits = dataset::open("digits");
  const dataset twice = dataset::stack({digits, digits});
  const slotline::batch renamed = twice.get(0);
  CHECK(renamed.num_fields() == 4 && renamed.tensor(3).name() == std::string("3"));
  CHECK(has(thrown([] { dataset::stack({mixed(), mixed()}); }).what(), "two fields have the name \"even\""));
  CHECK(has(thrown([] { dataset::stack({numbers{0, 2}, numbers{0, 3, "x"}}); }).what(), "datasets[1] has 3 samples"));
}

void maps() {
  const Fields fields = {slotline::fixed<double>("half"), slotline::fixed<std::uint64_t>("noise")};
  std::shared_ptr<int> owned = std::make_shared<int>(0);
  dataset halves = dataset(numbers{0, 10}).map(
      fields, [owned](const slotline::batch& source, slotline::sample& sample) {
        const auto number = source.field<std::int64_t>("number");
        CHECK(number.shape().size() == 0 && source.size() == 1 && source.indices()[0] == number[0]);
        if (number[0] == 7) throw std::runtime_error("seven is refused");
        sample.write(0, double(number[0]) / 2);
        sample.write(1, sample.rng()());
      });
  const Indices most = {0, 1, 2, 3, 4, 5, 6, 8, 9};
  const auto noise = pass<std::uint64_t>(halves.subset(most), 1);
  for (const std::size_t workers : Indices{0, 1, 3}) {
    CHECK(pass<double>(halves.subset(most), 0, workers) == std::vector<double>({0, .5, 1, 1.5, 2, 2.5, 3, 4, 4.5}));
    CHECK(pass<std::uint64_t>(halves.subset(most), 1, workers) == noise);
  }
  CHECK(noise[0] != noise[1]);
#ifdef __linux__
  CHECK(pass<std::uint64_t>(halves.subset(most), 1, 2, true) == noise);
#endif
  const auto error = thrown([&] { pass<double>(halves, 0); });
  CHECK(error.code() == slotline::code::sample && error.index() == 7 && has(error.what(), "seven is refused"));
  // A map of a map, in a concatenation with another dataset.
  const auto twice = [](const slotline::batch& source, slotline::sample& sample) {
    sample.write(0, 2 * source.field<double>(0)[0]);
  };
  const Fields doubled = {slotline::fixed<double>("double")};
  const dataset deep = dataset::concat({halves.subset({1, 2}).map(doubled, twice).map(doubled, twice),
                                        halves.map(doubled, twice).subset({4})});
  CHECK(pass<double>(deep, 0, 2) == std::vector<double>({2, 4, 4}));
  // The function that was passed to `map` exists as long as the datasets that call it.
  CHECK(owned.use_count() == 2);
  halves = dataset::open("digits");
  CHECK(owned.use_count() == 2);
}

/// A stream of the numbers from `first` to `end`, divided among the workers.
struct counting {
  std::int64_t first, end;
  struct cursor {
    std::int64_t at, end, step;
    bool next(slotline::sample& sample) {
      if (at >= end) return false;
      sample.write(0, at);
      at += step;
      return true;
    }
    std::string save() const { return std::to_string(at); }
  };
  Fields fields() const { return {slotline::fixed<std::int64_t>("number")}; }
  cursor open(const slotline::worker& worker) const {
    const auto id = std::int64_t(worker.id()), workers = std::int64_t(worker.num_workers());
    return {first + (id < 0 ? 0 : id), end, workers > 0 ? workers : 1};
  }
  cursor resume(const slotline::worker& worker, const std::string& saved) const {
    cursor resumed = open(worker);
    resumed.at = std::stoll(saved);
    return resumed;
  }
};

void streams() {
  const dataset chain = dataset::chain({counting{0, 5}, dataset::chain({counting{10, 13}}), counting{20, 20}});
  const dataset halves = chain.map(
      {slotline::fixed<double>("half"), slotline::fixed<std::uint64_t>("drawn")},
      [](const slotline::batch& source, slotline::sample& sample) {
        const std::int64_t number = source.field<std::int64_t>("number")[0];
        if (number == 3) throw std::out_of_range("three");
        sample.write(0, double(number) / 2);
        sample.write(1, sample.rng()());
      });
  for (std::size_t workers : {std::size_t(0), std::size_t(2)}) {
    auto options = slotline::options().batch_size(2).num_workers(workers).seed(7);
    slotline::loader loader(halves, options);
    std::vector<double> numbers;
    std::vector<std::uint64_t> drawn;
    std::string state;
    CHECK(loader.try_epoch());
    std::size_t failures = 0;
    slotline::batch batch;
    for (slotline::status status; !(status = loader.try_next(batch)).at_end();) {
      if (status) {
        for (const double half : batch.field<double>(0)) numbers.push_back(half);
        for (const std::uint64_t number : batch.field<std::uint64_t>("drawn")) drawn.push_back(number);
        continue;
      }
      ++failures;
      CHECK(has(status.message(), "three") && status.cause());
      state = loader.state();
    }
    CHECK(failures == 1);
    // Samples before the failure in its batch are lost: 2 without workers, and 1 in the worker that
    // reads 1 and 3.
    CHECK((numbers == std::vector<double>{0, workers == 0 ? 0.5 : 1, 2, 5, 5.5, 6}));
    CHECK(drawn[0] != drawn[1]);
    slotline::loader resumed(halves, options);
    resumed.load_state(state);
    std::size_t rest = 0;
    for (auto& left : resumed) rest += left.size();
    CHECK(rest == 4);
  }

  CHECK(chain.size() == -1);
  const slotline::error indexed = thrown([&] { dataset::chain({chain, numbers{0, 1}}); });
  CHECK(indexed.code() == slotline::code::invalid && has(indexed.what(), "datasets[1]") && has(indexed.what(), "by index"));
  CHECK(has(thrown([&] { dataset::concat({chain}); }).what(), "slotline_dataset_chain"));
  std::optional<dataset> none;
  CHECK(dataset::try_chain({}, none).code() == slotline::code::invalid && !none);
}

void exports_from_maps() {
  static std::mutex lock;
  static std::vector<std::pair<std::int64_t, const std::int64_t*>> kept;
  static std::vector<slotline::dlpack<DLManagedTensorVersioned>> tensors;
  const dataset some = dataset(numbers{0, 50}).map(
      {slotline::fixed<std::int64_t>("number")}, [](const slotline::batch& source, slotline::sample& sample) {
        const auto number = source.field<std::int64_t>(0);
        sample.write(0, number[0]);
        auto exported = source.dlpack(0);
        const std::lock_guard<std::mutex> guard(lock);
        kept.emplace_back(number[0], number.data());
        tensors.push_back(std::move(exported));
      });
  CHECK(pass<std::int64_t>(some, 0, 2).size() == 50 && kept.size() == 50);
  for (const auto& [number, at] : kept) CHECK(*at == number);
  tensors.clear();
}

void single_samples() {
  const dataset made = mixed();
  const slotline::batch six = made.get(6);
  CHECK(six.size() == 1 && six.indices()[0] == 6 && six.num_fields() == 4);
  CHECK(six.field<bool>("even")[0] && six.tensor("noise").shape().size() == 1);
  CHECK(six.field<double>("packed").size() == 6 && six.field<double>("packed")[5] == 6);
  CHECK(six.field<std::int16_t>("padded").size() == 4 && six.field<std::int16_t>("padded").ends()[0] == 1);
  const slotline::batch digit = dataset::open("digits").get(1796), same = made.subset({6}).get(0);
  CHECK(digit.tensor(0).shape().size() == 2 && digit.tensor(1).shape().empty());
  CHECK(same.field<std::uint64_t>("noise")[1] == six.field<std::uint64_t>("noise")[1]);
  auto error = thrown([&] { made.get(20); });
  CHECK(error.code() == slotline::code::invalid && has(error.what(), "index is 20, but the dataset has 20 samples"));
  CHECK(error.index() == 20);
  struct broken : numbers {
    void read(std::size_t, slotline::sample&) const { throw std::runtime_error("no disk"); }
  };
  error = thrown([] { dataset(broken{{0, 3}}).get(2); });
  CHECK(error.code() == slotline::code::sample && error.index() == 2 && has(error.what(), "no disk"));
  bool is_cause = false;
  try {
    std::rethrow_exception(error.cause());
  } catch (const std::runtime_error& cause) {
    is_cause = cause.what() == std::string("no disk");
  }
  CHECK(is_cause);
}

/// The interface, with virtual functions, of a dataset that cannot be copied.
struct base {
  virtual ~base() { ++destroyed; }
  virtual std::size_t size() const = 0;
  virtual Fields fields() const = 0;
  virtual void read(std::size_t index, slotline::sample& sample) const = 0;
  static std::atomic<int> destroyed;
};
std::atomic<int> base::destroyed{0};
struct counted : base {
  mutable std::mutex lock;
  mutable std::size_t reads = 0;
  std::size_t size() const override { return 10; }
  Fields fields() const override { return {slotline::fixed<std::int64_t>("number")}; }
  void read(std::size_t index, slotline::sample& sample) const override {
    const std::lock_guard<std::mutex> guard(lock);
    ++reads;
    sample.write(0, std::int64_t(index));
  }
};

void pointers_and_references() {
  const Numbers all = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
  {
    const auto shared = std::make_shared<counted>();
    const std::shared_ptr<const base> as_base = shared;
    CHECK(pass<std::int64_t>(as_base, 0, 2) == all && pass<std::int64_t>(shared, 0) == all && shared->reads == 20);
    CHECK(shared.use_count() == 2 && base::destroyed == 0);
    counted here;
    const base& reference = here;
    CHECK(pass<std::int64_t>(std::ref(reference), 0, 2) == all && here.reads == 10 && base::destroyed == 0);
  }
  CHECK(base::destroyed == 2);
  {
    dataset only = std::unique_ptr<base>(std::make_unique<counted>());
    CHECK(pass<std::int64_t>(only, 0) == all && base::destroyed == 2);
  }
  CHECK(base::destroyed == 3);
  bool refused = false;
  try {
    dataset none = std::shared_ptr<base>();
  } catch (const std::invalid_argument& error) {
    refused = has(error.what(), "null");
  }
  CHECK(refused);
}

/// A dataset of numbers with bulk reads.
struct store {
  std::size_t size() const { return 20; }
  Fields fields() const {
    return {slotline::fixed<std::int64_t>(name + "number"), slotline::fixed<std::uint64_t>(name + "noise")};
  }
  void write(std::size_t index, slotline::sample& sample) const {
    sample.write(0, std::int64_t(index));
    sample.write(1, sample.rng()());
  }
  void read(std::size_t index, slotline::sample& sample) const {
    ++*singles;
    write(index, sample);
  }
  void read_many(slotline::span<const std::size_t> indices, slotline::sample_sink& sink) const {
    const std::lock_guard<std::mutex> guard(*lock);
    asked->push_back(Indices(indices.begin(), indices.end()));
    for (const std::size_t index : indices) {
      if (index == fewer) break;
      if (index == unreadable) throw std::runtime_error("no connection");
      sink([&](slotline::sample& sample) {
        if (index == unwritable) throw std::range_error("no number");
        write(index, sample);
      });
    }
    if (more) sink([&](slotline::sample& sample) { write(0, sample); });
  }
  void prefetch(std::size_t index) const {
    ++*announced;
    if (index == 3) throw std::runtime_error("never seen");
  }

  std::size_t fewer = 99, unreadable = 99, unwritable = 99;
  bool more = false;
  std::string name = "";
  std::shared_ptr<std::atomic<int>> singles = std::make_shared<std::atomic<int>>(0), announced = std::make_shared<std::atomic<int>>(0);
  std::shared_ptr<std::vector<Indices>> asked = std::make_shared<std::vector<Indices>>();
  std::shared_ptr<std::mutex> lock = std::make_shared<std::mutex>();
};

/// The same dataset without bulk reads.
struct plain_store {
  store of;
  std::size_t size() const { return of.size(); }
  Fields fields() const { return of.fields(); }
  void read(std::size_t index, slotline::sample& sample) const { of.read(index, sample); }
};

void bulk_reads() {
  store store;
  Numbers all(20);
  std::iota(all.begin(), all.end(), 0);
  for (const std::size_t workers : Indices{0, 2}) CHECK(pass<std::int64_t>(store, 0, workers) == all);
  CHECK(*store.singles == 0 && *store.announced > 0);
  std::size_t asked = 0;
  for (const Indices& each : *store.asked) asked += each.size();
  CHECK(asked == 40 && store.asked->front().size() == 3);
  // The random numbers are the same as with single reads.
  const auto noise = pass<std::uint64_t>(store, 1);
  CHECK(pass<std::uint64_t>(plain_store{store}, 1) == noise && *store.singles == 20 && noise[0] != noise[1]);
  // A subset passes its indices on.
  store.asked->clear();
  CHECK(pass<std::int64_t>(dataset(store).subset({7, 5, 6}), 0) == Numbers({7, 5, 6}));
  CHECK(store.asked->size() == 1 && store.asked->front() == Indices({7, 5, 6}));

  // A failed bulk read is the error of the first sample that was not stored.
  const auto failed = [&](std::size_t index, const char* message) {
    const auto error = thrown([&] { pass<std::int64_t>(store, 0); });
    CHECK(error.code() == slotline::code::sample && error.index() == std::int64_t(index) && has(error.what(), message));
    return error;
  };
  store.unreadable = 4;
  failed(4, "no connection");
  store.unreadable = 99, store.unwritable = 5;
  const auto error = failed(5, "no number");
  bool is_cause = false;
  try {
    std::rethrow_exception(error.cause());
  } catch (const std::range_error&) {
    is_cause = true;
  }
  CHECK(is_cause);
  store.unwritable = 99, store.fewer = 7;
  failed(7, "asked for 3 samples, but put only 1");
  store.fewer = 99, store.more = true;
  CHECK(has(thrown([&] { pass<std::int64_t>(store, 0); }).what(), "asked for 3 samples, but put more"));
}

/// Tests that datasets made of others use bulk reads, with the same samples and random numbers as
/// single reads.
void bulk_reads_of_compositions() {
  store first, second;
  first.name = "first ", second.name = "second ";
  const auto asked = [](const store& store) {
    std::vector<Indices> all;
    all.swap(*store.asked);
    return all;
  };
  const auto is_read_as = [](const dataset& many, const dataset& single) {
    const auto noise = pass<std::uint64_t>(single, 1);
    for (const std::size_t workers : Indices{0, 2}) CHECK(pass<std::uint64_t>(many, 1, workers) == noise && noise[0] != noise[1]);
  };
  const auto reset = [&] {
    for (const store* each : {&first, &second}) each->asked->clear(), *each->singles = 0;
  };

  // In a concatenation, adjacent samples of the same dataset are read in bulk.
  const dataset both = dataset::concat({first, plain_store{first}, first});
  const dataset order = both.subset({3, 1, 45, 42, 44, 0, 25, 2, 59});
  CHECK(pass<std::int64_t>(order, 0) == Numbers({3, 1, 5, 2, 4, 0, 5, 2, 19}) && *first.singles == 1);
  CHECK(asked(first) == std::vector<Indices>({{3, 1}, {5}, {2, 4}, {0}, {2}, {19}}));
  const dataset singles = dataset::concat({plain_store{first}, plain_store{first}, plain_store{first}});
  is_read_as(order, singles.subset({3, 1, 45, 42, 44, 0, 25, 2, 59}));

  // In a stack, only the first dataset that supports bulk reads uses them.
  reset();
  const dataset stacked = dataset::stack({numbers{100, 20}, first, second});
  CHECK(pass<std::int64_t>(stacked, 1)[19] == 19 && pass<std::int64_t>(stacked, 0)[19] == 119);
  CHECK(*first.singles == 0 && *second.singles == 40 && asked(second).empty());
  CHECK(asked(first).front() == Indices({0, 1, 2}));
  const dataset singly = dataset::stack({numbers{100, 20}, plain_store{first}, plain_store{second}});
  for (const std::size_t field : {2u, 4u})
    for (const std::size_t workers : Indices{0, 2})
      CHECK(pass<std::uint64_t>(stacked, field, workers) == pass<std::uint64_t>(singly, field));

  // A map reads its source in bulk, also in nested compositions.
  reset();
  const auto twice = [](const dataset& source) {
    const auto function = [](const slotline::batch& from, slotline::sample& sample) {
      sample.write(0, 2 * from.field<std::int64_t>(0)[0]);
      sample.write(1, from.field<std::uint64_t>(1)[0] ^ sample.rng()());
    };
    return source.map({slotline::fixed<std::int64_t>("twice"), slotline::fixed<std::uint64_t>("mixed")}, function);
  };
  const dataset nested = dataset::concat({twice(dataset::stack({first, numbers{0, 20}})), twice(first)}).subset({21, 2, 3, 22});
  CHECK(pass<std::int64_t>(nested, 0) == Numbers({2, 4, 6, 4}) && *first.singles == 0);
  CHECK(asked(first) == std::vector<Indices>({{1}, {2, 3}, {2}}));
  const plain_store single{first};
  is_read_as(nested, dataset::concat({twice(dataset::stack({single, numbers{0, 20}})), twice(single)}).subset({21, 2, 3, 22}));

  // A failed bulk read is the error of the sample that was not stored.
  const auto fails = [](const dataset& dataset, std::int64_t index, const char* message) {
    const auto error = thrown([&] { pass<std::int64_t>(dataset, 0); });
    CHECK(error.code() == slotline::code::sample && error.index() == index && has(error.what(), message));
  };
  store broken;
  broken.unreadable = 4;
  fails(dataset::concat({broken, broken}), 4, "no connection");
  fails(dataset::stack({numbers{0, 20, "other"}, broken}), 4, "no connection");
  fails(twice(broken), 4, "no connection");
  broken.unreadable = 99, broken.unwritable = 5;
  fails(dataset::stack({numbers{0, 20, "other"}, broken}), 5, "no number");
  fails(twice(broken), 5, "no number");
  broken.unwritable = 99, broken.fewer = 7;
  fails(dataset::concat({broken, broken}), 7, "put only 1");
}

/// Tests that a batch sampler may be endless: the loop decides when to stop.
void endless_batches() {
  const auto batches = slotline::batch_sampler::from(2, [](std::uint64_t, std::uint64_t, std::uint64_t batch) {
    return std::optional<Indices>({batch % 10, 9 - batch % 10});
  });
  for (const std::size_t workers : Indices{0, 2}) {
    slotline::loader loader(numbers{0, 10}, slotline::options().batch_sampler(batches).num_workers(workers));
    CHECK(loader.size() == -1);
    std::size_t seen = 0;
    for (auto& batch : loader) {
      const auto number = batch.field<std::int64_t>(0);
      CHECK(number[0] == std::int64_t(seen % 10) && number[0] + number[1] == 9);
      if (++seen == 1000) break;
    }
    CHECK(seen == 1000);
  }
}

/// Tests that loaders, samplers and splits can share one generator, as in torch.
void generators() {
  const dataset ten = numbers{0, 10};
  const auto two_passes = [&](const slotline::options& options) {
    slotline::loader loader(ten, options);
    Numbers all;
    for (int epoch = 0; epoch < 2; ++epoch)
      for (auto& batch : loader) all.push_back(batch.field<std::int64_t>(0)[0]);
    return all;
  };
  const auto seeded = two_passes(slotline::options().shuffle().seed(42));
  slotline::generator generator(42);
  CHECK(two_passes(slotline::options().shuffle().generator(generator)) == seeded);
  // Copies of a generator share its state, so they have advanced, too.
  const slotline::generator copy = generator;
  CHECK(two_passes(slotline::options().shuffle().generator(copy)) != seeded);

  const auto drawn = two_passes(slotline::options().sampler(slotline::sampler::random().seed(7)));
  slotline::generator seven(7);
  const auto shared = slotline::options().sampler(slotline::sampler::random().generator(seven));
  CHECK(two_passes(shared) == drawn && two_passes(shared) != drawn);
  const auto own = slotline::options().sampler(slotline::sampler::random().seed(7));
  CHECK(two_passes(own) == drawn && two_passes(own) == drawn);
  const auto error = thrown([&] { two_passes(slotline::options().seed(1).generator(seven)); });
  CHECK(error.code() == slotline::code::invalid && has(error.what(), "exclude each other"));
}

/// Tests that batches are in memory from the user, which is freed once, after the last batch in it.
void memory() {
  struct block {
    std::size_t size;
    void* data;
    explicit block(std::size_t bytes) : size((bytes + 4095) / 4096 * 4096), data(std::aligned_alloc(4096, size)) {
      std::memset(data, 0xff, size);
      ++alive();
    }
    block(const block&) = delete;
    ~block() { std::free(data), --alive(); }
    static std::atomic<int>& alive() {
      static std::atomic<int> alive{0};
      return alive;
    }
  };
  const auto blocks = std::make_shared<std::vector<std::pair<char*, std::size_t>>>();
  const auto options = slotline::options().batch_size(4).num_workers(1).prefetch_factor(2).allocate([blocks](std::size_t bytes) {
    const auto owner = std::make_shared<block>(bytes);
    blocks->emplace_back(static_cast<char*>(owner->data), owner->size);
    return slotline::memory{owner->data, owner->size, owner};
  });
  std::vector<slotline::batch> held;
  {
    slotline::loader loader(numbers{0, 100}, options);
    for (auto& batch : loader) {
      held.push_back(std::move(batch));  // more batches than the loader has memory for
      const auto number = held.back().field<std::int64_t>(0);
      const auto* at = reinterpret_cast<const char*>(number.data());
      bool within = false;
      for (const auto& [start, size] : *blocks) within = within || (at >= start && at < start + size);
      CHECK(within && number[0] == std::int64_t(4 * (held.size() - 1)));
    }
  }
  // Blocks of memory that no batch uses are freed with the loader.
  CHECK(held.size() == 25 && block::alive() > 1 && block::alive() <= int(blocks->size()));
  for (std::size_t i = 0; i < held.size(); ++i) {
    const auto number = held[i].field<std::int64_t>(0);
    CHECK(number[3] == std::int64_t(4 * i + 3));
  }
  held.clear();
  CHECK(block::alive() == 0);

  const auto refused = [](slotline::memory (*allocate)(std::size_t)) {
    return thrown([&] { slotline::loader(numbers{0, 9}, slotline::options().allocate(allocate)); });
  };
  CHECK(has(refused([](std::size_t) -> slotline::memory { throw std::runtime_error("none left"); }).what(), "none left"));
  CHECK(has(refused([](std::size_t) { return slotline::memory{nullptr, 1, nullptr}; }).what(), "no memory"));
  static char odd[4097];
  const auto unaligned = [](std::size_t) {
    return slotline::memory{reinterpret_cast<std::uintptr_t>(odd) % 4096 ? odd : odd + 1, 4096, nullptr};
  };
  CHECK(has(refused(unaligned).what(), "multiple of 4096"));
  const auto small = [](std::size_t) {
    const auto owner = std::make_shared<block>(1);
    return slotline::memory{owner->data, 1, owner};
  };
  CHECK(has(refused(small).what(), "but returned 1") && block::alive() == 0);
}

int main() {
  memory();
  generators();
  bulk_reads();
  bulk_reads_of_compositions();
  endless_batches();
  subsets();
  random_splits();
  concatenations();
  stacks();
  maps();
  streams();
  exports_from_maps();
  single_samples();
  pointers_and_references();
  std::puts("ok");
}
