/* Calls every function of slotline.h with invalid arguments: nulls, structs that are too short or
 * set unknown fields, and misaligned pointers. Prints the names of the functions in the table,
 * which the tests in Rust compare with those in the header. */

#include "proof.h"

/* Makes a call that must fail, once with an error object (`E`), whose message must contain `word`,
 * and once without. */
#define REFUSED(word, call)                                                                            \
  do {                                                                                                 \
    slotline_error *error = NULL, **E = &error;                                                        \
    const slotline_status gave = (call);                                                               \
    if (gave != SLOTLINE_ERROR_INVALID || !error || slotline_error_code(error) != SLOTLINE_ERROR_INVALID ||        \
        !strstr(slotline_error_message(error), word)) {                                                \
      fprintf(stderr, "%s:%d: %s returned %d, not \"%s\": %s\n", __FILE__, __LINE__, #call, (int)gave, \
              word, error ? slotline_error_message(error) : "no message");                             \
      exit(1);                                                                                         \
    }                                                                                                  \
    slotline_error_free(error);                                                                        \
    E = NULL;                                                                                          \
    CHECK((call) == SLOTLINE_ERROR_INVALID);                                                                 \
  } while (0)

/* Returns a struct of `size` bytes, all zeros except for its size. The memory ends with the struct,
 * so that reads beyond it are detected. */
static void *sized(size_t size) {
  void *memory = calloc(1, size < sizeof size ? sizeof size : size);
  CHECK(memory);
  memcpy(memory, &size, sizeof size);
  return memory;
}

/* Makes a call with a struct of each size that is too short. Each call must fail. */
#define REFUSED_WHEN_SHORT(type, word, call)                                 \
  do {                                                                       \
    const size_t sizes[] = {0, 1, sizeof(size_t), sizeof(type) - 1};         \
    for (size_t each = 0; each < sizeof sizes / sizeof *sizes; ++each) {     \
      type *S = sized(sizes[each]);                                          \
      REFUSED(word, call);                                                   \
      free(S);                                                               \
    }                                                                        \
  } while (0)

/* Returns an address that is aligned only for single bytes. */
static void *misaligned(void) {
  static uint64_t place[2];
  return (char *)place + 1;
}

static slotline_dataset *dataset;
static slotline_loader *loader;
static slotline_batch *batch;
static void callbacks_of_options(void);

static void dataset_open(void) {
  slotline_dataset *out = dataset;
  REFUSED("source", slotline_dataset_open(NULL, &out, E));
  CHECK(out == NULL);
  REFUSED("UTF-8", slotline_dataset_open("digits\xff", &out, E));
  REFUSED("source", slotline_dataset_open("", &out, E));
  REFUSED("source", slotline_dataset_open("nothing:file", &out, E));
  REFUSED("out", slotline_dataset_open("digits", NULL, E));
  REFUSED("aligned", slotline_dataset_open("digits", misaligned(), E));
}

static void dataset_open_with(void) {
  slotline_dataset *out = dataset;
  REFUSED("source", slotline_dataset_open_with(NULL, "", &out, E));
  CHECK(out == NULL);
  REFUSED("options", slotline_dataset_open_with("digits", NULL, &out, E));
  REFUSED("options of files", slotline_dataset_open_with("digits", "room=2", &out, E));
  REFUSED("out", slotline_dataset_open_with("digits", "", NULL, E));
}

static int dropped;
static void drop(void *user) {
  CHECK(user == &dropped);
  ++dropped;
}

/* Makes a call twice that takes ownership of a pointer. It must fail, and drop the pointer once
 * each time. */
#define REFUSED_AND_DROPPED(word, call) \
  do {                                  \
    dropped = 0;                        \
    REFUSED(word, call);                \
    CHECK(dropped == 2);                \
  } while (0)

static const int64_t two[] = {2, 3}, nine[] = {1, 1, 1, 1, 1, 1, 1, 1, 1}, negative[] = {-1}, huge[] = {INT64_MAX, INT64_MAX}, none[] = {0};
static const float six[6];
static const uint8_t bools[6] = {0, 1, 2, 0, 1, 0};

static slotline_array array(void) {
  slotline_array array;
  memset(&array, 0, sizeof array);
  array.struct_size = sizeof array;
  array.dtype = SLOTLINE_F32;
  array.ndim = 2;
  array.shape = two;
  array.data = six;
  array.user = &dropped;
  array.drop = drop;
  return array;
}

static void dataset_from_arrays(void) {
  slotline_dataset *out = dataset;
  REFUSED("arrays", slotline_dataset_from_arrays(NULL, 1, &out, E));
  CHECK(out == NULL);
  REFUSED("there are no arrays", slotline_dataset_from_arrays(NULL, 0, &out, E));
  dropped = 0;
  REFUSED_WHEN_SHORT(slotline_array, "struct_size", slotline_dataset_from_arrays(S, 1, &out, E));
  CHECK(dropped == 0);

  /* From here on, each array's drop is called once per call, and each call is made twice. */
  slotline_array a[2];
#define REFUSED_ARRAY(word, change)                                       \
  do {                                                                    \
    a[0] = a[1] = array();                                                \
    change;                                                               \
    dropped = 0;                                                          \
    REFUSED(word, slotline_dataset_from_arrays(a, 2, &out, E));           \
    CHECK(dropped == 4 && out == NULL);                                   \
  } while (0)
  REFUSED_ARRAY("two fields have the name \"x\"", a[0].name = a[1].name = "x");
  REFUSED_ARRAY("UTF-8", a[1].name = "\xff");
  REFUSED_ARRAY("arrays[0]: dtype is 0", a[0].dtype = 0);
  REFUSED_ARRAY("dtype", a[1].dtype = UINT32_MAX);
  REFUSED_ARRAY("arrays[1]: shape is NULL", a[1].shape = NULL);
  REFUSED_ARRAY("arrays[1]", a[1].ndim = 9; a[1].shape = nine);
  REFUSED_ARRAY("arrays[1]", a[1].ndim = UINT32_MAX);
  REFUSED_ARRAY("rows", a[0].ndim = 0);
  REFUSED_ARRAY("-1", a[1].ndim = 1; a[1].shape = negative);
  REFUSED_ARRAY("arrays[1]: shape [9223372036854775807, 9223372036854775807] has more", a[1].shape = huge);
  REFUSED_ARRAY("arrays[1]: data is NULL", a[1].data = NULL);
  REFUSED_ARRAY("arrays[1]: data is not aligned", a[1].data = misaligned());
  REFUSED_ARRAY("arrays[1]: data contains a bool that is neither 0 nor 1", a[1].dtype = SLOTLINE_BOOL; a[1].data = bools);
  REFUSED_ARRAY("the first has 2 rows, number 2 has 0", a[1].ndim = 1; a[1].shape = none);
#undef REFUSED_ARRAY
  /* Bools that are 0 or 1 are accepted. */
  a[0] = array();
  a[0].dtype = SLOTLINE_BOOL;
  a[0].ndim = 1;
  a[0].data = bools + 3;
  dropped = 0;
  OK(slotline_dataset_from_arrays(a, 1, &out, &error));
  CHECK(dropped == 0 && slotline_dataset_len(out) == 2);
  slotline_dataset_free(out);
  CHECK(dropped == 1);
  a[0] = a[1] = array();
  dropped = 0;
  REFUSED("out", slotline_dataset_from_arrays(a, 2, NULL, E));
  CHECK(dropped == 4);
  a[1].struct_size = sizeof a[1] + 8;
  dropped = 0;
  REFUSED("struct_size", slotline_dataset_from_arrays(a, 2, &out, E));
  CHECK(dropped == 2);
}

