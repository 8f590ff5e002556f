// Tests mixtures of datasets, batches of similar lengths, packing, and padding to the longest sample.

#include <slotline.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "check.hpp"

using slotline::length_batches;
using slotline::mixture;

/// Sample `i` has as many numbers as its length, all equal to its index.
struct sequences {
  static std::size_t length(std::size_t index) { return 1 + index * 5 % 7; }

  std::size_t size() const { return 12; }
  std::vector<slotline::field> fields() const { return {slotline::padded_to_longest<std::int32_t>("tokens", 7)}; }
  void read(std::size_t index, slotline::sample& sample) const {
    sample.write(0, std::vector<std::int32_t>(length(index), static_cast<std::int32_t>(index)));
  }
};

std::vector<std::size_t> lengths() {
  std::vector<std::size_t> all;
  for (std::size_t i = 0; i < sequences().size(); ++i) all.push_back(sequences::length(i));
  return all;
}

void rows_are_as_long_as_the_longest() {
  slotline::loader loader(sequences{}, slotline::options().batch_size(3).num_workers(2));
  for (auto& batch : loader) {
    const auto tokens = batch.field<std::int32_t>("tokens");
    CHECK(tokens.kind() == slotline::kind::padded_to_longest);
    std::size_t longest = 0;
    for (std::size_t row = 0; row < batch.size(); ++row) {
      const std::size_t length = sequences::length(static_cast<std::size_t>(batch.indices()[row]));
      longest = std::max(longest, length);
      for (std::size_t i = 0; i < tokens.row(row).size(); ++i)
        CHECK(tokens.row(row)[i] == (i < length ? batch.indices()[row] : 0));
    }
    CHECK(tokens.shape()[1] == static_cast<std::int64_t>(longest));
  }
}

/// Returns how many samples of a pass are from the second of two datasets, and how many there are.
std::pair<std::size_t, std::size_t> from_second(slotline::loader& loader) {
  std::size_t second = 0, all = 0;
  for (auto& batch : loader)
    for (const std::int64_t index : batch.indices()) second += index >= 1797, ++all;
  return {second, all};
}

void mixtures_have_as_many_samples_as_their_weights_say() {
  const auto digits = slotline::dataset::open("digits");
  const auto both = slotline::dataset::concat({digits, digits});
  const std::vector<std::int64_t> sizes = {digits.size(), digits.size()};
  const auto with = [&](const slotline::sampler& order) {
    return slotline::loader(both, slotline::options().batch_size(100).sampler(order));
  };
  auto all = with(mixture::by_size(sizes).even());
  CHECK(from_second(all) == std::make_pair(std::size_t{1797}, std::size_t{2 * 1797}));
  auto weighted = with(mixture({1797, 1797}, {3, 1}).stop(slotline::stop::all_exhausted).shuffle(false));
  CHECK(from_second(weighted).first == 1797);
  auto scheduled = with(mixture::schedule(sizes, {{3, 1}, {1, 1}}, 400));
  for (const std::size_t second : {100u, 200u, 200u})
    CHECK(from_second(scheduled) == std::make_pair(second, std::size_t{400}));

  CHECK(has(thrown([&] { with(mixture(sizes, {3})); }).what(), "one weight for each dataset"));
  CHECK(has(thrown([&] { with(mixture(sizes, {0, 0})); }).what(), "weights"));
  CHECK(has(thrown([&] { mixture({-1}, {1}); }).what(), "known length"));
  CHECK(has(thrown([&] { mixture(sizes, {1, 1}).num_samples(0); }).what(), "num_samples is 0"));
  CHECK(has(thrown([&] { with(mixture({1000}, {1})); }).what(), "the mixture has 1000 samples"));
}

/// Returns the sizes of the batches of a pass, in which each sample must come once, in batches of at
/// most 14 tokens with padding.
std::multiset<std::size_t> sizes_of(const length_batches& rule) {
  slotline::loader loader(sequences{}, slotline::options().batch_sampler(rule).seed(1));
  std::multiset<std::size_t> sizes;
  std::set<std::int64_t> seen;
  for (auto& batch : loader) {
    sizes.insert(batch.size());
    for (const std::int64_t index : batch.indices()) CHECK(seen.insert(index).second);
    CHECK(batch.field<std::int32_t>(0).size() <= 14);
  }
  CHECK(seen.size() == sequences().size());
  return sizes;
}

void batches_have_samples_of_similar_lengths() {
  // The lengths are 1, 6, 4, 2, 7, 5, 3, 1, 6, 4, 2, 7.
  const auto budget = length_batches::token_budget(lengths(), 14).shuffle(false);
  CHECK((sizes_of(budget) == std::multiset<std::size_t>{2, 2, 2, 3, 3}));
  CHECK((sizes_of(length_batches(budget).limit(2)) == std::multiset<std::size_t>{2, 2, 2, 2, 2, 2}));
  CHECK((sizes_of(length_batches::buckets(lengths(), {4}, {4, 2})) == std::multiset<std::size_t>{1, 1, 2, 2, 2, 4}));

  CHECK(has(thrown([] { sizes_of(length_batches::token_budget(lengths(), 6)); }).what(), "has 7 tokens, but max_tokens is 6"));
  CHECK(has(thrown([] { length_batches::buckets(lengths(), {4}, {4}); }).what(), "one batch size more"));
  CHECK(has(thrown([] { sizes_of(length_batches::buckets(lengths(), {4, 4}, {1, 1, 1})); }).what(), "ascend"));
}

void rows_are_filled_with_documents() {
  const slotline::dataset documents = sequences{};
  // 48 tokens, in chunks of 10.
  const auto rows = documents.pack(slotline::packing(10, lengths()).chunks().padding({-1}));
  CHECK(rows.size() == 5 && documents.pack(slotline::packing(10, lengths()).chunks().drop_last()).size() == 4);
  const slotline::batch last = rows.get(4);
  const auto tokens = last.field<std::int32_t>("tokens"), ids = last.field<std::int32_t>("document_ids");
  // The second token of document 10, and document 11.
  const std::vector<std::int32_t> wanted = {10, 11, 11, 11, 11, 11, 11, 11, -1, -1}, numbers = {1, 2, 2, 2, 2, 2, 2, 2, 0, 0};
  CHECK(std::equal(tokens.begin(), tokens.end(), wanted.begin(), wanted.end()));
  CHECK(std::equal(ids.begin(), ids.end(), numbers.begin(), numbers.end()));
  const auto once = documents.pack(slotline::packing(7, lengths()).seed(1));
  CHECK(once.size() >= 7 && documents.pack(slotline::packing(7, lengths()).seed(1).epochs(3)).size() >= 3 * 7);
  CHECK(has(thrown([&] { documents.pack(slotline::packing(6, lengths()).refuse_long()); }).what(), "refuse_long"));

  std::optional<slotline::dataset> out;
  CHECK(!documents.try_pack(slotline::packing(0, lengths()), out) && !out);
  CHECK(has(thrown([&] { documents.pack(slotline::packing(7, {1})); }).what(), "the dataset has 12"));
  CHECK(has(thrown([&] { documents.pack(slotline::packing(7, lengths()).padding({0, 0})); }).what(), "2 numbers for 1 fields"));
}

int main() {
  rows_are_as_long_as_the_longest();
  mixtures_have_as_many_samples_as_their_weights_say();
  batches_have_samples_of_similar_lengths();
  rows_are_filled_with_documents();
  std::puts("ok");
}
