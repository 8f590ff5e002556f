// Samplers: the order in which a pass visits the samples.
#ifndef SLOTLINE_SAMPLER_HPP
#define SLOTLINE_SAMPLER_HPP

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "error.hpp"
#include "failure.hpp"
#include "flag.hpp"
#include "generator.hpp"
#include "span.hpp"

namespace slotline {

/// The order of a loader's passes. Copies refer to the same sampler; any number of loaders may use it.
///
/// Unless it has a seed, a sampler draws from the process's default generator (`manual_seed`), as
/// torch's samplers do, and not from the loader's.
class sampler {
 public:
  /// Takes ownership of a sampler of the C API.
  explicit sampler(slotline_sampler* raw) : raw_(raw, slotline_sampler_free) {}

  /// Draws a new random order in each pass, or with replacement, independent random indices.
  /// `num_samples` defaults to the length of the dataset.
  static sampler random(flag replacement = false, std::optional<std::size_t> num_samples = std::nullopt) {
    // In the C API, 0 means the default, so reject it here.
    if (num_samples == std::size_t{0})
      detail::raise(error(code::build, "num_samples is 0; set it to at least 1, or leave it out"));
    return make(slotline_sampler_random, static_cast<std::uint8_t>(replacement), num_samples.value_or(0));
  }
  /// Visits these indices in a new random order in each pass.
  static sampler subset_random(span<const std::size_t> indices) {
    return make(slotline_sampler_subset_random, indices.data(), indices.size());
  }
  /// Draws `num_samples` indices by weight; `weights[i]` is the weight of sample i.
  static sampler weighted(span<const double> weights, std::size_t num_samples, flag replacement = true) {
    return make(slotline_sampler_weighted, weights.data(), weights.size(), num_samples,
                static_cast<std::uint8_t>(replacement));
  }
  /// Visits the share of the dataset that the process `rank` loads. All processes must use the same
  /// seed, and call `set_epoch` with the same epoch before each pass.
  static sampler distributed(std::size_t num_replicas, std::size_t rank, flag shuffle = true, std::uint64_t seed = 0,
                             flag drop_last = false) {
    return make(slotline_sampler_distributed, num_replicas, rank, static_cast<std::uint8_t>(shuffle), seed,
                static_cast<std::uint8_t>(drop_last));
  }
  /// Visits all samples in a new random order in each pass, without storing the order, for datasets
  /// of billions of samples. torch has no equivalent.
  static sampler feistel() { return make(slotline_sampler_feistel); }
  /// Visits these indices, in this order, in each pass.
  static sampler indices(span<const std::size_t> indices) {
    return make(slotline_sampler_indices, indices.data(), indices.size());
  }
  /// Visits the order that a function returns: `draw` writes the `len` indices of pass `pass`, from
  /// 0, all in one call. `seed` is a new random number in each pass, which is drawn from `seed()`
  /// or `generator()`. An order that depends only on `pass` and `seed` can be resumed with
  /// `load_state`. The thread that starts the pass calls the function; if it throws, `epoch` fails.
  ///
  ///     auto shuffled = slotline::sampler::from(1000, [](std::uint64_t pass, std::uint64_t seed, auto indices) {
  ///       std::iota(indices.begin(), indices.end(), 0);
  ///       std::shuffle(indices.begin(), indices.end(), std::mt19937_64(seed));
  ///     });
  static sampler from(
      std::size_t len, std::function<void(std::uint64_t pass, std::uint64_t seed, span<std::uint64_t> indices)> draw) {
    return from(len, [draw = std::move(draw)](std::uint64_t pass, std::uint64_t seed, span<std::uint64_t> indices, failure&) {
      draw(pass, seed, indices);
    });
  }
  /// Takes a function that can also fail without exceptions, with `failure.fail`.
  static sampler from(
      std::size_t len,
      std::function<void(std::uint64_t pass, std::uint64_t seed, span<std::uint64_t> indices, failure& failure)> draw) {
    using Draw = decltype(draw);
    slotline_order_callback raw{};
    raw.struct_size = sizeof raw;
    raw.len = len;
    raw.order = [](void* user, std::uint64_t pass, std::uint64_t seed, std::uint64_t* indices, std::size_t size,
                   slotline_failure* failure) -> std::int32_t {
      return detail::guarded(
          [&] {
            const detail::turn call(user);
            slotline::failure report(failure);
            (*static_cast<Draw*>(user))(pass, seed, {indices, size}, report);
            return report.failed() ? -1 : 0;
          },
          failure);
    };
    raw.drop = detail::deleted<Draw>;
    raw.user = new Draw(std::move(draw));
    return make(slotline_sampler_from_callback, &raw);
  }

