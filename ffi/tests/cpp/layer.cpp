// Tests the additions of slotline.hpp to the C API: types, exceptions, ownership, and classes as
// datasets.

#include <slotline.hpp>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#ifdef __unix__
#include <poll.h>
#endif

#include "check.hpp"

/// Returns whether a function throws this exception.
template <class Exception, class Function>
static bool throws(Function function) {
  try {
    function();
  } catch (const Exception&) {
    return true;
  }
  return false;
}

using Options = slotline::options;

static_assert(std::is_nothrow_move_constructible_v<slotline::batch> && !std::is_copy_constructible_v<slotline::batch>);
static_assert(std::is_nothrow_move_constructible_v<slotline::loader> && !std::is_copy_constructible_v<slotline::loader>);
static_assert(slotline::dtype_of<long> == slotline::dtype_of<long long> || sizeof(long) == 4);
static_assert(slotline::dtype_of<const float> == slotline::dtype::f32);

/// A 16-bit floating-point number, as a framework defines it.
struct half {
  std::uint16_t bits;
};
template <>
inline constexpr slotline::dtype slotline::dtype_of<half> = slotline::dtype::f16;

// clang 14 and 15 cannot compile the ranges of libstdc++.
#if __cplusplus >= 202002L && !(defined(__clang_major__) && __clang_major__ < 16)
#include <ranges>
static_assert(std::ranges::input_range<slotline::loader> && std::ranges::input_range<slotline::pass>);

std::size_t samples_of_three_batches(slotline::loader& loader) {
  std::size_t samples = 0;
  for (auto& batch : loader | std::views::take(3)) samples += batch.size();
  return samples;
}
#endif

template <class Loader, class = void>
constexpr bool starts_passes = false;
template <class Loader>
constexpr bool starts_passes<Loader, std::void_t<decltype(std::declval<Loader>().epoch())>> = true;
// Starting a pass of a temporary loader does not compile.
static_assert(starts_passes<slotline::loader&> && !starts_passes<slotline::loader>);

// A view of a temporary batch would dangle immediately, so making one does not compile. (The
// assertions about spans below say that only a read-only span can be made from a temporary.)
template <class Batch, class = void>
inline constexpr bool has_views = false;
template <class Batch>
inline constexpr bool has_views<Batch, std::void_t<decltype(std::declval<Batch>().template field<float>(0)),
                                                   decltype(std::declval<Batch>().template fields<float>()),
                                                   decltype(std::declval<Batch>().tensor("image").data()),
                                                   decltype(std::declval<Batch>().indices().data())>> = true;
template <class Next, class = void>
inline constexpr bool has_arrow = false;
template <class Next>
inline constexpr bool has_arrow<Next, std::void_t<decltype(std::declval<Next>()->size())>> = true;
using next_batch = decltype(std::declval<slotline::loader&>().next());
static_assert(has_views<slotline::batch&> && has_views<const slotline::batch&> && !has_views<slotline::batch>);
static_assert(has_arrow<next_batch&> && has_arrow<const next_batch&> && !has_arrow<next_batch>);
static_assert(std::is_nothrow_move_constructible_v<next_batch> && std::is_convertible_v<next_batch, std::optional<slotline::batch>>);

static_assert(std::is_convertible_v<std::vector<double>, slotline::span<const double>>);
static_assert(std::is_convertible_v<slotline::view<double>, slotline::span<const double>>);
static_assert(std::is_convertible_v<slotline::span<double>, slotline::span<const double>>);
static_assert(!std::is_convertible_v<std::vector<double>, slotline::span<double>>);
static_assert(!std::is_convertible_v<const std::vector<double>&, slotline::span<double>>);

/// A dataset of numbers in which sample `refused` fails, and `also` runs for each sample.
struct numbers {
  std::size_t refused = 1000;
  std::function<void(std::size_t, slotline::sample&)> also = [](std::size_t, slotline::sample&) {};
  std::size_t size() const { return 10; }
  std::vector<slotline::field> fields() const {
    return {slotline::fixed<std::int64_t>("number"), slotline::padded_to_max<float>("padded", 3),
            slotline::packed<std::uint8_t>("packed", 2, {2})};
  }
  void read(std::size_t index, slotline::sample& sample) const {
    if (index == refused) throw std::runtime_error("invalid number");
    also(index, sample);
    sample.write(0, static_cast<std::int64_t>(index));
    sample.write(1, std::vector<float>(index % 4, 0.5f));
    sample.write(2, std::vector<std::uint8_t>(2 * (index % 2 + 1), static_cast<std::uint8_t>(index)));
  }
};

