/* Tests worker processes that a command starts: this program again, with its task and a folder as
 * arguments. The test itself is started with "test" and the folder, which is empty. */

#define _POSIX_C_SOURCE 200809L

#include "proof.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

static const char *task, *folder;

static int is(const char *name) { return strcmp(task, name) == 0; }

static void path_of(const char *name, char *path, size_t size) {
  const int written = snprintf(path, size, "%s/%s", folder, name);
  CHECK(written > 0 && (size_t)written < size);
}

/* Creates a file in the folder unless it exists, and returns whether it is new. */
static int is_first(const char *name) {
  char path[4096];
  path_of(name, path, sizeof path);
  const int file = open(path, O_CREAT | O_EXCL | O_WRONLY, 0600);
  if (file >= 0) close(file);
  return file >= 0;
}

static int exists(const char *name) {
  char path[4096];
  path_of(name, path, sizeof path);
  return access(path, F_OK) == 0;
}

static uint64_t add(uint64_t digest, const void *bytes, size_t size) {
  const uint8_t *each = bytes;
  for (size_t i = 0; i < size; ++i) digest = (digest ^ each[i]) * 0x100000001b3u;
  return digest;
}

/* Writes a number that depends on all bytes of the setup, and a random one. */
static int32_t read_pair(void *user, size_t index, slotline_sample *sample) {
  char name[32];
  snprintf(name, sizeof name, "killed-%zu", index);
  if (is("dies") && index % 7 == 3 && is_first(name)) raise(SIGKILL);
  if (is("hangs") && index == 5)
    for (;;) pause();
  const uint64_t pair[] = {*(const uint64_t *)user + index, slotline_sample_random(sample)};
  return slotline_sample_write(sample, 0, pair, 2);
}

static void dropped(void *user) {
  free(user);
  if (is("longer")) is_first("dropped");
}

static int64_t pair_shape[] = {2};

static slotline_field pair_field(void) {
  slotline_field field;
  memset(&field, 0, sizeof field);
  field.struct_size = sizeof field;
  field.name = is("other") ? "couple" : "pair";
  field.dtype = SLOTLINE_U64;
  field.ndim = 1;
  field.shape = pair_shape;
  return field;
}

/* Creates a dataset of 40 pairs. */
static slotline_status pairs(const void *setup, size_t len, slotline_dataset **out, slotline_error **error) {
  uint64_t *digest = malloc(sizeof *digest);
  CHECK(digest);
  *digest = add(add(0xcbf29ce484222325u, setup, len), &len, sizeof len);
  const slotline_field field = pair_field();
  slotline_map_dataset map;
  memset(&map, 0, sizeof map);
  map.struct_size = sizeof map;
  map.user = digest;
  map.len = is("longer") ? 41 : 40;
  map.fields = &field;
  map.num_fields = 1;
  map.read = read_pair;
  map.drop = dropped;
  return slotline_dataset_from_callbacks(&map, out, error);
}

static int32_t open_nothing(void *user, const slotline_worker *worker, void **cursor, slotline_failure *failure) {
  (void)user, (void)worker, (void)failure;
  *cursor = NULL;
  return 0;
}
static int32_t next_nothing(void *user, void *cursor, slotline_sample *sample) {
  (void)user, (void)cursor, (void)sample;
  return 1;
}
static void close_nothing(void *user, void *cursor) { (void)user, (void)cursor; }

/* Creates a stream without samples. */
static slotline_status stream(slotline_dataset **out, slotline_error **error) {
  const slotline_field field = pair_field();
  slotline_stream_dataset stream;
  memset(&stream, 0, sizeof stream);
  stream.struct_size = sizeof stream;
  stream.len = -1;
  stream.fields = &field;
  stream.num_fields = 1;
  stream.open = open_nothing;
  stream.next = next_nothing;
  stream.close = close_nothing;
  return slotline_dataset_from_stream(&stream, out, error);
}

static int32_t make(void *user, const uint8_t *setup, size_t len, slotline_dataset **out, slotline_failure *failure) {
  CHECK(user == &task);
  if (is("fails")) {
    slotline_fail(failure, "the file is missing");
    return 1;
  }
  if (is("fails silently")) return 7;
  if (is("makes nothing")) return 0;
  if (is("aborts")) abort();
  slotline_error *error = NULL;
  const slotline_status status = is("streams")  ? stream(out, &error)
                                 : is("digits") ? slotline_dataset_open("digits", out, &error)
                                                : pairs(setup, len, out, &error);
  if (status == SLOTLINE_OK) return 0;
  slotline_fail(failure, slotline_error_message(error));
  slotline_error_free(error);
  return 1;
}

