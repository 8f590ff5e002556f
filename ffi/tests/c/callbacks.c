/* Datasets, streams, samplers, worker_init and collate made of callbacks: what the callbacks receive, how their failures are
 * reported, and that each user pointer is dropped once. */

#include <stdatomic.h>

#include "proof.h"

/* The state that the callbacks of a test share. */
struct state {
  atomic_int reads, drops, open_cursors, batches, payloads;
  /* The sample for which `misbehave` is called; -1 for none. */
  int64_t odd;
  int32_t (*misbehave)(struct state *state, slotline_sample *sample);
  slotline_loader *loader;
  /* The samples object that a collate callback is using. */
  slotline_samples *samples;
};

static const int64_t four[] = {4}, three[] = {3}, items[] = {2, 1};
static const slotline_field fields[] = {
    {sizeof(slotline_field), "row", SLOTLINE_F32, SLOTLINE_FIXED, 1, four, NULL, 0},
    {sizeof(slotline_field), NULL, SLOTLINE_U8, SLOTLINE_PADDED_TO_MAX, 1, three, NULL, 0},
    {sizeof(slotline_field), "packed", SLOTLINE_U16, SLOTLINE_PACKED, 2, items, NULL, 0},
    {sizeof(slotline_field), "odd", SLOTLINE_BOOL, SLOTLINE_FIXED, 0, NULL, NULL, 0},
    {sizeof(slotline_field), "random", SLOTLINE_U64, SLOTLINE_FIXED, 0, NULL, NULL, 0},
};
enum { FIELDS = sizeof fields / sizeof *fields, LEN = 50 };

static void drop(void *state) { atomic_fetch_add(&((struct state *)state)->drops, 1); }

static void drop_payload(void *state) { atomic_fetch_sub(&((struct state *)state)->payloads, 1); }

/* Returns whether an error has this state as its payload, and nothing under other type names. */
static int has_payload(const slotline_error *error, const struct state *state) {
  return slotline_error_payload(error, "state") == state && slotline_error_payload(error, "other") == NULL &&
         slotline_error_payload(error, NULL) == NULL;
}

/* Writes the fields of a sample, starting with field `from`, in several ways. The values derive from the index. */
static void write_from(slotline_sample *sample, size_t index, size_t from) {
  const uint8_t padded[] = {1, 2, 3};
  const uint16_t packed[] = {(uint16_t)index, (uint16_t)index};
  const uint8_t odd = index % 2;
  const uint64_t random = slotline_sample_random(sample);
  size_t bytes = 0;
  if (from == 0) {
    float *row = slotline_sample_row(sample, 0, &bytes);
    CHECK(row && bytes == 4 * sizeof(float));
    for (int i = 0; i < 4; ++i) row[i] = (float)index + (float)i;
  }
  /* The fields can be written in any order. */
  CHECK(slotline_sample_write(sample, 4, &random, 1) == SLOTLINE_OK);
  CHECK(slotline_sample_write(sample, 3, &odd, 1) == SLOTLINE_OK);
  CHECK(slotline_sample_write(sample, 1, padded, index % 4) == SLOTLINE_OK);
  CHECK(slotline_sample_write(sample, 2, packed, index % 3 == 2 ? 2 : 1) == SLOTLINE_OK);
}

static int32_t read(void *user, size_t index, slotline_sample *sample) {
  struct state *state = user;
  atomic_fetch_add(&state->reads, 1);
  CHECK(index < LEN && slotline_sample_worker(sample) >= -1 && slotline_sample_worker(sample) < 2);
  if ((int64_t)index == state->odd) return state->misbehave(state, sample);
  write_from(sample, index, 0);
  return 0;
}

static slotline_dataset *dataset_of(struct state *state) {
  const slotline_map_dataset callbacks = {.struct_size = sizeof callbacks, .user = state, .len = LEN, .fields = fields,
                                         .num_fields = FIELDS, .read = read, .drop = drop};
  slotline_dataset *dataset = NULL;
  OK(slotline_dataset_from_callbacks(&callbacks, &dataset, &error));
  CHECK(slotline_dataset_len(dataset) == LEN);
  return dataset;
}

static slotline_loader *loader_of(struct state *state, const slotline_options *options) {
  slotline_dataset *dataset = dataset_of(state);
  slotline_loader *loader = NULL;
  OK(slotline_loader_new(dataset, options, &loader, &error));
  slotline_dataset_free(dataset);
  state->loader = loader;
  return loader;
}

/* Checks a batch whose values derive from the samples' indices, and returns the sum of its random
 * numbers. */