void fields_are_typed_spans_with_shapes() {
  slotline::loader loader(numbers{}, Options().batch_size(4));
  CHECK(loader.size() == 3 && loader.batch_size() == 4 && loader.depth() >= 2 && loader.memory_ceiling() > 0);
  CHECK(loader.next_epoch() == 0);
  std::size_t batches = 0;
  for (auto& batch : loader) {
    auto [numbers, padded] = batch.fields<std::int64_t, float>();
    CHECK(batch.batch_index() == batches && batch.epoch() == 0 && batch.num_fields() == 3);
    CHECK(numbers.size() == batch.size() && batch.indices().size() == batch.size());
    CHECK(numbers[0] == batch.indices()[0] && numbers.shape().size() == 1);
    CHECK(padded.shape()[1] == 3 && padded.strides()[0] == 3 && padded.kind() == slotline::kind::padded_to_max);
    CHECK(padded.ends()[1] == (batches == 2 ? 1 : batch.indices()[1] % 4));
    CHECK(padded.row(1).size() == 3 && padded.row(0)[2] == 0.0f);
    auto packed = batch.field<std::uint8_t>("packed");
    CHECK(packed.ends().size() == batch.size() + 1 && packed.ends()[1] == 1 && packed.ends()[2] == 3);
    CHECK(packed.row(1)[0] == batch.indices()[1]);
    CHECK(std::string(batch.tensor("padded").name()) == "padded" && batch.tensor(2).dtype() == slotline::dtype::u8);

    std::int64_t product = 1;
    for (const std::int64_t length : batch.tensor(2).shape()) product *= length;  // the tensor was destroyed already
    CHECK(product == static_cast<std::int64_t>(packed.size()) && !batch.tensor(2).strides().empty());

    const slotline::error type = thrown([&] { batch.field<double>(0); });
    CHECK(type.code() == slotline::code::invalid && has(type.what(), "number is i64, not f64"));
    CHECK(has(thrown([&] { batch.tensor("image"); }).what(), "image"));
    CHECK(thrown([&] { batch.tensor(3); }).code() == slotline::code::invalid);
    CHECK(throws<std::out_of_range>([&batch, view = numbers] { view.row(batch.size()); }));
    ++batches;
  }
  CHECK(batches == 3 && loader.next_epoch() == 1);
}

void a_datasets_exception_takes_the_place_of_its_batch() {
  slotline::loader loader(numbers{5}, Options().batch_size(2).num_workers(2));
  slotline::pass pass = loader.epoch();
  std::vector<std::size_t> tasks;
  const auto read_rest = [&] {
    for (auto& batch : pass) tasks.push_back(batch.batch_index());
  };
  const slotline::error error = thrown(read_rest);
  CHECK(error.code() == slotline::code::sample && error.index() == 5 && error.task() == 2);
  CHECK(has(error.what(), "invalid number"));
  read_rest();
  CHECK((tasks == std::vector<std::size_t>{0, 1, 3, 4}));

  slotline::loader skipping(numbers{5}, Options().batch_size(2).skip_errors(slotline::budget::samples(1)));
  std::size_t samples = 0;
  for (auto& batch : skipping) samples += batch.size();
  CHECK(samples == 9);
  slotline::loader strict(numbers{5}, Options().batch_size(2).skip_errors(slotline::budget::share(0)));
  CHECK(thrown([&] { for (auto& batch : strict) (void)batch; }).code() == slotline::code::bad_samples);
}

void dataset_errors_name_the_field() {
  const auto error_of = [](std::function<void(std::size_t, slotline::sample&)> also) {
    slotline::loader loader(numbers{1000, std::move(also)});
    return std::string(thrown([&] { loader.epoch().begin(); }).what());
  };
  CHECK(has(error_of([](std::size_t, slotline::sample& s) { s.write(3, 1.0); }), "field is 3"));
  CHECK(has(error_of([](std::size_t, slotline::sample& s) { s.write(0, 1.0); }), "number is i64, not f64"));
  CHECK(has(error_of([](std::size_t, slotline::sample& s) { s.row<float>(1); }), "padded"));
  CHECK(has(error_of([](std::size_t, slotline::sample& s) { s.write(1, std::vector<float>(4)); }), "padded"));
  CHECK(has(error_of([](std::size_t, slotline::sample&) { throw 5; }), "not a std::exception"));
}

