// Tests datasets of pictures: `pictures PICTURE [FOLDER MASKS]`, where FOLDER has two pictures of one
// class and three of another, and MASKS the masks of these pictures.
#include <cstdio>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

#include <slotline.hpp>

#define CHECK(condition) \
  if (!(condition)) throw std::logic_error(std::string(#condition) + " is false, in line " + std::to_string(__LINE__))

struct photos {
  std::vector<std::uint8_t> bytes;
  slotline::pipeline pictures;
  std::size_t damaged;

  std::size_t size() const { return 12; }
  std::vector<slotline::field> fields() const {
    return {pictures.field("image"), slotline::fixed<std::int64_t>("index")};
  }
  void read(std::size_t index, slotline::sample& sample) const {
    const slotline::span<const std::uint8_t> all(bytes);
    pictures.decode(index == damaged ? all.subspan(0, 30) : all, sample, 0);
    sample.write(1, std::int64_t(index));
  }
};

static std::vector<std::uint8_t> file(const char* path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

static std::vector<float> pixels(const std::vector<std::uint8_t>& bytes, std::size_t workers) {
  auto options = slotline::options().batch_size(4).seed(7).shuffle(true).num_workers(workers);
  slotline::loader loader(photos{bytes, slotline::pipeline("random_resized_crop(8), hflip, normalize(imagenet)"), 99},
                          options);
  std::vector<float> all;
  for (auto& batch : loader) {
    auto images = batch.field<float>("image");
    const auto shape = images.shape();
    CHECK(shape.size() == 4 && shape[0] == 4 && shape[1] == 3 && shape[2] == 8 && shape[3] == 8);
    all.insert(all.end(), images.begin(), images.end());
  }
  return all;
}

static void a_folder_of_classes(const std::string& folder) {
  const slotline::pipeline train("random_resized_crop(8), hflip, normalize(imagenet)");
  const auto files = slotline::dataset::open(folder);
  CHECK(files.size() == 5);
  std::vector<float> pixels[2];
  for (const std::size_t workers : {std::size_t{0}, std::size_t{2}}) {
    auto options = slotline::options().batch_size(5).seed(7).num_workers(workers);
    slotline::loader loader(train.decoded(files), options);
    for (auto& batch : loader) {
      const auto images = batch.field<float>(0);
      const auto labels = batch.field<std::int64_t>("label");
      CHECK(images.shape()[0] == 5 && images.shape()[3] == 8);
      CHECK(std::vector<std::int64_t>(labels.begin(), labels.end()) == (std::vector<std::int64_t>{0, 0, 1, 1, 1}));
      pixels[workers / 2].assign(images.begin(), images.end());
    }
  }
  CHECK(pixels[0].size() == 5 * 3 * 8 * 8 && pixels[0] == pixels[1]);
  try {
    train.decoded(files, "label");
    CHECK(false);
  } catch (const slotline::error& error) {
    CHECK(error.code() == slotline::code::source && std::string(error.what()).find("label") != std::string::npos);
  }
  try {
    train.decoded(slotline::dataset::open("digits"));
    CHECK(false);
  } catch (const slotline::error& error) {
    CHECK(error.code() == slotline::code::invalid);
  }
  try {
    slotline::dataset::open(folder + "/cats/0.png");
    CHECK(false);
  } catch (const slotline::error& error) {
    CHECK(error.code() == slotline::code::source);
  }
}

static void masks_boxes_and_mixed_batches(const std::string& folder, const std::string& masks) {
  const slotline::pipeline crop("center_crop(8)");
  const auto files = slotline::dataset::open(folder, "mask_folder=" + masks);
  const auto fields = slotline::picture_fields("data").mask("mask", slotline::dtype::i64, 255);
  slotline::loader loader(crop.decoded(files, fields), slotline::options().batch_size(5));
  for (auto& batch : loader) {
    const auto shape = batch.field<std::int64_t>("mask").shape();
    CHECK(shape.size() == 3 && shape[0] == 5 && shape[1] == 8 && shape[2] == 8);
    slotline_mix options = slotline::cutmix(2, 3);
    CHECK(options.cut == 1 && options.seed == 3 && options.alpha == 1);
    const std::vector<float> labels = batch.mix(0, 2, options);
    CHECK(labels.size() == 10 && labels[0] + labels[1] == 1.0f && labels[4] + labels[5] == 1.0f);
    options.num_classes = 1;
    try {
      batch.mix(0, 2, options);
      CHECK(false);
    } catch (const slotline::error& error) {
      CHECK(error.code() == slotline::code::invalid);
    }
  }
  try {
    crop.decoded(files, slotline::picture_fields("data").boxes("label", slotline::box_format::xywh));
    CHECK(false);
  } catch (const slotline::error& error) {
    CHECK(std::string(error.what()).find("not boxes") != std::string::npos);
  }
}

int main(int count, char** arguments) try {
  if (count > 2) {
    a_folder_of_classes(arguments[2]);
    masks_boxes_and_mixed_batches(arguments[2], arguments[3]);
  }
  const auto bytes = file(arguments[1]);
  const auto alone = pixels(bytes, 0);
  CHECK(alone.size() == 12 * 3 * 8 * 8);
  CHECK(alone == pixels(bytes, 2));
  CHECK(std::vector<float>(alone.begin(), alone.begin() + 192) != std::vector<float>(alone.begin() + 192, alone.begin() + 384));

  const slotline::pipeline small("resize([4, 5])", slotline::dtype::u8, true);
  CHECK((small.shape() == std::vector<std::int64_t>{4, 5, 3}) && small.type() == slotline::dtype::u8);
  std::vector<std::uint8_t> out(60);
  small.decode(bytes, slotline::span<std::uint8_t>(out), 0);
  CHECK(out != std::vector<std::uint8_t>(60));
  CHECK(slotline::pipeline("center_crop(4)", slotline::dtype::bf16).field("x").type == slotline::dtype::bf16);
  std::vector<float> floats(60);
  try {
    small.decode(bytes, slotline::span<float>(floats), 0);
    CHECK(false);
  } catch (const std::invalid_argument& error) {
    CHECK(std::string(error.what()) == "the pipeline's elements are u8, not f32");
  }
  try {
    slotline::pipeline("center_crop(4), hflop");
    CHECK(false);
  } catch (const slotline::error& error) {
    CHECK(error.code() == slotline::code::invalid);
    CHECK(std::string(error.what()).find("did you mean hflip?") != std::string::npos);
  }
  slotline::loader damaged(photos{bytes, slotline::pipeline("center_crop(4)"), 5}, slotline::options().batch_size(4));
  try {
    for (auto& batch : damaged) CHECK(batch.batch_index() == 0);
    CHECK(false);
  } catch (const slotline::error& error) {
    CHECK(error.code() == slotline::code::sample && error.index() == 5);
    CHECK(std::string(error.what()).find("a PNG of 30 bytes is cut short") != std::string::npos);
  }
  std::puts("ok");
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
