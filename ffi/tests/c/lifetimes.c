/* Datasets, loaders, batches and tensors, freed in every order. Meant for AddressSanitizer, which detects use after free,
 * double frees and leaks. */

#include <stdatomic.h>

#include "proof.h"
#include "tensors.h"

enum { ROWS = 12, WIDTH = 5 };

static atomic_int arrays_alive;

static void drop_array(void *memory) {
  free(memory);
  atomic_fetch_sub(&arrays_alive, 1);
}

/* Returns a dataset whose row i is `i, i + 1, ...`, in memory that is freed with the dataset. */
static slotline_dataset *numbers(void) {
  const int64_t shape[] = {ROWS, WIDTH};
  int32_t *data = malloc(ROWS * WIDTH * sizeof *data);
  for (int i = 0; i < ROWS * WIDTH; ++i) data[i] = i / WIDTH + i % WIDTH;
  slotline_array array;
  memset(&array, 0, sizeof array);
  array.struct_size = sizeof array;
  array.name = "number";
  array.dtype = SLOTLINE_I32;
  array.ndim = 2;
  array.shape = shape;
  array.data = data;
  array.user = data;
  array.drop = drop_array;
  atomic_fetch_add(&arrays_alive, 1);
  slotline_dataset *dataset = NULL;
  OK(slotline_dataset_from_arrays(&array, 1, &dataset, &error));
  return dataset;
}

static void check_rows(const void *rows, const int64_t *shape, int64_t first) {
  CHECK(shape[1] == WIDTH);
  for (int64_t i = 0; i < shape[0] * WIDTH; ++i)
    CHECK(((const int32_t *)rows)[i] == first + i / WIDTH + i % WIDTH);
}

/* The objects that are freed in every order. */
enum { DATASET, LOADER, BATCH, TENSOR, OLD_TENSOR, THINGS };

static void free_in_one_order(const int *order, size_t workers) {
  slotline_dataset *dataset = numbers();
  const slotline_options options = options_of(4, workers);
  slotline_loader *loader = NULL;
  OK(slotline_loader_new(dataset, &options, &loader, &error));
  OK(slotline_loader_epoch(loader, &error));
  slotline_batch *batch = NULL;
  OK(slotline_loader_next(loader, &batch, &error));
  struct DLManagedTensorVersioned *tensor = NULL;
  struct DLManagedTensor *old = NULL;
  OK(slotline_batch_dlpack(batch, 0, NULL, &tensor, &error));
  OK(slotline_batch_dlpack_unversioned(batch, 0, NULL, &old, &error));
  CHECK(tensor->version.major == 1 && tensor->dl_tensor.ndim == 2 && tensor->dl_tensor.dtype.code == 0);
  CHECK(tensor->dl_tensor.dtype.bits == 32 && tensor->dl_tensor.shape[0] == 4 && tensor->dl_tensor.strides[0] == WIDTH);
  CHECK(old->dl_tensor.ndim == 2 && old->dl_tensor.strides[0] == WIDTH && old->dl_tensor.strides[1] == 1);
  CHECK(tensor->dl_tensor.data == old->dl_tensor.data && field(batch, 0).data == old->dl_tensor.data);
  for (int i = 0; i < THINGS; ++i) {
    switch (order[i]) {
      case DATASET:
        slotline_dataset_free(dataset);
        dataset = NULL;
        break;
      case LOADER:
        slotline_loader_free(loader);
        loader = NULL;
        break;
      case BATCH:
        slotline_batch_free(batch);
        batch = NULL;
        break;
      case TENSOR:
        tensor->deleter(tensor);
        tensor = NULL;
        break;
      default:
        old->deleter(old);
        old = NULL;
    }
    /* The remaining objects are still valid. */
    if (dataset) CHECK(slotline_dataset_len(dataset) == ROWS);
    if (loader) CHECK(slotline_loader_len(loader) == 3);
    if (batch) {
      const slotline_tensor rows = field(batch, 0);
      check_rows(rows.data, rows.shape, 0);
      CHECK(strcmp(rows.name, "number") == 0 && slotline_batch_indices(batch)[3] == 3);
    }
    if (tensor) check_rows(tensor->dl_tensor.data, tensor->dl_tensor.shape, 0);
    if (old) check_rows(old->dl_tensor.data, old->dl_tensor.shape, 0);
    if (dataset || loader) CHECK(atomic_load(&arrays_alive) == 1);
  }
  CHECK(atomic_load(&arrays_alive) == 0);
}

/* Calls `free_in_one_order` with all permutations of the elements of `order` from `from` on. */
static void free_in_every_order(int *order, int from, size_t workers) {
  if (from == THINGS) {
    free_in_one_order(order, workers);
    return;
  }
  for (int i = from; i < THINGS; ++i) {
    const int first = order[i], second = order[from];
    order[from] = first, order[i] = second;
    free_in_every_order(order, from + 1, workers);
    order[from] = second, order[i] = first;
  }
}

