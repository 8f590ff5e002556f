/* Tests how long `slotline_loader_free` and `slotline_loader_next_within` wait for a callback, and the
 * warning about threads that are still in callbacks after that time. */
#define _POSIX_C_SOURCE 200809L

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "proof.h"

/* The state that the callbacks of one loader share. Sample 1 waits until `may_go_on` is set. */
struct state {
  atomic_int waits, may_go_on, done, drops, listener_drops, left_behind, others;
};

static void nap(long milliseconds) {
  const struct timespec time = {milliseconds / 1000, milliseconds % 1000 * 1000000};
  nanosleep(&time, NULL);
}

/* Waits until another thread has set a number to a value, for at most a minute. */
static void await(atomic_int *number, int value) {
  for (int i = 0; i < 60000 && atomic_load(number) != value; ++i) nap(1);
  CHECK(atomic_load(number) == value);
}

static int32_t read(void *user, size_t index, slotline_sample *sample) {
  struct state *state = user;
  if (index == 1) {
    atomic_store(&state->waits, 1);
    await(&state->may_go_on, 1);
    atomic_store(&state->done, 1);
  }
  const int64_t number = (int64_t)index;
  return slotline_sample_write(sample, 0, &number, 1) == SLOTLINE_OK ? 0 : -1;
}

static void drop(void *user) { atomic_fetch_add(&((struct state *)user)->drops, 1); }

static void listen(void *user, const slotline_warning *warning) {
  struct state *state = user;
  CHECK(warning->struct_size == sizeof *warning && warning->reserved == 0 && warning->seconds == 0);
  if (warning->kind == SLOTLINE_WARNING_LEFT_BEHIND) {
    CHECK(strstr(warning->message, "close_timeout") != NULL && warning->index == -1);
    atomic_fetch_add(&state->left_behind, 1);
  } else {
    atomic_fetch_add(&state->others, 1);
  }
}

static void drop_listener(void *user) { atomic_fetch_add(&((struct state *)user)->listener_drops, 1); }

/* Creates a loader, and waits until its worker is reading sample 1. */
static slotline_loader *busy_loader(struct state *state, uint64_t close_timeout_ms) {
  const slotline_field field = {sizeof field, "number", SLOTLINE_I64, SLOTLINE_FIXED, 0, NULL, NULL, 0};
  const slotline_map_dataset callbacks = {.struct_size = sizeof callbacks, .user = state, .len = 2, .fields = &field,
                                         .num_fields = 1, .read = read, .drop = drop};
  slotline_options options = options_of(1, 1);
  options.help = 0;
  options.close_timeout_ms = close_timeout_ms;
  options.on_warning = listen;
  options.on_warning_user = state;
  options.on_warning_drop = drop_listener;
  slotline_dataset *dataset = NULL;
  slotline_loader *loader = NULL;
  slotline_batch *batch = NULL;
  OK(slotline_dataset_from_callbacks(&callbacks, &dataset, &error));
  OK(slotline_loader_new(dataset, &options, &loader, &error));
  slotline_dataset_free(dataset);
  OK(slotline_loader_epoch(loader, &error));
  OK(slotline_loader_next(loader, &batch, &error));
  slotline_batch_free(batch);
  await(&state->waits, 1);
  return loader;
}

static double seconds(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void a_worker_that_does_not_return_is_left_behind(void) {
  struct state state = {0};
  slotline_loader *loader = busy_loader(&state, 50);
  const double start = seconds();
  slotline_loader_free(loader);
  CHECK(seconds() - start >= 0.05 && !atomic_load(&state.done));
  CHECK(atomic_load(&state.left_behind) == 1 && atomic_load(&state.others) == 0);
  /* The worker keeps the user's objects until it leaves the callback. */
  CHECK(atomic_load(&state.drops) == 0);
  atomic_store(&state.may_go_on, 1);
  await(&state.drops, 1);
  await(&state.listener_drops, 1);
  CHECK(atomic_load(&state.done) && atomic_load(&state.left_behind) == 1);
}

static void *go_on_later(void *user) {
  nap(200);
  atomic_store(&((struct state *)user)->may_go_on, 1);
  return NULL;
}

static void a_loader_can_wait_for_ever(void) {
  struct state state = {0};
  slotline_loader *loader = busy_loader(&state, UINT64_MAX);
  pthread_t other;
  CHECK(pthread_create(&other, NULL, go_on_later, &state) == 0);
  slotline_loader_free(loader);
  /* No callback is running. */
  CHECK(atomic_load(&state.done) && atomic_load(&state.drops) == 1 && atomic_load(&state.listener_drops) == 1);
  CHECK(atomic_load(&state.left_behind) == 0 && atomic_load(&state.others) == 0);
  pthread_join(other, NULL);
}

static void the_next_batch_is_awaited_for_a_limited_time(void) {
  struct state state = {0};
  slotline_loader *loader = busy_loader(&state, UINT64_MAX);
  slotline_batch *batch = NULL;
  const double start = seconds();
  CHECK(!slotline_loader_is_ready(loader));
  for (uint64_t patience = 0; patience <= 50; patience += 50)
    GIVES(SLOTLINE_ERROR_TIMEOUT, slotline_loader_next_within(loader, patience, &batch, &error));
  CHECK(batch == NULL && seconds() - start >= 0.05);
  atomic_store(&state.may_go_on, 1);
  for (int i = 0; i < 60000 && !slotline_loader_is_ready(loader); ++i) nap(1);
  OK(slotline_loader_next_within(loader, 0, &batch, &error));
  CHECK(slotline_batch_index(batch) == 1);
  slotline_batch_free(batch);
  GIVES(SLOTLINE_END, slotline_loader_next_within(loader, 60000, &batch, &error));
  CHECK(batch == NULL && slotline_loader_is_ready(loader));
  slotline_loader_free(loader);
}

int main(void) {
  the_next_batch_is_awaited_for_a_limited_time();
  a_worker_that_does_not_return_is_left_behind();
  a_loader_can_wait_for_ever();
  puts("ok");
  return 0;
}