static uint64_t check_batch(const slotline_batch *batch) {
  const slotline_tensor row = field(batch, 0), padded = field(batch, 1), packed = field(batch, 2), odd = field(batch, 3),
                        random = field(batch, 4);
  CHECK(slotline_batch_num_fields(batch) == FIELDS && strcmp(padded.name, "1") == 0 && strcmp(odd.name, "odd") == 0);
  CHECK(padded.num_ends == slotline_batch_len(batch) && packed.num_ends == slotline_batch_len(batch) + 1);
  uint64_t sum = 0;
  for (size_t i = 0; i < slotline_batch_len(batch); ++i) {
    const int64_t index = slotline_batch_indices(batch)[i];
    CHECK(((const float *)row.data)[4 * i + 3] == (float)index + 3 && ((const uint8_t *)odd.data)[i] == index % 2);
    CHECK(padded.ends[i] == index % 4 && packed.ends[i + 1] - packed.ends[i] == (index % 3 == 2 ? 2 : 1));
    CHECK(((const uint8_t *)padded.data)[3 * i + 2] == (index % 4 == 3 ? 3 : 0));
    CHECK(((const uint16_t *)packed.data)[packed.ends[i]] == index);
    sum += ((const uint64_t *)random.data)[i] * (uint64_t)(index + 1);
  }
  return sum;
}

static void samples_are_the_same_with_any_workers(void) {
  uint64_t sums[3] = {0, 0, 0};
  for (size_t workers = 0; workers <= 2; ++workers) {
    struct state state = {.odd = -1};
    slotline_options options = options_of(8, workers);
    options.shuffle = options.has_seed = 1;
    options.seed = 7;
    slotline_loader *loader = loader_of(&state, &options);
    for (int epoch = 0; epoch < 2; ++epoch) {
      slotline_batch *batch = NULL;
      OK(slotline_loader_epoch(loader, &error));
      for (int i = 0; i < 7; ++i) {
        OK(slotline_loader_next(loader, &batch, &error));
        sums[workers] += check_batch(batch);
        slotline_batch_free(batch);
      }
      GIVES(SLOTLINE_END, slotline_loader_next(loader, &batch, &error));
    }
    CHECK(atomic_load(&state.reads) == 2 * LEN && atomic_load(&state.drops) == 0);
    slotline_loader_free(loader);
    CHECK(atomic_load(&state.drops) == 1);
  }
  CHECK(sums[0] != 0 && sums[0] == sums[1] && sums[0] == sums[2]);
}

/* Makes the sample fail with a payload. This function and those after it are the ways in which a
 * read callback can fail. */
static int32_t fail(struct state *state, slotline_sample *sample) {
  atomic_fetch_add(&state->payloads, 2);
  slotline_sample_fail_with(sample, "replaced", state, "state", drop_payload);
  slotline_sample_fail_with(sample, "the disk is \xff broken", state, "state", drop_payload);
  return 1;
}
static int32_t fail_without_message(struct state *state, slotline_sample *sample) {
  (void)state, (void)sample;
  return -3;
}
/* Returns the code for the end of a stream, which is invalid for a dataset read by index. */
static int32_t end(struct state *state, slotline_sample *sample) {
  (void)state;
  write_from(sample, 1, 0);
  return 1;
}

static int32_t write_nothing(struct state *state, slotline_sample *sample) {
  (void)state, (void)sample;
  return 0;
}
static int32_t omit_the_row(struct state *state, slotline_sample *sample) {
  (void)state;
  write_from(sample, 1, 1);
  return 0;
}
static int32_t omit_the_rest(struct state *state, slotline_sample *sample) {
  (void)state;
  slotline_sample_row(sample, 0, NULL);
  return 0;
}

static int32_t write_invalid_bool(struct state *state, slotline_sample *sample) {
  (void)state;
  write_from(sample, 1, 0);
  *(uint8_t *)slotline_sample_row(sample, 3, NULL) = 2;
  return 0;
}
#define MISWRITES(name, field, data, elements)                                       \
  static int32_t name(struct state *state, slotline_sample *sample) {               \
    (void)state;                                                                     \
    write_from(sample, 1, 0);                                                        \
    CHECK(slotline_sample_write(sample, field, data, elements) == SLOTLINE_ERROR_INVALID); \
    return 0;                                                                        \
  }
