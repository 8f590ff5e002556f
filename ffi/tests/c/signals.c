/* Stops loaders in signal handlers, which can interrupt any code: of the library, of the C library,
 * and of callbacks. */
#define _GNU_SOURCE

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#include "proof.h"

enum { ROUNDS = 40 };

static _Thread_local volatile sig_atomic_t in_handler;
static _Atomic(slotline_loader *) target;
static atomic_int handled;

#ifdef __GLIBC__
/* These functions replace the C library's, to check that the signal handler neither allocates nor
 * frees memory: it may have interrupted malloc. */
void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t), *__libc_memalign(size_t, size_t);
void __libc_free(void *);
static void outside(void) {
  static const char message[] = "memory was allocated or freed in a signal handler\n";
  if (!in_handler) return;
  if (write(2, message, sizeof message - 1) < 0) _exit(2);
  _exit(1);
}
void *malloc(size_t n) { return outside(), __libc_malloc(n); }
void *calloc(size_t n, size_t size) { return outside(), __libc_calloc(n, size); }
void *realloc(void *old, size_t n) { return outside(), __libc_realloc(old, n); }
void *aligned_alloc(size_t align, size_t n) { return outside(), __libc_memalign(align, n); }
int posix_memalign(void **out, size_t align, size_t n) {
  outside();
  return (*out = __libc_memalign(align, n)) == NULL;
}
void free(void *memory) {
  outside();
  __libc_free(memory);
}
#endif

static void handler(int signal) {
  (void)signal;
  const int before = errno;
  in_handler = 1;
  errno = 12345;
  slotline_loader_stop(atomic_load(&target));
  if (errno != 12345) _exit(3);
  in_handler = 0;
  errno = before;
  atomic_fetch_add(&handled, 1);
}

/* The number of the call in which the callback raises the signal in its own thread; SIZE_MAX for
 * none. */
static atomic_size_t raises_at;
static atomic_size_t calls;

static void perhaps_raise(void) {
  if (atomic_fetch_add(&calls, 1) == atomic_load(&raises_at)) raise(SIGUSR1);
}

static int32_t read_one(void *user, size_t index, slotline_sample *sample) {
  (void)user;
  perhaps_raise();
  const int64_t number = (int64_t)index;
  free(malloc(100 + index % 100));
  return slotline_sample_write(sample, 0, &number, 1) == SLOTLINE_OK ? 0 : -1;
}
static int32_t open_one(void *user, const slotline_worker *worker, void **cursor, slotline_failure *failure) {
  (void)user, (void)worker, (void)failure;
  *cursor = NULL;
  return 0;
}
static int32_t next_one(void *user, void *cursor, slotline_sample *sample) {
  (void)cursor;
  return read_one(user, 7, sample);
}
static int32_t init(void *user, const slotline_worker *worker, slotline_failure *failure) {
  (void)user, (void)worker, (void)failure;
  perhaps_raise();
  return 0;
}

/* Sends the signal to a thread after a random time. */
struct sender {
  pthread_t to;
  long nanoseconds;
};
static void *send(void *user) {
  const struct sender *sender = user;
  const struct timespec time = {0, sender->nanoseconds};
  nanosleep(&time, NULL);
  CHECK(pthread_kill(sender->to, SIGUSR1) == 0);
  return NULL;
}

static void stop_one(slotline_dataset *dataset, const slotline_options *options, size_t raise_at, long nanoseconds) {
  slotline_loader *loader = NULL;
  OK(slotline_loader_new(dataset, options, &loader, &error));
  atomic_store(&calls, 0);
  atomic_store(&handled, 0);
  atomic_store(&raises_at, raise_at);
  atomic_store(&target, loader);
  struct sender sender = {pthread_self(), nanoseconds};
  pthread_t thread;
  const int sends = raise_at == SIZE_MAX;
  if (sends) CHECK(pthread_create(&thread, NULL, send, &sender) == 0);
  slotline_status status = SLOTLINE_OK;
  while (status != SLOTLINE_ERROR_STOPPED) {
    status = slotline_loader_epoch(loader, NULL);
    CHECK(status == SLOTLINE_OK || status == SLOTLINE_ERROR_STOPPED);
    while (status == SLOTLINE_OK) {
      slotline_batch *batch = NULL;
      status = slotline_loader_next(loader, &batch, NULL);
      CHECK(status == SLOTLINE_OK || status == SLOTLINE_END || status == SLOTLINE_ERROR_STOPPED);
      slotline_batch_free(batch);
    }
  }
  if (sends) CHECK(pthread_join(thread, NULL) == 0);
  /* Free the loader only once no handler uses it. */
  while (atomic_load(&handled) == 0) sched_yield();
  atomic_store(&target, NULL);
  slotline_loader_free(loader);
}

int main(void) {
  alarm(120);
  const struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
  CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
  const slotline_field field = {sizeof field, "number", SLOTLINE_I64, SLOTLINE_FIXED, 0, NULL, NULL, 0};
  const slotline_map_dataset map = {.struct_size = sizeof map, .len = 64, .fields = &field, .num_fields = 1, .read = read_one};
  const slotline_stream_dataset stream = {.struct_size = sizeof stream, .len = -1, .fields = &field, .num_fields = 1,
                                          .open = open_one, .next = next_one};
  slotline_dataset *samples = NULL, *endless = NULL;
  OK(slotline_dataset_from_callbacks(&map, &samples, &error));
  OK(slotline_dataset_from_stream(&stream, &endless, &error));
  uint64_t random = 1;
  for (int kind = 0; kind < 8; ++kind) {
    slotline_options options = options_of(4, kind < 2 ? 0 : 2);
    options.shuffle = kind == 1;
    if (kind == 3 || kind == 6) options.worker_init = init;
    if (kind == 4) options.help = 0;
    slotline_dataset *dataset = kind == 5 || kind == 6 ? endless : samples;
#ifdef __linux__
    options.processes = kind == 7;
#endif
    for (int round = 0; round < (kind == 7 ? ROUNDS / 8 : ROUNDS); ++round) {
      random = random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
      /* A worker process has its own handler and copy of the loader. */
      const int raises = round % 2 == 0 && kind != 7;
      stop_one(dataset, &options, raises ? (size_t)(random >> 58) : SIZE_MAX, (long)(random >> 43));
    }
  }
  slotline_dataset_free(samples);
  slotline_dataset_free(endless);
  puts("ok");
  return 0;
}