static const char *command[4];

/* Returns options for batches of 4 in random order, made by two workers that are started with the
 * task `what`. */
static slotline_options doing(const char *what) {
  slotline_options options = options_of(4, 2);
  options.shuffle = options.has_seed = 1;
  options.seed = 7;
  options.processes = 1;
  command[0] = "/proc/self/exe";
  command[1] = what;
  command[2] = folder;
  command[3] = NULL;
  options.spawn = command;
  return options;
}

/* Creates a loader of the same dataset as the workers'. */
static slotline_loader *loader_of(const slotline_options *options, const void *setup, size_t len) {
  slotline_dataset *dataset = NULL;
  slotline_loader *loader = NULL;
  if (strcmp(command[1], "digits") == 0) return digits(options);
  OK(pairs(setup, len, &dataset, &error));
  OK(slotline_loader_new(dataset, options, &loader, &error));
  slotline_dataset_free(dataset);
  return loader;
}

/* Returns a digest of the batches of two passes, and frees the loader. */
static uint64_t two_passes(slotline_loader *loader) {
  uint64_t digest = 1;
  size_t samples = 0;
  for (int pass = 0; pass < 2; ++pass) {
    OK(slotline_loader_epoch(loader, &error));
    for (;;) {
      slotline_batch *batch = NULL;
      slotline_error *error = NULL;
      const slotline_status status = slotline_loader_next(loader, &batch, &error);
      if (status == SLOTLINE_END) break;
      if (status != SLOTLINE_OK) fprintf(stderr, "%s\n", slotline_error_message(error));
      CHECK(status == SLOTLINE_OK);
      const slotline_tensor tensor = field(batch, 0);
      samples += slotline_batch_len(batch);
      digest = add(digest, slotline_batch_indices(batch), slotline_batch_len(batch) * sizeof(int64_t));
      digest = add(digest, tensor.data, tensor.bytes);
      slotline_batch_free(batch);
    }
  }
  CHECK(samples == 2 * 40 || samples == 2 * 1797);
  slotline_loader_free(loader);
  return digest;
}

/* Returns the digest of two passes with worker threads instead. */
static uint64_t of_threads(slotline_options options, const void *setup, size_t len) {
  options.processes = 0;
  options.restart_workers = 0;
  options.spawn_setup_len = 0;
  options.spawn = NULL;
  return two_passes(loader_of(&options, setup, len));
}

static void spawned_workers_give_the_batches_of_threads(void) {
  slotline_options options = doing("works");
  CHECK(two_passes(loader_of(&options, "", 0)) == of_threads(options, "", 0));
  options = doing("digits");
  CHECK(two_passes(loader_of(&options, "", 0)) == of_threads(options, "", 0));
}

static void workers_are_told_any_bytes(void) {
  const size_t sizes[] = {0, 1, 1000, 1000000};
  uint8_t *setup = malloc(1000000);
  CHECK(setup);
  for (size_t i = 0; i < 1000000; ++i) setup[i] = (uint8_t)(i % 251);
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; ++i) {
    slotline_options options = doing("works");
    options.spawn_setup = setup;
    options.spawn_setup_len = sizes[i];
    slotline_loader *loader = loader_of(&options, setup, sizes[i]);
    /* The loader has copied the setup, so this change has no effect. */
    if (sizes[i]) setup[0] = 99;
    const uint64_t told = two_passes(loader);
    setup[0] = 0;
    CHECK(told == of_threads(options, setup, sizes[i]));
    CHECK(told != of_threads(options, setup, sizes[i] ? sizes[i] - 1 : 1));
  }
  free(setup);
}

static void nobody_can_tell_that_a_worker_was_killed_and_replaced(void) {
  slotline_options options = doing("dies");
  options.restart_workers = 6;
  CHECK(two_passes(loader_of(&options, "", 0)) == of_threads(options, "", 0));
  CHECK(exists("killed-3") && exists("killed-38"));
}

/* Checks that workers with this task do not start, for a reason that contains `words`. */
static void refused(const char *what, const char *words) {
  slotline_options options = doing(what);
  options.restart_workers = SIZE_MAX;
  slotline_loader *loader = loader_of(&options, "", 0);
  slotline_error *error = NULL;
  slotline_batch *batch = NULL;
  slotline_status status = slotline_loader_epoch(loader, &error);
  while (status == SLOTLINE_OK && (status = slotline_loader_next(loader, &batch, &error)) == SLOTLINE_OK)
    slotline_batch_free(batch);
  const char *message = error ? slotline_error_message(error) : "no error";
  if (status != SLOTLINE_ERROR_WORKER_DIED || !strstr(message, words)) {
    fprintf(stderr, "a worker that %s: %d, not \"%s\": %s\n", what, (int)status, words, message);
    exit(1);
  }
  slotline_error_free(error);
  slotline_loader_free(loader);
}

