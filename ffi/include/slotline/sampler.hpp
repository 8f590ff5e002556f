// Orders in which a dataset is visited.
#ifndef SLOTLINE_SAMPLER_HPP
#define SLOTLINE_SAMPLER_HPP

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "error.hpp"
#include "span.hpp"

namespace slotline {

/// Which samples come when. Copies are the same sampler; any number of loaders may have it.
class sampler {
 public:
  /// Any of `len` samples, each once; or `num_samples` of them, with replacement if that is asked for.
  static sampler random(std::size_t len, bool replacement = false, std::optional<std::size_t> num_samples = {}) {
    return make(slotline_sampler_random, len, replacement, num_samples ? std::int64_t(*num_samples) : -1);
  }
  /// These indices, shuffled in each pass.
  static sampler subset_random(span<const std::uint64_t> indices) {
    return make(slotline_sampler_subset_random, indices.data(), indices.size());
  }
  /// `num_samples` indices, each by its weight.
  static sampler weighted(span<const double> weights, std::size_t num_samples, bool replacement = true) {
    return make(slotline_sampler_weighted, weights.data(), weights.size(), num_samples, replacement);
  }
  /// One replica's part of `len` samples.
  static sampler distributed(std::size_t len, std::size_t num_replicas, std::size_t rank, bool shuffle = true,
                             std::uint64_t seed = 0, bool drop_last = false) {
    return make(slotline_sampler_distributed, len, num_replicas, rank, shuffle, seed, drop_last);
  }

  slotline_sampler* raw() const noexcept { return raw_.get(); }

 private:
  template <class Function, class... Arguments>
  static sampler make(Function function, Arguments... arguments) {
    slotline_sampler* raw = nullptr;
    detail::check(function, arguments..., &raw);
    return sampler(raw);
  }
  explicit sampler(slotline_sampler* raw) : raw_(raw, slotline_sampler_free) {}

  std::shared_ptr<slotline_sampler> raw_;
};

}  // namespace slotline

#endif