static void loader_new(void) {
  slotline_loader *out = loader;
  slotline_options o = options_of(1, 0);
  REFUSED("dataset", slotline_loader_new(NULL, &o, &out, E));
  CHECK(out == NULL);
  REFUSED("out", slotline_loader_new(dataset, &o, NULL, E));
  REFUSED("options", slotline_loader_new(dataset, misaligned(), &out, E));
  out = loader;
  REFUSED_WHEN_SHORT(slotline_options, "struct_size", slotline_loader_new(dataset, S, &out, E));
  CHECK(out == NULL);

  struct {
    slotline_options known;
    uint64_t later;
  } newer = {options_of(1, 0), 1};
  newer.known.struct_size = sizeof newer;
  newer.known.worker_init_user = &dropped;
  newer.known.worker_init_drop = drop;
  REFUSED_AND_DROPPED("later version", slotline_loader_new(dataset, &newer.known, &out, E));
  newer.later = 0;
  OK(slotline_loader_new(dataset, &newer.known, &out, &error));
  slotline_loader_free(out);

#define REFUSED_OPTION(word, change)                             \
  do {                                                           \
    o = options_of(1, 0);                                        \
    change;                                                      \
    REFUSED(word, slotline_loader_new(dataset, &o, &out, E));    \
    CHECK(out == NULL);                                          \
  } while (0)
  REFUSED_OPTION("options->batch_size is -2, which is not a valid value", o.batch_size = -2);
  REFUSED_OPTION("options->help is 2", o.help = 2);
  REFUSED_OPTION("options->wait_strategy is 3", o.wait_strategy = 3);
  REFUSED_OPTION("options->affinity is 3", o.affinity = 3);
  REFUSED_OPTION("options->num_cores is 0", o.affinity = SLOTLINE_AFFINITY_CORES);
  REFUSED_OPTION("options->cores is NULL", o.affinity = SLOTLINE_AFFINITY_CORES; o.num_cores = 1);
  REFUSED_OPTION("options->on_overflow is 2", o.on_overflow = 2);
  REFUSED_OPTION("options->on_error is 3", o.on_error = 3);
  REFUSED_OPTION("has_seed is 42", o.has_seed = 42);
  REFUSED_OPTION("shuffle is 42", o.shuffle = 42);
  REFUSED_OPTION("drop_last is 64", o.drop_last = 64);
  REFUSED_OPTION("in_order is 2", o.in_order = 2);
  REFUSED_OPTION("pin_memory is 2", o.pin_memory = 2);
  REFUSED_OPTION("persistent_workers is 4", o.persistent_workers = 4);
  REFUSED_OPTION("round_robin is 4", o.round_robin = 4);
  REFUSED_OPTION("processes is 4", o.num_workers = 1; o.processes = 4);
  slotline_generator *generator = NULL;
  OK(slotline_generator_new(1, &generator, &error));
  REFUSED_OPTION("generator", o.generator = generator; o.has_seed = 1);
  slotline_generator_free(generator);
#ifdef __linux__
  const char *const nothing[] = {NULL}, *const program[] = {"/proc/self/exe", NULL};
#define REFUSED_PROCESSES(word, change) REFUSED_OPTION(word, o.num_workers = 1; o.processes = 1; change)
  REFUSED_PROCESSES("spawn is empty", o.spawn = nothing);
  REFUSED_PROCESSES("aligned", o.spawn = misaligned());
  REFUSED_PROCESSES("spawn_setup", o.spawn = program; o.spawn_setup_len = 1);
#undef REFUSED_PROCESSES
#endif
#undef REFUSED_OPTION
  callbacks_of_options();
}

static void loader_epoch(void) {
  REFUSED("loader", slotline_loader_epoch(NULL, E));
  REFUSED("aligned", slotline_loader_epoch(misaligned(), E));
}

static void loader_next(void) {
  slotline_batch *out = batch;
  REFUSED("loader", slotline_loader_next(NULL, &out, E));
  CHECK(out == NULL);
  REFUSED("out", slotline_loader_next(loader, NULL, E));
  REFUSED("aligned", slotline_loader_next(loader, misaligned(), E));
  /* No pass was started. */
  slotline_loader *idle = digits(NULL);
  REFUSED("epoch", slotline_loader_next(idle, &out, E));
  slotline_loader_free(idle);
}

static void loader_next_within(void) {
  slotline_batch *out = batch;
  REFUSED("loader", slotline_loader_next_within(NULL, 0, &out, E));
  CHECK(out == NULL);
  REFUSED("out", slotline_loader_next_within(loader, 0, NULL, E));
}

static void batch_field(void) {
  slotline_tensor out;
  memset(&out, 0, sizeof out);
  out.struct_size = sizeof out;
  REFUSED("batch", slotline_batch_field(NULL, 0, &out, E));
  REFUSED("out", slotline_batch_field(batch, 0, NULL, E));
  REFUSED("aligned", slotline_batch_field(batch, 0, misaligned(), E));
  REFUSED("2 fields", slotline_batch_field(batch, 2, &out, E));
  REFUSED("2 fields", slotline_batch_field(batch, SIZE_MAX, &out, E));
  REFUSED_WHEN_SHORT(slotline_tensor, "struct_size", slotline_batch_field(batch, 0, S, E));
  slotline_tensor *longer = sized(sizeof *longer + 16);
  OK(slotline_batch_field(batch, 1, longer, &error));
  CHECK(longer->struct_size == sizeof *longer + 16 && longer->dtype == SLOTLINE_I64);
  free(longer);
}

static void batch_field_by_name(void) {
  slotline_tensor out;
  memset(&out, 0, sizeof out);
  out.struct_size = sizeof out;
  REFUSED("batch", slotline_batch_field_by_name(NULL, "0", &out, E));
  REFUSED("name", slotline_batch_field_by_name(batch, NULL, &out, E));
  REFUSED("UTF-8", slotline_batch_field_by_name(batch, "\xff", &out, E));
  REFUSED("no field is named \"image\"; the fields are 0, 1", slotline_batch_field_by_name(batch, "image", &out, E));
  REFUSED("out", slotline_batch_field_by_name(batch, "0", NULL, E));
  REFUSED_WHEN_SHORT(slotline_tensor, "struct_size", slotline_batch_field_by_name(batch, "0", S, E));
}