  /// Sets a seed: loaders created from now on use the sampler with a separate generator with this
  /// seed.
  sampler& seed(std::uint64_t seed) {
    slotline_sampler_seed(raw_.get(), seed);
    return *this;
  }
  /// Sets the generator that the sampler draws from, in loaders created from now on. It may be
  /// shared.
  sampler& generator(const slotline::generator& generator) {
    slotline_sampler_generator(raw_.get(), generator.raw());
    return *this;
  }
  /// Sets the epoch of the next pass of a distributed sampler.
  void set_epoch(std::uint64_t epoch) { slotline_sampler_set_epoch(raw_.get(), epoch); }

  slotline_sampler* raw() const noexcept { return raw_.get(); }

 private:
  template <class Function, class... Arguments>
  static sampler make(Function function, Arguments... arguments) {
    slotline_sampler* raw = nullptr;
    detail::check(function, arguments..., &raw);
    return sampler(raw);
  }

  std::shared_ptr<slotline_sampler> raw_;
};

/// The batches of a loader's passes as lists of indices, instead of a sampler and a batch size.
/// Copies refer to the same batch sampler.
class batch_sampler {
 public:
  /// Takes ownership of a batch sampler of the C API.
  explicit batch_sampler(slotline_batch_sampler* raw) : raw_(raw, slotline_batch_sampler_free) {}

  /// Groups a sampler's indices into batches.
  static batch_sampler of(const slotline::sampler& sampler, std::size_t batch_size, flag drop_last = false) {
    return make(slotline_batch_sampler_of, sampler.raw(), batch_size,
                static_cast<std::uint8_t>(drop_last));
  }
  /// Returns the same batches in each pass.
  static batch_sampler lists(const std::vector<std::vector<std::size_t>>& batches) {
    std::vector<std::size_t> indices, offsets = {0};
    for (const auto& batch : batches) {
      indices.insert(indices.end(), batch.begin(), batch.end());
      offsets.push_back(indices.size());
    }
    return make(slotline_batch_sampler_lists, indices.data(),
                offsets.data(), batches.size());
  }
  /// A function that returns batch `batch` of pass `pass`, both from 0, with at most
  /// `max_batch_size` indices, or nothing after the last batch. `seed` is the same for all batches
  /// of a pass, and a new random number in each pass, which is drawn from the loader's seed or
  /// generator. Batches that depend only on these three arguments can be resumed with `load_state`.
  /// The thread that begins the batch calls the function, for each loader one thread at a time.
  using draw =
      std::function<std::optional<std::vector<std::size_t>>(std::uint64_t pass, std::uint64_t seed, std::uint64_t batch)>;
  static batch_sampler from(std::size_t max_batch_size, draw draw_batch) {
    return from(max_batch_size, [draw_batch = std::move(draw_batch)](std::uint64_t pass, std::uint64_t seed, std::uint64_t batch,
                                                                     failure&) { return draw_batch(pass, seed, batch); });
  }
  /// A function like `draw` that can also fail without exceptions, with `failure.fail`.
  using fallible_draw = std::function<std::optional<std::vector<std::size_t>>(std::uint64_t pass, std::uint64_t seed,
                                                                              std::uint64_t batch, failure& failure)>;
  static batch_sampler from(std::size_t max_batch_size, fallible_draw draw_batch) {
    slotline_batches_callback raw{};
    raw.struct_size = sizeof raw;
    raw.max_batch_size = max_batch_size;
    raw.batches = [](void* user, std::uint64_t pass, std::uint64_t seed, std::uint64_t batch, std::uint64_t* indices,
                     std::size_t room, std::size_t* len, slotline_failure* failure) -> std::int32_t {
      return detail::guarded(
          [&] {
            const detail::turn call(user);
            slotline::failure report(failure);
            const auto drawn = (*static_cast<fallible_draw*>(user))(pass, seed, batch, report);
            if (report.failed()) return -1;
            if (!drawn) return 1;
            *len = drawn->size();  // The library rejects a length greater than `room`.
            if (*len <= room) std::copy(drawn->begin(), drawn->end(), indices);
            return 0;
          },
          failure);
    };
    raw.drop = detail::deleted<fallible_draw>;
    raw.user = new fallible_draw(std::move(draw_batch));
    return make(slotline_batch_sampler_from_callback, &raw);
  }