void elements_of_16_bits_have_their_declared_type() {
  const std::vector<half> ones(8, half{0x3c00});
  auto dataset = slotline::dataset::of({slotline::array("ones", ones, {4, 2})});
  slotline::loader loader(dataset, Options().batch_size(4));
  for (auto& batch : loader) {
    const auto view = batch.field<half>(0);
    CHECK(view.dtype() == slotline::dtype::f16 && view.data()[7].bits == 0x3c00);
    CHECK(has(thrown([&] { batch.field<std::uint16_t>(0); }).what(), "ones is f16, not u16"));
  }
}

void without_exceptions_errors_are_statuses() {
  slotline::loader loader(numbers{1}, Options().batch_size(5));
  slotline::batch batch;
  CHECK(!batch && loader.try_next(batch).code() == slotline::code::invalid);
  CHECK(loader.try_epoch());
  const slotline::status failed = loader.try_next(batch);
  CHECK(!failed && !failed.at_end() && failed.index() == 1 && failed.task() == 0 && has(failed.message(), "number"));
  CHECK(loader.try_next(batch).ok() && batch && batch.size() == 5);
  CHECK(loader.try_next(batch).at_end() && !batch);
  CHECK(!loader.next());
}

void batches_outlive_loaders_and_datasets() {
  auto values = std::make_shared<std::vector<float>>(std::vector<float>{1, 2, 3, 4, 5, 6});
  std::weak_ptr<std::vector<float>> watched = values;
  std::vector<slotline::batch> kept;
  {
    auto loader = std::make_unique<slotline::loader>(
        slotline::dataset::of({slotline::array("x", values->data(), {3, 2}, values),
                               slotline::array("y", std::vector<std::int64_t>{7, 8, 9})}),
        Options().batch_size(1).hold(3));
    const float* data = values->data();
    values.reset();
    CHECK(!watched.expired() && watched.lock()->data() == data);
    for (auto& batch : *loader) kept.push_back(std::move(batch));
  }
  CHECK(kept.size() == 3 && kept[1].field<float>("x")[1] == 4 && kept[2].field<std::int64_t>(1)[0] == 9);
  std::thread([kept = std::move(kept)]() mutable { kept.erase(kept.begin()); }).join();
  CHECK(watched.expired());
  CHECK(thrown([] { slotline::dataset::open("nothing:x"); }).what() != nullptr);
  // Five elements do not fit a shape of six elements.
  CHECK(throws<std::invalid_argument>([] { slotline::array("x", std::vector<float>(5), {2, 3}); }));
}

void held_batches_and_conflicting_options_are_errors() {
  slotline::loader growing(slotline::dataset::open("digits"), Options().batch_size(64));
  std::vector<slotline::batch> kept;
  for (auto& batch : growing) kept.push_back(std::move(batch));
  CHECK(kept.size() == 29 && kept[7].batch_index() == 7 && growing.stats().extra_batches > 0);
  kept.clear();
  slotline::loader loader(slotline::dataset::open("digits"), Options().batch_size(64).on_held(slotline::on_held::fail));
  CHECK(thrown([&] { for (auto& batch : loader) kept.push_back(std::move(batch)); }).code() == slotline::code::held);
  CHECK(thrown([] { Options().part_size(0); }).code() == slotline::code::build);
  CHECK(thrown([] { Options().batch_size(static_cast<std::size_t>(-1)); }).code() == slotline::code::build);
  CHECK(thrown([] { slotline::budget::share(-1); }).code() == slotline::code::build);
  auto order = slotline::sampler::random();
  auto batches = slotline::batch_sampler::of(order, 2);
  const auto taken = std::make_pair(std::move(order), std::move(batches));
  CHECK(thrown([&] { Options().sampler(order); }).code() == slotline::code::invalid);
  CHECK(thrown([&] { Options().batch_sampler(batches); }).code() == slotline::code::invalid);
  CHECK(thrown([] { slotline::loader(numbers{}, Options().prefetch_factor(2)); }).code() == slotline::code::build);
}