static int32_t no_read(void *user, size_t index, slotline_sample *sample) {
  (void)user, (void)index, (void)sample;
  return 1;
}
static int32_t no_open(void *user, const slotline_worker *worker, void **cursor, slotline_failure *failure) {
  (void)user, (void)worker, (void)cursor, (void)failure;
  return 1;
}
static int32_t no_next(void *user, void *cursor, slotline_sample *sample) {
  (void)user, (void)cursor, (void)sample;
  return 1;
}
static int32_t no_save(void *user, void *cursor, slotline_saved *saved) {
  (void)user, (void)cursor, (void)saved;
  return 1;
}
static int32_t no_order(void *user, uint64_t pass, uint64_t seed, uint64_t *indices, size_t len, slotline_failure *failure) {
  (void)user, (void)pass, (void)seed, (void)indices, (void)len, (void)failure;
  return 1;
}
static int32_t no_batches(void *user, uint64_t pass, uint64_t seed, uint64_t number, uint64_t *indices, size_t room,
                          size_t *len, slotline_failure *failure) {
  (void)user, (void)pass, (void)seed, (void)number, (void)indices, (void)room, (void)len, (void)failure;
  return 1;
}
static int32_t no_init(void *user, const slotline_worker *worker, slotline_failure *failure) {
  (void)user, (void)worker, (void)failure;
  return 1;
}

static slotline_field fields[65];
static void good_fields(void) {
  for (size_t i = 0; i < sizeof fields / sizeof *fields; ++i)
    fields[i] = (slotline_field){sizeof *fields, NULL, SLOTLINE_F32, SLOTLINE_FIXED, 1, two, NULL, 0};
}

/* Makes a call with an invalid field; used for both kinds of datasets. */
#define REFUSED_FIELD(given, call, word, change) \
  do {                                           \
    good_fields();                               \
    given.fields = fields;                       \
    given.num_fields = 2;                        \
    change;                                      \
    REFUSED_AND_DROPPED(word, call);             \
    CHECK(out == NULL);                          \
  } while (0)
#define REFUSED_FIELDS(given, call)                                                                                                      \
  do {                                                                                                                                   \
    REFUSED_FIELD(given, call, "fields is NULL", given.fields = NULL);                                                                   \
    REFUSED_FIELD(given, call, "num_fields is 0; it must be 1 to 64", given.num_fields = 0);                                             \
    REFUSED_FIELD(given, call, "num_fields is 65", given.num_fields = 65);                                                               \
    REFUSED_FIELD(given, call, "struct_size is 8", fields[0].struct_size = 8);                                                           \
    REFUSED_FIELD(given, call, "struct_size", fields[1].struct_size = sizeof *fields + 8);                                               \
    REFUSED_FIELD(given, call, "fields[0]: dtype is 0, which is not a dtype", fields[0].dtype = 0);                                      \
    REFUSED_FIELD(given, call, "fields[1]: kind is 4", fields[1].kind = 4);                                                              \
    REFUSED_FIELD(given, call, "fields[1]: shape is NULL", fields[1].shape = NULL);                                                      \
    REFUSED_FIELD(given, call, "fields[1]: shape: -1 is not a valid length", fields[1].shape = negative);                                \
    REFUSED_FIELD(given, call, "fields[1]", fields[1].ndim = 9; fields[1].shape = nine);                                                 \
    REFUSED_FIELD(given, call, "fields[1]", fields[1].ndim = UINT32_MAX);                                                                \
    REFUSED_FIELD(given, call, "two fields have the name", fields[0].name = fields[1].name = "x");                                       \
    REFUSED_FIELD(given, call, "fields[0]: name is not UTF-8", fields[0].name = "\xff");                                                 \
    REFUSED_FIELD(given, call, "fields[1]", fields[1].kind = SLOTLINE_PADDED_TO_MAX; fields[1].ndim = 2);                                \
    REFUSED_FIELD(given, call, "the shape of a padded field must be [max]", fields[1].kind = SLOTLINE_PADDED_TO_MAX; fields[1].ndim = 0); \
    REFUSED_FIELD(given, call, "must be [capacity]", fields[1].kind = SLOTLINE_PADDED_TO_LONGEST; fields[1].ndim = 0); \
    REFUSED_FIELD(given, call, "padding is set for a field that is not padded", fields[1].padding = six);                                \
    REFUSED_FIELD(given, call, "multiple_of is set for", (fields[1].kind = SLOTLINE_PADDED_TO_MAX, fields[1].multiple_of = 2));           \
    REFUSED_FIELD(given, call, "padding is not aligned", (fields[1].kind = SLOTLINE_PADDED_TO_MAX, fields[1].padding = (const char *)six + 1)); \
    REFUSED_FIELD(given, call, "padding is a bool that is neither 0 nor 1",                                                              \
                  (fields[1].kind = SLOTLINE_PADDED_TO_MAX, fields[1].dtype = SLOTLINE_BOOL, fields[1].padding = bools + 2));              \
    REFUSED_FIELD(given, call, "the shape of a packed field must be [room, ...]", fields[1].kind = SLOTLINE_PACKED; fields[1].ndim = 0); \
  } while (0)

static void dataset_from_callbacks(void) {
  slotline_dataset *out = dataset;
  slotline_map_dataset map = {.struct_size = sizeof map, .user = &dropped, .len = 5, .fields = fields, .num_fields = 2,
                              .read = no_read, .drop = drop};
  REFUSED("dataset", slotline_dataset_from_callbacks(NULL, &out, E));
  CHECK(out == NULL);
  REFUSED_WHEN_SHORT(slotline_map_dataset, "struct_size", slotline_dataset_from_callbacks(S, &out, E));
  REFUSED_FIELDS(map, slotline_dataset_from_callbacks(&map, &out, E));
  good_fields();
  map.num_fields = 2;
  REFUSED_AND_DROPPED("out", slotline_dataset_from_callbacks(&map, NULL, E));
  map.read = NULL;
  REFUSED_AND_DROPPED("dataset->read is NULL", slotline_dataset_from_callbacks(&map, &out, E));
}

static void dataset_from_stream(void) {
  slotline_dataset *out = dataset;
  const slotline_stream_dataset good = {.struct_size = sizeof good, .user = &dropped, .len = -1, .fields = fields,
                                        .num_fields = 2, .open = no_open, .next = no_next, .drop = drop};
  slotline_stream_dataset stream = good;
  REFUSED("dataset", slotline_dataset_from_stream(NULL, &out, E));
  CHECK(out == NULL);
  REFUSED_WHEN_SHORT(slotline_stream_dataset, "struct_size", slotline_dataset_from_stream(S, &out, E));
  REFUSED_FIELDS(stream, slotline_dataset_from_stream(&stream, &out, E));
#define REFUSED_STREAM(word, to, change)                                         \
  do {                                                                           \
    good_fields();                                                               \
    stream = good;                                                               \
    change;                                                                      \
    REFUSED_AND_DROPPED(word, slotline_dataset_from_stream(&stream, to, E));     \
  } while (0)
  REFUSED_STREAM("out", NULL, (void)0);
  REFUSED_STREAM("dataset->open is NULL", &out, stream.open = NULL);
  REFUSED_STREAM("dataset->next is NULL", &out, stream.next = NULL);
  REFUSED_STREAM("only one of dataset->save and dataset->resume is set", &out, stream.save = no_save);
  REFUSED_STREAM("dataset->len is -2; set it to -1 if it is unknown", &out, stream.len = -2);
#undef REFUSED_STREAM
}

static int32_t no_map(void *user, const slotline_batch *source, slotline_sample *sample) {
  (void)user, (void)source, (void)sample;
  return 1;
}

