// Datasets: files, arrays in memory, and user-defined classes.
#ifndef SLOTLINE_DATASET_HPP
#define SLOTLINE_DATASET_HPP

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "array.hpp"
#include "batch.hpp"
#include "error.hpp"
#include "generator.hpp"
#include "packing.hpp"
#include "user_dataset.hpp"
#include "sample.hpp"
#include "types.hpp"

namespace slotline {

/// A dataset, which a loader reads. Copies refer to the same dataset; it exists until the last copy
/// and the last loader of it are destroyed.
///
/// A user-defined class converts implicitly to a dataset. A map-style dataset reads samples by index:
///
///     struct squares {
///       std::size_t size() const { return 1000; }
///       std::vector<slotline::field> fields() const { return {slotline::fixed<double>("square")}; }
///       void read(std::size_t index, slotline::sample& sample) const { sample.write(0, double(index) * index); }
///     };
///
/// `read` is const because several threads call it concurrently. A class may also have `void
/// read_many(slotline::span<const std::size_t> indices, slotline::sample_sink& sink) const`, which
/// a loader calls for a batch or a part of a batch, if reading several samples at once is faster;
/// and `void prefetch(std::size_t index) const`, which announces a sample that will be read soon.
///
/// An iterable dataset returns samples one after another:
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
/// `open` is called in each worker for each pass, and only that worker uses the cursor. The cursor
/// must return only that worker's part of the samples. If the total number of samples is known, the
/// class also has size().
///
/// A stream can resume at a saved position if its cursors have `std::string save() const` and the
/// class has `cursor resume(const slotline::worker&, const std::string&) const`. Any other stream
/// is read again from its start when a loader's state is loaded.
///
/// An object that cannot be copied, for example because of a mutex, or that has virtual functions,
/// is passed as a std::shared_ptr or a std::unique_ptr, which keeps it until the last loader is
/// destroyed, or by std::ref, which does not keep it.
///
/// An exception from any of these functions becomes the cause() of a slotline::error in place of
/// the batch.
class dataset {
 public:
  /// Opens a dataset by the names that `slotline feed` accepts: "digits", "idx:FILE,FILE",
  /// "npy:FILE,FILE". NumPy's files are memory-mapped: no process may write to or truncate one
  /// while it is used.
  static dataset open(const std::string& source) {
    slotline_dataset* raw = nullptr;
    detail::check(slotline_dataset_open, source.c_str(), &raw);
    return dataset(raw);
  }

  /// Opens a dataset with options for files, one in each line, as for slotline_dataset_open_with:
  /// "columns=jpg;png,cls\nskip_incomplete".
  static dataset open(const std::string& source, const std::string& options) {
    slotline_dataset* raw = nullptr;
    detail::check(slotline_dataset_open_with, source.c_str(), options.c_str(), &raw);
    return dataset(raw);
  }

  /// Opens a dataset without exceptions: OK and a dataset, or the failure.
  static status try_open(const std::string& source, std::optional<dataset>& out) {
    return made(out, slotline_dataset_open, source.c_str());
  }

  /// Creates a dataset of arrays: a sample is a row of each. Nothing is copied.
  static dataset of(std::vector<array> arrays) {
    std::optional<dataset> out;
    try_of(std::move(arrays), out).raise();
    return *std::move(out);
  }
  /// Works like `of`, without exceptions: OK and a dataset, or the failure.
  static status try_of(std::vector<array> arrays, std::optional<dataset>& out) {
    std::vector<slotline_array> raws;
    raws.reserve(arrays.size());
    for (array& each : arrays) raws.push_back(each.release());
    return made(out, slotline_dataset_from_arrays, raws.data(), raws.size());
  }

  /// Returns the samples of several datasets with the same fields, one dataset after another
  /// (torch's ConcatDataset).
  static dataset concat(const std::vector<dataset>& datasets);
  /// Works like `concat`, without exceptions.
  static status try_concat(const std::vector<dataset>& datasets, std::optional<dataset>& out);
  /// Returns the samples of several streams, one stream after another (torch's ChainDataset). Each
  /// worker reads all of them, and opens each one when it reaches it.
  static dataset chain(const std::vector<dataset>& datasets);
  /// Works like `chain`, without exceptions.
  static status try_chain(const std::vector<dataset>& datasets, std::optional<dataset>& out);
  /// Returns a dataset whose samples have the fields of several datasets of equal length (torch's
  /// StackDataset). A field that is named by its position, such as "0", is renamed to its new
  /// position; other names must be unique. Each dataset has separate random numbers.
  static dataset stack(const std::vector<dataset>& datasets);
  /// Works like `stack`, without exceptions.
  static status try_stack(const std::vector<dataset>& datasets, std::optional<dataset>& out);