/// A stream that counts down in each worker, and fails at the number `refused`.
struct countdown {
  std::int64_t refused;
  std::shared_ptr<std::atomic<int>> open_cursors;
  struct cursor {
    const countdown* of;
    std::int64_t left;
    cursor(const countdown* whose, std::int64_t from) : of(whose), left(from) { ++*of->open_cursors; }
    ~cursor() { --*of->open_cursors; }
    bool next(slotline::sample& sample) {
      if (left == of->refused) throw std::runtime_error("not that one");
      if (left == 0) return false;
      sample.write(0, left--);
      return true;
    }
  };
  std::vector<slotline::field> fields() const { return {slotline::fixed<std::int64_t>("left")}; }
  cursor open(const slotline::worker& worker) const {
    if (refused == -2) throw std::runtime_error("closed");
    return cursor(this, 3 + static_cast<std::int64_t>(worker.id()));
  }
};

void streams_are_read_by_each_worker() {
  auto open_cursors = std::make_shared<std::atomic<int>>(0);
  {
    slotline::loader loader(countdown{-1, open_cursors}, Options().batch_size(2).num_workers(2));
    for (int epoch = 0; epoch < 2; ++epoch) {
      std::int64_t sum = 0;
      for (auto& batch : loader)
        for (const std::int64_t left : batch.field<std::int64_t>(0)) sum += left;
      CHECK(sum == 3 + 2 + 1 + 4 + 3 + 2 + 1);
    }
    slotline::loader failing(countdown{2, open_cursors});
    slotline::pass pass = failing.epoch();
    const slotline::error error = thrown([&] { for (auto& batch : pass) CHECK(batch.size() == 1); });
    CHECK(error.code() == slotline::code::sample && has(error.what(), "not that one"));
    slotline::loader closed(countdown{-2, open_cursors}, Options().num_workers(1));
    CHECK(has(thrown([&] { for (auto& batch : closed) (void)batch; }).what(), "closed"));
  }
  CHECK(*open_cursors == 0);
}

void a_loader_resumes_from_a_state() {
  const auto make = [](std::size_t workers) {
    return slotline::loader(numbers{}, Options().batch_size(3).shuffle().seed(7).num_workers(workers));
  };
  slotline::loader first = make(2);
  std::vector<std::int64_t> all, resumed;
  std::string state;
  for (auto& batch : first) {
    for (const std::int64_t number : batch.field<std::int64_t>(0)) all.push_back(number);
    if (batch.batch_index() == 1) state = first.state();
  }
  slotline::loader second = make(0);
  second.load_state(state);
  for (auto& batch : second)
    for (const std::int64_t number : batch.field<std::int64_t>(0)) resumed.push_back(number);
  CHECK(all.size() == 10 && resumed == std::vector<std::int64_t>(all.begin() + 6, all.end()));
  CHECK(thrown([&] { second.load_state("{}"); }).code() == slotline::code::state);

  const slotline_stats stats = first.stats();
  CHECK(stats.passes == 1 && stats.batches == 4 && stats.samples == 10 && stats.num_workers == 2);
  CHECK(has(first.stats_json(), "{") && !first.verdict().empty() && first.warnings().empty());
}

/// A stream that saves its position.
struct resumable {
  struct cursor {
    int at;
    bool next(slotline::sample& sample) { return at < 10 && (sample.write(0, at++), true); }
    std::string save() const { return std::to_string(at); }
  };
  std::size_t size() const { return 10; }
  std::vector<slotline::field> fields() const { return {slotline::fixed<int>("at")}; }
  cursor open(const slotline::worker&) const { return {0}; }
  cursor resume(const slotline::worker&, const std::string& saved) const { return {std::stoi(saved)}; }
};

void streams_resume_from_a_state() {
  const Options options = Options().batch_size(2).num_workers(1);
  slotline::loader first(resumable{}, options), second(resumable{}, options);
  CHECK(slotline::dataset(resumable{}).size() == 10 && slotline::dataset(countdown{-1, {}}).size() == -1);
  std::string state;
  for (auto& batch : first)
    if (batch.batch_index() == 2) state = first.state();
  second.load_state(state);
  std::vector<int> rest;
  for (auto& batch : second)
    for (const int at : batch.field<int>(0)) rest.push_back(at);
  CHECK((rest == std::vector<int>{6, 7, 8, 9}));
}