/* Returns a stream, which cannot be read by index. */
static slotline_dataset *stream(void) {
  good_fields();
  const slotline_stream_dataset stream = {.struct_size = sizeof stream, .len = -1, .fields = fields, .num_fields = 2,
                                          .open = no_open, .next = no_next};
  slotline_dataset *out = NULL;
  OK(slotline_dataset_from_stream(&stream, &out, &error));
  return out;
}

static void dataset_map(void) {
  slotline_dataset *out = dataset;
  slotline_transform map = {sizeof map, &dropped, fields, 2, no_map, drop};
  REFUSED("transform", slotline_dataset_map(dataset, NULL, &out, E));
  CHECK(out == NULL);
  REFUSED_WHEN_SHORT(slotline_transform, "struct_size", slotline_dataset_map(dataset, S, &out, E));
  REFUSED_FIELDS(map, slotline_dataset_map(dataset, &map, &out, E));
  good_fields();
  map.num_fields = 2;
  REFUSED_AND_DROPPED("dataset", slotline_dataset_map(NULL, &map, &out, E));
  REFUSED_AND_DROPPED("out", slotline_dataset_map(dataset, &map, NULL, E));
  map.map = NULL;
  REFUSED_AND_DROPPED("map", slotline_dataset_map(dataset, &map, &out, E));
}

static void dataset_read(void) {
  slotline_batch *out = batch;
  slotline_dataset *no_indices = stream();
  REFUSED("dataset", slotline_dataset_read(NULL, 0, &out, E));
  CHECK(out == NULL);
  REFUSED("1797", slotline_dataset_read(dataset, 1797, &out, E));
  REFUSED("1797", slotline_dataset_read(dataset, SIZE_MAX, &out, E));
  REFUSED("stream", slotline_dataset_read(no_indices, 0, &out, E));
  REFUSED("out", slotline_dataset_read(dataset, 0, NULL, E));
  REFUSED("aligned", slotline_dataset_read(dataset, 0, misaligned(), E));
  slotline_dataset_free(no_indices);
}

static void dataset_subset(void) {
  slotline_dataset *out = dataset, *no_indices = stream();
  const size_t within[] = {0, 1796}, beyond[] = {0, 1797};
  REFUSED("dataset", slotline_dataset_subset(NULL, within, 2, &out, E));
  CHECK(out == NULL);
  REFUSED("indices", slotline_dataset_subset(dataset, NULL, 2, &out, E));
  REFUSED("indices", slotline_dataset_subset(dataset, within, SIZE_MAX, &out, E));
  REFUSED("indices[1] is 1797", slotline_dataset_subset(dataset, beyond, 2, &out, E));
  REFUSED("stream", slotline_dataset_subset(no_indices, within, 2, &out, E));
  REFUSED("out", slotline_dataset_subset(dataset, within, 2, NULL, E));
  slotline_dataset_free(no_indices);
}

static void dataset_random_split(void) {
  slotline_dataset *out[] = {dataset, dataset}, *no_indices = stream();
  const size_t lengths[] = {1700, 97}, fewer[] = {1700, 96};
  REFUSED("dataset", slotline_dataset_random_split(NULL, lengths, 2, NULL, out, E));
  CHECK(out[0] == NULL && out[1] == NULL);
  REFUSED("lengths", slotline_dataset_random_split(dataset, NULL, 2, NULL, out, E));
  REFUSED("lengths", slotline_dataset_random_split(dataset, lengths, SIZE_MAX, NULL, out, E));
  REFUSED("1796", slotline_dataset_random_split(dataset, fewer, 2, NULL, out, E));
  REFUSED("stream", slotline_dataset_random_split(no_indices, lengths, 2, NULL, out, E));
  REFUSED("out", slotline_dataset_random_split(dataset, lengths, 2, NULL, NULL, E));
  REFUSED("aligned", slotline_dataset_random_split(dataset, lengths, 2, NULL, misaligned(), E));
  slotline_dataset_free(no_indices);
}

static void dataset_random_split_fractions(void) {
  slotline_dataset *out[] = {dataset, dataset};
  const double halves[] = {0.5, 0.5}, more[] = {0.5, 0.6}, wrong[] = {0.5, 1.5};
  REFUSED("dataset", slotline_dataset_random_split_fractions(NULL, halves, 2, NULL, out, E));
  CHECK(out[0] == NULL && out[1] == NULL);
  REFUSED("fractions", slotline_dataset_random_split_fractions(dataset, NULL, 2, NULL, out, E));
  REFUSED("add up to 1.1", slotline_dataset_random_split_fractions(dataset, more, 2, NULL, out, E));
  REFUSED("1.5", slotline_dataset_random_split_fractions(dataset, wrong, 2, NULL, out, E));
  REFUSED("out", slotline_dataset_random_split_fractions(dataset, halves, 2, NULL, NULL, E));
}

/* Makes calls with invalid lists of datasets, including one of another kind. */
#define REFUSED_DATASETS(function, kind, other, words)                \
  do {                                                                \
    slotline_dataset *out = dataset, *own = kind, *foreign = other;   \
    const slotline_dataset *list[] = {own, NULL};                     \
    REFUSED("datasets[1]", function(list, 2, &out, E));               \
    CHECK(out == NULL);                                               \
    REFUSED("datasets", function(NULL, 2, &out, E));                  \
    REFUSED("datasets", function(list, SIZE_MAX, &out, E));           \
    REFUSED("empty", function(NULL, 0, &out, E));                     \
    list[1] = foreign;                                                \
    REFUSED(words, function(list, 2, &out, E));                       \
    REFUSED("out", function(list, 1, NULL, E));                       \
    slotline_dataset_free(own), slotline_dataset_free(foreign);       \
  } while (0)
static void dataset_concat(void) {
  REFUSED_DATASETS(slotline_dataset_concat, slotline_dataset_clone(dataset), stream(), "is a stream");
}
static void dataset_stack(void) {
  REFUSED_DATASETS(slotline_dataset_stack, slotline_dataset_clone(dataset), stream(), "is a stream");
}
static void dataset_chain(void) {
  REFUSED_DATASETS(slotline_dataset_chain, stream(), slotline_dataset_clone(dataset), "is read by index");
}

/* Tests `slotline_sample_sink_put` with nulls, also within a bulk read. */
static void sample_sink_put(void) {
  CHECK(slotline_sample_sink_put(NULL, no_read, NULL) == SLOTLINE_ERROR_INVALID);
  CHECK(slotline_sample_sink_put(NULL, NULL, NULL) == SLOTLINE_ERROR_INVALID);
}

static void generator_new(void) {
  REFUSED("out", slotline_generator_new(1, NULL, E));
  REFUSED("aligned", slotline_generator_new(1, misaligned(), E));
}
static void sampler_generator(void) { slotline_sampler_generator(NULL, NULL); }
static void generator_free(void) { slotline_generator_free(NULL); }

static int32_t no_allocate(void *user, size_t bytes, slotline_memory *out, slotline_failure *failure) {
  CHECK(user == &dropped && bytes > 0 && out->struct_size == sizeof *out && !out->data && !out->drop);
  slotline_fail(failure, "no memory");
  return 1;
}
static int32_t no_collate(void *user, slotline_samples *samples, void **made, slotline_failure *failure) {
  (void)user, (void)samples, (void)made, (void)failure;
  return 1;
}

