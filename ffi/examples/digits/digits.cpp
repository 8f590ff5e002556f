// The C++ version of `slotline demo`: trains a network to read the bundled digits, and gets the same weights, bit for
// bit.
//
// Usage: digits [EPOCHS [NUM_WORKERS]]

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include <slotline.hpp>

#include "net.hpp"
#include "sha256.hpp"

constexpr std::uint64_t SEED = 42;
constexpr int SIDE = 8;

/// All digits that are bundled with slotline.
struct Data {
  std::vector<std::uint8_t> images;
  std::vector<std::int64_t> labels;

  Data() {
    slotline::loader all(slotline::dataset::open("digits"), slotline::options().batch_size(1797));
    for (auto& batch : all.epoch()) {
      auto [images, labels] = batch.fields<std::uint8_t, std::int64_t>();
      this->images.assign(images.begin(), images.end());
      this->labels.assign(labels.begin(), labels.end());
    }
  }
};

/// A subset of the digits, as pixels from 0 to 1 and a label.
struct Digits {
  std::shared_ptr<const Data> data;
  std::vector<std::size_t> chosen;
  /// Whether some images are shifted slightly, by each sample's random numbers.
  bool augmented;

  std::size_t size() const { return chosen.size(); }

  std::vector<slotline::field> fields() const {
    return {slotline::fixed<float>("image", {PIXELS}), slotline::fixed<std::int64_t>("label")};
  }

  // Called from worker threads, several at once.
  void read(std::size_t index, slotline::sample& sample) const {
    const std::size_t from = chosen[index];
    const auto [right, down] = augmented ? shift(sample) : std::pair(0, 0);
    const std::uint8_t* image = &data->images[from * PIXELS];
    slotline::span<float> pixels = sample.row<float>(0);  // the memory of the batch itself
    for (int y = 0; y < SIDE; ++y)
      for (int x = 0; x < SIDE; ++x) {
        const int u = x - right, v = y - down;
        const bool inside = u >= 0 && u < SIDE && v >= 0 && v < SIDE;
        pixels[y * SIDE + x] = inside ? image[v * SIDE + u] / 16.0f : 0.0f;
      }
    sample.write(1, data->labels[from]);
  }

  /// Shifts by one pixel to the right, left, down or up, or, as often as all of these together, not at all.
  static std::pair<int, int> shift(const slotline::sample& sample) {
    constexpr std::pair<int, int> steps[8] = {{1, 0}, {-1, 0}, {0, 1}, {0, -1}};
    return steps[sample.rng()() % 8];
  }
};

/// Four fifths for training and one for testing: torch's `random_split(digits, [0.8, 0.2])` with a generator of seed 0.
std::pair<Digits, Digits> split() {
  auto data = std::make_shared<const Data>();
  const std::size_t size = data->labels.size();
  std::vector<std::size_t> order(size);
  std::iota(order.begin(), order.end(), 0);
  std::mt19937 words(0);
  for (std::size_t i = 0; i + 1 < size; ++i) std::swap(order[i], order[i + words() % (size - i)]);
  const auto middle = order.end() - static_cast<std::ptrdiff_t>(size / 5);
  return {Digits{data, {order.begin(), middle}, true}, Digits{data, {middle, order.end()}, false}};
}

std::string digest_of(const std::vector<float>& weights) {
  std::vector<std::uint8_t> bytes(4 * weights.size());
  std::memcpy(bytes.data(), weights.data(), bytes.size());
  return sha256(std::move(bytes));
}

int main(int argc, char** argv) try {
  const int epochs = argc > 1 ? std::atoi(argv[1]) : 20;
  const int num_workers = argc > 2 ? std::atoi(argv[2]) : 2;
  auto [train_set, test_set] = split();
  slotline::loader train(std::move(train_set),
                         slotline::options().batch_size(64).shuffle(true).seed(SEED).num_workers(num_workers));
  slotline::loader test(std::move(test_set), slotline::options().batch_size(64));
  Net net(SEED);

  for (int epoch = 0; epoch < epochs; ++epoch) {
    Score trained, tested;
    const float rate = 0.2f * (1.0f - static_cast<float>(epoch) / static_cast<float>(epochs));
    for (auto& batch : train.epoch()) {
      auto [images, labels] = batch.fields<float, std::int64_t>();
      net.train(images, labels, rate, trained);
    }
    for (auto& batch : test.epoch()) {
      auto [images, labels] = batch.fields<float, std::int64_t>();
      net.test(images, labels, tested);
    }
    std::printf("epoch %2d: loss %.4f, accuracy %.2f %% (train) %.2f %% (test)\n", epoch,
                trained.loss / static_cast<double>(trained.samples), 100 * trained.accuracy(), 100 * tested.accuracy());
  }
  std::printf("sha256 of the weights: %s\n", digest_of(net.weights()).c_str());
} catch (const std::exception& error) {
  std::fprintf(stderr, "digits: %s\n", error.what());
  return 1;
}
