// Tests fields of complex numbers, with the standard library's std::complex.

#include <slotline.hpp>

#include <complex>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "check.hpp"

using narrow = std::complex<float>;
using wide = std::complex<double>;

static_assert(slotline::dtype_of<narrow> == slotline::dtype::complex64);
static_assert(slotline::dtype_of<const wide> == slotline::dtype::complex128);

struct waves {
  std::size_t size() const { return 100; }
  std::vector<slotline::field> fields() const {
    return {slotline::fixed<wide>("one"), slotline::fixed<narrow>("grid", {2, 3}), slotline::padded_to_max<narrow>("some", 4),
            slotline::packed<wide>("items", 2, {2})};
  }
  void read(std::size_t index, slotline::sample& sample) const {
    const double real = double(index);
    sample.write(0, wide(real, -1));
    auto grid = sample.row<narrow>(1);
    for (std::size_t i = 0; i < 6; ++i) grid[i] = narrow(float(real), float(i));
    sample.write(2, std::vector<narrow>(index % 4, narrow(0.5f, float(real))));
    sample.write(3, std::vector<wide>(index % 3 * 2, wide(real, 7)));
  }
};

int main() {
  slotline::loader loader(waves(), slotline::options().batch_size(100).num_workers(1));
  for (auto& batch : loader) {
    auto [one, grid, some, items] = batch.fields<wide, narrow, narrow, wide>();
    CHECK(one.dtype() == slotline::dtype::complex128 && some.dtype() == slotline::dtype::complex64);
    CHECK(std::string(slotline::name_of(one.dtype())) == "complex128");
    std::size_t item = 0;
    for (std::size_t i = 0; i < 100; ++i) {
      const double real = double(i);
      CHECK(one[i] == wide(real, -1) && grid.row(i)[5] == narrow(float(real), 5));
      for (std::size_t k = 0; k < 4; ++k) CHECK(some.row(i)[k] == (k < i % 4 ? narrow(0.5f, float(real)) : narrow()));
      for (std::size_t k = 0; k < i % 3 * 2; ++k) CHECK(items[item++] == wide(real, 7));
    }
    CHECK(item == items.size());
    std::string message;
    try {
      batch.field<double>(0);
    } catch (const std::exception& error) {
      message = error.what();
    }
    CHECK(message.find("one is complex128, not f64") != std::string::npos);
  }
  const std::vector<narrow> values(10, narrow(0.25f, -2));
  const slotline::batch last = slotline::dataset::of({slotline::array("x", values)}).get(9);
  CHECK(last.field<narrow>(0)[0] == narrow(0.25f, -2));
  std::puts("ok");
}