/* Tests that ownership of the callbacks in the options is taken even if the loader cannot be
 * created. */
static void callbacks_of_options(void) {
  slotline_options m = options_of(1, 1);
  slotline_loader *none = loader;
  m.allocate = no_allocate;
  m.allocate_user = &dropped;
  m.allocate_drop = drop;
  REFUSED_AND_DROPPED("dataset", slotline_loader_new(NULL, &m, &none, E));
  dropped = 0;
  GIVES(SLOTLINE_ERROR_BUILD, slotline_loader_new(dataset, &m, &none, &error));
  CHECK(dropped == 1 && none == NULL);
  m.collate = no_collate;
  GIVES(SLOTLINE_ERROR_BUILD, slotline_loader_new(dataset, &m, &none, &error));
  CHECK(dropped == 2 && none == NULL);

  slotline_loader *out = loader;
  slotline_options o = options_of(1, 1);
  o.worker_init = no_init;
  o.worker_init_user = o.collate_user = &dropped;
  o.worker_init_drop = drop;
  REFUSED_AND_DROPPED("dataset", slotline_loader_new(NULL, &o, &out, E));
  REFUSED_AND_DROPPED("out", slotline_loader_new(dataset, &o, NULL, E));
  o.batch_size = -2;
  REFUSED_AND_DROPPED("batch_size", slotline_loader_new(dataset, &o, &out, E));
  o.batch_size = 0;
  dropped = 0;
  GIVES(SLOTLINE_ERROR_BUILD, slotline_loader_new(dataset, &o, &out, &error));
  CHECK(dropped == 1 && out == NULL);
}

static slotline_sampler *sampler;
static const size_t indices[] = {3, 1, 2}, offsets[] = {0, 2, 3}, wrong_offsets[] = {1, 2, 3}, falling[] = {0, 2, 1},
                    no_offsets[] = {0, 0};
static const double weights[] = {1, 2, 3};

static void sampler_random(void) {
  slotline_sampler *out = NULL;
  REFUSED("out", slotline_sampler_random(0, 0, NULL, E));
  REFUSED("replacement is 10", slotline_sampler_random(10, 0, &out, E));
}
static void sampler_feistel(void) { REFUSED("out", slotline_sampler_feistel(NULL, E)); }
static void sampler_distributed(void) {
  slotline_sampler *out = NULL;
  REFUSED("out", slotline_sampler_distributed(2, 0, 1, 0, 0, NULL, E));
  REFUSED("shuffle is 42", slotline_sampler_distributed(2, 0, 42, 0, 0, &out, E));
  REFUSED("drop_last is 42", slotline_sampler_distributed(2, 0, 1, 0, 42, &out, E));
}

static void sampler_subset_random(void) {
  slotline_sampler *out = misaligned();
  REFUSED("indices", slotline_sampler_subset_random(NULL, 3, &out, E));
  CHECK(out == NULL);
  REFUSED("indices", slotline_sampler_subset_random(indices, SIZE_MAX, &out, E));
  REFUSED("aligned", slotline_sampler_subset_random(misaligned(), 1, &out, E));
  REFUSED("out", slotline_sampler_subset_random(indices, 3, NULL, E));
}

static void sampler_indices(void) {
  slotline_sampler *out = misaligned();
  REFUSED("indices", slotline_sampler_indices(NULL, 3, &out, E));
  CHECK(out == NULL);
  REFUSED("indices", slotline_sampler_indices(indices, SIZE_MAX, &out, E));
  REFUSED("out", slotline_sampler_indices(indices, 3, NULL, E));
}

/* Checks that an invalid sampler is reported when a loader is created with it. */
static void refused_by_loader_new(slotline_sampler *with, const char *words) {
  slotline_options o = options_of(1, 0);
  o.sampler = with;
  slotline_loader *out = loader;
  slotline_error *error = NULL;
  CHECK(slotline_loader_new(dataset, &o, &out, &error) == SLOTLINE_ERROR_BUILD && out == NULL);
  CHECK(strstr(slotline_error_message(error), words));
  slotline_error_free(error);
  slotline_sampler_free(with);
}

static void sampler_weighted(void) {
  slotline_sampler *out = misaligned();
  REFUSED("weights", slotline_sampler_weighted(NULL, 3, 3, 1, &out, E));
  CHECK(out == NULL);
  REFUSED("weights", slotline_sampler_weighted(weights, SIZE_MAX, 3, 1, &out, E));
  REFUSED("out", slotline_sampler_weighted(weights, 3, 3, 1, NULL, E));
  REFUSED("replacement is 3", slotline_sampler_weighted(weights, 3, 3, 3, &out, E));
  const double wrong[] = {1, -1, 0};
  OK(slotline_sampler_weighted(wrong, 3, 3, 1, &out, &error));
  refused_by_loader_new(out, "weight 1 is -1");
  OK(slotline_sampler_distributed(2, 2, 1, 0, 0, &out, &error));
  refused_by_loader_new(out, "rank 2 is not one of 2 replicas");
}

static void sampler_from_callback(void) {
  slotline_sampler *out = misaligned();
  slotline_order_callback order = {sizeof order, &dropped, 5, no_order, drop};
  REFUSED("callback", slotline_sampler_from_callback(NULL, &out, E));
  CHECK(out == NULL);
  REFUSED_WHEN_SHORT(slotline_order_callback, "struct_size", slotline_sampler_from_callback(S, &out, E));
  REFUSED_AND_DROPPED("out", slotline_sampler_from_callback(&order, NULL, E));
  order.order = NULL;
  REFUSED_AND_DROPPED("callback->order is NULL", slotline_sampler_from_callback(&order, &out, E));
}

static void sampler_seed(void) { slotline_sampler_seed(NULL, 1); }
static void sampler_set_epoch(void) {
  slotline_sampler_set_epoch(NULL, 1);
  /* The epoch has no effect on this kind of sampler. */
  slotline_sampler_set_epoch(sampler, 1);
}
static void sampler_free(void) { slotline_sampler_free(NULL); }

static void batch_sampler_of(void) {
  slotline_batch_sampler *out = misaligned();
  REFUSED("sampler", slotline_batch_sampler_of(NULL, 2, 0, &out, E));
  CHECK(out == NULL);
  REFUSED("out", slotline_batch_sampler_of(sampler, 2, 0, NULL, E));
  REFUSED("drop_last is 2", slotline_batch_sampler_of(sampler, 2, 2, &out, E));
}

static void batch_sampler_lists(void) {
  slotline_batch_sampler *out = misaligned();
  REFUSED("indices", slotline_batch_sampler_lists(NULL, offsets, 2, &out, E));
  CHECK(out == NULL);
  REFUSED("offsets", slotline_batch_sampler_lists(indices, NULL, 2, &out, E));
  REFUSED("all lists are empty", slotline_batch_sampler_lists(indices, offsets, 0, &out, E));
  REFUSED("offsets", slotline_batch_sampler_lists(indices, offsets, SIZE_MAX, &out, E));
  REFUSED("offsets do not ascend from 0", slotline_batch_sampler_lists(indices, wrong_offsets, 2, &out, E));
  REFUSED("offsets do not ascend from 0", slotline_batch_sampler_lists(indices, falling, 2, &out, E));
  REFUSED("all lists are empty", slotline_batch_sampler_lists(indices, no_offsets, 1, &out, E));
  REFUSED("out", slotline_batch_sampler_lists(indices, offsets, 2, NULL, E));
}

