// Random number generators.
#ifndef SLOTLINE_GENERATOR_HPP
#define SLOTLINE_GENERATOR_HPP

#include <cstdint>
#include <memory>

#include "error.hpp"

namespace slotline {

/// A random number generator, equivalent to torch::Generator: with the same seed it returns the
/// same numbers as PyTorch's. Copies refer to the same generator. Any number of threads may use it
/// concurrently; each call that draws from it continues its sequence.
class generator {
 public:
  /// The process's default generator, which `manual_seed` seeds.
  generator() noexcept = default;
  /// Creates a separate generator with this seed.
  explicit generator(std::uint64_t seed) {
    slotline_generator* raw = nullptr;
    detail::check(slotline_generator_new, seed, &raw);
    raw_ = std::shared_ptr<slotline_generator>(raw, slotline_generator_free);
  }

  slotline_generator* raw() const noexcept { return raw_.get(); }

 private:
  std::shared_ptr<slotline_generator> raw_;
};

}  // namespace slotline

#endif