/// Returns the indices of a pass, batch by batch.
std::vector<std::vector<std::int64_t>> batches_of(slotline::loader& loader) {
  std::vector<std::vector<std::int64_t>> all;
  for (auto& batch : loader) all.emplace_back(batch.indices().begin(), batch.indices().end());
  return all;
}
using Batches = std::vector<std::vector<std::int64_t>>;

void samplers_define_the_order() {
  using slotline::batch_sampler;
  using slotline::sampler;
  const auto batches = [](const Options& options) {
    slotline::loader loader(numbers{}, options);
    return batches_of(loader);
  };
  const auto with = [&](const sampler& sampler) { return batches(Options().batch_size(4).seed(3).sampler(sampler)); };
  const std::vector<std::size_t> some = {8, 1, 5};
  CHECK((with(sampler::indices(some)) == Batches{{8, 1, 5}}));
  CHECK(with(sampler::random()).size() == 3 && with(sampler::random(false, 5)).size() == 2);
  CHECK(with(sampler::random(true, 21)).size() == 6 && with(sampler::feistel()).size() == 3);
  CHECK(with(sampler::random().seed(9)) == with(sampler::random().seed(9)));
  slotline::manual_seed(9);
  const auto first = with(sampler::random());
  slotline::manual_seed(9);
  CHECK(with(sampler::random()) == first);
  CHECK(with(sampler::subset_random(some))[0].size() == 3);
  std::vector<double> weights(10);
  weights[6] = 1;
  CHECK((with(sampler::weighted(weights, 3)) == Batches{{6, 6, 6}}));
  weights[6] = -1;
  CHECK(thrown([&] { with(sampler::weighted(weights, 3)); }).code() == slotline::code::build);
  sampler half = sampler::distributed(2, 1, false);
  half.set_epoch(1);
  CHECK((with(half) == Batches{{1, 3, 5, 7}, {9}}));

  const auto backwards = [](std::uint64_t pass, std::uint64_t, auto indices) {
    if (pass == 1) throw std::runtime_error("no second pass");
    for (std::size_t i = 0; i < indices.size(); ++i) indices[i] = 9 - i;
  };
  slotline::loader drawn(numbers{}, Options().batch_size(2).sampler(sampler::from(3, backwards)));
  CHECK((batches_of(drawn) == Batches{{9, 8}, {7}}));
  const slotline::error refused = thrown([&] { drawn.epoch(); });
  CHECK(refused.code() == slotline::code::sampler && has(refused.what(), "no second pass"));

  std::vector<std::uint64_t> seeds;
  const auto noting = [&seeds](std::uint64_t, std::uint64_t seed, auto indices) {
    seeds.push_back(seed);
    for (std::size_t i = 0; i < indices.size(); ++i) indices[i] = i;
  };
  for (int i = 0; i < 2; ++i) {
    slotline::loader seeded(numbers{}, Options().sampler(sampler::from(3, noting).seed(7)));
    batches_of(seeded), batches_of(seeded);
  }
  CHECK(seeds.size() == 4 && seeds[0] != seeds[1] && seeds[0] == seeds[2] && seeds[1] == seeds[3]);

  CHECK((batches(Options().batch_sampler(batch_sampler::of(sampler::indices(some), 2, true))) == Batches{{8, 1}}));
  CHECK((batches(Options().batch_sampler(batch_sampler::lists({{7}, {0, 9}}))) == Batches{{7}, {0, 9}}));
  const auto draw = [](std::uint64_t, std::uint64_t, std::uint64_t batch) -> std::optional<std::vector<std::size_t>> {
    if (batch == 3) throw std::runtime_error("no fourth batch");
    return std::vector<std::size_t>(batch, batch);
  };
  slotline::loader own(numbers{}, Options().num_workers(1).batch_sampler(batch_sampler::from(2, draw)));
  const auto by_seed = [](std::uint64_t pass, std::uint64_t seed, std::uint64_t batch) {
    return batch == 2 ? std::nullopt : std::optional<std::vector<std::size_t>>({pass, seed % 8 + batch});
  };
  const auto seeded = [&](std::uint64_t seed) {
    slotline::loader loader(numbers{}, Options().seed(seed).batch_sampler(batch_sampler::from(2, by_seed)));
    std::vector<std::size_t> indices;
    for (std::size_t pass = 0; pass < 8; ++pass)
      for (auto& batch : loader) {
        CHECK(std::size_t(batch.indices()[0]) == pass);
        indices.push_back(std::size_t(batch.indices()[1]));
      }
    CHECK(std::set<std::size_t>(indices.begin(), indices.end()).size() > 2);
    return indices;
  };
  CHECK(seeded(1) == seeded(1) && seeded(1) != seeded(2));
  std::size_t samples = 0;
  const slotline::error end = thrown([&] { for (auto& batch : own) samples += batch.size(); });
  CHECK(end.code() == slotline::code::sampler && has(end.what(), "no fourth batch") && samples == 3);
}

