/* slotline from C: the bundled digits, and a dataset made of callbacks in which one sample fails. */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include <slotline.h>

/* Exits unless the call succeeded. */
static void check(slotline_status status, slotline_error *error) {
  if (status == SLOTLINE_OK) return;
  fprintf(stderr, "plain: %s\n", slotline_error_message(error));
  exit(1);
}

/* A pass over the digits. The labels are read in the memory that the workers wrote. */
static void digits(void) {
  slotline_error *error = NULL;
  slotline_dataset *dataset = NULL;
  check(slotline_dataset_open("digits", &dataset, &error), error);

  slotline_options options;
  slotline_options_init(&options, sizeof options);
  options.batch_size = 64;
  options.shuffle = 1;
  options.num_workers = 2;
  slotline_loader *loader = NULL;
  check(slotline_loader_new(dataset, &options, &loader, &error), error);
  slotline_dataset_free(dataset); /* the loader keeps the data */

  check(slotline_loader_epoch(loader, &error), error);
  size_t samples = 0, batches = 0;
  int64_t sum = 0;
  slotline_batch *batch = NULL;
  slotline_status status;
  while ((status = slotline_loader_next(loader, &batch, &error)) == SLOTLINE_OK) {
    slotline_tensor labels = {.struct_size = sizeof labels};
    check(slotline_batch_field(batch, 1, &labels, &error), error);
    for (int64_t i = 0; i < labels.shape[0]; ++i) sum += ((const int64_t *)labels.data)[i];
    samples += slotline_batch_len(batch);
    batches += 1;
    slotline_batch_free(batch); /* its memory can be filled again */
  }
  if (status != SLOTLINE_END) check(status, error);
  slotline_loader_free(loader);
  printf("%zu digits in %zu batches, the labels add up to %" PRId64 "\n", samples, batches, sum);
}

/* Called from worker threads, several at once. */
static int32_t read_square(void *user, size_t index, slotline_sample *sample) {
  if (index == *(const size_t *)user) {
    slotline_sample_fail(sample, "seven is refused");
    return 1;
  }
  int64_t square = (int64_t)(index * index);
  return slotline_sample_write(sample, 0, &square, 1);
}

/* Sums squares: first all of them, then all but one. A failed sample is an error in place of its batch. */
static void squares(size_t refused) {
  slotline_field field = {.struct_size = sizeof field, .name = "square", .dtype = SLOTLINE_I64, .kind = SLOTLINE_FIXED};
  slotline_map_dataset callbacks = {.struct_size = sizeof callbacks,
                                    .user = &refused, /* outlives the loader, so no drop is needed */
                                    .len = 10,
                                    .fields = &field,
                                    .num_fields = 1,
                                    .read = read_square};
  slotline_error *error = NULL;
  slotline_dataset *dataset = NULL;
  check(slotline_dataset_from_callbacks(&callbacks, &dataset, &error), error);
  slotline_loader *loader = NULL;
  check(slotline_loader_new(dataset, NULL, &loader, &error), error);

  check(slotline_loader_epoch(loader, &error), error);
  size_t samples = 0;
  int64_t sum = 0;
  for (;;) {
    slotline_batch *batch = NULL;
    slotline_status status = slotline_loader_next(loader, &batch, &error);
    if (status == SLOTLINE_END) break;
    if (status == SLOTLINE_ERROR_SAMPLE) { /* the pass continues after it */
      printf("index %" PRId64 ": %s\n", slotline_error_index(error), slotline_error_message(error));
      slotline_error_free(error);
      continue;
    }
    check(status, error);
    slotline_tensor tensor = {.struct_size = sizeof tensor};
    check(slotline_batch_field_by_name(batch, "square", &tensor, &error), error);
    samples += 1;
    sum += *(const int64_t *)tensor.data;
    slotline_batch_free(batch);
  }
  slotline_loader_free(loader);
  slotline_dataset_free(dataset);
  printf("%zu squares, the sum is %" PRId64 "\n", samples, sum);
}

int main(void) {
  digits();
  squares(10);
  squares(7);
  return 0;
}