static void workers_that_cannot_work_say_why(void) {
  CHECK(!exists("dropped"));
  refused("longer", "could not start: its dataset has 41 samples, and the loader's has 40; make the same one");
  CHECK(exists("dropped"));
  refused("other", "its dataset has the fields (couple: u64 [2]), and the loader's has (pair: u64 [2])");
  refused("fails", "could not start: the file is missing");
  refused("fails silently", "could not start: make returned 7");
  refused("makes nothing", "could not start: make returned 0, but no dataset in *out");
  refused("streams", "could not start: its dataset is a stream");
  refused("has no function", "could not start: make is NULL");
  refused("aborts", "signal 6");
  refused("ends", "exit code 0 before it began to work; its main must call");
  refused("forgets", "exit code 77 before it began to work; its main must call");
}

static void a_sample_that_takes_too_long_is_an_error(void) {
  slotline_options options = doing("hangs");
  options.shuffle = 0;
  options.sample_timeout_ms = 1000;
  slotline_loader *loader = loader_of(&options, "", 0);
  OK(slotline_loader_epoch(loader, &error));
  for (size_t task = 0; task < 10; ++task) {
    slotline_batch *batch = NULL;
    slotline_error *error = NULL;
    const slotline_status status = slotline_loader_next(loader, &batch, &error);
    CHECK(status == (task == 1 ? SLOTLINE_ERROR_SAMPLE : SLOTLINE_OK));
    CHECK(task != 1 || slotline_error_index(error) == 5);
    slotline_batch_free(batch);
    slotline_error_free(error);
  }
  GIVES(SLOTLINE_END, slotline_loader_next(loader, &(slotline_batch *){NULL}, &error));
  slotline_loader_free(loader);
}

/* Checks that the options are rejected, for a reason that contains `words`. */
static void clash(const slotline_options *options, const char *words) {
  slotline_dataset *dataset = NULL;
  slotline_loader *loader = NULL;
  slotline_error *error = NULL;
  OK(pairs("", 0, &dataset, &error));
  const slotline_status status = slotline_loader_new(dataset, options, &loader, &error);
  const char *message = error ? slotline_error_message(error) : "no error";
  if (status != SLOTLINE_ERROR_BUILD || loader || !strstr(message, words)) {
    fprintf(stderr, "%d, not \"%s\": %s\n", (int)status, words, message);
    exit(1);
  }
  slotline_error_free(error);
  slotline_dataset_free(dataset);
}

static int32_t init(void *user, const slotline_worker *worker, slotline_failure *failure) {
  (void)user, (void)worker, (void)failure;
  return 0;
}

static void what_does_not_work_with_a_command_is_refused(void) {
  slotline_options options = doing("works");
  options.worker_init = init;
  clash(&options, "spawn and worker_init exclude each other");
  options = doing("works");
  options.round_robin = 1;
  clash(&options, "spawn and round_robin exclude each other");
  options = doing("works");
  command[0] = "/nowhere/program";
  clash(&options, "could not be started by /nowhere/program: No such file");

  slotline_dataset *dataset = NULL;
  slotline_loader *loader = NULL;
  options = doing("works");
  OK(stream(&dataset, &error));
  GIVES(SLOTLINE_ERROR_BUILD, slotline_loader_new(dataset, &options, &loader, &error));
  slotline_dataset_free(dataset);
}

int main(int argc, char **argv) {
  CHECK(argc == 3);
  task = argv[1];
  folder = argv[2];
  if (is("ends")) return 0;
  if (is("forgets")) {
    /* This program does not call slotline_work_if_spawned, and must not start copies of itself
     * endlessly. */
    const slotline_options options = doing("forgets");
    clash(&options, "call loader::work_if_spawned first in main");
    return 77;
  }
  slotline_work_if_spawned(is("has no function") ? NULL : make, &task);
  CHECK(is("test"));
  spawned_workers_give_the_batches_of_threads();
  workers_are_told_any_bytes();
  nobody_can_tell_that_a_worker_was_killed_and_replaced();
  workers_that_cannot_work_say_why();
  a_sample_that_takes_too_long_is_an_error();
  what_does_not_work_with_a_command_is_refused();
  puts("ok");
  return 0;
}