void a_collate_function_makes_batches_of_any_type() {
  auto dropped = std::make_shared<int>(0);
  struct sum {
    std::int64_t numbers;
    std::vector<std::size_t> lengths;
    std::shared_ptr<int> keeps;
  };
  const auto collate = [dropped](slotline::samples& samples) {
    sum made{0, {}, dropped};
    while (samples.next()) {
      const std::int64_t number = samples.field<std::int64_t>(0)[0];
      if (number == 6) throw std::runtime_error("six is refused");
      made.numbers += number;
      made.lengths.push_back(samples.field<std::uint8_t>(2).size());
    }
    return made;
  };
  const Options options = Options().batch_size(3).num_workers(1).collate(collate);
  {
    slotline::loader loader(numbers{}, options), again(numbers{0}, options);
    slotline::pass pass = loader.epoch();
    std::vector<std::int64_t> sums;
    const auto read_rest = [&] {
      for (auto& batch : pass) {
        sums.push_back(batch.made<sum>().numbers);
        CHECK(batch.made<sum>().lengths.size() == batch.size());
        CHECK(thrown([&] { batch.made<int>(); }).code() == slotline::code::invalid);
      }
    };
    const slotline::error error = thrown(read_rest);
    CHECK(error.code() == slotline::code::collate && error.task() == 2 && error.index() == -1);
  CHECK(has(error.what(), "the collate function failed for batch 2 in ") && has(error.what(), ": six is refused"));
    read_rest();
    CHECK((sums == std::vector<std::int64_t>{0 + 1 + 2, 3 + 4 + 5, 9}));
    CHECK(has(thrown([&] { again.epoch().begin(); }).what(), "invalid number"));
  }
  const auto reads = [](bool begun, bool ended, std::size_t field) {
    return Options().batch_size(3).collate([=](slotline::samples& samples) {
      if (begun) samples.next();
      while (ended && samples.next()) {}
      return samples.field<float>(field).size();
    });
  };
  for (const Options& wrong : {reads(false, false, 0), reads(true, true, 0), reads(true, false, 3), reads(true, false, 99)}) {
    slotline::loader loader(numbers{}, wrong);
    CHECK(has(thrown([&] { loader.epoch().begin(); }).what(), "does not exist"));
  }
  slotline::loader plain(numbers{});
  CHECK(thrown([&] { plain.epoch().begin()->made<int>(); }).code() == slotline::code::invalid);
}

void worker_init_runs_or_reports_an_error() {
  std::atomic<int> ready{0};
  slotline::loader loader(numbers{}, Options().num_workers(2).worker_init([&](const slotline::worker& worker) {
    CHECK(worker.is_thread() && worker.num_workers() == 2);
    if (worker.id() == 1) throw std::runtime_error("worker 1 fails");
    ++ready;
  }));
  slotline::pass pass = loader.epoch();
  std::size_t samples = 0;
  const auto read_rest = [&] { for (auto& batch : pass) samples += batch.size(); };
  const slotline::error error = thrown(read_rest);
  CHECK(error.code() == slotline::code::worker_init && error.worker() == 1 && has(error.what(), "worker 1 fails"));
  read_rest();
  CHECK(ready == 1 && samples == 10);
}

void any_thread_can_stop_a_loader() {
  std::atomic<bool> reading{false}, done{false};
  slotline::loader loader(numbers{1000,
                                  [&](std::size_t, slotline::sample&) {
                                    reading = true;
                                    while (!done) std::this_thread::yield();
                                  }},
                          Options().num_workers(1).help(false));
  std::thread stopper([&] {
    while (!reading) std::this_thread::yield();
    loader.stop();
  });
  CHECK(thrown([&] { loader.epoch().begin(); }).code() == slotline::code::stopped);
  CHECK(thrown([&] { loader.epoch(); }).code() == slotline::code::stopped);
  done = true;
  stopper.join();
}