static void batch_sampler_from_callback(void) {
  slotline_batch_sampler *out = misaligned();
  slotline_batches_callback batches = {sizeof batches, &dropped, 2, no_batches, drop};
  REFUSED("callback", slotline_batch_sampler_from_callback(NULL, &out, E));
  CHECK(out == NULL);
  REFUSED_WHEN_SHORT(slotline_batches_callback, "struct_size", slotline_batch_sampler_from_callback(S, &out, E));
  REFUSED_AND_DROPPED("out", slotline_batch_sampler_from_callback(&batches, NULL, E));
  batches.batches = NULL;
  REFUSED_AND_DROPPED("batches", slotline_batch_sampler_from_callback(&batches, &out, E));
}

static void batch_sampler_free(void) { slotline_batch_sampler_free(NULL); }

/* Functions for use in callbacks, called with NULL. callbacks.c tests their errors within
 * callbacks. */
static void fail(void) { slotline_fail(NULL, "nothing"); }
static void sample_epoch(void) { CHECK(slotline_sample_epoch(NULL) == 0); }
static void sample_fail(void) { slotline_sample_fail(NULL, "nothing"); }
/* The payload is dropped even if there is no failure object to attach it to. */
static void fail_with(void) {
  dropped = 0;
  slotline_fail_with(NULL, NULL, &dropped, NULL, drop);
  CHECK(dropped == 1);
  slotline_fail_with(NULL, "nothing", NULL, "none", drop);
  CHECK(dropped == 1);
}
static void sample_fail_with(void) {
  dropped = 0;
  slotline_sample_fail_with(NULL, NULL, &dropped, NULL, drop);
  CHECK(dropped == 1);
  slotline_sample_fail_with(NULL, "nothing", NULL, "none", drop);
  CHECK(dropped == 1);
}
static void sample_position(void) { CHECK(slotline_sample_position(NULL) == 0); }
static void sample_random(void) { CHECK(slotline_sample_random(NULL) == 0); }
static void sample_row(void) {
  size_t bytes = 1;
  CHECK(slotline_sample_row(NULL, 0, NULL) == NULL && slotline_sample_row(NULL, 0, &bytes) == NULL && bytes == 0);
}
static void sample_is_stopping(void) { CHECK(!slotline_sample_is_stopping(NULL)); }
static void sample_stop_fd(void) { CHECK(slotline_sample_stop_fd(NULL) == -1); }
static void sample_worker(void) { CHECK(slotline_sample_worker(NULL) == -1); }
static void sample_mask(void) { CHECK(slotline_sample_mask(NULL, 0, six, 6) == SLOTLINE_ERROR_INVALID); }
static void sample_write(void) { CHECK(slotline_sample_write(NULL, 0, six, 6) == SLOTLINE_ERROR_INVALID); }
static void samples_left(void) { CHECK(slotline_samples_left(NULL) == 0); }
static void samples_next(void) {
  slotline_tensor out;
  out.struct_size = sizeof out;
  CHECK(slotline_samples_next(NULL, &out, 1) == SLOTLINE_ERROR_INVALID);
}
static void saved_append(void) { CHECK(slotline_saved_append(NULL, bools, 1) == SLOTLINE_ERROR_INVALID); }

static void batch_dlpack(void) {
  struct DLManagedTensorVersioned *out = misaligned();
  REFUSED("batch", slotline_batch_dlpack(NULL, 0, NULL, &out, E));
  CHECK(out == NULL);
  REFUSED("2 fields", slotline_batch_dlpack(batch, 2, NULL, &out, E));
  REFUSED("out", slotline_batch_dlpack(batch, 0, NULL, NULL, E));
  REFUSED("aligned", slotline_batch_dlpack(batch, 0, NULL, misaligned(), E));
}

static void batch_dlpack_unversioned(void) {
  struct DLManagedTensor *out = misaligned();
  REFUSED("batch", slotline_batch_dlpack_unversioned(NULL, 0, NULL, &out, E));
  CHECK(out == NULL);
  REFUSED("2 fields", slotline_batch_dlpack_unversioned(batch, 2, NULL, &out, E));
  REFUSED("out", slotline_batch_dlpack_unversioned(batch, 0, NULL, NULL, E));
}

static void loader_state(void) {
  slotline_bytes *out = misaligned();
  REFUSED("loader", slotline_loader_state(NULL, &out, E));
  CHECK(out == NULL);
  REFUSED("out", slotline_loader_state(loader, NULL, E));
}

static void loader_load_state(void) {
  const uint8_t *nothing = NULL;
  const uint8_t nonsense[] = "nonsense \xff";
  slotline_bytes *state = NULL;
  OK(slotline_loader_state(loader, &state, &error));
  REFUSED("loader", slotline_loader_load_state(NULL, slotline_bytes_data(state), slotline_bytes_len(state), E));
  slotline_bytes_free(state);
  REFUSED("data", slotline_loader_load_state(loader, nothing, 1, E));
  REFUSED("data", slotline_loader_load_state(loader, nonsense, SIZE_MAX, E));
  GIVES(SLOTLINE_ERROR_STATE, slotline_loader_load_state(loader, nonsense, sizeof nonsense, &error));
  GIVES(SLOTLINE_ERROR_STATE, slotline_loader_load_state(loader, nothing, 0, &error));
}

static void ranks_from_env(void) {
  REFUSED("out", slotline_ranks_from_env(NULL, E));
  REFUSED_WHEN_SHORT(slotline_ranks, "out", slotline_ranks_from_env(S, E));
}

static void state_merge(void) {
  slotline_bytes *out = misaligned();
  const uint8_t *states[] = {NULL};
  const size_t lens[] = {1};
  REFUSED("states", slotline_state_merge(NULL, lens, 1, &out, E));
  CHECK(out == NULL);
  REFUSED("lens", slotline_state_merge(states, NULL, 1, &out, E));
  REFUSED("states", slotline_state_merge(states, lens, 1, &out, E));
  REFUSED("out", slotline_state_merge(states, lens, 0, NULL, E));
  GIVES(SLOTLINE_ERROR_STATE, slotline_state_merge(NULL, NULL, 0, &out, &error));
}

static void loader_stats(void) {
  slotline_stats out;
  memset(&out, 0, sizeof out);
  out.struct_size = sizeof out;
  REFUSED("loader", slotline_loader_stats(NULL, &out, E));
  REFUSED("out", slotline_loader_stats(loader, NULL, E));
  REFUSED_WHEN_SHORT(slotline_stats, "struct_size", slotline_loader_stats(loader, S, E));
}

/* Tests a function that returns a text. */
static void text(slotline_status (*function)(slotline_loader *, slotline_bytes **, slotline_error **)) {
  slotline_bytes *out = misaligned();
  REFUSED("loader", function(NULL, &out, E));
  CHECK(out == NULL);
  REFUSED("out", function(loader, NULL, E));
  OK(function(loader, &out, &error));
  CHECK(strlen((const char *)slotline_bytes_data(out)) == slotline_bytes_len(out));
  slotline_bytes_free(out);
}
static void loader_stats_json(void) { text(slotline_loader_stats_json); }
static void loader_verdict(void) { text(slotline_loader_verdict); }
static void loader_warnings(void) { text(slotline_loader_warnings); }

