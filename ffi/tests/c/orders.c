/* Prints digests of orders and data, one line for each line of options on the standard input.
 * orders.rs computes the same digests. */

#include "proof.h"

/* The digest so far: an FNV-1a hash. */
static uint64_t digest = 0;
static void eat(const void *data, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i) digest = (digest ^ ((const unsigned char *)data)[i]) * UINT64_C(0x100000001b3);
}

int main(void) {
  int64_t batch_size;
  uint64_t workers, seed;
  int shuffle, drop_last;
  while (scanf("%" SCNd64 " %" SCNu64 " %d %d %" SCNu64, &batch_size, &workers, &shuffle, &drop_last, &seed) == 5) {
    slotline_options options = options_of(batch_size, workers);
    options.shuffle = shuffle != 0;
    options.drop_last = drop_last != 0;
    options.has_seed = 1;
    options.seed = seed;
    slotline_loader *loader = digits(&options);
    digest = UINT64_C(0xcbf29ce484222325);
    for (int epoch = 0; epoch < 2; ++epoch) {
      OK(slotline_loader_epoch(loader, &error));
      slotline_batch *batch = NULL;
      slotline_status status;
      while ((status = slotline_loader_next(loader, &batch, NULL)) == SLOTLINE_OK) {
        eat(slotline_batch_indices(batch), slotline_batch_len(batch) * sizeof(int64_t));
        for (size_t i = 0; i < 2; ++i) eat(field(batch, i).data, field(batch, i).bytes);
        slotline_batch_free(batch);
      }
      CHECK(status == SLOTLINE_END);
    }
    slotline_loader_free(loader);
    printf("%016" PRIx64 "\n", digest);
  }
  return 0;
}