#ifdef __unix__
/// Tests that datasets can be cancelled: each worker waits in a sample until the loader tells it
/// that the sample is not needed any more.
void datasets_that_ask_are_told_to_stop() {
  std::atomic<int> waiting{0}, stopped{0};
  {
    slotline::loader loader(numbers{100,
                                    [&](std::size_t index, slotline::sample& sample) {
                                      if (index == 0) return;
                                      CHECK(!sample.is_stopping());
                                      pollfd stop{sample.stop_fd(), POLLIN, 0};
                                      ++waiting;
                                      CHECK(poll(&stop, 1, -1) == 1 && sample.is_stopping());
                                      ++stopped;
                                      sample.fail("nobody waits for it");
                                    }},
                            Options().num_workers(2).help(false).batch_size(1));
    auto pass = loader.epoch();
    CHECK(pass.begin()->size() == 1);
    while (waiting == 0) std::this_thread::yield();
  }
  CHECK(stopped == waiting);
}
#endif

void an_array_that_was_moved_from_is_refused() {
  slotline::array given("x", std::vector<float>(64, 1.0f), {8, 8});
  { const slotline::array taker = std::move(given); }  // the memory is freed with it
  const slotline::error refused = thrown([&] { slotline::dataset::of({given}); });
  CHECK(refused.code() == slotline::code::invalid && has(refused.what(), "moved-from"));
  slotline::array copied("x", std::vector<float>(64, 1.0f), {8, 8});
  const slotline::array copy = copied;
  copied = slotline::array("y", std::vector<float>(1));
  CHECK(slotline::dataset::of({copy}).size() == 8);
}

#ifdef __linux__
void workers_can_be_processes() {
  const Options options = Options().batch_size(2).num_workers(2).processes();
  const numbers crashing{1000, [](std::size_t index, slotline::sample&) {
                           if (index == 5) std::abort();
                         }};
  slotline::loader sound(numbers{}, options), loader(crashing, options);
  CHECK((batches_of(sound) == Batches{{0, 1}, {2, 3}, {4, 5}, {6, 7}, {8, 9}}));
  slotline::pass pass = loader.epoch();
  std::size_t samples = 0;
  const auto read_rest = [&] { for (auto& batch : pass) samples += batch.size(); };
  const slotline::error crash = thrown(read_rest);
  CHECK(crash.code() == slotline::code::sample && crash.index() == 5 && crash.task() == 2 && crash.worker() >= 0);
  CHECK(has(crash.what(), "signal 6"));
  read_rest();
  CHECK(samples == 8);

  slotline::loader replaced(crashing, Options(options).restart_workers(3));
  CHECK(thrown([&] { batches_of(replaced); }).index() == 5);
  CHECK(thrown([&] { slotline::loader(numbers{}, Options().restart_workers(1)); }).code() == slotline::code::build);

  slotline::loader streaming(countdown{-1, std::make_shared<std::atomic<int>>(0)}, options);
  std::int64_t sum = 0;
  for (auto& batch : streaming)
    for (const std::int64_t left : batch.field<std::int64_t>(0)) sum += left;
  CHECK(sum == 3 + 2 + 1 + 4 + 3 + 2 + 1);
}
#endif

int main() {
  fields_are_typed_spans_with_shapes();
  a_datasets_exception_takes_the_place_of_its_batch();
  dataset_errors_name_the_field();
  elements_of_16_bits_have_their_declared_type();
  without_exceptions_errors_are_statuses();
  batches_outlive_loaders_and_datasets();
  held_batches_and_conflicting_options_are_errors();
  streams_are_read_by_each_worker();
  a_loader_resumes_from_a_state();
  streams_resume_from_a_state();
  samplers_define_the_order();
  a_collate_function_makes_batches_of_any_type();
  an_array_that_was_moved_from_is_refused();
  worker_init_runs_or_reports_an_error();
  any_thread_can_stop_a_loader();
#ifdef __unix__
  datasets_that_ask_are_told_to_stop();
#endif
#ifdef __linux__
  workers_can_be_processes();
#endif
  std::puts("ok");
}
