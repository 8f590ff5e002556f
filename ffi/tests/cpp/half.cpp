// Tests the 16-bit floating-point numbers: their conversions, exhaustively, and fields of them.

#include <slotline.hpp>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "check.hpp"

template <class T>
T of_bits(unsigned bits) {
  T number;
  number.bits = static_cast<std::uint16_t>(bits);
  return number;
}

/// Tests that every number survives a conversion to float and back, and that numbers between two
/// neighbours are rounded to nearest, ties to even.
template <class T>
void conversions(unsigned infinity) {
  for (unsigned sign : {0u, 0x8000u}) {
    for (unsigned bits = 0; bits < 0x8000u; ++bits) {
      const float value = of_bits<T>(sign | bits);
      CHECK(std::signbit(value) == (sign != 0));
      if (bits > infinity) {
        CHECK(std::isnan(value) && std::isnan(float(T(value))));
        continue;
      }
      CHECK(T(value).bits == (sign | bits) && std::isinf(value) == (bits == infinity));
      // The largest number has no finite neighbour above it.
      if (bits + 1 >= infinity) continue;
      const float next = of_bits<T>(sign | (bits + 1));
      const float middle = float((double(value) + double(next)) / 2);
      CHECK(T(middle).bits == (sign | (bits % 2 == 0 ? bits : bits + 1)));
      CHECK(T(std::nextafter(middle, value)).bits == (sign | bits));
      CHECK(T(std::nextafter(middle, next)).bits == (sign | (bits + 1)));
    }
  }
}

/// A 16-bit number type as a framework may define it, without arithmetic.
struct foreign {
  std::uint16_t bits;
};
template <>
inline constexpr slotline::dtype slotline::dtype_of<foreign> = slotline::dtype::bf16;

struct halves {
  std::size_t size() const { return 100; }
  std::vector<slotline::field> fields() const {
    return {slotline::fixed<slotline::float16>("one"), slotline::padded_to_max<slotline::bfloat16>("some", 4),
            slotline::fixed<foreign>("foreign")};
  }
  void read(std::size_t index, slotline::sample& sample) const {
    sample.write(0, slotline::float16(float(index) / 2));
    sample.write(1, std::vector<slotline::bfloat16>(index % 5, slotline::bfloat16(-float(index))));
    sample.write(2, foreign{static_cast<std::uint16_t>(index)});
  }
};

int main() {
  conversions<slotline::float16>(0x7c00);
  conversions<slotline::bfloat16>(0x7f80);
  CHECK(slotline::float16(65519.0f).bits == 0x7bff && slotline::float16(65520.0f).bits == 0x7c00);
  CHECK(float(slotline::float16(-1.5f)) == -1.5f && float(slotline::float16(std::ldexp(1.0f, -24))) == std::ldexp(1.0f, -24));
  CHECK(slotline::bfloat16(3.4028235e38f).bits == 0x7f80 && float(slotline::bfloat16(1e-40f)) > 0);

  slotline::loader loader(halves(), slotline::options().batch_size(100).num_workers(1));
  for (auto& batch : loader) {
    const auto one = batch.field<slotline::float16>(0);
    const auto some = batch.field<slotline::bfloat16>(1);
    const auto other = batch.field<foreign>(2);
    CHECK(one.dtype() == slotline::dtype::f16 && some.dtype() == slotline::dtype::bf16);
    for (std::size_t i = 0; i < 100; ++i)
      CHECK(float(one[i]) == float(i) / 2 && float(some.row(i)[0]) == (i % 5 ? -float(i) : 0.0f) && other[i].bits == i);
  }
  const std::vector<slotline::float16> values(10, slotline::float16(0.25f));
  const slotline::batch last = slotline::dataset::of({slotline::array("x", values)}).get(9);
  CHECK(float(last.field<slotline::float16>(0)[0]) == 0.25f);
  std::puts("ok");
}
