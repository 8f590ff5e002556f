// Datasets: files, arrays that are in memory already, and classes of one's own.
#ifndef SLOTLINE_DATASET_HPP
#define SLOTLINE_DATASET_HPP

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "array.hpp"
#include "error.hpp"
#include "own.hpp"
#include "sample.hpp"
#include "types.hpp"

namespace slotline {

/// What a loader reads. Copies are the same dataset; it lives until the last loader of it is gone.
///
/// A class of one's own becomes one by itself where a dataset is asked for. Read by index:
///
///     struct squares {
///       std::size_t size() const { return 1000; }
///       std::vector<slotline::field> fields() const { return {slotline::fixed<double>("square")}; }
///       void read(std::size_t index, slotline::sample& sample) const { sample.write(0, double(index) * index); }
///     };
///
/// `read` is called from several threads at once, and const for that. Or one sample after the other:
///
///     struct countdown {
///       struct cursor {
///         std::int64_t left;
///         bool next(slotline::sample& sample) { return left > 0 && (sample.write(0, left--), true); }
///       };
///       std::vector<slotline::field> fields() const { return {slotline::fixed<std::int64_t>("left")}; }
///       cursor open(const slotline::worker& worker) const { return {10 + worker.id()}; }
///     };
///
/// `open` is called in each worker for each pass, and its cursor is used by that worker only; what it gives is only that
/// worker's part if `open` sees to that. A stream that knows how many samples all workers give together has size(), too. One
/// whose cursors have `std::string save() const`, and itself `cursor resume(const slotline::worker&, const std::string&) const`,
/// goes on from there when a loader's state is loaded; others are read again from their start.
/// An exception that leaves any of these is a slotline::error where the batch is asked for, with its what().
class dataset {
 public:
  /// What `slotline feed` takes: "digits", "idx:FILE,FILE", "npy:FILE,FILE". NumPy's files are mapped: nobody may write to one, or
  /// cut it short, while it is used.
  static dataset open(const std::string& source) {
    slotline_dataset* raw = nullptr;
    detail::check(slotline_dataset_open, source.c_str(), &raw);
    return dataset(raw);
  }

  /// A sample is a row of each. Nothing is copied.
  static dataset of(std::vector<array> arrays) {
    std::vector<slotline_array> raws;
    raws.reserve(arrays.size());
    for (array& each : arrays) raws.push_back(each.release());
    slotline_dataset* raw = nullptr;
    detail::check(slotline_dataset_from_arrays, raws.data(), raws.size(), &raw);
    return dataset(raw);
  }

  /// A class of one's own, as above.
  template <class Own, class = std::enable_if_t<!std::is_same_v<std::decay_t<Own>, dataset>>>
  dataset(Own&& own) : dataset(detail::own_dataset(std::forward<Own>(own))) {}

  /// How many samples; -1 for a stream that does not say.
  std::int64_t size() const noexcept { return slotline_dataset_len(raw_.get()); }

  slotline_dataset* raw() const noexcept { return raw_.get(); }

 private:
  explicit dataset(slotline_dataset* raw) : raw_(raw, slotline_dataset_free) {}

  std::shared_ptr<slotline_dataset> raw_;
};

}  // namespace slotline

#endif
