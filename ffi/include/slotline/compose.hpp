// Datasets made of other datasets: the longer member functions of `dataset`.
#ifndef SLOTLINE_COMPOSE_HPP
#define SLOTLINE_COMPOSE_HPP

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "batch.hpp"
#include "dataset.hpp"
#include "error.hpp"
#include "generator.hpp"
#include "sample.hpp"
#include "sanitize.hpp"
#include "types.hpp"

namespace slotline {
namespace detail {

/// A user's function that makes samples, and the fields of these samples.
template <class Function>
struct mapping {
  Function function;
  std::vector<field> fields;

  static std::int32_t map(void* user, const slotline_batch* raw, slotline_sample* to) noexcept {
    return guarded(
        [&] {
          const use call(user);
          const auto& self = *static_cast<const mapping*>(user);
          // The batch is owned by the library.
          struct lent {
            batch source;
            ~lent() { source.release(); }
          } const lent{batch(const_cast<slotline_batch*>(raw))};
          sample row(to, self.fields);
          self.function(lent.source, row);
          return 0;
        },
        to);
  }
};

}  // namespace detail

/// Creates a dataset of several others with a function of the C API.
template <class Function>
status dataset::composed(std::optional<dataset>& out, Function function, const std::vector<dataset>& datasets) {
  std::vector<const slotline_dataset*> raws;
  raws.reserve(datasets.size());
  for (const dataset& each : datasets) raws.push_back(each.raw());
  return made(out, function, raws.data(), raws.size());
}

inline status dataset::try_concat(const std::vector<dataset>& datasets, std::optional<dataset>& out) {
  return composed(out, slotline_dataset_concat, datasets);
}
inline dataset dataset::concat(const std::vector<dataset>& datasets) {
  std::optional<dataset> out;
  try_concat(datasets, out).raise();
  return *std::move(out);
}

inline status dataset::try_chain(const std::vector<dataset>& datasets, std::optional<dataset>& out) {
  return composed(out, slotline_dataset_chain, datasets);
}
inline dataset dataset::chain(const std::vector<dataset>& datasets) {
  std::optional<dataset> out;
  try_chain(datasets, out).raise();
  return *std::move(out);
}

inline status dataset::try_stack(const std::vector<dataset>& datasets, std::optional<dataset>& out) {
  return composed(out, slotline_dataset_stack, datasets);
}
inline dataset dataset::stack(const std::vector<dataset>& datasets) {
  std::optional<dataset> out;
  try_stack(datasets, out).raise();
  return *std::move(out);
}

inline batch dataset::get(std::size_t index) const {
  slotline_batch* out = nullptr;
  detail::check(slotline_dataset_read, raw_.get(), index, &out);
  return batch(out);
}

inline status dataset::try_get(std::size_t index, batch& out) const noexcept {
  out = batch();
  slotline_batch* raw = nullptr;
  status result = detail::call(slotline_dataset_read, raw_.get(), index, &raw);
  if (raw) out = batch(raw);
  return result;
}

inline status dataset::try_subset(const std::vector<std::size_t>& indices, std::optional<dataset>& out) const {
  return made(out, slotline_dataset_subset, raw_.get(), indices.data(), indices.size());
}
inline dataset dataset::subset(const std::vector<std::size_t>& indices) const {
  std::optional<dataset> out;
  try_subset(indices, out).raise();
  return *std::move(out);
}

inline status dataset::try_pack(const packing& rule, std::optional<dataset>& out) const {
  const slotline_packing raw = rule.raw();
  return made(out, slotline_dataset_pack, raw_.get(), &raw);
}
inline dataset dataset::pack(const packing& rule) const {
  std::optional<dataset> out;
  try_pack(rule, out).raise();
  return *std::move(out);
}

template <class Number>
std::vector<dataset> dataset::random_split(const std::vector<Number>& lengths, const generator& generator) const {
  static_assert(std::is_arithmetic_v<Number>, "the parts are numbers of samples, or fractions");
  std::vector<slotline_dataset*> raws(lengths.size() + 1);
  if constexpr (std::is_floating_point_v<Number>) {
    const std::vector<double> fractions(lengths.begin(), lengths.end());
    detail::check(slotline_dataset_random_split_fractions, raw_.get(), fractions.data(), fractions.size(), generator.raw(),
                  raws.data());
  } else {
    std::vector<std::size_t> numbers;
    for (const Number length : lengths) {
      if constexpr (std::is_signed_v<Number>)
        if (length < 0) detail::raise(error(code::invalid, "a length of random_split is negative"));
      numbers.push_back(static_cast<std::size_t>(length));
    }
    detail::check(slotline_dataset_random_split, raw_.get(), numbers.data(), numbers.size(), generator.raw(), raws.data());
  }
  std::vector<dataset> parts;
  parts.reserve(lengths.size());
  for (std::size_t i = 0; i < lengths.size(); ++i) parts.push_back(dataset(raws[i]));
  return parts;
}

template <class Function>
dataset dataset::map(std::vector<field> fields, Function function) const {
  using Mapping = detail::mapping<Function>;
  static_assert(std::is_invocable_v<const Function&, const batch&, sample&>,
                "the function must be callable with `const slotline::batch&` and `slotline::sample&`, and be const, because "
                "several threads call it at once");
  auto self = std::unique_ptr<Mapping>(new Mapping{std::move(function), std::move(fields)});
  const std::vector<slotline_field> declared = detail::raw_fields(self->fields);
  slotline_transform raw{};
  raw.struct_size = sizeof raw;
  raw.fields = declared.data();
  raw.num_fields = declared.size();
  raw.map = Mapping::map;
  raw.drop = detail::deleted<Mapping>;
  raw.user = self.release();
  slotline_dataset* out = nullptr;
  detail::check(slotline_dataset_map, raw_.get(), &raw, &out);
  return dataset(out);
}

}  // namespace slotline

#endif
