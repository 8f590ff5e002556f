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

/// What the four numbers of a box in a file are, in pixels.
enum class box_format : std::uint32_t {
  /// Left, top, right and bottom.
  xyxy = SLOTLINE_BOXES_XYXY,
  /// Left, top, width and height, as in COCO.
  xywh = SLOTLINE_BOXES_XYWH,
  /// The centre, width and height.
  cxcywh = SLOTLINE_BOXES_CXCYWH,
};

/// Which fields of files have pictures, masks and boxes, for `pipeline::decoded`:
/// `picture_fields().mask("mask.png").boxes("json.objects.bbox", box_format::xywh)`.
class picture_fields {
 public:
  /// Without a name, the pictures are in the only field of bytes without masks; if there are several, in
  /// the one whose bytes in the first sample are a picture.
  picture_fields(std::string field = {}) : field_(std::move(field)) { raw_.struct_size = sizeof raw_; }
  picture_fields(const char* field) : picture_fields(std::string(field)) {}

  /// The field with segmentation masks: PNGs that are grey or have a palette, of the size of their
  /// pictures. Each mask has the crop, the flips and the padding of its picture, and is resized with the
  /// nearest pixel. Its elements are `u8` or `i64`; `fill` is the class of padding.
  picture_fields& mask(std::string field, dtype type = dtype::u8, std::int64_t fill = 0) {
    mask_ = std::move(field);
    raw_.mask_dtype = static_cast<std::uint32_t>(type);
    raw_.mask_fill = fill;
    return *this;
  }
  /// The field with bounding boxes, in pixels of the whole picture: lists of numbers, four for each box,
  /// the bytes of `.npy` files, or text with JSON. In the last case, "json.objects.bbox" are the boxes in
  /// `{"objects": {"bbox": ...}}` and in `{"objects": [{"bbox": ...}, ...]}` of the field "json", and
  /// become an additional field of this name. In a batch, boxes are a packed field of `float` and the
  /// shape `{4}`: left, top, right and bottom, clipped to the picture. A sample keeps all of its boxes.
  picture_fields& boxes(std::string field, box_format format = box_format::xyxy) {
    boxes_ = std::move(field);
    raw_.boxes_format = static_cast<std::uint32_t>(format);
    return *this;
  }

  /// Returns the struct of the C API, which points into this object.
  slotline_picture_fields raw() const noexcept {
    const auto name = [](const std::string& field) { return field.empty() ? nullptr : field.c_str(); };
    slotline_picture_fields raw = raw_;
    raw.field = name(field_);
    raw.mask_field = name(mask_);
    raw.boxes_field = name(boxes_);
    return raw;
  }

 private:
  std::string field_, mask_, boxes_;
  slotline_picture_fields raw_{};
};

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
  /// decoded directly into their rows of the batch, and their masks and boxes in others. Throws
  /// slotline::error if there are no such fields.
  dataset decoded(const dataset& files, const picture_fields& fields = {}) const {
    const slotline_picture_fields raw = fields.raw();
    slotline_dataset* out = nullptr;
    detail::check(slotline_dataset_decode, files.raw(), raw_.get(), &raw, &out);
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
