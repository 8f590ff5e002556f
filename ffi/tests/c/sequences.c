/* Tests mixtures of datasets, batches of similar lengths, packing, and padding to the longest sample. */

#include "proof.h"

enum { SAMPLES = 12 };

/* Sample `index` has as many numbers as its length, all equal to its index. */
static size_t length_of(size_t index) { return 1 + index * 5 % 7; }

static int32_t read(void *user, size_t index, slotline_sample *sample) {
  (void)user;
  int32_t numbers[7];
  for (size_t i = 0; i < length_of(index); ++i) numbers[i] = (int32_t)index;
  return slotline_sample_write(sample, 0, numbers, length_of(index)) == SLOTLINE_OK ? 0 : -1;
}

/* Creates a dataset of samples of different lengths. */
static slotline_dataset *sequences(slotline_kind kind) {
  static const int64_t room = 7;
  const slotline_field field = {sizeof field, "tokens", SLOTLINE_I32, kind, 1, &room, NULL, 0};
  const slotline_map_dataset callbacks = {
      .struct_size = sizeof callbacks, .len = SAMPLES, .fields = &field, .num_fields = 1, .read = read};
  slotline_dataset *dataset = NULL;
  OK(slotline_dataset_from_callbacks(&callbacks, &dataset, &error));
  return dataset;
}

/* Writes a sample, and its mask. */
static int32_t read_with_mask(void *user, size_t index, slotline_sample *sample) {
  const float here = 1;
  if (read(user, index, sample) != 0) return -1;
  CHECK(slotline_sample_mask(sample, 1, NULL, 1) == SLOTLINE_ERROR_INVALID);
  return slotline_sample_mask(sample, 1, &here, length_of(index)) == SLOTLINE_OK ? 0 : -1;
}

static slotline_batch *next(slotline_loader *loader) {
  slotline_batch *batch = NULL;
  const slotline_status status = slotline_loader_next(loader, &batch, NULL);
  CHECK(status == SLOTLINE_OK || status == SLOTLINE_END);
  return batch;
}

static void rows_are_as_long_as_the_longest(void) {
  slotline_dataset *dataset = sequences(SLOTLINE_PADDED_TO_LONGEST);
  const slotline_options options = options_of(3, 2);
  slotline_loader *loader = NULL;
  OK(slotline_loader_new(dataset, &options, &loader, &error));
  OK(slotline_loader_epoch(loader, &error));
  for (slotline_batch *batch; (batch = next(loader)); slotline_batch_free(batch)) {
    const slotline_tensor tokens = field(batch, 0);
    CHECK(tokens.kind == SLOTLINE_PADDED_TO_LONGEST && tokens.ndim == 2 && tokens.num_ends == 3);
    int64_t longest = 0;
    for (size_t row = 0; row < 3; ++row) {
      const size_t index = (size_t)slotline_batch_indices(batch)[row];
      CHECK(tokens.ends[row] == (int64_t)length_of(index));
      if (tokens.ends[row] > longest) longest = tokens.ends[row];
      const int32_t *numbers = (const int32_t *)tokens.data + (int64_t)row * tokens.strides[0];
      for (int64_t i = 0; i < tokens.shape[1]; ++i) CHECK(numbers[i] == (i < tokens.ends[row] ? (int32_t)index : 0));
    }
    CHECK(tokens.shape[0] == 3 && tokens.shape[1] == longest);
  }
  slotline_loader_free(loader);
  slotline_dataset_free(dataset);
}

static void rows_have_a_padding_and_a_mask(void) {
  static const int64_t most = 8;
  const int32_t padding = -1;
  const slotline_field fields[] = {
      {.struct_size = sizeof *fields, .name = "tokens", .dtype = SLOTLINE_I32, .kind = SLOTLINE_PADDED_TO_LONGEST,
       .ndim = 1, .shape = &most, .padding = &padding, .multiple_of = 4},
      {.struct_size = sizeof *fields, .name = "mask", .dtype = SLOTLINE_F32, .kind = SLOTLINE_PADDED_TO_LONGEST,
       .ndim = 1, .shape = &most, .multiple_of = 4},
  };
  const slotline_map_dataset callbacks = {
      .struct_size = sizeof callbacks, .len = SAMPLES, .fields = fields, .num_fields = 2, .read = read_with_mask};
  slotline_dataset *dataset = NULL;
  OK(slotline_dataset_from_callbacks(&callbacks, &dataset, &error));
  const slotline_options options = options_of(1, 2);
  slotline_loader *loader = NULL;
  OK(slotline_loader_new(dataset, &options, &loader, &error));
  OK(slotline_loader_epoch(loader, &error));
  for (slotline_batch *batch; (batch = next(loader)); slotline_batch_free(batch)) {
    const slotline_tensor tokens = field(batch, 0), mask = field(batch, 1);
    const int64_t length = (int64_t)length_of((size_t)slotline_batch_indices(batch)[0]);
    CHECK(tokens.ends[0] == length && mask.ends[0] == length);
    CHECK(tokens.shape[1] == (length > 4 ? 8 : 4) && mask.shape[1] == tokens.shape[1]);
    for (int64_t i = 0; i < tokens.shape[1]; ++i) {
      CHECK((((const int32_t *)tokens.data)[i] == -1) == (i >= length));
      CHECK(((const float *)mask.data)[i] == (i < length ? 1.0f : 0.0f));
    }
  }
  slotline_loader_free(loader);
  slotline_dataset_free(dataset);
}

