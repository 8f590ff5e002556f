// The rule for packing documents into rows of one length.
#ifndef SLOTLINE_PACKING_HPP
#define SLOTLINE_PACKING_HPP

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "flag.hpp"

#include "../slotline.h"

namespace slotline {

/// How `dataset::pack` fills rows with documents: `packing(8192, lengths).padding({0, -100})`. Defaults are
/// in parentheses.
class packing {
 public:
  /// Rows of `capacity` tokens, 1 to 2^28, for documents of these lengths. Each document goes whole into
  /// the fullest row that has room for it, from the longest to the shortest, and only documents that are
  /// longer than a row are cut.
  packing(std::size_t capacity, std::vector<std::size_t> lengths) : lengths_(std::move(lengths)) {
    raw_.struct_size = sizeof raw_;
    raw_.capacity = capacity;
  }

  /// Whether all documents are concatenated and cut into chunks of `capacity` tokens instead (no).
  packing& chunks(flag on = true) {
    raw_.chunks = static_cast<std::uint8_t>(on);
    return *this;
  }
  /// Whether the last chunk of an epoch is left out if it is not full (no).
  packing& drop_last(flag on = true) {
    raw_.drop_last = static_cast<std::uint8_t>(on);
    return *this;
  }
  /// Shuffles the documents before they are packed, and the rows afterwards (neither).
  packing& seed(std::uint64_t seed) {
    raw_.seed = seed;
    raw_.has_seed = 1;
    return *this;
  }
  /// Whether a document that is longer than a row is an error, and not cut (no). Has no effect with
  /// `chunks`.
  packing& refuse_long(flag on = true) {
    raw_.refuse_long = static_cast<std::uint8_t>(on);
    return *this;
  }
  /// How many times the documents are packed, one after another (1). With a seed, each epoch has other
  /// rows. One pass of a loader then goes through all epochs. Do not shuffle its rows in the loader,
  /// which would mix the epochs.
  packing& epochs(std::size_t epochs) {
    raw_.epochs = epochs;
    return *this;
  }
  /// The number that fills the rest of a row, for each field of the documents (zeros).
  packing& padding(std::vector<std::int64_t> numbers) {
    padding_ = std::move(numbers);
    return *this;
  }

  /// Returns the struct of the C API, which points into this object.
  slotline_packing raw() const noexcept {
    slotline_packing raw = raw_;
    raw.lengths = lengths_.data();
    raw.num_lengths = lengths_.size();
    raw.padding = padding_.data();
    raw.num_padding = padding_.size();
    return raw;
  }

 private:
  std::vector<std::size_t> lengths_;
  std::vector<std::int64_t> padding_;
  slotline_packing raw_{};
};

}  // namespace slotline

#endif
