// A network of two layers, trained by gradient descent with momentum. Every sum is computed in a fixed order, so that
// the same batches give the same weights, bit for bit: compile it with -ffp-contract=off, and without -ffast-math.
#pragma once

#include <algorithm>
#include <array>
#include <cfloat>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include <slotline.hpp>

constexpr std::size_t PIXELS = 64, HIDDEN = 128, CLASSES = 10;

/// torch's uniform numbers in [0, 1): the low 53 bits of two words of mt19937, the first one high.
inline double uniform(std::mt19937& words) {
  const std::uint64_t high = words(), low = words();
  return static_cast<double>((high << 32 | low) & ((std::uint64_t{1} << 53) - 1)) / 9007199254740992.0;
}

/// The weights from each input to all outputs, then the biases.
template <std::size_t IN, std::size_t OUT>
struct Layer {
  std::vector<std::array<float, OUT>> weights = std::vector<std::array<float, OUT>>(IN);
  std::array<float, OUT> biases{};

  /// Initialises the weights uniformly around 0, so that signals keep their size through a layer of rectifiers.
  void randomize(std::mt19937& words) {
    const double bound = std::sqrt(6.0 / IN);
    for (auto& row : weights)
      for (float& weight : row) weight = static_cast<float>((2.0 * uniform(words) - 1.0) * bound);
  }

  std::array<float, OUT> forward(const float* input) const {
    std::array<float, OUT> output = biases;
    for (std::size_t i = 0; i < IN; ++i)
      for (std::size_t o = 0; o < OUT; ++o) output[o] += input[i] * weights[i][o];
    return output;
  }

  /// Adds the gradient of one sample, given its input and the gradient of its output.
  void add_gradient(const float* input, const std::array<float, OUT>& output) {
    for (std::size_t i = 0; i < IN; ++i)
      for (std::size_t o = 0; o < OUT; ++o) weights[i][o] += input[i] * output[o];
    for (std::size_t o = 0; o < OUT; ++o) biases[o] += output[o];
  }

  /// Returns the gradient of the input, given that of the output.
  std::array<float, IN> backward(const std::array<float, OUT>& output) const {
    std::array<float, IN> input;
    for (std::size_t i = 0; i < IN; ++i) {
      float sum = -0.0f;
      for (std::size_t o = 0; o < OUT; ++o) sum += weights[i][o] * output[o];
      input[i] = sum;
    }
    return input;
  }

  /// Updates the velocity from `gradient`, and moves the weights by it.
  void descend(Layer& velocity, const Layer& gradient, float rate) {
    const auto move = [rate](float& value, float& speed, float slope) {
      speed = 0.9f * speed - rate * slope;
      value += speed;
    };
    for (std::size_t i = 0; i < IN; ++i)
      for (std::size_t o = 0; o < OUT; ++o) move(weights[i][o], velocity.weights[i][o], gradient.weights[i][o]);
    for (std::size_t o = 0; o < OUT; ++o) move(biases[o], velocity.biases[o], gradient.biases[o]);
  }

  void append_to(std::vector<float>& values) const {
    for (const auto& row : weights) values.insert(values.end(), row.begin(), row.end());
    values.insert(values.end(), biases.begin(), biases.end());
  }
};

/// The score of the network on some samples.
struct Score {
  double loss = 0;
  std::size_t correct = 0, samples = 0;

  double accuracy() const { return static_cast<double>(correct) / static_cast<double>(std::max<std::size_t>(samples, 1)); }
};

class Net {
 public:
  explicit Net(std::uint64_t seed) {
    std::mt19937 words(static_cast<std::uint32_t>(seed));
    hidden_.randomize(words);
    output_.randomize(words);
  }

  /// One training step on a batch of images and labels. The score is that from before the step.
  void train(const slotline::view<float>& images, const slotline::view<std::int64_t>& labels, float rate, Score& score) {
    Layer<PIXELS, HIDDEN> hidden;
    Layer<HIDDEN, CLASSES> output;
    for (std::size_t i = 0; i < labels.size(); ++i) {
      const float* pixels = images.row(i).data();
      const auto label = static_cast<std::size_t>(labels[i]);
      std::array<float, HIDDEN> active;
      // The gradient of the loss with respect to the last layer's output: the probabilities, minus one for the correct
      // digit.
      std::array<float, CLASSES> wrong = run(pixels, label, active, score);
      wrong[label] -= 1.0f;
      output.add_gradient(active.data(), wrong);
      std::array<float, HIDDEN> back = output_.backward(wrong);
      for (std::size_t h = 0; h < HIDDEN; ++h)
        if (active[h] <= 0.0f) back[h] = 0.0f;
      hidden.add_gradient(pixels, back);
    }
    // The gradient is a sum, but the step follows the mean.
    rate /= static_cast<float>(std::max<std::size_t>(labels.size(), 1));
    hidden_.descend(hidden_velocity_, hidden, rate);
    output_.descend(output_velocity_, output, rate);
  }

  void test(const slotline::view<float>& images, const slotline::view<std::int64_t>& labels, Score& score) const {
    std::array<float, HIDDEN> active;
    for (std::size_t i = 0; i < labels.size(); ++i)
      run(images.row(i).data(), static_cast<std::size_t>(labels[i]), active, score);
  }

  std::vector<float> weights() const {
    std::vector<float> values;
    hidden_.append_to(values);
    output_.append_to(values);
    return values;
  }

 private:
  /// Computes the output of the hidden layer for an image and the probability of each digit, and updates the score.
  std::array<float, CLASSES> run(const float* pixels, std::size_t label, std::array<float, HIDDEN>& active,
                                 Score& score) const {
    active = hidden_.forward(pixels);
    for (float& value : active) value = std::max(value, 0.0f);
    std::array<float, CLASSES> chances = output_.forward(active.data());
    // Subtracts the maximum, so that the exponentials do not overflow.
    const float greatest = *std::max_element(chances.begin(), chances.end());
    float sum = 0;
    for (float& chance : chances) sum += chance = std::exp(chance - greatest);
    for (float& chance : chances) chance /= sum;

    score.samples += 1;
    // The first of equal maxima is the guess.
    const auto guess = std::max_element(chances.begin(), chances.end()) - chances.begin();
    score.correct += static_cast<std::size_t>(guess) == label;
    // A probability that is too small for float is clamped, because it is not 0.
    score.loss -= std::log(static_cast<double>(std::max(chances[label], FLT_MIN)));
    return chances;
  }

  Layer<PIXELS, HIDDEN> hidden_, hidden_velocity_;
  Layer<HIDDEN, CLASSES> output_, output_velocity_;
};
