/* Shares loaders and batches between threads: several threads do everything that the header allows
 * any thread to do. Meant for ThreadSanitizer, with a library that is built for it. */

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "proof.h"
#include "tensors.h"

enum { SAMPLES = 1797, IMAGE = 64 };

static pthread_t start(void *(*body)(void *), void *with) {
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, body, with) == 0);
  return thread;
}

/* Waits until another thread has set a flag. */
static void await(atomic_int *word, int value) {
  while (atomic_load(word) != value) sched_yield();
}

/* Returns the sum of all bytes of the images and of all labels. */
static int64_t sum_of(const slotline_batch *batch) {
  const slotline_tensor images = field(batch, 0), labels = field(batch, 1);
  int64_t sum = 0;
  CHECK(images.bytes == slotline_batch_len(batch) * IMAGE && (size_t)labels.shape[0] == slotline_batch_len(batch));
  for (size_t i = 0; i < images.bytes; ++i) sum += ((const uint8_t *)images.data)[i];
  for (int64_t i = 0; i < labels.shape[0]; ++i) sum += ((const int64_t *)labels.data)[i];
  return sum;
}

/* A queue of batches from the thread that loads to the threads that read and free them. */
static struct {
  pthread_mutex_t lock;
  pthread_cond_t changed;
  slotline_batch *batches[2];
  size_t len;
  int finished;
  int64_t sum;
} queue = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void *read_and_free(void *nothing) {
  (void)nothing;
  pthread_mutex_lock(&queue.lock);
  for (;;) {
    while (queue.len == 0 && !queue.finished) pthread_cond_wait(&queue.changed, &queue.lock);
    if (queue.len == 0) break;
    slotline_batch *batch = queue.batches[--queue.len];
    pthread_cond_broadcast(&queue.changed);
    pthread_mutex_unlock(&queue.lock);
    const int64_t sum = sum_of(batch);
    slotline_batch_free(batch);
    pthread_mutex_lock(&queue.lock);
    queue.sum += sum;
  }
  pthread_mutex_unlock(&queue.lock);
  return NULL;
}

/* Returns the sum of a pass whose batches other threads read and free, out of order. */
static int64_t sum_in_other_threads(slotline_loader *loader) {
  queue.finished = 0, queue.sum = 0;
  pthread_t readers[2] = {start(read_and_free, NULL), start(read_and_free, NULL)};
  OK(slotline_loader_epoch(loader, &error));
  for (size_t left = SAMPLES; left > 0;) {
    slotline_batch *batch = NULL;
    OK(slotline_loader_next(loader, &batch, &error));
    left -= slotline_batch_len(batch);
    pthread_mutex_lock(&queue.lock);
    while (queue.len == 2) pthread_cond_wait(&queue.changed, &queue.lock);
    queue.batches[queue.len++] = batch;
    pthread_cond_broadcast(&queue.changed);
    pthread_mutex_unlock(&queue.lock);
  }
  pthread_mutex_lock(&queue.lock);
  queue.finished = 1;
  pthread_cond_broadcast(&queue.changed);
  pthread_mutex_unlock(&queue.lock);
  for (int i = 0; i < 2; ++i) CHECK(pthread_join(readers[i], NULL) == 0);
  return queue.sum;
}

static void batches_are_read_and_freed_by_any_thread(void) {
  int64_t sums[3] = {0, 0, 0};
  for (size_t workers = 0; workers <= 2; ++workers) {
    slotline_options options = options_of(16, workers);
    options.shuffle = 1;
    options.on_held = SLOTLINE_ON_HELD_WAIT;
    options.hold = 4;
    slotline_loader *loader = digits(&options);
    for (int epoch = 0; epoch < 2; ++epoch) sums[workers] += sum_in_other_threads(loader);
    slotline_loader_free(loader);
  }
  CHECK(sums[0] > 0 && sums[0] == sums[1] && sums[1] == sums[2]);
}

static void *pass_in_a_thread(void *loader) {
  OK(slotline_loader_epoch(loader, &error));
  for (size_t left = SAMPLES; left > 0;) {
    slotline_batch *batch = NULL;
    OK(slotline_loader_next(loader, &batch, &error));
    left -= slotline_batch_len(batch);
    CHECK(sum_of(batch) > 0);
    slotline_batch_free(batch);
  }
  return NULL;
}