static void options_init(void) {
  slotline_options_init(NULL, sizeof(slotline_options));
  slotline_options_init(misaligned(), sizeof(slotline_options));
  for (size_t size = 0; size < sizeof(slotline_options); ++size) {
    unsigned char *options = malloc(size ? size : 1);
    memset(options, 0xaa, size);
    slotline_options_init((void *)options, size);
    /* Nothing beyond the size was written. */
    for (size_t i = sizeof size; i < size; ++i) CHECK(options[i] == 0xaa);
    free(options);
  }
}

/* Functions that cannot fail: they return a default for NULL. */
static void batch_user(void) { CHECK(slotline_batch_user(NULL) == NULL && slotline_batch_user(batch) == NULL); }
static void batch_len(void) { CHECK(slotline_batch_len(NULL) == 0); }
static void batch_index(void) { CHECK(slotline_batch_index(NULL) == 0); }
static void batch_device(void) { CHECK(slotline_batch_device(NULL) == -1 && slotline_batch_device(batch) == -1); }
static void batch_epoch(void) { CHECK(slotline_batch_epoch(NULL) == 0); }
static void batch_indices(void) { CHECK(slotline_batch_indices(NULL) == NULL); }
static void batch_num_fields(void) { CHECK(slotline_batch_num_fields(NULL) == 0); }
static void batch_free(void) { slotline_batch_free(NULL); }
static void bytes_data(void) { CHECK(slotline_bytes_data(NULL) == NULL); }
static void bytes_free(void) { slotline_bytes_free(NULL); }
static void bytes_len(void) { CHECK(slotline_bytes_len(NULL) == 0); }
static void dataset_len(void) { CHECK(slotline_dataset_len(NULL) == -1); }
static void dataset_free(void) { slotline_dataset_free(NULL); }
static void error_code(void) { CHECK(slotline_error_code(NULL) == SLOTLINE_OK); }
static void error_message(void) { CHECK(slotline_error_message(NULL) == NULL); }
static void error_index(void) { CHECK(slotline_error_index(NULL) == -1); }
static void error_task(void) { CHECK(slotline_error_task(NULL) == -1); }
static void error_worker(void) { CHECK(slotline_error_worker(NULL) == -1); }
static void error_new(void) {
  CHECK(slotline_error_new(SLOTLINE_OK, "none") == NULL && slotline_error_new(SLOTLINE_END, "none") == NULL);
  CHECK(slotline_error_new(-1, "none") == NULL && slotline_error_new(17, "none") == NULL);
  slotline_error *made = slotline_error_new(SLOTLINE_ERROR_INVALID, NULL);
  CHECK(slotline_error_code(made) == SLOTLINE_ERROR_INVALID && strcmp(slotline_error_message(made), "no message") == 0);
  CHECK(slotline_error_index(made) == -1 && slotline_error_payload(made, "none") == NULL);
  slotline_error_free(made);
}
static void error_payload(void) {
  CHECK(slotline_error_payload(NULL, "none") == NULL && slotline_error_payload(NULL, NULL) == NULL);
}
static void error_free(void) { slotline_error_free(NULL); }
static void loader_len(void) { CHECK(slotline_loader_len(NULL) == -1); }
static void loader_batch_size(void) { CHECK(slotline_loader_batch_size(NULL) == 0); }
static void loader_depth(void) { CHECK(slotline_loader_depth(NULL) == 0); }
static void loader_memory_ceiling(void) { CHECK(slotline_loader_memory_ceiling(NULL) == 0); }
static void loader_next_epoch(void) { CHECK(slotline_loader_next_epoch(NULL) == 0); }
static void loader_is_ready(void) { CHECK(slotline_loader_is_ready(NULL) == 0); }
static void loader_stop(void) { slotline_loader_stop(NULL); }
static void manual_seed(void) { slotline_manual_seed(UINT64_MAX); }
/* This process is not a worker, so the function returns immediately. */
static void work_if_spawned(void) { slotline_work_if_spawned(NULL, NULL); }
static void dataset_clone(void) {
  CHECK(slotline_dataset_clone(NULL) == NULL);
  slotline_dataset *clone = slotline_dataset_clone(dataset);
  CHECK(clone && clone != dataset && slotline_dataset_len(clone) == slotline_dataset_len(dataset));
  slotline_dataset_free(clone);
}
static void loader_free(void) { slotline_loader_free(NULL); }

static void sampler_mixture(void) {
  slotline_sampler *out = sampler;
  const size_t lens[] = {2, 3};
  const double weights[] = {1, 1, -1, 1}, different[] = {1, 1, 9, 1};
  slotline_mixture mixture = {.struct_size = sizeof mixture, .lens = lens, .num_datasets = 2};
  REFUSED("mixture", slotline_sampler_mixture(NULL, &out, E));
  CHECK(out == NULL);
  REFUSED("out", slotline_sampler_mixture(&mixture, NULL, E));
  REFUSED_WHEN_SHORT(slotline_mixture, "struct_size", slotline_sampler_mixture(S, &out, E));
#define REFUSED_MIXTURE(word, change)                            \
  do {                                                           \
    slotline_mixture mixture = {.struct_size = sizeof mixture, .lens = lens, .num_datasets = 2}; \
    change;                                                      \
    REFUSED(word, slotline_sampler_mixture(&mixture, &out, E));  \
  } while (0)
  REFUSED_MIXTURE("lens", mixture.lens = NULL);
  REFUSED_MIXTURE("lens", mixture.num_datasets = SIZE_MAX / 8);
  REFUSED_MIXTURE("weights", mixture.num_datasets = 0);
  REFUSED_MIXTURE("weight 0 is -1", mixture.weights = weights + 2);
  REFUSED_MIXTURE("weights", (mixture.weights = weights, mixture.num_epochs = SIZE_MAX));
  REFUSED_MIXTURE("passes have", (mixture.weights = different, mixture.num_epochs = 2));
  REFUSED_MIXTURE("stop is 3", mixture.stop = 3);
  REFUSED_MIXTURE("even is 2", mixture.even = 2);
  REFUSED_MIXTURE("shuffle is 2", mixture.shuffle = 2);
  REFUSED_MIXTURE("later version", mixture.reserved[1] = 1);
}

