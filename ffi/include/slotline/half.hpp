// 16-bit floating-point numbers, for compilers without <stdfloat>.
#ifndef SLOTLINE_HALF_HPP
#define SLOTLINE_HALF_HPP

#include <cstdint>
#include <cstring>

#include "types.hpp"

namespace slotline {
namespace detail {

inline std::uint32_t bits_of(float value) noexcept {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}
inline float float_of(std::uint32_t bits) noexcept {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

/// Removes the lowest `bits` bits of a number, rounding to nearest, ties to even.
inline std::uint32_t round_off(std::uint32_t number, std::uint32_t bits) noexcept {
  const std::uint32_t kept = number >> bits, rest = number & ((1u << bits) - 1), half = 1u << (bits - 1);
  return kept + (rest > half || (rest == half && (kept & 1u)) ? 1u : 0u);
}

}  // namespace detail

/// An IEEE 754 16-bit floating-point number, `dtype::f16`. It is only for storage; arithmetic
/// converts it to float, exactly.
struct float16 {
  std::uint16_t bits;

  float16() = default;
  /// Rounds to nearest, ties to even, as hardware does.
  explicit float16(float value) noexcept {
    const std::uint32_t all = detail::bits_of(value), size = all & 0x7fffffffu;
    std::uint32_t rounded;
    if (size > 0x7f800000u) {
      rounded = 0x7e00u | ((size >> 13) & 0x3ffu);  // NaN
    } else if (size >= 0x47800000u) {
      rounded = 0x7c00u;  // infinity
    } else if (size >= 0x38800000u) {
      rounded = detail::round_off(size - (112u << 23), 13);
    } else {
      // Subnormal: a multiple of 2^-24.
      const std::uint32_t shift = 126u - (size >> 23);
      rounded = shift > 24 ? 0 : detail::round_off((size & 0x7fffffu) | 0x800000u, shift);
    }
    bits = static_cast<std::uint16_t>(((all >> 16) & 0x8000u) | rounded);
  }
  operator float() const noexcept {
    const std::uint32_t sign = (bits & 0x8000u) << 16, exponent = (bits >> 10) & 31u, fraction = bits & 0x3ffu;
    if (exponent == 0) {
      const float size = static_cast<float>(fraction) / 16777216.0f;
      return sign ? -size : size;
    }
    return detail::float_of(sign | (exponent == 31 ? 0x7f800000u : (exponent + 112u) << 23) | (fraction << 13));
  }
};

/// The upper 16 bits of a float, `dtype::bf16`. It is only for storage; arithmetic converts it to
/// float, exactly.
struct bfloat16 {
  std::uint16_t bits;

  bfloat16() = default;
  /// Rounds to nearest, ties to even, as hardware does.
  explicit bfloat16(float value) noexcept {
    const std::uint32_t all = detail::bits_of(value);
    const bool is_number = (all & 0x7fffffffu) <= 0x7f800000u;
    bits = static_cast<std::uint16_t>(is_number ? detail::round_off(all, 16) : (all >> 16) | 0x40u);
  }
  operator float() const noexcept { return detail::float_of(static_cast<std::uint32_t>(bits) << 16); }
};

template <>
inline constexpr dtype dtype_of<float16> = dtype::f16;
template <>
inline constexpr dtype dtype_of<bfloat16> = dtype::bf16;

}  // namespace slotline

#endif