static void each_pass_can_use_another_thread(void) {
  const slotline_options options = options_of(64, 2);
  slotline_loader *loader = digits(&options);
  for (int epoch = 0; epoch < 3; ++epoch) CHECK(pthread_join(start(pass_in_a_thread, loader), NULL) == 0);
  slotline_loader_free(loader);
}

struct shared {
  slotline_batch *batch;
  struct DLManagedTensorVersioned *tensor;
  int64_t sum;
};

static void *read_and_delete(void *of) {
  struct shared *shared = of;
  if (shared->batch) CHECK(sum_of(shared->batch) == shared->sum);
  slotline_batch_free(shared->batch);
  const DLTensor *images = &shared->tensor->dl_tensor;
  for (int64_t i = 0; i < images->shape[0] * IMAGE; ++i) CHECK(((const uint8_t *)images->data)[i] <= 16);
  shared->tensor->deleter(shared->tensor);
  return NULL;
}

static void tensors_can_be_deleted_in_any_thread(void) {
  slotline_options options = options_of(16, 1);
  options.on_held = SLOTLINE_ON_HELD_WAIT;
  slotline_loader *loader = digits(&options);
  OK(slotline_loader_epoch(loader, &error));
  for (int round = 0; round < 20; ++round) {
    slotline_batch *batch = NULL;
    OK(slotline_loader_next(loader, &batch, &error));
    struct shared shared[3] = {{batch, NULL, sum_of(batch)}, {NULL, NULL, 0}, {NULL, NULL, 0}};
    pthread_t threads[3];
    for (int i = 0; i < 3; ++i) OK(slotline_batch_dlpack(batch, 0, NULL, &shared[i].tensor, &error));
    for (int i = 0; i < 3; ++i) threads[i] = start(read_and_delete, &shared[i]);
    for (int i = 0; i < 3; ++i) CHECK(pthread_join(threads[i], NULL) == 0);
  }
  slotline_loader_free(loader);
}

/* The state of a thread that waits in `slotline_loader_next` until a batch is freed. */
struct waiting {
  slotline_loader *loader;
  slotline_status gave;
  slotline_batch *batch;
  slotline_error *error;
};

static void *wait_in_next(void *of) {
  struct waiting *waiting = of;
  /* The call is rejected while the other thread checks whether the loader is in use. */
  do {
    slotline_error_free(waiting->error);
    waiting->gave = slotline_loader_next(waiting->loader, &waiting->batch, &waiting->error);
  } while (waiting->gave == SLOTLINE_ERROR_INVALID);
  return NULL;
}

/* Takes batches until a call for the next one would wait for a free batch, starts a thread that makes this call, and
 * returns that thread. */
static pthread_t fill(struct waiting *waiting, slotline_batch **held, size_t *len, size_t workers) {
  slotline_options options = options_of(16, workers);
  options.on_held = SLOTLINE_ON_HELD_WAIT;
  /* These options give memory for an even number of batches, which is not rounded up. */
  if (workers > 0) options.prefetch_factor = options.hold = 2;
  memset(waiting, 0, sizeof *waiting);
  waiting->loader = digits(&options);
  OK(slotline_loader_epoch(waiting->loader, &error));
  *len = options.hold + 1;
  for (size_t i = 0; i < *len; ++i) OK(slotline_loader_next(waiting->loader, &held[i], &error));
  const pthread_t thread = start(wait_in_next, waiting);
  /* slotline_loader_next_epoch returns 0 while another call uses the loader, and 1 otherwise. */
  while (slotline_loader_next_epoch(waiting->loader) != 0) sched_yield();
  return thread;
}

static void stop_ends_a_wait(size_t workers) {
  struct waiting waiting;
  slotline_batch *held[100];
  size_t len;
  const pthread_t thread = fill(&waiting, held, &len, workers);
  slotline_loader_stop(waiting.loader);
  CHECK(pthread_join(thread, NULL) == 0);
  CHECK(waiting.gave == SLOTLINE_ERROR_STOPPED && waiting.batch == NULL);
  CHECK(slotline_error_code(waiting.error) == SLOTLINE_ERROR_STOPPED);
  slotline_error_free(waiting.error);
  slotline_loader_stop(waiting.loader);
  slotline_batch *batch = NULL;
  GIVES(SLOTLINE_ERROR_STOPPED, slotline_loader_next(waiting.loader, &batch, &error));
  GIVES(SLOTLINE_ERROR_STOPPED, slotline_loader_epoch(waiting.loader, &error));
  /* Batches that were taken stay valid. */
  slotline_loader_free(waiting.loader);
  for (size_t i = 0; i < len; ++i) {
    CHECK(sum_of(held[i]) > 0);
    slotline_batch_free(held[i]);
  }
}