static const uint64_t numbers[16] = {2};
MISWRITES(write_too_much, 0, numbers, 5)
MISWRITES(write_too_little, 0, numbers, 3)
MISWRITES(write_too_many_padded, 1, numbers, 4)
MISWRITES(copy_invalid_bool, 3, numbers, 1)
MISWRITES(write_null, 4, NULL, 1)
MISWRITES(write_misaligned, 4, (const char *)numbers + 1, 1)
MISWRITES(write_no_field, FIELDS, numbers, 1)
MISWRITES(write_more_than_memory, 4, numbers, SIZE_MAX)
static int32_t request_missing_rows(struct state *state, slotline_sample *sample) {
  (void)state;
  size_t bytes = 1;
  CHECK(slotline_sample_row(sample, 1, &bytes) == NULL && bytes == 0);
  CHECK(slotline_sample_row(sample, FIELDS, &bytes) == NULL && slotline_sample_row(sample, SIZE_MAX, NULL) == NULL);
  slotline_sample_fail(sample, NULL);
  return 1;
}

static void a_failed_sample_takes_the_place_of_its_batch(size_t workers) {
  const struct {
    int32_t (*misbehave)(struct state *, slotline_sample *);
    const char *message;
  } rows[] = {
      {fail, "sample 21 of batch 2 failed in "},
      {fail, ": the disk is "},
      {fail_without_message, "the callback returned -3 for a sample"},
      {end, "the callback returned 1 for a sample"},
      {write_nothing, "the callback did not write field 0 (\"row\")"},
      {omit_the_row, "the callback did not write field 0 (\"row\")"},
      {omit_the_rest, "the callback did not write field 1 (\"1\")"},
      {write_invalid_bool, "field 3 (\"odd\") contains a bool that is neither 0 nor 1"},
      {write_too_much, "field 0: field row: f32 [4] was declared, but the sample has f32 [5]"},
      {write_too_little, "field 0: field row: f32 [4] was declared, but the sample has f32 [3]"},
      {write_too_many_padded, "field 1"},
      {copy_invalid_bool, "field 3: data contains a bool that is neither 0 nor 1"},
      {write_null, "field 4: data is NULL"},
      {write_misaligned, "field 4: data is not aligned: its address must be a multiple of 8"},
      {write_no_field, "field is 5, but the sample has 5 fields"},
      {write_more_than_memory, "elements do not fit in memory"},
      {request_missing_rows, "no message"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; ++i) {
    struct state state = {.odd = 21, .misbehave = rows[i].misbehave};
    const slotline_options options = options_of(10, workers);
    slotline_loader *loader = loader_of(&state, &options);
    OK(slotline_loader_epoch(loader, &error));
    slotline_error *error = NULL;
    for (size_t task = 0; task < 5; ++task) {
      slotline_batch *batch = NULL;
      const slotline_status status = slotline_loader_next(loader, &batch, task == 2 ? &error : NULL);
      if (task != 2) {
        CHECK(status == SLOTLINE_OK && slotline_batch_index(batch) == task);
        check_batch(batch);
        slotline_batch_free(batch);
        continue;
      }
      CHECK(status == SLOTLINE_ERROR_SAMPLE && batch == NULL && slotline_error_index(error) == 21);
      CHECK(slotline_error_task(error) == 2 && slotline_error_worker(error) < (int64_t)workers);
      if (!strstr(slotline_error_message(error), rows[i].message)) {
        fprintf(stderr, "%zu: %s, without %s\n", i, slotline_error_message(error), rows[i].message);
        exit(1);
      }
    }
    slotline_loader_free(loader);
    CHECK(atomic_load(&state.drops) == 1);
    /* The error keeps its payload after the loader was freed. */
    const int fails = rows[i].misbehave == fail;
    CHECK(atomic_load(&state.payloads) == fails && has_payload(error, &state) == fails);
    slotline_error_free(error);
    CHECK(atomic_load(&state.payloads) == 0);
  }
}

static int32_t stop(struct state *state, slotline_sample *sample) {
  slotline_loader_stop(state->loader);
  write_from(sample, 21, 0);
  return 0;
}
static int32_t use_the_loader(struct state *state, slotline_sample *sample) {
  slotline_batch *batch = NULL;
  slotline_error *error = NULL;
  CHECK(slotline_loader_next(state->loader, &batch, &error) == SLOTLINE_ERROR_INVALID);
  CHECK(strstr(slotline_error_message(error), "loader is in use"));
  slotline_error_free(error);
  GIVES(SLOTLINE_ERROR_INVALID, slotline_loader_epoch(state->loader, &error));
  CHECK(slotline_loader_len(state->loader) == 5);
  write_from(sample, 21, 0);
  return 0;
}
static int32_t free_the_loader(struct state *state, slotline_sample *sample) {
  slotline_loader_free(state->loader);
  write_from(sample, 21, 0);
  return 0;
}

/* Passes memory from `slotline_sample_row` to `slotline_sample_write`, which must accept it. */
static int32_t copy_rows_to_themselves(struct state *state, slotline_sample *sample) {
  (void)state;
  write_from(sample, 21, 0);
  float *row = slotline_sample_row(sample, 0, NULL);
  for (int i = 0; i < 4; ++i) row[i] = (float)(21 + i);
  CHECK(slotline_sample_write(sample, 0, row, 4) == SLOTLINE_OK);
  uint8_t *odd = slotline_sample_row(sample, 3, NULL);
  *odd = 1;
  CHECK(slotline_sample_write(sample, 3, odd, 1) == SLOTLINE_OK);
  /* The row of another field is accepted as the source, too. */
  CHECK(slotline_sample_write(sample, 1, odd, 1) == SLOTLINE_OK);
  CHECK(slotline_sample_write(sample, 0, row, 3) == SLOTLINE_ERROR_INVALID);
  CHECK(slotline_sample_write(sample, 0, row, 4) == SLOTLINE_OK);
  return 0;
}
static int32_t read_more_samples(struct state *state, slotline_sample *sample) {
  slotline_tensor given[FIELDS];
  for (int i = 0; i < FIELDS; ++i) given[i].struct_size = sizeof *given;
  CHECK(slotline_samples_left(state->samples) == 0);
  CHECK(slotline_samples_next(state->samples, given, FIELDS) == SLOTLINE_ERROR_INVALID);
  write_from(sample, (size_t)state->odd, 0);
  return 0;
}

/* Runs a pass of a loader whose callbacks use the loader, and returns the last status. */
static slotline_status last_status_of_a_pass(struct state *state, size_t workers) {
  slotline_options options = options_of(10, workers);
  /* Without workers, `slotline_loader_next` calls the callback. With a worker, the callback may run
   * while no call uses the loader. */
  options.help = workers == 0;
  slotline_loader *loader = loader_of(state, &options);
  OK(slotline_loader_epoch(loader, &error));
  for (;;) {
    slotline_batch *batch = NULL;
    slotline_error *error = NULL;
    const slotline_status status = slotline_loader_next(loader, &batch, &error);
    slotline_error_free(error);
    if (status != SLOTLINE_OK) return status;
    check_batch(batch);
    slotline_batch_free(batch);
    /* The batch with the odd sample was delivered; if its callback freed the loader, it no longer
     * exists. */
    if (state->misbehave == free_the_loader && atomic_load(&state->reads) > 21) return status;
  }
}

static void callbacks_can_stop_their_loader(size_t workers) {
  struct state state = {.odd = 21, .misbehave = stop};
  CHECK(last_status_of_a_pass(&state, workers) == SLOTLINE_ERROR_STOPPED);
  CHECK(atomic_load(&state.reads) < LEN);
  slotline_loader_free(state.loader);
  CHECK(atomic_load(&state.drops) == 1);
}

static void rows_can_be_copied_to_themselves(size_t workers) {
  struct state state = {.odd = 21, .misbehave = copy_rows_to_themselves};
  CHECK(last_status_of_a_pass(&state, workers) == SLOTLINE_END);
  slotline_loader_free(state.loader);
}

static void a_callback_cannot_use_its_loader(void) {
  struct state state = {.odd = 21, .misbehave = use_the_loader};
  CHECK(last_status_of_a_pass(&state, 0) == SLOTLINE_END);
  slotline_loader_free(state.loader);
  CHECK(atomic_load(&state.drops) == 1);
}

static void a_callback_can_free_its_loader(void) {
  struct state state = {.odd = 21, .misbehave = free_the_loader};
  CHECK(last_status_of_a_pass(&state, 0) == SLOTLINE_ERROR_STOPPED || atomic_load(&state.reads) > 21);
  CHECK(atomic_load(&state.drops) == 1);
}

/* Tests that `on_error` determines what happens to bad samples. */
static void bad_samples_are_skipped_or_replaced(size_t workers) {
  for (uint32_t on_error = SLOTLINE_ON_ERROR_SKIP; on_error <= SLOTLINE_ON_ERROR_REPLACE; ++on_error) {
    struct state state = {.odd = 21, .misbehave = fail};
    slotline_options options = options_of(10, workers);
    options.on_error = on_error;
    slotline_loader *loader = loader_of(&state, &options);
    OK(slotline_loader_epoch(loader, &error));
    size_t samples = 0;
    for (size_t task = 0; task < 5; ++task) {
      slotline_batch *batch = NULL;
      OK(slotline_loader_next(loader, &batch, &error));
      samples += slotline_batch_len(batch);
      check_batch(batch);
      slotline_batch_free(batch);
    }
    CHECK(samples == (on_error == SLOTLINE_ON_ERROR_SKIP ? LEN - 1 : LEN));
    slotline_loader_free(loader);
  }
}

/* A cursor of a stream of the numbers below LEN, of which each of n workers returns every n-th. */
struct cursor {
  size_t at, step;
};

static int32_t open(void *user, const slotline_worker *worker, void **cursor, slotline_failure *failure) {
  struct state *state = user;
  CHECK(worker->struct_size >= sizeof *worker);
  if (state->odd == -2) slotline_fail(failure, "stream not found");
  if (state->odd <= -2) return -4;
  struct cursor *made = malloc(sizeof *made);
  made->at = worker->id < 0 ? 0 : (size_t)worker->id;
  made->step = worker->num_workers ? worker->num_workers : 1;
  *cursor = made;
  atomic_fetch_add(&state->open_cursors, 1);
  return 0;
}

static int32_t next(void *user, void *of, slotline_sample *sample) {
  struct state *state = user;
  struct cursor *cursor = of;
  if (cursor->at >= LEN) return 1;
  const size_t index = cursor->at;
  cursor->at += cursor->step;
  if ((int64_t)index == state->odd) return state->misbehave(state, sample);
  write_from(sample, index, 0);
  return 0;
}

static void close(void *user, void *cursor) {
  atomic_fetch_sub(&((struct state *)user)->open_cursors, 1);
  free(cursor);
}

static int32_t save(void *user, void *cursor, slotline_saved *saved) {
  (void)user;
  CHECK(slotline_saved_append(saved, NULL, 1) == SLOTLINE_ERROR_INVALID);
  CHECK(slotline_saved_append(saved, NULL, 0) == SLOTLINE_OK);
  return slotline_saved_append(saved, cursor, sizeof(struct cursor)) != SLOTLINE_OK;
}

static int32_t resume(void *user, const slotline_worker *worker, const uint8_t *saved, size_t len, void **cursor,
                      slotline_failure *failure) {
  CHECK(len == sizeof(struct cursor));
  if (open(user, worker, cursor, failure)) return 1;
  memcpy(*cursor, saved, len);
  return 0;
}

static slotline_loader *stream_of(struct state *state, size_t workers) {
  const slotline_stream_dataset callbacks = {sizeof callbacks, state, -1,   fields, FIELDS, open,
                                             next,             close, save, resume, drop};
  slotline_dataset *dataset = NULL;
  OK(slotline_dataset_from_stream(&callbacks, &dataset, &error));
  CHECK(slotline_dataset_len(dataset) == -1);
  const slotline_options options = options_of(4, workers);
  slotline_loader *loader = NULL;
  OK(slotline_loader_new(dataset, &options, &loader, &error));
  slotline_dataset_free(dataset);
  return state->loader = loader;
}

/* Reads at most `batches` batches of a stream, and returns a bit for each sample. */
static uint64_t read_stream(slotline_loader *loader, size_t batches, int *errors) {
  uint64_t seen = 0;
  for (size_t i = 0; i < batches; ++i) {
    slotline_batch *batch = NULL;
    slotline_error *error = NULL;
    const slotline_status status = slotline_loader_next(loader, &batch, &error);
    if (status == SLOTLINE_END) break;
    if (status == SLOTLINE_ERROR_SAMPLE) {
      CHECK(strlen(slotline_error_message(error)) > 0);
      slotline_error_free(error);
      ++*errors;
      continue;
    }
    CHECK(status == SLOTLINE_OK);
    const slotline_tensor row = field(batch, 0);
    for (size_t j = 0; j < slotline_batch_len(batch); ++j) {
      const uint64_t bit = UINT64_C(1) << (unsigned)((const float *)row.data)[4 * j];
      CHECK(!(seen & bit));
      seen |= bit;
    }
    slotline_batch_free(batch);
  }
  return seen;
}

static const uint64_t ALL = (UINT64_C(1) << LEN) - 1;

static void streams_are_complete_and_resume(size_t workers) {
  struct state state = {.odd = -1};
  int errors = 0;
  slotline_loader *loader = stream_of(&state, workers), *again = stream_of(&state, workers);
  OK(slotline_loader_epoch(loader, &error));
  CHECK(read_stream(loader, SIZE_MAX, &errors) == ALL && errors == 0);
  OK(slotline_loader_epoch(loader, &error));
  const uint64_t first = read_stream(loader, 3, &errors);
  slotline_bytes *saved = NULL;
  OK(slotline_loader_state(loader, &saved, &error));
  slotline_loader_free(loader);
  OK(slotline_loader_load_state(again, slotline_bytes_data(saved), slotline_bytes_len(saved), &error));
  slotline_bytes_free(saved);
  OK(slotline_loader_epoch(again, &error));
  const uint64_t rest = read_stream(again, SIZE_MAX, &errors);
  CHECK(first && !(first & rest) && (first | rest) == ALL && errors == 0);
  slotline_loader_free(again);
  CHECK(atomic_load(&state.open_cursors) == 0 && atomic_load(&state.drops) == 2);
}

static void streams_can_fail_and_be_abandoned(size_t workers) {
  struct state state = {.odd = 21, .misbehave = fail};
  int errors = 0;
  slotline_loader *loader = stream_of(&state, workers);
  OK(slotline_loader_epoch(loader, &error));
  const uint64_t seen = read_stream(loader, SIZE_MAX, &errors);
  CHECK(errors == 1 && !(seen >> 21 & 1) && seen >> (LEN - 1));
  /* Save the state during a pass. */
  OK(slotline_loader_epoch(loader, &error));
  read_stream(loader, 2, &errors);
  slotline_loader_free(loader);
  CHECK(atomic_load(&state.open_cursors) == 0 && atomic_load(&state.drops) == 1 && atomic_load(&state.payloads) == 0);

  struct state stopping = {.odd = 21, .misbehave = stop};
  loader = stream_of(&stopping, workers);
  OK(slotline_loader_epoch(loader, &error));
  slotline_status status;
  slotline_batch *batch = NULL;
  while ((status = slotline_loader_next(loader, &batch, NULL)) == SLOTLINE_OK) slotline_batch_free(batch);
  CHECK(status == SLOTLINE_ERROR_STOPPED);
  slotline_loader_free(loader);
  CHECK(atomic_load(&stopping.open_cursors) == 0 && atomic_load(&stopping.drops) == 1);

  for (int64_t odd = -3; odd <= -2; ++odd) {
    struct state closed = {.odd = odd};
    loader = stream_of(&closed, workers);
    OK(slotline_loader_epoch(loader, &error));
    for (size_t failures = 0; failures < (workers ? workers : 1); ++failures) {
      slotline_error *error = NULL;
      CHECK(slotline_loader_next(loader, &batch, &error) == SLOTLINE_ERROR_SAMPLE && batch == NULL);
      CHECK(strstr(slotline_error_message(error), odd == -2 ? "stream not found" : "open returned -4"));
      slotline_error_free(error);
    }
    GIVES(SLOTLINE_END, slotline_loader_next(loader, &batch, &error));
    slotline_loader_free(loader);
    CHECK(atomic_load(&closed.open_cursors) == 0 && atomic_load(&closed.drops) == 1);
  }
}

/* Makes a batch that is a heap-allocated array of numbers. */
static int32_t collate(void *user, slotline_samples *samples, void **batch, slotline_failure *failure) {
  struct state *state = user;
  if (state->misbehave == read_more_samples) state->samples = samples;
  const size_t len = slotline_samples_left(samples);
  int64_t *made = calloc(len + 1, sizeof *made);
  for (;;) {
    slotline_tensor given[FIELDS];
    for (int i = 0; i < FIELDS; ++i) given[i].struct_size = sizeof *given;
    CHECK(slotline_samples_next(samples, given, 1) == SLOTLINE_ERROR_INVALID);
    CHECK(slotline_samples_next(samples, NULL, FIELDS) == SLOTLINE_ERROR_INVALID);
    given[0].struct_size = 8;
    CHECK(slotline_samples_next(samples, given, FIELDS) == SLOTLINE_ERROR_INVALID);
    given[0].struct_size = sizeof *given;
    const slotline_status status = slotline_samples_next(samples, given, FIELDS);
    if (status == SLOTLINE_END) break;
    if (status != SLOTLINE_OK) {
      free(made);
      return status;
    }
    CHECK(given[0].ndim == 1 && given[0].shape[0] == 4 && given[2].kind == SLOTLINE_PACKED);
    made[++made[0]] = (int64_t)((const float *)given[0].data)[0];
  }
  if (made[1] == state->odd + 1) {
    free(made);
    atomic_fetch_add(&state->payloads, 1);
    slotline_fail_with(failure, "not this batch", state, "state", drop_payload);
    return 1;
  }
  if (state->odd == 41) {
    free(made);
    return 9;
  }
  atomic_fetch_add(&state->batches, 1);
  *batch = made;
  return 0;
}

static struct state *collating;
static void drop_batch(void *batch) {
  atomic_fetch_sub(&collating->batches, 1);
  free(batch);
}

static int32_t init(void *user, const slotline_worker *worker, slotline_failure *failure) {
  struct state *state = user;
  atomic_fetch_add(&state->reads, 1);
  if (worker->id == 1) slotline_fail(failure, "no second one");
  return worker->id == 1;
}

static void batches_can_be_anything(size_t workers) {
  struct state state = {.odd = 19, .misbehave = fail}, initial = {.odd = -1};
  collating = &state;
  slotline_options options = options_of(10, workers);
  options.collate = collate;
  options.collate_user = &state;
  options.collate_drop = drop;
  options.collate_drop_batch = drop_batch;
  options.worker_init = init;
  options.worker_init_user = &initial;
  options.worker_init_drop = drop;
  options.hold = 2;
  slotline_loader *loader = loader_of(&state, &options);
  OK(slotline_loader_epoch(loader, &error));
  slotline_batch *kept = NULL, *batch = NULL;
  int samples = 0, inits = 0;
  for (int left = 5; left > 0;) {
    slotline_error *error = NULL;
    const slotline_status status = slotline_loader_next(loader, &batch, &error);
    if (status == SLOTLINE_ERROR_WORKER_INIT) {
      CHECK(strstr(slotline_error_message(error), "no second one") && slotline_error_worker(error) == 1);
      ++inits;
    } else if (status == SLOTLINE_ERROR_SAMPLE || status == SLOTLINE_ERROR_COLLATE) {
      /* Batch 1 has a sample that fails, and the collate callback itself fails for batch 2. */
      const int sample = status == SLOTLINE_ERROR_SAMPLE;
      CHECK(slotline_error_task(error) == (sample ? 1 : 2) && (slotline_error_index(error) == -1) == !sample);
      CHECK(strstr(slotline_error_message(error), sample ? "the disk is" : "not this batch") && has_payload(error, &state));
      CHECK(sample || strstr(slotline_error_message(error), "the collate function failed for batch 2 in ") ==
                          slotline_error_message(error));
      --left;
    } else {
      CHECK(status == SLOTLINE_OK && slotline_batch_num_fields(batch) == 0);
      const int64_t *made = slotline_batch_user(batch);
      CHECK(made[0] == 10 && (size_t)made[0] == slotline_batch_len(batch));
      for (int i = 0; i < 10; ++i) CHECK(made[i + 1] == slotline_batch_indices(batch)[i]);
      samples += 10;
      --left;
      if (kept) slotline_batch_free(batch);
      else kept = batch;
    }
    slotline_error_free(error);
  }
  CHECK(samples == 30 && inits == (workers == 2) && atomic_load(&initial.reads) == (int)workers);
  slotline_loader_free(loader);
  CHECK(((const int64_t *)slotline_batch_user(kept))[1] == 0 && atomic_load(&state.batches) == 1);
  slotline_batch_free(kept);
  /* The user pointers of the dataset and of the collate function were dropped. */
  CHECK(atomic_load(&state.batches) == 0 && atomic_load(&state.drops) == 2 && atomic_load(&initial.drops) == 1);
  CHECK(atomic_load(&state.payloads) == 0);
}

/* The callback of sample `odd` tries to read more samples of its batch. The batch must then fail
 * with that reason. */
static void a_read_callback_cannot_read_samples_of_its_batch(int64_t odd) {
  struct state state = {.odd = odd, .misbehave = read_more_samples};
  collating = &state;
  slotline_options options = options_of(10, 0);
  options.collate = collate;
  options.collate_user = &state;
  options.collate_drop_batch = drop_batch;
  slotline_loader *loader = loader_of(&state, &options);
  OK(slotline_loader_epoch(loader, &error));
  slotline_batch *batch = NULL;
  for (size_t task = 0; task < 5; ++task) {
    slotline_error *error = NULL;
    const slotline_status status = slotline_loader_next(loader, &batch, &error);
    const char *again = "the dataset's callback read from slotline_samples while it was called for the same batch";
    if (odd == 41) {
      CHECK(status == SLOTLINE_ERROR_COLLATE);
      CHECK(task != 4 || strstr(slotline_error_message(error), again));
    } else {
      CHECK(status == SLOTLINE_OK && slotline_batch_len(batch) == 10);
    }
    slotline_error_free(error);
    slotline_batch_free(batch);
  }
  GIVES(SLOTLINE_END, slotline_loader_next(loader, &batch, &error));
  slotline_loader_free(loader);
  CHECK(atomic_load(&state.batches) == 0);
}

static int32_t backwards(void *user, uint64_t pass, uint64_t seed, uint64_t *indices, size_t len,
                         slotline_failure *failure) {
  (void)user, (void)seed;
  for (size_t i = 0; i < len; ++i) indices[i] = pass == 1 ? LEN : LEN - 1 - i;
  if (pass == 2) slotline_fail(failure, "no third pass");
  return pass == 2;
}

static int32_t pairs(void *user, uint64_t pass, uint64_t seed, uint64_t batch, uint64_t *indices, size_t room, size_t *len,
                     slotline_failure *failure) {
  (void)user, (void)seed;
  if (batch == 3) return 1;
  if (pass == 1) {
    slotline_fail(failure, "no second pass");
    return 2;
  }
  CHECK(room == 2);
  indices[0] = indices[1] = batch;
  *len = pass == 2 ? 3 : 2;
  return 0;
}

static void samplers_can_be_callbacks(size_t workers) {
  struct state state = {.odd = -1}, order = {.odd = -1};
  const slotline_order_callback by_pass = {sizeof by_pass, &order, LEN, backwards, drop};
  slotline_options options = options_of(10, workers);
  slotline_sampler *sampler = NULL;
  OK(slotline_sampler_from_callback(&by_pass, &sampler, &error));
  options.sampler = sampler;
  slotline_loader *loader = loader_of(&state, &options);
  slotline_sampler_free(sampler);
  slotline_batch *batch = NULL;
  OK(slotline_loader_epoch(loader, &error));
  for (int64_t i = 0; i < 5; ++i) {
    OK(slotline_loader_next(loader, &batch, &error));
    CHECK(slotline_batch_indices(batch)[0] == LEN - 1 - 10 * i);
    check_batch(batch);
    slotline_batch_free(batch);
  }
  /* An index out of range fails in `next`, and an order that cannot be drawn fails in `epoch`. */
  slotline_status status = slotline_loader_epoch(loader, NULL);
  if (status == SLOTLINE_OK) status = slotline_loader_next(loader, &batch, NULL);
  CHECK(status == SLOTLINE_ERROR_SAMPLER || status == SLOTLINE_ERROR_SAMPLE);
  slotline_error *error = NULL;
  status = slotline_loader_epoch(loader, &error);
  CHECK(status == SLOTLINE_ERROR_SAMPLER && strstr(slotline_error_message(error), "no third pass"));
  slotline_error_free(error);
  slotline_loader_free(loader);
  CHECK(atomic_load(&order.drops) == 1);

  const slotline_batches_callback by_batch = {sizeof by_batch, &order, 2, pairs, drop};
  slotline_batch_sampler *batches = NULL;
  OK(slotline_batch_sampler_from_callback(&by_batch, &batches, &error));
  options = options_of(1, workers);
  options.batch_sampler = batches;
  loader = loader_of(&state, &options);
  slotline_batch_sampler_free(batches);
  for (int pass = 0; pass < 3; ++pass) {
    OK(slotline_loader_epoch(loader, &error));
    size_t samples = 0;
    while ((status = slotline_loader_next(loader, &batch, &error)) == SLOTLINE_OK) {
      samples += slotline_batch_len(batch);
      check_batch(batch);
      slotline_batch_free(batch);
    }
    CHECK(pass == 0 ? status == SLOTLINE_END && samples == 6 : status == SLOTLINE_ERROR_SAMPLER);
    if (pass == 1) CHECK(strstr(slotline_error_message(error), "no second pass"));
    slotline_error_free(error);
  }
  slotline_loader_free(loader);
  CHECK(atomic_load(&order.drops) == 2 && atomic_load(&state.drops) == 2);
}

int main(void) {
  samples_are_the_same_with_any_workers();
  for (size_t workers = 0; workers <= 2; ++workers) {
    a_failed_sample_takes_the_place_of_its_batch(workers);
    callbacks_can_stop_their_loader(workers);
    rows_can_be_copied_to_themselves(workers);
    bad_samples_are_skipped_or_replaced(workers);
    streams_are_complete_and_resume(workers);
    streams_can_fail_and_be_abandoned(workers);
    batches_can_be_anything(workers);
    samplers_can_be_callbacks(workers);
  }
  a_callback_cannot_use_its_loader();
  a_callback_can_free_its_loader();
  a_read_callback_cannot_read_samples_of_its_batch(21);
  a_read_callback_cannot_read_samples_of_its_batch(41);
  puts("ok");
  return 0;
}