  slotline_batch_sampler* raw() const noexcept { return raw_.get(); }

 private:
  template <class Function, class... Arguments>
  static batch_sampler make(Function function, Arguments... arguments) {
    slotline_batch_sampler* raw = nullptr;
    detail::check(function, arguments..., &raw);
    return batch_sampler(raw);
  }

  std::shared_ptr<slotline_batch_sampler> raw_;
};

/// When a pass over a mixture ends.
enum class stop : std::uint32_t {
  /// When one dataset has been read to its end. No sample is repeated.
  first_exhausted = SLOTLINE_STOP_FIRST_EXHAUSTED,
  /// When every dataset has been read to its end. Datasets that end earlier begin again.
  all_exhausted = SLOTLINE_STOP_ALL_EXHAUSTED,
  /// When each sample of every dataset has been read once. When a dataset ends, its share is
  /// distributed to the others in proportion to their weights.
  all_exhausted_without_replacement = SLOTLINE_STOP_ALL_EXHAUSTED_WITHOUT_REPLACEMENT,
};

/// A sampler that mixes several datasets by weight, for their `dataset::concat`. Weights are relative
/// numbers of samples; each block of 256 samples has as many of each dataset as its weight demands. No
/// sample is visited twice before all samples of its dataset were. Ranks share the passes.
///
///     auto both = slotline::dataset::concat({web, books});
///     slotline::sampler order = slotline::mixture({web.size(), books.size()}, {3, 1}).stop(slotline::stop::all_exhausted);
///     slotline::loader loader(both, slotline::options().sampler(order.seed(42)));
class mixture {
 public:
  /// A mixture of datasets of these lengths (`dataset::size`), with a weight for each; 0 leaves a
  /// dataset out.
  mixture(const std::vector<std::int64_t>& lens, std::vector<double> weights) : mixture(lens) {
    weights_.push_back(std::move(weights));
  }
  /// A mixture with the lengths as weights, which visits each sample once.
  static mixture by_size(const std::vector<std::int64_t>& lens) { return mixture(lens); }
  /// A mixture whose weights change from pass to pass. The last ones also apply to all later passes.
  /// Each pass has `num_samples` samples.
  static mixture schedule(const std::vector<std::int64_t>& lens, std::vector<std::vector<double>> weights,
                          std::uint64_t num_samples) {
    mixture made(lens);
    made.weights_ = std::move(weights);
    return made.num_samples(num_samples);
  }

  /// When a pass ends (stop::first_exhausted).
  mixture& stop(slotline::stop when) {
    raw_.stop = static_cast<std::uint32_t>(when);
    return *this;
  }
  /// Ends a pass after this many samples. Datasets that end earlier begin again.
  mixture& num_samples(std::uint64_t samples) {
    if (samples == 0) detail::raise(error(code::build, "num_samples is 0; set it to at least 1, or leave it out"));
    raw_.num_samples = samples;
    return *this;
  }
  /// Whether the datasets take turns as evenly as possible, instead of in random order within blocks of
  /// 256 samples (no).
  mixture& even(flag on = true) {
    raw_.even = static_cast<std::uint8_t>(on);
    return *this;
  }
  /// Whether the samples of each dataset are shuffled, instead of visited from first to last (yes).
  mixture& shuffle(flag on) {
    raw_.shuffle = static_cast<std::uint8_t>(on);
    return *this;
  }

  /// Makes the sampler. Throws slotline::error if the weights are invalid.
  operator sampler() const {
    std::vector<double> weights;
    for (const auto& each : weights_) {
      if (each.size() != lens_.size())
        detail::raise(error(code::invalid, "a mixture needs one weight for each dataset"));
      weights.insert(weights.end(), each.begin(), each.end());
    }
    slotline_mixture raw = raw_;
    raw.lens = lens_.data();
    raw.num_datasets = lens_.size();
    raw.weights = weights_.empty() ? nullptr : weights.data();
    raw.num_epochs = weights_.size();
    slotline_sampler* out = nullptr;
    detail::check(slotline_sampler_mixture, &raw, &out);
    return sampler(out);
  }

