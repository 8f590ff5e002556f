/* Helpers that the C programs of these tests share. */
#ifndef PROOF_H
#define PROOF_H

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <slotline.h>

/* Exits unless a condition holds. */
#define CHECK(condition)                                                            \
  do {                                                                              \
    if (!(condition)) {                                                             \
      fprintf(stderr, "%s:%d: check failed: %s\n", __FILE__, __LINE__, #condition); \
      exit(1);                                                                      \
    }                                                                               \
  } while (0)

/* Makes a call, which must get `&error` and return `wanted`. Every status except OK and END must
 * come with an error that has a message. */
#define GIVES(wanted, call)                                                                                    \
  do {                                                                                                         \
    slotline_error *error = NULL;                                                                              \
    const slotline_status gave = (call);                                                                       \
    if (gave != (wanted)) {                                                                                    \
      fprintf(stderr, "%s:%d: %s returned %d, not %s: %s\n", __FILE__, __LINE__, #call, (int)gave, #wanted,    \
              error ? slotline_error_message(error) : "no message");                                           \
      exit(1);                                                                                                 \
    }                                                                                                          \
    CHECK((error == NULL) == (gave == SLOTLINE_OK || gave == SLOTLINE_END));                                   \
    CHECK(error == NULL || (slotline_error_code(error) == gave && strlen(slotline_error_message(error)) > 0)); \
    slotline_error_free(error);                                                                                \
  } while (0)

#define OK(call) GIVES(SLOTLINE_OK, call)

/* Returns the default options with this batch size and number of workers. */
static inline slotline_options options_of(int64_t batch_size, size_t num_workers) {
  slotline_options options;
  slotline_options_init(&options, sizeof options);
  options.batch_size = batch_size;
  options.num_workers = num_workers;
  return options;
}

/* Creates a loader of the digits. */
static inline slotline_loader *digits(const slotline_options *options) {
  slotline_dataset *dataset = NULL;
  slotline_loader *loader = NULL;
  OK(slotline_dataset_open("digits", &dataset, &error));
  OK(slotline_loader_new(dataset, options, &loader, &error));
  slotline_dataset_free(dataset);
  return loader;
}

/* Describes a field of a batch. */
static inline slotline_tensor field(const slotline_batch *batch, size_t i) {
  slotline_tensor tensor;
  memset(&tensor, 0, sizeof tensor);
  tensor.struct_size = sizeof tensor;
  OK(slotline_batch_field(batch, i, &tensor, &error));
  return tensor;
}

#endif
