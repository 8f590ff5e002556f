/* Fields of complex numbers: written in place and by copying, read, exported as DLPack tensors, and from arrays. */

#include <complex.h>

#include "proof.h"
#include "tensors.h"

enum { LEN = 10 };

/* Returns whether the complex number at `at` has these real and imaginary parts. (`a + b * I` is
 * not used, since some compilers round the product.) */
static int same(const void *at, double real, double imaginary, int is_double) {
  if (is_double) {
    const double _Complex number = *(const double _Complex *)at;
    return creal(number) == real && cimag(number) == imaginary;
  }
  const float _Complex number = *(const float _Complex *)at;
  return (double)crealf(number) == real && (double)cimagf(number) == imaginary;
}

/* Writes sample n. Field 0: [n - 2i, n + 3i], in place; field 1: n % 4 numbers n + 0.5i; field 2: n
 * % 3 items of that number. */
static int32_t read_sample(void *user, size_t index, slotline_sample *sample) {
  (void)user;
  size_t bytes = 0;
  double *parts = slotline_sample_row(sample, 0, &bytes);
  if (parts == NULL || bytes != 2 * sizeof(double _Complex)) return -1;
  parts[0] = parts[2] = (double)index;
  parts[1] = -2, parts[3] = 3;
  float narrow[8];
  double wide[8];
  for (size_t i = 0; i < 4; ++i) {
    narrow[2 * i] = (float)index, narrow[2 * i + 1] = 0.5F;
    wide[2 * i] = (double)index, wide[2 * i + 1] = 0.5;
  }
  if (slotline_sample_write(sample, 1, narrow, index % 4) != SLOTLINE_OK) return -1;
  return slotline_sample_write(sample, 2, wide, index % 3) == SLOTLINE_OK ? 0 : -1;
}

static void check_dlpack(const slotline_batch *batch, size_t i, uint8_t bits) {
  struct DLManagedTensorVersioned *exported = NULL;
  OK(slotline_batch_dlpack(batch, i, NULL, &exported, &error));
  CHECK(exported->dl_tensor.dtype.code == 5 && exported->dl_tensor.dtype.bits == bits && exported->dl_tensor.dtype.lanes == 1);
  CHECK(exported->dl_tensor.data == field(batch, i).data);
  exported->deleter(exported);
}

static void callbacks(void) {
  const int64_t pair = 2, most = 4;
  const slotline_field fields[] = {
      {sizeof *fields, "pair", SLOTLINE_COMPLEX128, SLOTLINE_FIXED, 1, &pair, NULL, 0},
      {sizeof *fields, "some", SLOTLINE_COMPLEX64, SLOTLINE_PADDED_TO_MAX, 1, &most, NULL, 0},
      {sizeof *fields, "items", SLOTLINE_COMPLEX128, SLOTLINE_PACKED, 1, &most, NULL, 0},
  };
  const slotline_map_dataset read = {
      .struct_size = sizeof read, .len = LEN, .fields = fields, .num_fields = 3, .read = read_sample};
  slotline_dataset *dataset = NULL;
  OK(slotline_dataset_from_callbacks(&read, &dataset, &error));
  const slotline_options options = options_of(LEN, 1);
  slotline_loader *loader = NULL;
  OK(slotline_loader_new(dataset, &options, &loader, &error));
  slotline_dataset_free(dataset);
  OK(slotline_loader_epoch(loader, &error));
  slotline_batch *batch = NULL;
  OK(slotline_loader_next(loader, &batch, &error));
  const slotline_tensor pairs = field(batch, 0), some = field(batch, 1), items = field(batch, 2);
  CHECK(pairs.dtype == SLOTLINE_COMPLEX128 && pairs.bytes == LEN * 2 * sizeof(double _Complex));
  CHECK(some.dtype == SLOTLINE_COMPLEX64 && some.bytes == LEN * 4 * sizeof(float _Complex));
  CHECK(items.dtype == SLOTLINE_COMPLEX128);
  size_t item = 0;
  for (size_t i = 0; i < LEN; ++i) {
    CHECK(same((const double _Complex *)pairs.data + 2 * i, (double)i, -2, 1));
    CHECK(same((const double _Complex *)pairs.data + 2 * i + 1, (double)i, 3, 1));
    for (size_t k = 0; k < 4; ++k) {
      const int is_there = k < i % 4;
      CHECK(same((const float _Complex *)some.data + 4 * i + k, is_there ? (double)i : 0, is_there ? 0.5 : 0, 0));
    }
    for (size_t k = 0; k < i % 3; ++k, ++item) CHECK(same((const double _Complex *)items.data + item, (double)i, 0.5, 1));
  }
  CHECK(items.bytes == item * sizeof(double _Complex));
  check_dlpack(batch, 0, 128);
  check_dlpack(batch, 1, 64);
  check_dlpack(batch, 2, 128);
  slotline_batch_free(batch);
  slotline_loader_free(loader);
}

static void arrays(void) {
  static const float parts[] = {1, -1, 2, -2, 3, -3};
  const int64_t len = 3;
  slotline_array array = {.struct_size = sizeof array, .name = "x", .dtype = SLOTLINE_COMPLEX64, .ndim = 1, .shape = &len};
  slotline_dataset *dataset = NULL;
  slotline_batch *sample = NULL;
  array.data = parts;
  OK(slotline_dataset_from_arrays(&array, 1, &dataset, &error));
  OK(slotline_dataset_read(dataset, 2, &sample, &error));
  CHECK(field(sample, 0).dtype == SLOTLINE_COMPLEX64 && same(field(sample, 0).data, 3, -3, 0));
  slotline_batch_free(sample);
  slotline_dataset_free(dataset);
  /* A complex number is aligned like one of its parts. */
  array.data = parts + 1;
  const int64_t two = 2;
  array.shape = &two;
  OK(slotline_dataset_from_arrays(&array, 1, &dataset, &error));
  slotline_dataset_free(dataset);
  array.data = (const char *)parts + 2;
  GIVES(SLOTLINE_ERROR_INVALID, slotline_dataset_from_arrays(&array, 1, &dataset, &error));
}

int main(void) {
  callbacks();
  arrays();
  puts("ok");
  return 0;
}