 private:
  explicit mixture(const std::vector<std::int64_t>& lens) {
    for (const std::int64_t len : lens) {
      if (len < 0) detail::raise(error(code::invalid, "a mixture needs datasets of known length"));
      lens_.push_back(static_cast<std::size_t>(len));
    }
    raw_.struct_size = sizeof raw_;
    raw_.shuffle = 1;
  }

  std::vector<std::size_t> lens_;
  /// The weights of each pass; none if the lengths are the weights.
  std::vector<std::vector<double>> weights_;
  slotline_mixture raw_{};
};

/// A batch sampler that makes batches of samples of similar lengths, which differ in size. Each sample is
/// visited once in a pass. It draws from the loader's seed or generator. Ranks have equally many
/// batches.
class length_batches {
 public:
  /// Makes batches of as many samples as possible with at most `max_tokens` tokens. `lengths` has the
  /// tokens of each sample.
  static length_batches token_budget(std::vector<std::size_t> lengths, std::size_t max_tokens) {
    if (max_tokens == 0) detail::raise(error(code::build, "max_tokens is 0; set it to at least 1"));
    length_batches made(std::move(lengths));
    made.raw_.max_tokens = max_tokens;
    return made;
  }
  /// Makes batches from buckets of lengths. Bucket i has the samples whose lengths are at least
  /// `boundaries[i - 1]` and less than `boundaries[i]`, in batches of `batch_sizes[i]`. So there is one
  /// batch size more than boundaries. The last batch of a bucket may be smaller.
  static length_batches buckets(std::vector<std::size_t> lengths, std::vector<std::size_t> boundaries,
                                std::vector<std::size_t> batch_sizes) {
    if (batch_sizes.size() != boundaries.size() + 1)
      detail::raise(error(code::invalid, "buckets need one batch size more than boundaries"));
    length_batches made(std::move(lengths));
    made.boundaries_ = std::move(boundaries);
    made.batch_sizes_ = std::move(batch_sizes);
    return made;
  }

  /// Whether the budget includes the padding to the longest sample of the batch (yes). Otherwise only
  /// the samples' own tokens count, which is right for packed batches.
  length_batches& padded(flag on) {
    raw_.padded = static_cast<std::uint8_t>(on);
    return *this;
  }
  /// The maximum number of samples in a batch (what the budget or the buckets allow). A batch reserves
  /// memory for the largest one, which short samples make large.
  length_batches& limit(std::size_t samples) {
    if (samples == 0) detail::raise(error(code::build, "limit is 0; set it to at least 1, or leave it out"));
    raw_.limit = samples;
    return *this;
  }
  /// Whether each pass has other batches, in random order (yes). Otherwise a budget takes the samples
  /// from the longest to the shortest, and buckets take them in the order of the dataset.
  length_batches& shuffle(flag on) {
    raw_.shuffle = static_cast<std::uint8_t>(on);
    return *this;
  }
  /// Whether batches at the end are left out if their number is not divisible by the number of ranks
  /// (no: ranks without a batch repeat one from the start).
  length_batches& drop_last(flag on = true) {
    raw_.drop_last = static_cast<std::uint8_t>(on);
    return *this;
  }

  /// Makes the batch sampler. Throws slotline::error if a sample is longer than the budget, or the
  /// boundaries do not ascend.
  operator batch_sampler() const {
    slotline_length_batches raw = raw_;
    raw.lengths = lengths_.data();
    raw.num_lengths = lengths_.size();
    raw.boundaries = boundaries_.data();
    raw.batch_sizes = batch_sizes_.data();
    raw.num_boundaries = boundaries_.size();
    slotline_batch_sampler* out = nullptr;
    detail::check(slotline_batch_sampler_by_length, &raw, &out);
    return batch_sampler(out);
  }

 private:
  explicit length_batches(std::vector<std::size_t> lengths) : lengths_(std::move(lengths)) {
    raw_.struct_size = sizeof raw_;
    raw_.padded = raw_.shuffle = 1;
  }

  std::vector<std::size_t> lengths_, boundaries_, batch_sizes_;
  slotline_length_batches raw_{};
};

/// Seeds the process's default generator, which loaders and samplers without a seed draw from.
inline void manual_seed(std::uint64_t seed) { slotline_manual_seed(seed); }

}  // namespace slotline

#endif
