// Pictures, decoded into rows of batches. Requires a library that was built with SLOTLINE_IMAGE.
#ifndef SLOTLINE_PIPELINE_HPP
#define SLOTLINE_PIPELINE_HPP

#include "../slotline.h"

#ifdef SLOTLINE_HAS_IMAGE

#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "dataset.hpp"
#include "error.hpp"
#include "flag.hpp"
#include "sample.hpp"
#include "span.hpp"
#include "types.hpp"

namespace slotline {

/// Decodes pictures, transforms them, and writes them in a fixed shape. Any number of threads may
/// use it concurrently.
class pipeline {
 public:
  /// Creates a pipeline from transforms with torchvision's names, arguments and defaults:
  /// "random_resized_crop(224), hflip, normalize(imagenet)". Except for the size, zeros in
  /// `options` are the defaults. Throws slotline::error, which locates a syntax error.
  explicit pipeline(const std::string& transforms, slotline_pipeline_options options = {}) {
    options.struct_size = sizeof options;
    slotline_pipeline* raw = nullptr;
    detail::check(slotline_pipeline_new, transforms.c_str(), &options, &raw);
    raw_.reset(raw);
  }

  /// Creates a pipeline with this element type.
  pipeline(const std::string& transforms, dtype type, flag channels_last = false)
      : pipeline(transforms, with(type, channels_last)) {}

  /// Returns the shape of a picture: `{3, height, width}`, or `{height, width, 3}` with channels
  /// last.
  std::vector<std::int64_t> shape() const {
    std::vector<std::int64_t> shape(3);
    detail::check(slotline_pipeline_shape, raw_.get(), shape.data());
    return shape;
  }
  dtype type() const noexcept { return static_cast<dtype>(slotline_pipeline_dtype(raw_.get())); }
  /// Returns the declaration of a dataset's field that contains these pictures.
  slotline::field field(std::string name) const { return {std::move(name), type(), shape(), kind::fixed}; }

  /// Decodes a picture from the bytes of its file to `out`, which must have as many elements as
  /// `shape()`. Random transforms are a function of `seed`.
  template <class T>
  void decode(span<const std::uint8_t> bytes, span<T> out, std::uint64_t seed) const {
    if (dtype_of<T> != type())
      detail::raise(std::invalid_argument(std::string("the pipeline's elements are ") + name_of(type()) + ", not " +
                                  name_of(dtype_of<T>)));
    decode(bytes, out.data(), out.size() * sizeof(T), seed);
  }

  /// Decodes a picture into its row of the batch. Random transforms use the sample's random
  /// numbers.
  void decode(span<const std::uint8_t> bytes, sample& sample, std::size_t field) const {
    std::size_t size = 0;
    void* row = slotline_sample_row(sample.raw(), field, &size);
    if (!row) detail::raise(std::invalid_argument(rowless(field)));
    decode(bytes, row, size, sample.rng()());
  }
  /// Decodes into a row without exceptions. If it fails, pass the message on: `return
  /// sample.fail(result.message());`
  status try_decode(span<const std::uint8_t> bytes, sample& sample, std::size_t field) const {
    std::size_t size = 0;
    void* row = slotline_sample_row(sample.raw(), field, &size);
    if (!row) return {code::invalid, rowless(field)};
    return detail::call(slotline_pipeline_decode, raw_.get(), bytes.data(), bytes.size(), sample.rng()(), row, size);
  }
  /// Creates a pipeline without exceptions: OK and a pipeline, or the failure.
  static status try_make(const std::string& transforms, slotline_pipeline_options options, std::optional<pipeline>& out) {
    options.struct_size = sizeof options;
    slotline_pipeline* raw = nullptr;
    status result = detail::call(slotline_pipeline_new, transforms.c_str(), &options, &raw);
    if (raw) out.emplace(pipeline(raw));
    return result;
  }

  /// Returns a dataset like `files`, which was opened from files, with the pictures in one field
  /// decoded directly into their rows of the batch. Without a name, it must be the only field with
  /// pictures. Throws slotline::error if there is no such field.
  dataset decoded(const dataset& files, const std::string& field = {}) const {
    slotline_dataset* out = nullptr;
    detail::check(slotline_dataset_decode, files.raw(), raw_.get(), field.empty() ? nullptr : field.c_str(), &out);
    return dataset(out);
  }

  slotline_pipeline* raw() const noexcept { return raw_.get(); }

 private:
  explicit pipeline(slotline_pipeline* raw) noexcept : raw_(raw) {}

  static slotline_pipeline_options with(dtype type, bool channels_last) noexcept {
    slotline_pipeline_options options{};
    options.dtype = static_cast<std::uint32_t>(type);
    options.channels_last = channels_last;
    return options;
  }

  static std::string rowless(std::size_t field) { return "field " + std::to_string(field) + " has no row to write in place"; }

  void decode(span<const std::uint8_t> bytes, void* out, std::size_t size, std::uint64_t seed) const {
    detail::check(slotline_pipeline_decode, raw_.get(), bytes.data(), bytes.size(), seed, out, size);
  }

  detail::owned<slotline_pipeline, slotline_pipeline_free> raw_;
};

}  // namespace slotline

#endif
#endif