  /// Takes ownership of a dataset of the C API.
  explicit dataset(slotline_dataset* raw) : raw_(raw, slotline_dataset_free) {}

  /// Creates a dataset from a user-defined class, as described above.
  template <class Own, class = std::enable_if_t<!std::is_same_v<std::decay_t<Own>, dataset>>>
  dataset(Own&& own) {
    if (!detail::pointee<std::decay_t<Own>>::of(own)) detail::raise(std::invalid_argument(detail::null_dataset));
    slotline_dataset* raw = nullptr;
    detail::own_dataset(std::forward<Own>(own), raw).raise();
    raw_.reset(raw, slotline_dataset_free);
  }
  /// Creates a dataset from a user-defined class, without exceptions.
  template <class Own>
  static status try_make(Own&& own, std::optional<dataset>& out) {
    slotline_dataset* raw = nullptr;
    status result = detail::own_dataset(std::forward<Own>(own), raw);
    if (raw) out.emplace(dataset(raw));
    return result;
  }

  /// The number of samples; -1 for a stream of unknown length.
  std::int64_t size() const noexcept { return slotline_dataset_len(raw_.get()); }

  /// Reads one sample in this thread, as a batch of only this sample: its tensors have the shape of
  /// a sample, without a first dimension. The random numbers are those of position 0 in epoch 0 of
  /// a loader with seed 0. Throws slotline::error.
  batch get(std::size_t index) const;
  /// Works like `get`, without exceptions.
  status try_get(std::size_t index, batch& out) const noexcept;
  /// Returns the samples at these indices, in this order (torch's Subset). Throws slotline::error
  /// if an index is out of range.
  dataset subset(const std::vector<std::size_t>& indices) const;
  /// Works like `subset`, without exceptions.
  status try_subset(const std::vector<std::size_t>& indices, std::optional<dataset>& out) const;
  /// Splits the dataset into random parts that share no samples, like torch's random_split with the
  /// same generator. `lengths` are numbers of samples, `{1500, 297}`, or fractions, `{0.8, 0.2}`;
  /// samples left over by rounding are distributed to the parts, beginning with the first.
  template <class Number>
  std::vector<dataset> random_split(const std::vector<Number>& lengths, const generator& generator = {}) const;
  template <class Number>
  std::vector<dataset> random_split(std::initializer_list<Number> lengths, const generator& generator = {}) const {
    return random_split(std::vector<Number>(lengths), generator);
  }
  /// Returns rows of one length, which are filled with the samples of this dataset, called documents.
  /// Each of their fields must be a sequence of tokens, padded or packed. A row has these fields, and
  /// `position_ids`, `document_ids` and `cu_seqlens`, as described at slotline_dataset_pack. Which
  /// documents are in which row depends only on `rule`.
  dataset pack(const packing& rule) const;
  /// Works like `pack`, without exceptions.
  status try_pack(const packing& rule, std::optional<dataset>& out) const;
  /// Returns a dataset with these fields, in which `function(const slotline::batch& source,
  /// slotline::sample& sample)` makes each sample from one sample of this dataset. `source` is what
  /// `get` would return; it must not be used after the call, except for `dlpack` tensors of it.
  /// Several threads call the function concurrently. The function and this dataset have separate
  /// random numbers. For a stream, the result is a stream that resumes where this one does.
  template <class Function>
  dataset map(std::vector<field> fields, Function function) const;

  slotline_dataset* raw() const noexcept { return raw_.get(); }

 private:
  /// Creates a dataset with a function of the C API.
  template <class Function, class... Arguments>
  static status made(std::optional<dataset>& out, Function function, Arguments... arguments) {
    slotline_dataset* raw = nullptr;
    status result = detail::call(function, arguments..., &raw);
    if (raw) out.emplace(dataset(raw));
    return result;
  }
  template <class Function>
  static status composed(std::optional<dataset>& out, Function function, const std::vector<dataset>& datasets);

  std::shared_ptr<slotline_dataset> raw_;
};

}  // namespace slotline

#include "compose.hpp"

#endif