static void a_loader_in_use_can_be_freed(size_t workers) {
  struct waiting waiting;
  slotline_batch *held[100], *batch = NULL;
  size_t len;
  const pthread_t thread = fill(&waiting, held, &len, workers);
  GIVES(SLOTLINE_ERROR_INVALID, slotline_loader_next(waiting.loader, &batch, &error));
  GIVES(SLOTLINE_ERROR_INVALID, slotline_loader_epoch(waiting.loader, &error));
  CHECK(batch == NULL && slotline_loader_len(waiting.loader) == (SAMPLES + 15) / 16);
  /* This stops the loader, which is destroyed when the other thread's call returns. */
  slotline_loader_free(waiting.loader);
  CHECK(pthread_join(thread, NULL) == 0);
  CHECK(waiting.gave == SLOTLINE_ERROR_STOPPED && waiting.batch == NULL);
  slotline_error_free(waiting.error);
  for (size_t i = 0; i < len; ++i) {
    CHECK(sum_of(held[i]) > 0);
    slotline_batch_free(held[i]);
  }
}

/* Tests that freeing a batch in another thread ends a wait. */
static void a_free_ends_a_wait(size_t workers) {
  struct waiting waiting;
  slotline_batch *held[100];
  size_t len;
  const pthread_t thread = fill(&waiting, held, &len, workers);
  for (size_t i = 0; i < len; ++i) slotline_batch_free(held[i]);
  CHECK(pthread_join(thread, NULL) == 0);
  CHECK(waiting.gave == SLOTLINE_OK && slotline_batch_index(waiting.batch) == len && sum_of(waiting.batch) > 0);
  slotline_batch_free(waiting.batch);
  slotline_loader_free(waiting.loader);
}

static atomic_int stopping;

static void *stop_soon(void *loader) {
  await(&stopping, 1);
  slotline_loader_stop(loader);
  return NULL;
}

/* Stops a loader at any time during a pass, and then frees it. */
static void a_pass_can_be_stopped_anywhere(void) {
  for (int round = 0; round < 30; ++round) {
    slotline_options options = options_of(16, 2);
    slotline_loader *loader = digits(&options);
    atomic_store(&stopping, 0);
    const pthread_t thread = start(stop_soon, loader);
    OK(slotline_loader_epoch(loader, &error));
    slotline_status status = SLOTLINE_OK;
    slotline_error *error = NULL;
    for (int i = 0; status == SLOTLINE_OK; ++i) {
      slotline_batch *batch = NULL;
      if (i == round) atomic_store(&stopping, 1);
      status = slotline_loader_next(loader, &batch, &error);
      if (status == SLOTLINE_OK) CHECK(sum_of(batch) > 0);
      slotline_batch_free(batch);
    }
    CHECK(status == SLOTLINE_ERROR_STOPPED || status == SLOTLINE_END);
    slotline_error_free(error);
    CHECK(pthread_join(thread, NULL) == 0);
    GIVES(SLOTLINE_ERROR_STOPPED, slotline_loader_epoch(loader, &error));
    slotline_loader_free(loader);
  }
}

static void *read_and_free_error(void *error) {
  CHECK(strstr(slotline_error_message(error), "source"));
  slotline_error_free(error);
  return NULL;
}

static void errors_can_be_freed_in_any_thread(void) {
  slotline_dataset *dataset = NULL;
  slotline_error *error = NULL;
  CHECK(slotline_dataset_open("nothing:here", &dataset, &error) == SLOTLINE_ERROR_INVALID);
  CHECK(pthread_join(start(read_and_free_error, error), NULL) == 0);
}

int main(void) {
  batches_are_read_and_freed_by_any_thread();
  each_pass_can_use_another_thread();
  tensors_can_be_deleted_in_any_thread();
  for (size_t workers = 0; workers <= 1; ++workers) {
    stop_ends_a_wait(workers);
    a_free_ends_a_wait(workers);
    a_loader_in_use_can_be_freed(workers);
  }
  a_pass_can_be_stopped_anywhere();
  errors_can_be_freed_in_any_thread();
  puts("ok");
  return 0;
}