/* Tests that a tensor's memory is not reused while the loader continues. (With `in_order`, later
 * batches would wait for that memory.) */
static void a_tensors_memory_is_not_reused(void) {
  slotline_dataset *dataset = numbers();
  slotline_options options = options_of(1, 1);
  options.hold = 2;
  options.in_order = 0;
  slotline_loader *loader = NULL;
  OK(slotline_loader_new(dataset, &options, &loader, &error));
  slotline_dataset_free(dataset);
  struct DLManagedTensorVersioned *first = NULL;
  slotline_batch *batch = NULL;
  int64_t row = -1;
  for (int epoch = 0; epoch < 4; ++epoch) {
    OK(slotline_loader_epoch(loader, &error));
    for (int64_t i = 0; i < ROWS; ++i) {
      OK(slotline_loader_next(loader, &batch, &error));
      if (!first) {
        OK(slotline_batch_dlpack(batch, 0, NULL, &first, &error));
        row = *slotline_batch_indices(batch);
      }
      const slotline_tensor rows = field(batch, 0);
      check_rows(rows.data, rows.shape, *slotline_batch_indices(batch));
      slotline_batch_free(batch);
      check_rows(first->dl_tensor.data, first->dl_tensor.shape, row);
    }
    GIVES(SLOTLINE_END, slotline_loader_next(loader, &batch, &error));
    CHECK(batch == NULL);
  }
  slotline_loader_free(loader);
  check_rows(first->dl_tensor.data, first->dl_tensor.shape, row);
  first->deleter(first);
  CHECK(atomic_load(&arrays_alive) == 0);
}

/* Runs a whole pass, and requests a batch after its end; then abandons passes while a batch of each
 * is still held. */
static void a_pass_can_be_abandoned(size_t workers) {
  slotline_options options = options_of(64, workers);
  options.hold = 3;
  slotline_loader *loader = digits(&options);
  slotline_batch *kept[3], *batch = NULL;
  OK(slotline_loader_epoch(loader, &error));
  for (size_t samples = 0; samples < 1797; samples += slotline_batch_len(batch), slotline_batch_free(batch))
    OK(slotline_loader_next(loader, &batch, &error));
  for (int again = 0; again < 2; ++again) GIVES(SLOTLINE_END, slotline_loader_next(loader, &batch, &error));
  for (uint32_t i = 0; i < 3; ++i) {
    OK(slotline_loader_epoch(loader, &error));
    CHECK(slotline_loader_next_epoch(loader) == i + 2);
    OK(slotline_loader_next(loader, &kept[i], &error));
    CHECK(slotline_batch_index(kept[i]) == 0 && slotline_batch_epoch(kept[i]) == i + 1);
  }
  slotline_batch_free(kept[1]);
  slotline_loader_free(loader);
  CHECK(memcmp(field(kept[0], 0).data, field(kept[2], 0).data, field(kept[0], 0).bytes) == 0);
  slotline_batch_free(kept[2]);
  slotline_batch_free(kept[0]);
}

/* Tests that holding more than `hold` batches can be an error, until one is freed. */
static void held_batches_are_an_error_until_one_is_freed(size_t workers) {
  slotline_options options = options_of(64, workers);
  options.on_held = SLOTLINE_ON_HELD_FAIL;
  slotline_loader *loader = digits(&options);
  OK(slotline_loader_epoch(loader, &error));
  slotline_batch *kept[64], *batch = NULL;
  size_t held = 0;
  slotline_error *error = NULL;
  while (slotline_loader_next(loader, &kept[held], &error) == SLOTLINE_OK) ++held;
  CHECK(slotline_error_code(error) == SLOTLINE_ERROR_HELD && held >= 1 && kept[held] == NULL);
  CHECK(slotline_error_index(error) == -1 && strlen(slotline_error_message(error)) > 0);
  slotline_error_free(error);
  slotline_batch_free(kept[0]);
  OK(slotline_loader_next(loader, &batch, &error));
  CHECK(slotline_batch_index(batch) == held);
  slotline_loader_free(loader);
  slotline_batch_free(batch);
  for (size_t i = 1; i < held; ++i) slotline_batch_free(kept[i]);
}

int main(void) {
  for (size_t workers = 0; workers <= 1; ++workers) {
    int order[THINGS] = {DATASET, LOADER, BATCH, TENSOR, OLD_TENSOR};
    free_in_every_order(order, 0, workers);
    a_pass_can_be_abandoned(workers);
    held_batches_are_an_error_until_one_is_freed(workers);
  }
  a_tensors_memory_is_not_reused();
  puts("ok");
  return 0;
}