static void mixtures_have_as_many_samples_as_their_weights_say(void) {
  const size_t lens[] = {1797, 1797};
  const double weights[] = {3, 1, 1, 1};
  const slotline_mixture mixture = {.struct_size = sizeof mixture, .lens = lens, .num_datasets = 2, .weights = weights,
                                    .num_epochs = 2, .num_samples = 400, .shuffle = 1};
  slotline_dataset *digits = NULL, *both = NULL;
  OK(slotline_dataset_open("digits", &digits, &error));
  const slotline_dataset *twice[] = {digits, digits};
  OK(slotline_dataset_concat(twice, 2, &both, &error));
  slotline_options options = options_of(100, 1);
  slotline_sampler *sampler = NULL;
  slotline_loader *loader = NULL;
  OK(slotline_sampler_mixture(&mixture, &sampler, &error));
  options.sampler = sampler;
  OK(slotline_loader_new(both, &options, &loader, &error));
  const int from_second[] = {100, 200, 200};
  for (size_t pass = 0; pass < 3; ++pass) {
    OK(slotline_loader_epoch(loader, &error));
    int found = 0, samples = 0;
    for (slotline_batch *batch; (batch = next(loader)); slotline_batch_free(batch))
      for (size_t i = 0; i < slotline_batch_len(batch); ++i, ++samples) found += slotline_batch_indices(batch)[i] >= 1797;
    CHECK(samples == 400 && found == from_second[pass]);
  }
  slotline_loader_free(loader);
  slotline_sampler_free(sampler);
  slotline_dataset_free(both);
  slotline_dataset_free(digits);
}

/* Goes through a pass of batches by length. Each batch must have at most `most` tokens, with padding. */
static void pass_by_length(const slotline_length_batches *rule, size_t most) {
  slotline_dataset *dataset = sequences(SLOTLINE_PADDED_TO_LONGEST);
  slotline_options options = options_of(1, 1);
  slotline_batch_sampler *batches = NULL;
  slotline_loader *loader = NULL;
  OK(slotline_batch_sampler_by_length(rule, &batches, &error));
  options.batch_sampler = batches;
  OK(slotline_loader_new(dataset, &options, &loader, &error));
  OK(slotline_loader_epoch(loader, &error));
  int seen[SAMPLES] = {0};
  for (slotline_batch *batch; (batch = next(loader)); slotline_batch_free(batch)) {
    const slotline_tensor tokens = field(batch, 0);
    CHECK((size_t)(tokens.shape[0] * tokens.shape[1]) <= most);
    for (size_t i = 0; i < slotline_batch_len(batch); ++i) ++seen[slotline_batch_indices(batch)[i]];
  }
  for (size_t i = 0; i < SAMPLES; ++i) CHECK(seen[i] == 1);
  slotline_loader_free(loader);
  slotline_batch_sampler_free(batches);
  slotline_dataset_free(dataset);
}

static void batches_have_samples_of_similar_lengths(void) {
  size_t lengths[SAMPLES];
  for (size_t i = 0; i < SAMPLES; ++i) lengths[i] = length_of(i);
  slotline_length_batches rule = {.struct_size = sizeof rule, .lengths = lengths, .num_lengths = SAMPLES, .max_tokens = 14,
                                  .padded = 1, .shuffle = 1};
  pass_by_length(&rule, 14);
  const size_t boundaries[] = {4}, batch_sizes[] = {4, 2};
  rule.max_tokens = 0;
  rule.boundaries = boundaries;
  rule.batch_sizes = batch_sizes;
  rule.num_boundaries = 1;
  pass_by_length(&rule, 14);
}

static void rows_are_filled_with_documents(void) {
  /* The lengths are 1, 6, 4, 2, 7, 5, 3, 1, 6, 4, 2, 7. */
  size_t lengths[SAMPLES];
  for (size_t i = 0; i < SAMPLES; ++i) lengths[i] = length_of(i);
  const int64_t padding[] = {-1};
  const slotline_packing rule = {.struct_size = sizeof rule, .capacity = 9, .lengths = lengths, .num_lengths = SAMPLES,
                                 .padding = padding, .num_padding = 1};
  slotline_dataset *documents = sequences(SLOTLINE_PACKED), *rows = NULL;
  slotline_batch *batch = NULL;
  OK(slotline_dataset_pack(documents, &rule, &rows, &error));
  slotline_dataset_free(documents);
  CHECK(slotline_dataset_len(rows) == 6);
  /* Documents 5 (of 5 tokens) and 2 (of 4) fill row 4. */
  OK(slotline_dataset_read(rows, 4, &batch, &error));
  const slotline_tensor tokens = field(batch, 0), ends = field(batch, 3);
  CHECK(strcmp(tokens.name, "tokens") == 0 && tokens.shape[0] == 9 && tokens.kind == SLOTLINE_FIXED);
  CHECK(strcmp(ends.name, "cu_seqlens") == 0 && ends.ends[0] == 3);
  for (int i = 0; i < 9; ++i) {
    CHECK(((const int32_t *)tokens.data)[i] == (i < 5 ? 5 : 2));
    CHECK(((const int32_t *)field(batch, 1).data)[i] == (i < 5 ? i : i - 5));
    CHECK(((const int32_t *)field(batch, 2).data)[i] == (i < 5 ? 1 : 2));
  }
  CHECK(memcmp(ends.data, (const int32_t[]){0, 5, 9}, 12) == 0);
  slotline_batch_free(batch);
  slotline_dataset_free(rows);
}

int main(void) {
  rows_are_as_long_as_the_longest();
  rows_have_a_padding_and_a_mask();
  mixtures_have_as_many_samples_as_their_weights_say();
  batches_have_samples_of_similar_lengths();
  rows_are_filled_with_documents();
  puts("ok");
  return 0;
}