static void batch_sampler_by_length(void) {
  slotline_batch_sampler *out = NULL;
  const size_t lengths[] = {2, 3}, down[] = {3, 2}, batch_sizes[] = {1, 0, 1};
  slotline_length_batches batches = {.struct_size = sizeof batches, .lengths = lengths, .num_lengths = 2, .max_tokens = 3};
  REFUSED("batches", slotline_batch_sampler_by_length(NULL, &out, E));
  REFUSED("out", slotline_batch_sampler_by_length(&batches, NULL, E));
  REFUSED_WHEN_SHORT(slotline_length_batches, "struct_size", slotline_batch_sampler_by_length(S, &out, E));
#define REFUSED_BATCHES(word, change)                                        \
  do {                                                                       \
    slotline_length_batches batches = {.struct_size = sizeof batches, .lengths = lengths, .num_lengths = 2, .max_tokens = 3}; \
    change;                                                                  \
    REFUSED(word, slotline_batch_sampler_by_length(&batches, &out, E));      \
  } while (0)
  REFUSED_BATCHES("lengths", batches.lengths = NULL);
  REFUSED_BATCHES("has 3 tokens, but max_tokens is 2", batches.max_tokens = 2);
  REFUSED_BATCHES("batch_sizes", batches.max_tokens = 0);
  REFUSED_BATCHES("boundaries", (batches.max_tokens = 0, batches.num_boundaries = 2, batches.batch_sizes = batch_sizes));
  REFUSED_BATCHES("ascend", (batches.max_tokens = 0, batches.num_boundaries = 2, batches.batch_sizes = batch_sizes,
                             batches.boundaries = down));
  REFUSED_BATCHES("batch_size", (batches.max_tokens = 0, batches.num_boundaries = 2, batches.batch_sizes = batch_sizes,
                                 batches.boundaries = lengths));
  REFUSED_BATCHES("padded is 2", batches.padded = 2);
  REFUSED_BATCHES("shuffle is 2", batches.shuffle = 2);
  REFUSED_BATCHES("drop_last is 2", batches.drop_last = 2);
  REFUSED_BATCHES("later version", batches.reserved[4] = 1);
}

static void dataset_pack(void) {
  slotline_dataset *out = dataset;
  const size_t lengths[1797] = {0};
  const int64_t padding[] = {0};
  slotline_packing packing = {.struct_size = sizeof packing, .capacity = 3, .lengths = lengths, .num_lengths = 1797};
  REFUSED("dataset", slotline_dataset_pack(NULL, &packing, &out, E));
  CHECK(out == NULL);
  REFUSED("packing", slotline_dataset_pack(dataset, NULL, &out, E));
  REFUSED("out", slotline_dataset_pack(dataset, &packing, NULL, E));
  REFUSED_WHEN_SHORT(slotline_packing, "struct_size", slotline_dataset_pack(dataset, S, &out, E));
#define REFUSED_PACKING(word, change)                                                                             \
  do {                                                                                                            \
    slotline_packing packing = {                                                                                  \
        .struct_size = sizeof packing, .capacity = 3, .lengths = lengths, .num_lengths = 1797, .padding = padding}; \
    change;                                                                                                       \
    REFUSED(word, slotline_dataset_pack(dataset, &packing, &out, E));                                             \
  } while (0)
  REFUSED_PACKING("is no sequence", packing.num_padding = 1);
  REFUSED_PACKING("lengths", packing.lengths = NULL);
  REFUSED_PACKING("padding", (packing.padding = NULL, packing.num_padding = 1));
  REFUSED_PACKING("capacity is 0", packing.capacity = 0);
  REFUSED_PACKING("has_seed is 2", packing.has_seed = 2);
  REFUSED_PACKING("chunks is 2", packing.chunks = 2);
  REFUSED_PACKING("drop_last is 2", packing.drop_last = 2);
  REFUSED_PACKING("refuse_long is 2", packing.refuse_long = 2);
  REFUSED_PACKING("later version", packing.reserved[0] = 1);
}

/* Functions without parameters. */
static void abi_version(void) { CHECK(slotline_abi_version() == SLOTLINE_ABI_VERSION); }
static void version(void) { CHECK(strchr(slotline_version(), '.')); }

#define ROW(name) {"slotline_" #name, name}
static const struct {
  const char *name;
  void (*refusals)(void);
} rows[] = {
    ROW(abi_version), ROW(batch_device), ROW(batch_dlpack), ROW(batch_dlpack_unversioned), ROW(batch_epoch), ROW(batch_field),
    ROW(batch_field_by_name), ROW(batch_free), ROW(batch_indices), ROW(batch_len), ROW(batch_num_fields),
    ROW(batch_sampler_free), ROW(batch_sampler_from_callback), ROW(batch_sampler_lists), ROW(batch_sampler_of),
    ROW(batch_index), ROW(batch_user), ROW(bytes_data), ROW(bytes_free), ROW(bytes_len), ROW(dataset_free),
    ROW(dataset_from_arrays), ROW(dataset_from_callbacks), ROW(dataset_from_stream), ROW(dataset_len),
    ROW(dataset_open), ROW(dataset_open_with), ROW(error_code), ROW(error_free), ROW(error_index), ROW(error_message), ROW(error_new), ROW(error_payload), ROW(error_task),
    ROW(error_worker), ROW(fail), ROW(fail_with), ROW(loader_batch_size), ROW(loader_depth), ROW(loader_epoch), ROW(loader_free),
    ROW(loader_len), ROW(loader_load_state), ROW(loader_memory_ceiling), ROW(loader_new), ROW(loader_next),
    ROW(loader_is_ready), ROW(loader_next_epoch), ROW(loader_next_within), ROW(loader_state), ROW(loader_stats), ROW(loader_stats_json), ROW(loader_stop), ROW(manual_seed),
    ROW(loader_verdict), ROW(loader_warnings), ROW(options_init), ROW(sample_epoch), ROW(sample_fail), ROW(sample_fail_with),
    ROW(sample_position), ROW(sample_random), ROW(sample_mask), ROW(sample_row), ROW(sample_is_stopping), ROW(sample_stop_fd), ROW(sample_worker), ROW(sample_write),
    ROW(sampler_feistel), ROW(sampler_distributed), ROW(sampler_free), ROW(sampler_from_callback),
    ROW(sampler_indices), ROW(sampler_random), ROW(sampler_seed), ROW(sampler_set_epoch), ROW(sampler_subset_random),
    ROW(sampler_weighted), ROW(samples_left), ROW(samples_next), ROW(saved_append), ROW(version),
    ROW(work_if_spawned), ROW(dataset_chain), ROW(dataset_clone), ROW(dataset_concat), ROW(dataset_map), ROW(dataset_random_split),
    ROW(dataset_random_split_fractions), ROW(dataset_read), ROW(dataset_stack), ROW(dataset_subset), ROW(generator_free),
    ROW(generator_new), ROW(sample_sink_put), ROW(ranks_from_env), ROW(sampler_generator), ROW(state_merge),
    ROW(dataset_pack), ROW(sampler_mixture), ROW(batch_sampler_by_length),
};

int main(void) {
  const slotline_options options = options_of(64, 1);
  OK(slotline_dataset_open("digits", &dataset, &error));
  OK(slotline_sampler_indices(indices, 3, &sampler, &error));
  loader = digits(&options);
  OK(slotline_loader_epoch(loader, &error));
  OK(slotline_loader_next(loader, &batch, &error));
  for (size_t i = 0; i < sizeof rows / sizeof *rows; ++i) {
    rows[i].refusals();
    puts(rows[i].name);
  }
  /* None of these calls has changed the loader. */
  CHECK(slotline_batch_len(batch) == 64);
  slotline_batch_free(batch);
  OK(slotline_loader_next(loader, &batch, &error));
  CHECK(slotline_batch_index(batch) == 1 && slotline_dataset_len(dataset) == 1797);
  slotline_batch_free(batch);
  slotline_loader_free(loader);
  slotline_dataset_free(dataset);
  slotline_sampler_free(sampler);
  return 0;
}
