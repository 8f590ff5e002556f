// Prints digests of orders and data, one line for each line of options on the standard input.
// orders.rs computes the same digests.

#include <slotline.hpp>

#include <cinttypes>
#include <cstdio>
#include <iostream>

// The digest so far: an FNV-1a hash.
static std::uint64_t digest;
static void eat(const void* data, std::size_t bytes) {
  const auto* at = static_cast<const unsigned char*>(data);
  for (std::size_t i = 0; i < bytes; ++i) digest = (digest ^ at[i]) * UINT64_C(0x100000001b3);
}

int main() {
  std::size_t batch_size, workers;
  std::uint64_t seed;
  bool shuffle, drop_last;
  while (std::cin >> batch_size >> workers >> shuffle >> drop_last >> seed) {
    slotline::options options;
    options.batch_size(batch_size).num_workers(workers).shuffle(shuffle).drop_last(drop_last).seed(seed);
    slotline::loader loader(slotline::dataset::open("digits"), options);
    digest = UINT64_C(0xcbf29ce484222325);
    for (int epoch = 0; epoch < 2; ++epoch) {
      for (auto& batch : loader) {
        eat(batch.indices().data(), batch.size() * sizeof(std::int64_t));
        for (std::size_t i = 0; i < 2; ++i) eat(batch.tensor(i).data(), batch.tensor(i).bytes());
      }
    }
    std::printf("%016" PRIx64 "\n", digest);
  }
}
