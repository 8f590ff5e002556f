/* slotline: data loading for training loops. Made by cbindgen from the library's sources; not to be edited.
 *
 * Every pointer that is not NULL is aligned to its type, as pointers to C objects are.
 *
 * Every object belongs to whoever got it, and is freed by its own `_free`, which takes NULL, too. Functions that can fail give
 * a status, and if `error` is not NULL, an error object that says what, where, why, and what to do; on success it becomes
 * NULL. Callbacks must return: they must not throw, nor leave by longjmp. */

#ifndef SLOTLINE_H
#define SLOTLINE_H

#include <stddef.h>
#include <stdint.h>
struct DLManagedTensor;
struct DLManagedTensorVersioned;

// For `batch_size`: no batches. A pass then gives the samples themselves, whose tensors lack the dimension of the rows.
#define SLOTLINE_NO_BATCHES -1

// For `help`: as is best, see there.
#define SLOTLINE_HELP_AUTO -1

// Workers run wherever the system puts them.
#define SLOTLINE_AFFINITY_OFF 0

// Worker i on the i-th core that this process may use, and so on from the start.
#define SLOTLINE_AFFINITY_SPREAD 1

// Worker i on the i-th of `cores`, and so on from the start.
#define SLOTLINE_AFFINITY_CORES 2

// Spin a little, yield a little, then sleep until woken.
#define SLOTLINE_WAIT_PARK 0

// Spin a little, then yield over and over.
#define SLOTLINE_WAIT_BACKOFF 1

// Spin: each waiting thread takes a whole core.
#define SLOTLINE_WAIT_SPIN 2

// A bad sample makes its batch an error.
#define SLOTLINE_ON_ERROR_RAISE 0

// A batch goes without its bad samples.
#define SLOTLINE_ON_ERROR_SKIP 1

// Another sample takes the place of a bad one. Not for streams.
#define SLOTLINE_ON_ERROR_REPLACE 2

// Packed samples that find no room in their batch are bad samples.
#define SLOTLINE_OVERFLOW_ERROR 0

// They get memory from the heap, for that batch.
#define SLOTLINE_OVERFLOW_SPILL 1

// More memory is taken for batches that are kept beyond `hold`, as far as `memory_limit` and the system allow it.
#define SLOTLINE_ON_HELD_GROW 0

// The thread that asks for the next batch waits until another one frees a batch.
#define SLOTLINE_ON_HELD_WAIT 1

// Asking for the next batch is `SLOTLINE_HELD` until a batch is freed.
#define SLOTLINE_ON_HELD_FAIL 2

// The version of this header. A library with another one cannot be used with it.
#define SLOTLINE_ABI_VERSION 1

// The most dimensions that a tensor has.
#define SLOTLINE_MAX_DIMS 8

// A batch: the hold on the memory that workers wrote it into. Several threads may read it at once, and any may free it, in
// any order, also after its loader.
typedef struct slotline_batch slotline_batch;

// A batch sampler: the batches of a loader's passes. Loaders keep what they need of it, so that it may be freed as soon as
// they are made, and used for several. Any number of threads may use it at once.
typedef struct slotline_batch_sampler slotline_batch_sampler;

// Bytes that belong to whoever got them; any thread may read them. Behind them is a NUL, so that a text can be used as such.
typedef struct slotline_bytes slotline_bytes;

// A dataset. Loaders keep what they need of it, so that it may be freed as soon as they are made. Any number of threads may
// use it at once.
typedef struct slotline_dataset slotline_dataset;

#if defined(SLOTLINE_CUDA)
// A batch on a device, or on its way there. Several threads may use it at once, and any may free it, in any order, also after
// its loader.
//
// Its handle is one hold of an `Arc`, and each tensor that was exported has one more.
typedef struct slotline_device_batch slotline_device_batch;
#endif

#if defined(SLOTLINE_CUDA)
// A loader whose batches come out on a device. One thread at a time may use it, unless a function says otherwise; it may be
// another one each time.
typedef struct slotline_device_loader slotline_device_loader;
#endif

// Why a call failed. It belongs to whoever got it, and may be read by any thread.
typedef struct slotline_error slotline_error;

// Where a callback says why it fails; lent to it until it returns.
typedef struct slotline_failure slotline_failure;

// A loader. One thread at a time may use it, unless a function says otherwise; it may be another one each time.
typedef struct slotline_loader slotline_loader;

// A sample being written, lent to a callback: for its thread only, and until it returns.
typedef struct slotline_sample slotline_sample;

// A sampler: the order of a loader's passes. Loaders keep what they need of it, so that it may be freed as soon as they are
// made, and used for several. Unless it has a seed (`slotline_sampler_seed`), it draws from the process's default generator
// (`slotline_manual_seed`), as torch's do, and not from the loader's: the `seed` of `slotline_options` is not its own. One
// thread at a time.
typedef struct slotline_sampler slotline_sampler;

// The samples of a batch, lent to a collate callback: for its thread only, and until it returns.
typedef struct slotline_samples slotline_samples;

// What a callback saves; lent to it until it returns.
typedef struct slotline_saved slotline_saved;

// What a call came to: `SLOTLINE_OK`, `SLOTLINE_END`, or an error. There may be more of them in later versions.
typedef int32_t slotline_status;

// The type of an array's elements. There may be more of them in later versions.
typedef uint32_t slotline_dtype;

// How the samples of a batch lie in a field.
typedef uint32_t slotline_kind;

// A field of a batch, where it is: in C order, read only, until the batch is freed.
typedef struct {
  // `sizeof(slotline_tensor)`, set by the caller.
  size_t struct_size;
  // Its name, in UTF-8; it lives as long as the batch.
  const char *name;
  // The type of its elements.
  slotline_dtype dtype;
  // How many dimensions it has.
  uint32_t ndim;
  // Their lengths: `[rows, ...]` of a fixed field; `[rows, max]` of a ragged one, with zeros behind each row's own
  // elements; `[items, ...]` of a packed one, with the items of all rows one after the other. Without batches the first
  // two lack the dimension of the rows.
  int64_t shape[SLOTLINE_MAX_DIMS];
  // How many elements to go on by to raise the index of a dimension by one.
  int64_t strides[SLOTLINE_MAX_DIMS];
  // The elements, aligned to their type.
  const void *data;
  // Their bytes.
  size_t bytes;
  // Of a ragged field how many elements each row has; of a packed one where each row's items begin, and where the last
  // one's end. NULL of a fixed one.
  const int64_t *ends;
  // How many `ends` there are.
  size_t num_ends;
  // How samples lie in it.
  slotline_kind kind;
  // 0, for later versions.
  uint32_t reserved;
} slotline_tensor;

// Writes the indices of batch `batch` (from 0) of pass `pass` (from 0) to `indices`, and their number, at most
// `room`, to `*len`. Returns 0; or 1 after the last batch; or fails by `slotline_fail`, and the pass is over. It is called by
// whichever thread begins the batch, one at a time for each loader, and before a resumed pass goes on for what comes before.
typedef int32_t (*slotline_batches)(void *user,
                                    uint64_t pass,
                                    uint64_t batch,
                                    uint64_t *indices,
                                    size_t room,
                                    size_t *len,
                                    slotline_failure *failure);

// Drops a user's pointer. It may run on any thread.
typedef void (*slotline_drop)(void *user);

// A batch sampler of one's own. Loaders that share it call it at once.
typedef struct {
  // `sizeof(slotline_batches_callback)`.
  size_t struct_size;
  // What the callbacks are called with.
  void *user;
  // The most indices that a batch has.
  size_t max_batch_size;
  // Gives the batches.
  slotline_batches batches;
  // Called once, when nobody needs the sampler any more, on whichever thread that is; may be NULL.
  slotline_drop drop;
} slotline_batches_callback;

// An array in the caller's memory, in C order. The first dimension counts the rows.
typedef struct {
  // `sizeof(slotline_array)`.
  size_t struct_size;
  // The name of its field, in UTF-8; NULL: its place among the arrays, such as "0". No two have the same.
  const char *name;
  // The type of its elements.
  slotline_dtype dtype;
  // The number of its dimensions, at most 8.
  uint32_t ndim;
  // Their lengths.
  const int64_t *shape;
  // Its elements, aligned to their type. They are not copied: nobody may change or free them before `drop` is called.
  const void *data;
  // What `drop` is called with.
  void *user;
  // Called once, when nobody needs the elements any more, on whichever thread that is; may be NULL.
  slotline_drop drop;
} slotline_array;

// One field of every sample of a dataset.
typedef struct {
  // `sizeof(slotline_field)`.
  size_t struct_size;
  // Its name, in UTF-8; NULL: its place among the fields, such as "0". No two fields have the same.
  const char *name;
  // The type of its elements.
  slotline_dtype dtype;
  // How samples lie in it.
  slotline_kind kind;
  // The number of dimensions of one sample, at most 7.
  uint32_t ndim;
  // Their lengths.
  const int64_t *shape;
} slotline_field;

// Writes sample `index` (below `len`): each of its fields by `slotline_sample_row` or `slotline_sample_write`. Returns 0, or
// something else if there is no such sample; `slotline_sample_fail` says why. Called by several threads at once.
typedef int32_t (*slotline_read)(void *user, size_t index, slotline_sample *sample);

// A dataset of one's own, by index.
typedef struct {
  // `sizeof(slotline_map_dataset)`.
  size_t struct_size;
  // What the callbacks are called with.
  void *user;
  // How many samples there are.
  size_t len;
  // The fields of every sample, read when the dataset is made; at most 64.
  const slotline_field *fields;
  // How many.
  size_t num_fields;
  // Writes a sample.
  slotline_read read;
  // Called once, when nobody needs the dataset any more, on whichever thread that is; may be NULL.
  slotline_drop drop;
} slotline_map_dataset;

// Which worker runs a callback; lent to it until it returns. Later versions may have more fields.
typedef struct {
  // The size of this struct in the library.
  size_t struct_size;
  // Its number, from 0; -1 if there are no workers, and the thread that asks for batches does all.
  int64_t id;
  // How many workers there are.
  size_t num_workers;
  // Its seed in this pass: the pass's own, and its number more. 0 if there are no workers.
  uint64_t seed;
} slotline_worker;

// Starts a pass of one worker, in that worker: sets `*cursor` to whatever the others are to be given. Each worker reads its
// own, and must give a part only. Returns 0, or fails by `slotline_fail`.
typedef int32_t (*slotline_open)(void *user, const slotline_worker *worker, void **cursor, slotline_failure *failure);

// Writes the next sample of a cursor, as `slotline_read` does. Returns 0; or 1 at the end, with nothing written; or something
// else, by `slotline_sample_fail`, after which it is called again.
typedef int32_t (*slotline_next)(void *user, void *cursor, slotline_sample *sample);

// Drops a cursor, on whichever thread that is.
typedef void (*slotline_close)(void *user, void *cursor);

// Writes what `slotline_resume` needs to go on from where a cursor is, by `slotline_saved_append`. Called after each batch.
// Returns 0, or something else if it cannot.
typedef int32_t (*slotline_save)(void *user, void *cursor, slotline_saved *saved);

// Goes on from what was saved, in the place of `slotline_open`.
typedef int32_t (*slotline_resume)(void *user,
                                   const slotline_worker *worker,
                                   const uint8_t *saved,
                                   size_t len,
                                   void **cursor,
                                   slotline_failure *failure);

// A dataset of one's own, read from the start. Callbacks for one cursor are never called at once, but those for several are.
typedef struct {
  // `sizeof(slotline_stream_dataset)`.
  size_t struct_size;
  // What the callbacks are called with.
  void *user;
  // How many samples a pass has, over all workers; -1 if that is not known.
  int64_t len;
  // The fields of every sample, read when the dataset is made; at most 64.
  const slotline_field *fields;
  // How many.
  size_t num_fields;
  // Starts a pass.
  slotline_open open;
  // Writes the next sample.
  slotline_next next;
  // Drops a cursor; may be NULL.
  slotline_close close;
  // Saves where a cursor is; may be NULL: then a resumed pass is read again from its start.
  slotline_save save;
  // Goes on from there; may be NULL if `save` is.
  slotline_resume resume;
  // Called once, when nobody needs the dataset any more, on whichever thread that is; may be NULL.
  slotline_drop drop;
} slotline_stream_dataset;

// Runs in a worker before a pass. Returns 0, or fails by `slotline_fail`: then the worker takes no part in the pass.
typedef int32_t (*slotline_worker_init)(void *user, const slotline_worker *worker, slotline_failure *failure);

// Makes a batch of samples, which `slotline_samples_next` gives one after the other: sets `*batch` to whatever
// `slotline_batch_user` is to give. Returns 0, or something else if there is no batch; `slotline_fail` says why. Each batch is
// made by one worker, several at once.
typedef int32_t (*slotline_collate)(void *user, slotline_samples *samples, void **batch, slotline_failure *failure);

// Drops what a `slotline_collate` made, on whichever thread that is.
typedef void (*slotline_drop_batch)(void *batch);

// The options of a loader, with torch's names and meanings. Begin with `slotline_options_init`.
//
// `slotline_loader_new` takes over what `worker_init` and `collate` are called with, also if it fails: with a drop function in
// them, options are good for one loader.
//
// Where a field says yes or no, 0 is no, and anything else yes.
typedef struct {
  // `sizeof(slotline_options)`; `slotline_options_init` sets it.
  size_t struct_size;
  // Samples in a batch (1), or `SLOTLINE_NO_BATCHES`.
  int64_t batch_size;
  // How many threads load (0: all is done in the thread that asks for batches).
  size_t num_workers;
  // Batches that are loaded ahead for each worker (0: 2, or more if they are small).
  size_t prefetch_factor;
  // Batches that the caller keeps while it asks for the next one (1): there is memory for them from the start.
  size_t hold;
  // Samples that a worker claims at once (0: by measurement).
  size_t part_size;
  // The most bytes that the loader may take (0: no limit).
  size_t memory_limit;
  // How many milliseconds the wait for one batch may take (0: for ever).
  uint64_t timeout_ms;
  // How many milliseconds a sample may take before it is reported (0: for ever).
  uint64_t watchdog_ms;
  // Where the random numbers of `shuffle` and of samples come from, if `has_seed` says so; else the process's default
  // generator. A `sampler` has its own (see `slotline_sampler`).
  uint64_t seed;
  // Whether there is a `seed` (no).
  uint8_t has_seed;
  // Whether each pass has a new random order (no).
  uint8_t shuffle;
  // Whether a last batch that is not full is left out (no).
  uint8_t drop_last;
  // Whether batches come in order (yes), or as they are finished.
  uint8_t in_order;
  // Whether the memory of batches is locked (no).
  uint8_t pin_memory;
  // Whether there is one base seed, and one `worker_init`, for all passes (no).
  uint8_t persistent_workers;
  // Whether workers make batches in turn, as torch's do (no: whoever is free loads).
  uint8_t round_robin;
  // Whether the thread that asks for batches loads while it waits: 0, 1 or `SLOTLINE_HELP_AUTO`, which is yes but with
  // `in_order` off or a `worker_init`. With a timeout it never does.
  int32_t help;
  // How threads wait (`SLOTLINE_WAIT_PARK`).
  uint32_t wait_strategy;
  // Which cores the workers run on (`SLOTLINE_AFFINITY_OFF`).
  uint32_t affinity;
  // What becomes of packed samples that find no room (`SLOTLINE_OVERFLOW_ERROR`).
  uint32_t on_overflow;
  // What happens when more batches are kept than `hold` and the next one is asked for (`SLOTLINE_ON_HELD_GROW`).
  uint32_t on_held;
  // For `SLOTLINE_AFFINITY_CORES`: cores by the system's numbers, read when the loader is made.
  const size_t *cores;
  // How many.
  size_t num_cores;
  // What becomes of bad samples (`SLOTLINE_ON_ERROR_RAISE`).
  uint32_t on_error;
  // How many bad samples a pass may have before their batches become `SLOTLINE_BAD_SAMPLES`: so many (`SIZE_MAX`).
  size_t bad_samples;
  // Or this share of its samples, from 0 to 1 (-1: `bad_samples` says).
  double bad_share;
  // The order of the passes (NULL: that of the dataset, or by `shuffle`).
  const slotline_sampler *sampler;
  // The batches of the passes (NULL: by `batch_size`).
  const slotline_batch_sampler *batch_sampler;
  // Runs in each worker before it loads anything in a pass (NULL: nothing does).
  slotline_worker_init worker_init;
  // What `worker_init` is called with.
  void *worker_init_user;
  // Called once when `worker_init` is not needed any more, on whichever thread that is; may be NULL.
  slotline_drop worker_init_drop;
  // Makes the batches (NULL: samples are stacked).
  slotline_collate collate;
  // What `collate` is called with.
  void *collate_user;
  // Called once when `collate` is not needed any more, on whichever thread that is; may be NULL.
  slotline_drop collate_drop;
  // Drops what `collate` made; may be NULL.
  slotline_drop_batch collate_drop_batch;
} slotline_options;

#if defined(SLOTLINE_CUDA)
// How batches get to the device. All zeros, but for the size, are the defaults.
typedef struct {
  // `sizeof(slotline_device_options)`.
  size_t struct_size;
  // The device's number (0).
  size_t ordinal;
  // Batches that there can be on the device at once (0: 3). The options' `hold` is raised to as many.
  size_t slots;
  // How many milliseconds the wait for one copy may take (0: for ever).
  uint64_t timeout_ms;
  // Whether a state is kept for each batch, so that `slotline_device_loader_state` can be asked in a pass (no).
  uint8_t resumable;
  // Zeros, for later versions.
  uint8_t reserved[7];
} slotline_device_options;
#endif

// What a loader has done since it was made. Times are in seconds.
typedef struct {
  // `sizeof(slotline_stats)`, set by the caller.
  size_t struct_size;
  // Passes begun.
  uint64_t passes;
  // Batches given.
  uint64_t batches;
  // Samples in them.
  uint64_t samples;
  // Bytes of these.
  uint64_t bytes;
  // Batches in whose place there was an error.
  uint64_t errors;
  // Samples that were skipped or replaced.
  uint64_t bad_samples;
  // Batches that had more than their room.
  uint64_t spilled_batches;
  // Bytes that were taken for them.
  uint64_t spilled_bytes;
  // How many batches there can be at once.
  uint64_t depth;
  // How many workers there are.
  uint64_t num_workers;
  // Within passes.
  double elapsed;
  // Of `elapsed`, in `slotline_loader_epoch`.
  double starting;
  // Of `elapsed`, how long the caller waited for batches.
  double waiting;
  // Of `elapsed`, how long it waited until another thread freed batches.
  double held;
  // How many finished batches the caller found when it asked for one, on average.
  double ready;
  // How long the workers were in the dataset's code, all together.
  double worker_reading;
  // How long they wrote samples into their rows, or were in the collate function's code.
  double worker_writing;
  // How long they waited, since all that may be loaded ahead was.
  double worker_waiting;
  // How long they left batches to the caller, which made them faster than they could have been passed on.
  double worker_resting;
  // How long the calling thread was in the dataset's code.
  double caller_reading;
  // How long it wrote samples into their rows.
  double caller_writing;
  // How long the workers were in the code of a sampler that draws as the pass goes, or waited for a thread that was.
  double worker_drawing;
  // How long the calling thread was.
  double caller_drawing;
  // How many batches there is memory for beyond those that the loader was made for, as more were kept.
  uint64_t extra_batches;
  // Bytes that were taken for them.
  uint64_t extra_bytes;
} slotline_stats;

// Writes the `len` indices of pass `pass`, from 0, to `indices`. Returns 0, or fails by `slotline_fail`. It is called by the
// thread that starts the pass; a resumed loader does not draw the passes before again.
typedef int32_t (*slotline_order)(void *user, uint64_t pass, uint64_t *indices, size_t len, slotline_failure *failure);

// A sampler of one's own. Loaders that share it call it at once.
typedef struct {
  // `sizeof(slotline_order_callback)`.
  size_t struct_size;
  // What the callbacks are called with.
  void *user;
  // How many indices a pass has.
  size_t len;
  // Draws a pass.
  slotline_order order;
  // Called once, when nobody needs the sampler any more, on whichever thread that is; may be NULL.
  slotline_drop drop;
} slotline_order_callback;

// `bool`: one byte, 0 or 1.
#define SLOTLINE_BOOL 1

// `uint8_t`.
#define SLOTLINE_U8 2

// `int8_t`.
#define SLOTLINE_I8 3

// `uint16_t`.
#define SLOTLINE_U16 4

// `int16_t`.
#define SLOTLINE_I16 5

// `uint32_t`.
#define SLOTLINE_U32 6

// `int32_t`.
#define SLOTLINE_I32 7

// `uint64_t`.
#define SLOTLINE_U64 8

// `int64_t`.
#define SLOTLINE_I64 9

// `float`.
#define SLOTLINE_F32 10

// `double`.
#define SLOTLINE_F64 11

// A 16-bit floating-point number of IEEE 754: `_Float16` where C has it.
#define SLOTLINE_F16 12

// The upper 16 bits of a `float`.
#define SLOTLINE_BF16 13

// All samples have the field's shape, and are stacked along a new first dimension.
#define SLOTLINE_FIXED 0

// Each sample has its own number of elements, at most as many as the field's shape `[max]` says, and zeros from there on.
#define SLOTLINE_RAGGED 1

// Each sample has its own number of items, which begin where the sample before ends. The shape is `[room, item's shape…]`:
// a batch has room for `room` items for each of its samples, which they share.
#define SLOTLINE_PACKED 2

// It is done.
#define SLOTLINE_OK 0

// The pass is over. There is no error object.
#define SLOTLINE_END 1

// An argument is wrong: a null pointer, a struct that is too short, a number out of range, a text that is not UTF-8.
#define SLOTLINE_INVALID 2

// There is no such loader: options that exclude each other, memory, threads.
#define SLOTLINE_BUILD 3

// A file cannot be read.
#define SLOTLINE_SOURCE 4

// A sample could not be read, or not be collated. The pass goes on with the next batch.
#define SLOTLINE_SAMPLE 5

// A panic in slotline, stopped at the boundary: a bug. If it has an index, the pass goes on.
#define SLOTLINE_PANIC 6

// More bad samples than `on_error` allows. The pass goes on.
#define SLOTLINE_BAD_SAMPLES 7

// No batch within the timeout. The next call waits again.
#define SLOTLINE_TIMEOUT 8

// Batches that were not freed leave no room for the next one. Free one and ask again.
#define SLOTLINE_HELD 9

// `worker_init` failed in a worker. The pass goes on with the others.
#define SLOTLINE_WORKER_INIT 10

// A sampler failed. The pass is over.
#define SLOTLINE_SAMPLER 11

// A state that is damaged, or does not fit the loader.
#define SLOTLINE_STATE 12

// The loader was stopped, or its process was forked, and the workers are not in this one.
#define SLOTLINE_STOPPED 13

// A CUDA device, or its driver.
#define SLOTLINE_DEVICE 14

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// How many samples it has: the batch size, or less for the last one, or where bad samples are skipped. 0 for NULL.
//
// # Safety
//
// `batch` must be NULL or a batch that was not freed.
size_t slotline_batch_len(const slotline_batch *batch);

// Its number in the pass, from 0; of one that a collate callback made, how many batches, and errors in the places of batches,
// came before it in the pass. 0 for NULL.
//
// # Safety
//
// As of `slotline_batch_len`.
size_t slotline_batch_task(const slotline_batch *batch);

// The number of its pass, from 0. 0 for NULL.
//
// # Safety
//
// As of `slotline_batch_len`.
uint32_t slotline_batch_epoch(const slotline_batch *batch);

// The dataset index of each of its samples, as many as `slotline_batch_len` says; of a stream their numbers in what their
// worker reads; of one that a collate callback made, -1 where that is not known. It lives as long as the batch. NULL for
// NULL.
//
// # Safety
//
// As of `slotline_batch_len`.
const int64_t *slotline_batch_indices(const slotline_batch *batch);

// What the collate callback made; it belongs to the batch. NULL if there is none.
//
// # Safety
//
// As of `slotline_batch_len`.
void *slotline_batch_user(const slotline_batch *batch);

// How many fields it has; none, if a collate callback made it. 0 for NULL.
//
// # Safety
//
// As of `slotline_batch_len`.
size_t slotline_batch_num_fields(const slotline_batch *batch);

// Says where field `i` is. `out->struct_size` must be set; what it points to belongs to the batch.
//
// # Errors
//
// `SLOTLINE_INVALID`: a null pointer, a short struct, or no such field.
//
// # Safety
//
// As of `slotline_batch_len`; `out` must be NULL or writable for `out->struct_size` bytes; `error` NULL or writable.
slotline_status slotline_batch_field(const slotline_batch *batch,
                                     size_t i,
                                     slotline_tensor *out,
                                     slotline_error **error);

// Says where the field with this name is; see `slotline_batch_field`.
//
// # Errors
//
// As of `slotline_batch_field`.
//
// # Safety
//
// As of `slotline_batch_field`; `name` must be NULL or end with a NUL.
slotline_status slotline_batch_field_by_name(const slotline_batch *batch,
                                             const char *name,
                                             slotline_tensor *out,
                                             slotline_error **error);

// Frees a batch: its memory goes back to the loader, for another one, unless a tensor that was exported still has it. Any
// thread, in any order, also after the loader; NULL is fine.
//
// # Safety
//
// As of `slotline_batch_len`; nobody may use it, or what it lent, from then on.
void slotline_batch_free(slotline_batch *batch);

// Makes a batch sampler of `batch_size` of a sampler's indices for each batch (torch's `BatchSampler`); with `drop_last` a last
// one of fewer is left out. It keeps what it needs of `sampler`. Any thread.
//
// # Errors
//
// `SLOTLINE_INVALID`: a null pointer. A `batch_size` of 0 `slotline_loader_new` says, by `SLOTLINE_BUILD`.
//
// # Safety
//
// `sampler` must be NULL or a sampler that was not freed; `out` and `error` must be NULL or writable.
slotline_status slotline_batch_sampler_of(const slotline_sampler *sampler,
                                          size_t batch_size,
                                          uint8_t drop_last,
                                          slotline_batch_sampler **out,
                                          slotline_error **error);

// Makes a batch sampler of `n` lists of indices, the same in each pass: list `i` is from `offsets[i]` to `offsets[i + 1]` in
// `indices`. They are copied. Any thread.
//
// # Errors
//
// `SLOTLINE_INVALID`: a null pointer, no list that has an index, or offsets that do not ascend from 0.
//
// # Safety
//
// `offsets` must point to `n + 1` numbers, and `indices` to as many as the last one says; `out` and `error` must be NULL or
// writable.
slotline_status slotline_batch_sampler_lists(const size_t *indices,
                                             const size_t *offsets,
                                             size_t n,
                                             slotline_batch_sampler **out,
                                             slotline_error **error);

// Makes a batch sampler of a callback. It is the sampler's from here on, also if this fails. Any thread.
//
// # Errors
//
// `SLOTLINE_INVALID`: a null pointer, or a short struct.
//
// # Safety
//
// `callback` must be NULL, or what `slotline_batches_callback` says; `out` and `error` must be NULL or writable.
slotline_status slotline_batch_sampler_from_callback(const slotline_batches_callback *callback,
                                                     slotline_batch_sampler **out,
                                                     slotline_error **error);

// Frees a batch sampler; NULL is fine. Loaders made with it go on. Any thread.
//
// # Safety
//
// `sampler` must be NULL or a batch sampler that was not freed; nobody may use it from then on.
void slotline_batch_sampler_free(slotline_batch_sampler *sampler);

// The bytes, which live as long as the object. NULL for NULL.
//
// # Safety
//
// `bytes` must be NULL or an object that was not freed.
const uint8_t *slotline_bytes_data(const slotline_bytes *bytes);

// How many there are, without the NUL behind them. 0 for NULL.
//
// # Safety
//
// As of `slotline_bytes_data`.
size_t slotline_bytes_len(const slotline_bytes *bytes);

// Frees them; NULL is fine. Any thread.
//
// # Safety
//
// As of `slotline_bytes_data`; nobody may use them from then on.
void slotline_bytes_free(slotline_bytes *bytes);

// Says why a callback fails, in UTF-8, which is copied. It must then return something other than 0. Does nothing with NULL.
//
// # Safety
//
// `failure` must be NULL or what this callback was given; `message` NULL or end with a NUL.
void slotline_fail(slotline_failure *failure,
                   const char *message);

// How many samples are left, at most: a stream may be at its end before, and bad samples may be skipped. 0 for NULL, or within
// `slotline_samples_next`.
//
// # Safety
//
// `samples` must be NULL or what this callback was given.
size_t slotline_samples_left(const slotline_samples *samples);

// Reads the next sample, and says where its fields are: `fields[i].struct_size` must be set for each. What they point to is
// there until the next call. `SLOTLINE_END` after the last sample; `SLOTLINE_SAMPLE` if it cannot be read, and the next call
// goes on behind it. If the callback then returns other than 0 without saying why, that is why.
//
// # Errors
//
// `SLOTLINE_SAMPLE`; and `SLOTLINE_INVALID` for a null pointer, a short struct, fewer `num_fields` than a sample has, or a call
// from the dataset's callback that is reading the next sample.
//
// # Safety
//
// As of `slotline_samples_left`; `fields` must be writable for `num_fields` structs.
slotline_status slotline_samples_next(slotline_samples *samples,
                                      slotline_tensor *fields,
                                      size_t num_fields);

// Opens a dataset that a text names, as those of the `slotline` program: `digits` (1797 images and labels that come with the
// library), `idx:FILE[,FILE...]` (as MNIST has them, read into memory) or `npy:FILE[,FILE...]` (NumPy's, memory-mapped). A
// sample is a row of each; fields are named by their places, from "0". Any thread; `*out` is NULL if it fails.
//
// Nobody, in this process or another one, may write to a mapped file or cut it short as long as the dataset, or a loader of it,
// is there. To replace one, rename another file over it.
//
// # Errors
//
// `SLOTLINE_INVALID`: a null pointer, or a text that names nothing. `SLOTLINE_SOURCE`: a file that cannot be read, or files of
// different numbers of rows.
//
// # Safety
//
// `source` must be NULL or end with a NUL; `out` and `error` must be writable, or NULL. Mapped files must
// not be changed, as said above.
slotline_status slotline_dataset_open(const char *source,
                                      slotline_dataset **out,
                                      slotline_error **error);

// Makes a dataset of `n` arrays of equal length: a sample is a row of each, and a field's shape is that of a row. Nothing is
// copied. Any thread.
//
// The arrays are the dataset's from here on, also if this fails: each one's `drop` is called when it is not needed any more
// (but not if its struct is too short to have one). `*out` is NULL if it fails.
//
// # Errors
//
// `SLOTLINE_INVALID`: a null pointer, no arrays, a short struct, a dtype, shape or name that is none, data that is not
// aligned, `bool`s other than 0 and 1, different numbers of rows, or two fields of one name.
//
// # Safety
//
// `arrays` must point to `n` structs, whose pointers are what they are said to be; `out` and `error` must be writable, or
// NULL.
slotline_status slotline_dataset_from_arrays(const slotline_array *arrays,
                                             size_t n,
                                             slotline_dataset **out,
                                             slotline_error **error);

// Makes a dataset whose samples a callback writes, by index. Any thread; `*out` is NULL if it fails.
//
// The callbacks are the dataset's from here on, also if this fails: `drop` is called when they are not needed any more (but
// not if the struct is too short to have one).
//
// # Errors
//
// `SLOTLINE_INVALID`: a null pointer, a short struct, or fields that are none.
//
// # Safety
//
// `dataset` must be NULL, or what `slotline_map_dataset` says; `out` and `error` must be writable, or NULL.
slotline_status slotline_dataset_from_callbacks(const slotline_map_dataset *dataset,
                                                slotline_dataset **out,
                                                slotline_error **error);

// Makes a dataset whose samples callbacks give one after the other. Any thread; `*out` is NULL if it fails.
//
// The callbacks are the dataset's from here on, as with `slotline_dataset_from_callbacks`.
//
// # Errors
//
// `SLOTLINE_INVALID`: a null pointer, a short struct, or fields that are none.
//
// # Safety
//
// `dataset` must be NULL, or what `slotline_stream_dataset` says; `out` and `error` must be writable, or NULL.
slotline_status slotline_dataset_from_stream(const slotline_stream_dataset *dataset,
                                             slotline_dataset **out,
                                             slotline_error **error);

// How many samples it has; -1 if that is not known, or for NULL. Any thread.
//
// # Safety
//
// `dataset` must be NULL or a dataset that was not freed.
int64_t slotline_dataset_len(const slotline_dataset *dataset);

// Frees a dataset; NULL is fine. Loaders made of it go on. Any thread.
//
// # Safety
//
// As of `slotline_dataset_len`; nobody may use it from then on.
void slotline_dataset_free(slotline_dataset *dataset);

#if defined(SLOTLINE_CUDA)
// How many samples it has. 0 for NULL.
//
// # Safety
//
// `batch` must be NULL or a batch that was neither freed nor released.
size_t slotline_device_batch_len(const slotline_device_batch *batch);
#endif

#if defined(SLOTLINE_CUDA)
// Its number in the pass, from 0. 0 for NULL.
//
// # Safety
//
// As of `slotline_device_batch_len`.
size_t slotline_device_batch_task(const slotline_device_batch *batch);
#endif

#if defined(SLOTLINE_CUDA)
// The number of its pass, from 0. 0 for NULL.
//
// # Safety
//
// As of `slotline_device_batch_len`.
uint32_t slotline_device_batch_epoch(const slotline_device_batch *batch);
#endif

#if defined(SLOTLINE_CUDA)
// The dataset index of each sample, in host memory that lives as long as the batch. NULL for NULL.
//
// # Safety
//
// As of `slotline_device_batch_len`.
const int64_t *slotline_device_batch_indices(const slotline_device_batch *batch);
#endif

#if defined(SLOTLINE_CUDA)
// How many fields it has. 0 for NULL.
//
// # Safety
//
// As of `slotline_device_batch_len`.
size_t slotline_device_batch_num_fields(const slotline_device_batch *batch);
#endif

#if defined(SLOTLINE_CUDA)
// Says where field `i` is: `data` and `ends` are addresses on the device, to be read on streams that the batch was made ready
// on. `out->struct_size` must be set.
//
// # Errors
//
// `SLOTLINE_INVALID`: a null pointer, a short struct, or no such field.
//
// # Safety
//
// As of `slotline_device_batch_len`; `out` must be NULL or writable for `out->struct_size` bytes; `error` NULL or writable.
slotline_status slotline_device_batch_field(const slotline_device_batch *batch,
                                            size_t i,
                                            slotline_tensor *out,
                                            slotline_error **error);
#endif

#if defined(SLOTLINE_CUDA)
// Has `stream`, a `cudaStream_t`, wait for the copy: what is launched on it from now on may read the batch. The host does
// not wait. The stream is noted: freeing the batch is as much as releasing it on each such stream.
//
// # Errors
//
// `SLOTLINE_INVALID`: no batch. `SLOTLINE_DEVICE`: a fifth stream, or what the driver says.
//
// # Safety
//
// As of `slotline_device_batch_len`; `stream` must be one of the device's primary context, or one of CUDA's default streams
// (0, 1, 2), and not be destroyed before the batch, and all tensors exported of it, are gone.
slotline_status slotline_device_batch_ready_on(const slotline_device_batch *batch,
                                               void *stream,
                                               slotline_error **error);
#endif

#if defined(SLOTLINE_CUDA)
// Frees a batch, in any case: its memory is filled again once `stream` has come to this point, the last tensor that was
// exported of it is gone, and the tensors' streams have come to where that was. All reads but those of tensors must be before
// this point, on this stream or on others that it has waited for. The batch may have been made ready on four other streams.
//
// # Errors
//
// `SLOTLINE_INVALID`: no batch. `SLOTLINE_DEVICE`: what the driver says; the memory is then leaked, as nobody can tell when it is
// free.
//
// # Safety
//
// As of `slotline_device_batch_ready_on`; nobody may use the handle from then on.
slotline_status slotline_device_batch_release_on(slotline_device_batch *batch,
                                                 void *stream,
                                                 slotline_error **error);
#endif

#if defined(SLOTLINE_CUDA)
// Waits, in this thread, for the copy.
//
// # Errors
//
// `SLOTLINE_INVALID`: no batch. `SLOTLINE_DEVICE`: what the driver says.
//
// # Safety
//
// As of `slotline_device_batch_len`; `error` must be NULL or writable.
slotline_status slotline_device_batch_wait(const slotline_device_batch *batch, slotline_error **error);
#endif

#if defined(SLOTLINE_CUDA)
// Exports field `i` as a DLPack tensor on the device, without a copy, to be used on `stream`, which waits for the batch as by
// `slotline_device_batch_ready_on`. Its memory is filled again when the batch and all its tensors are gone, and the stream has
// come to that point: the `deleter` may be called, on any thread, as soon as all that reads the tensor is launched there.
//
// `*out` is NULL if it fails.
//
// # Errors
//
// As of `slotline_device_batch_ready_on`, or no such field.
//
// # Safety
//
// As of `slotline_device_batch_ready_on`; `out` must be NULL or writable.
slotline_status slotline_device_batch_dlpack(const slotline_device_batch *batch,
                                             size_t i,
                                             void *stream,
                                             struct DLManagedTensorVersioned **out,
                                             slotline_error **error);
#endif

#if defined(SLOTLINE_CUDA)
// The same as a tensor without a version, for importers from before DLPack 1.0.
//
// # Errors
//
// As of `slotline_device_batch_dlpack`.
//
// # Safety
//
// As of `slotline_device_batch_dlpack`.
slotline_status slotline_device_batch_dlpack_unversioned(const slotline_device_batch *batch,
                                                         size_t i,
                                                         void *stream,
                                                         struct DLManagedTensor **out,
                                                         slotline_error **error);
#endif

#if defined(SLOTLINE_CUDA)
// Frees a batch; NULL is fine. Its memory is filled again once all streams that it was made ready on have come to this point,
// and the last tensor that was exported of it is gone. Any thread, in any order; after its loader it waits for these streams,
// at most 5 s.
//
// # Safety
//
// As of `slotline_device_batch_len`; nobody may use it from then on.
void slotline_device_batch_free(slotline_device_batch *batch);
#endif

#if defined(SLOTLINE_CUDA)
// Looks for a driver, and says how many devices it has. Any thread; `*devices` is 0 if it fails.
//
// # Errors
//
// `SLOTLINE_INVALID`: a null pointer. `SLOTLINE_DEVICE`: there is no driver, it is too old, it will not start, or it has no
// device; the message says which.
//
// # Safety
//
// `devices` and `error` must be writable, or NULL.
slotline_status slotline_device_probe(size_t *devices,
                                      slotline_error **error);
#endif

#if defined(SLOTLINE_CUDA)
// Makes a loader whose batches come out on a device: as `slotline_loader_new`, with page-locked memory on the host. `device`
// may be NULL: then its options are the defaults. Any thread; `*out` is NULL if it fails.
//
// # Errors
//
// As of `slotline_loader_new`; `SLOTLINE_DEVICE`: no driver, no such device, or no memory there.
//
// # Safety
//
// As of `slotline_loader_new`; `device` must be NULL or readable for `device->struct_size` bytes.
slotline_status slotline_device_loader_new(const slotline_dataset *dataset,
                                           const slotline_options *options,
                                           const slotline_device_options *device,
                                           slotline_device_loader **out,
                                           slotline_error **error);
#endif

#if defined(SLOTLINE_CUDA)
// Starts a pass; see `slotline_loader_epoch`.
//
// # Errors
//
// As of `slotline_loader_epoch`.
//
// # Safety
//
// `loader` must be NULL or a loader that was not freed; `error` NULL or writable.
slotline_status slotline_device_loader_epoch(slotline_device_loader *loader, slotline_error **error);
#endif

#if defined(SLOTLINE_CUDA)
// Gives the next batch of the pass, which is the caller's to free or release; or `SLOTLINE_END` after the last one; or an
// error in a batch's place. It may still be on its way to the device. `*out` is NULL unless there is a batch.
//
// # Errors
//
// As of `slotline_loader_next`, where `SLOTLINE_HELD` is also for batches on the device and `SLOTLINE_TIMEOUT` also for copies;
// `SLOTLINE_DEVICE`: the driver refused a copy. Then the next batch comes, but after two such errors one after the other the
// pass is over.
//
// # Safety
//
// As of `slotline_device_loader_epoch`; `out` must be NULL or writable.
slotline_status slotline_device_loader_next(slotline_device_loader *loader,
                                            slotline_device_batch **out,
                                            slotline_error **error);
#endif

#if defined(SLOTLINE_CUDA)
// Stops a loader; see `slotline_loader_stop`. Batches that are on the device already still come before `SLOTLINE_STOPPED`.
//
// # Safety
//
// `loader` must be NULL or a loader that was not freed.
void slotline_device_loader_stop(const slotline_device_loader *loader);
#endif

#if defined(SLOTLINE_CUDA)
// Says where the loader is; see `slotline_loader_state`. The same bytes may be loaded into a loader on the host.
//
// # Errors
//
// As of `slotline_loader_state`; `SLOTLINE_STATE`: in a pass, unless the loader is `resumable`.
//
// # Safety
//
// As of `slotline_loader_state`.
slotline_status slotline_device_loader_state(slotline_device_loader *loader,
                                             slotline_bytes **out,
                                             slotline_error **error);
#endif

#if defined(SLOTLINE_CUDA)
// Puts the loader where a state is; see `slotline_loader_load_state`.
//
// # Errors
//
// As of `slotline_loader_load_state`.
//
// # Safety
//
// As of `slotline_loader_load_state`.
slotline_status slotline_device_loader_load_state(slotline_device_loader *loader,
                                                  const uint8_t *data,
                                                  size_t len,
                                                  slotline_error **error);
#endif

#if defined(SLOTLINE_CUDA)
// Says what the host's side of the loader has done so far; see `slotline_loader_stats`.
//
// # Errors
//
// As of `slotline_loader_stats`.
//
// # Safety
//
// As of `slotline_loader_stats`.
slotline_status slotline_device_loader_stats(slotline_device_loader *loader,
                                             slotline_stats *out,
                                             slotline_error **error);
#endif

#if defined(SLOTLINE_CUDA)
// What was noticed when the loader was made, and since; see `slotline_loader_warnings`.
//
// # Errors
//
// As of `slotline_loader_warnings`.
//
// # Safety
//
// As of `slotline_loader_warnings`.
slotline_status slotline_device_loader_warnings(slotline_device_loader *loader,
                                                slotline_bytes **out,
                                                slotline_error **error);
#endif

#if defined(SLOTLINE_CUDA)
// How many batches a pass has; -1 if only its end will tell, or for NULL. Any thread.
//
// # Safety
//
// `loader` must be NULL or a loader that was not freed.
int64_t slotline_device_loader_len(const slotline_device_loader *loader);
#endif

#if defined(SLOTLINE_CUDA)
// The number of the pass that the next `slotline_device_loader_epoch` starts, from 0. 0 for NULL, or while the loader is in
// use.
//
// # Safety
//
// As of `slotline_device_loader_len`.
uint32_t slotline_device_loader_next_epoch(slotline_device_loader *loader);
#endif

#if defined(SLOTLINE_CUDA)
// Frees a loader; NULL is fine. Its batches live on; see `slotline_loader_free`. It waits for copies that are on their way, at
// most 5 s, and leaks what they may still use then.
//
// # Safety
//
// As of `slotline_loader_free`.
void slotline_device_loader_free(slotline_device_loader *loader);
#endif

// Exports field `i` of a batch as a DLPack tensor, without a copy: for `torch::from_dlpack` and whatever else takes one of
// version 1. Of a ragged or packed field these are the elements; see `slotline_tensor` for where rows end.
//
// The tensor is the caller's, who calls its `deleter`, or gives it to an importer that will. It keeps the batch's memory, so
// that the batch may be freed before it. It may be written, by one thread while no other one reads or writes the field; the
// batch itself, and other tensors of the field, then show what was written. `bool`s that are written should be 0 or 1. Any
// thread; `*out` is NULL if it fails.
//
// # Errors
//
// `SLOTLINE_INVALID`: a null pointer, or no such field.
//
// # Safety
//
// `batch` must be NULL or a batch that was not freed; `out` and `error` NULL or writable.
slotline_status slotline_batch_dlpack(const slotline_batch *batch,
                                      size_t i,
                                      struct DLManagedTensorVersioned **out,
                                      slotline_error **error);

// The same as a tensor without a version, for importers from before DLPack 1.0: `at::fromDLPack`, for one. (NumPy takes such a
// tensor for read-only.)
//
// # Errors
//
// As of `slotline_batch_dlpack`.
//
// # Safety
//
// As of `slotline_batch_dlpack`.
slotline_status slotline_batch_dlpack_unversioned(const slotline_batch *batch,
                                                  size_t i,
                                                  struct DLManagedTensor **out,
                                                  slotline_error **error);

// The status that came with it; `SLOTLINE_OK` for NULL.
//
// # Safety
//
// `error` must be NULL or an error that was not freed.
slotline_status slotline_error_code(const slotline_error *error);

// What happened, at what, why, and what to do: the whole chain of causes, in UTF-8. It lives as long as the error; NULL for
// NULL.
//
// # Safety
//
// As of `slotline_error_code`.
const char *slotline_error_message(const slotline_error *error);

// The dataset index of the sample at fault; -1 if there is none.
//
// # Safety
//
// As of `slotline_error_code`.
int64_t slotline_error_index(const slotline_error *error);

// The number of the batch in its pass; -1 if there is none.
//
// # Safety
//
// As of `slotline_error_code`.
int64_t slotline_error_task(const slotline_error *error);

// The number of the worker that it happened in; -1 if it was the calling thread, or nobody knows.
//
// # Safety
//
// As of `slotline_error_code`.
int64_t slotline_error_worker(const slotline_error *error);

// Frees an error; NULL is fine. Any thread.
//
// # Safety
//
// As of `slotline_error_code`; nobody may use it from then on.
void slotline_error_free(slotline_error *error);

// Makes a loader, with its threads and its memory. `options` may be NULL: then they are the defaults. What `worker_init` and
// `collate` in them are called with is taken over, also if this fails. Any thread; `*out` is NULL if it fails.
//
// # Errors
//
// `SLOTLINE_INVALID`: a null pointer, a short struct, or an option that is none of its values. `SLOTLINE_BUILD`: options
// that exclude each other, or memory or threads that are not to be had.
//
// # Safety
//
// `dataset` must be NULL or a dataset that was not freed; `options` NULL, or as `slotline_options` says, for
// `options->struct_size` bytes; `out` and `error` writable, or NULL.
slotline_status slotline_loader_new(const slotline_dataset *dataset,
                                    const slotline_options *options,
                                    slotline_loader **out,
                                    slotline_error **error);

// Starts a pass; a pass before it that is not over is given up.
//
// # Errors
//
// `SLOTLINE_INVALID`: NULL, or the loader is in use. `SLOTLINE_SAMPLER`: the order could not be drawn. `SLOTLINE_TIMEOUT`: a
// worker is stuck in the pass before. `SLOTLINE_STATE`: a loaded state does not fit the pass.
//
// # Safety
//
// `loader` must be NULL or a loader that was not freed; `error` NULL or writable.
slotline_status slotline_loader_epoch(slotline_loader *loader,
                                      slotline_error **error);

// Gives the next batch of the pass, which is the caller's to free; or `SLOTLINE_END` after the last one; or an error in a
// batch's place. `*out` is NULL unless there is a batch.
//
// # Errors
//
// `SLOTLINE_INVALID`: a null pointer, no pass was begun, or the loader is in use. After `SLOTLINE_SAMPLE`,
// `SLOTLINE_BAD_SAMPLES`, `SLOTLINE_WORKER_INIT` and a `SLOTLINE_PANIC` with an index the pass goes on with the next call; after
// `SLOTLINE_TIMEOUT` and `SLOTLINE_HELD` that asks for the same batch again; after `SLOTLINE_SAMPLER` it is over.
//
// # Safety
//
// As of `slotline_loader_epoch`; `out` must be NULL or writable.
slotline_status slotline_loader_next(slotline_loader *loader,
                                     slotline_batch **out,
                                     slotline_error **error);

// How many batches a pass has; -1 if only its end will tell, or for NULL. Any thread.
//
// # Safety
//
// `loader` must be NULL or a loader that was not freed.
int64_t slotline_loader_len(const slotline_loader *loader);

// The most samples that a batch has. 0 for NULL. Any thread.
//
// # Safety
//
// As of `slotline_loader_len`.
size_t slotline_loader_batch_size(const slotline_loader *loader);

// How many batches there can be at once: those being filled, those ready, and those held. 0 for NULL. Any thread.
//
// # Safety
//
// As of `slotline_loader_len`.
size_t slotline_loader_depth(const slotline_loader *loader);

// The bytes that the loader takes for batches and for the order of a pass. 0 for NULL. Any thread.
//
// # Safety
//
// As of `slotline_loader_len`.
size_t slotline_loader_memory_ceiling(const slotline_loader *loader);

// The number of the pass that the next `slotline_loader_epoch` starts, from 0. 0 for NULL, or while the loader is in use.
//
// # Safety
//
// As of `slotline_loader_len`.
uint32_t slotline_loader_next_epoch(slotline_loader *loader);

// Stops a loader, for ever, and returns at once: a `slotline_loader_next` or `slotline_loader_epoch` that waits returns with
// `SLOTLINE_STOPPED`, and so does every later one. Workers stop at their current sample; callbacks are not interrupted.
// Batches in hand stay good, and `slotline_loader_state` says what was given, for another loader to go on from.
//
// Any thread, and from callbacks, too, whether the loader is in use or not; NULL is fine. Who is told `SLOTLINE_STOPPED` sees all
// that was done before this call, and may free the loader although this call has not returned.
//
// # Safety
//
// As of `slotline_loader_len`.
void slotline_loader_stop(const slotline_loader *loader);

// Frees a loader; NULL is fine. Its batches live on. It waits for its threads to come out of callbacks; those that do not
// within 5 s are left behind, with the memory that they can touch.
//
// Any thread, also while other calls are in the loader, in other threads or in a callback's caller. It is stopped then. If one of
// these calls uses the loader (one that another such call would be refused beside: `slotline_loader_next`, for example), the
// loader goes when that call returns. Calls that any thread may make (`slotline_loader_stop`, `slotline_loader_len`) do not keep
// the loader, and may return after it is gone.
//
// Other calls must have begun before this one, and the library cannot see that they have not: a call that another thread is
// about to make when this one is made reads memory that was freed. That a call has begun is certain when something of it was
// seen: it runs a callback, or, of the only call of `slotline_loader_stop`, some call gave `SLOTLINE_STOPPED`. Of any other call wait
// until it has returned. Callbacks of the loader's own may call it until they return; it is stopped and in use for them.
//
// # Safety
//
// As of `slotline_loader_len`; no call may begin from then on, but by the loader's callbacks that this call waits for.
void slotline_loader_free(slotline_loader *loader);

// Sets options to their defaults, and their `struct_size` to this one: `sizeof(slotline_options)`. Does nothing with NULL, or
// a size that is too short for a `struct_size`. Any thread.
//
// # Safety
//
// `options` must be NULL or writable for `struct_size` bytes.
void slotline_options_init(slotline_options *options,
                           size_t struct_size);

// The memory of field `field`, one of fixed shape, for the callback to write: every element, in C order, since it holds those
// of an earlier batch. It is in the batch itself, and the field counts as written. `bytes`, unless NULL, becomes how many
// there are. NULL if there is no such field, or it is not of fixed shape. `bool`s must be 0 or 1.
//
// # Safety
//
// `sample` must be NULL or what this callback was given; `bytes` NULL or writable. The memory may be written until the
// callback returns.
void *slotline_sample_row(slotline_sample *sample,
                          size_t field,
                          size_t *bytes);

// Writes field `field`, of any kind: copies `elements` elements from `data`. A field of fixed shape takes exactly those that
// it has, a ragged one at most as many, a packed one whole items. `data` may be memory that `slotline_sample_row` lent, also
// that of the same field.
//
// # Errors
//
// `SLOTLINE_INVALID`, which is also what the sample then fails with, unless the field is written after that: a null pointer,
// no such field, data that is not aligned, `bool`s other than 0 and 1, or not as many elements as there must be.
//
// # Safety
//
// `sample` must be NULL or what this callback was given; `data` must point to so many elements of the field's type.
slotline_status slotline_sample_write(slotline_sample *sample,
                                      size_t field,
                                      const void *data,
                                      size_t elements);

// Says why there is no sample, in UTF-8, which is copied. The callback must then return something other than 0 (and of a
// stream other than 1). Does nothing with NULL.
//
// # Safety
//
// `sample` must be NULL or what this callback was given; `message` NULL or end with a NUL.
void slotline_sample_fail(slotline_sample *sample,
                          const char *message);

// The next of the sample's own random numbers: a function of the seed, the epoch and the sample's position in the pass, and
// so the same for any number of workers, whoever reads the sample. 0 for NULL.
//
// # Safety
//
// `sample` must be NULL or what this callback was given.
uint64_t slotline_sample_random(slotline_sample *sample);

// The sample's place in the pass, from 0; of a stream its number in what this worker reads. 0 for NULL.
//
// # Safety
//
// As of `slotline_sample_random`.
uint64_t slotline_sample_position(slotline_sample *sample);

// The number of the pass, from 0. 0 for NULL.
//
// # Safety
//
// As of `slotline_sample_random`.
uint32_t slotline_sample_epoch(slotline_sample *sample);

// The number of the worker that reads the sample; -1 in the thread that asks for batches, or for NULL.
//
// # Safety
//
// As of `slotline_sample_random`.
int64_t slotline_sample_worker(slotline_sample *sample);

// Makes a sampler of a new random order in each pass (torch's `RandomSampler`), or, with `replacement`, of random draws.
// `num_samples` is how many samples a pass has; 0: as many as the dataset. Any thread.
//
// # Errors
//
// `SLOTLINE_INVALID`: `out` is NULL.
//
// # Safety
//
// `out` and `error` must be NULL or writable.
slotline_status slotline_sampler_random(uint8_t replacement,
                                        size_t num_samples,
                                        slotline_sampler **out,
                                        slotline_error **error);

// Makes a sampler of a new random order of these indices in each pass (torch's `SubsetRandomSampler`). They are copied. Any
// thread.
//
// # Errors
//
// `SLOTLINE_INVALID`: a null pointer.
//
// # Safety
//
// `indices` must point to `n` numbers; `out` and `error` must be NULL or writable.
slotline_status slotline_sampler_subset_random(const size_t *indices,
                                               size_t n,
                                               slotline_sampler **out,
                                               slotline_error **error);

// Makes a sampler of `num_samples` draws by weight (torch's `WeightedRandomSampler`): `weights[i]` is that of sample `i`. They
// are copied. Any thread.
//
// # Errors
//
// `SLOTLINE_INVALID`: a null pointer. What is wrong with the weights `slotline_loader_new` says, by `SLOTLINE_BUILD`.
//
// # Safety
//
// `weights` must point to `n` numbers; `out` and `error` must be NULL or writable.
slotline_status slotline_sampler_weighted(const double *weights,
                                          size_t n,
                                          size_t num_samples,
                                          uint8_t replacement,
                                          slotline_sampler **out,
                                          slotline_error **error);

// Makes a sampler of one replica's share of the dataset (torch's `DistributedSampler`): that of `rank`, below `num_replicas`.
// All replicas must be given the same seed, and before each pass the same `slotline_sampler_set_epoch`. Any thread.
//
// # Errors
//
// `SLOTLINE_INVALID`: `out` is NULL. A rank that is none `slotline_loader_new` says, by `SLOTLINE_BUILD`.
//
// # Safety
//
// `out` and `error` must be NULL or writable.
slotline_status slotline_sampler_distributed(size_t num_replicas,
                                             size_t rank,
                                             uint8_t shuffle,
                                             uint64_t seed,
                                             uint8_t drop_last,
                                             slotline_sampler **out,
                                             slotline_error **error);

// Makes a sampler of a new random order in each pass that takes no memory, for datasets of billions of samples; torch has
// none. Any thread.
//
// # Errors
//
// `SLOTLINE_INVALID`: `out` is NULL.
//
// # Safety
//
// `out` and `error` must be NULL or writable.
slotline_status slotline_sampler_cipher(slotline_sampler **out,
                                        slotline_error **error);

// Makes a sampler of these indices, in this order in each pass. They are copied. Any thread.
//
// # Errors
//
// `SLOTLINE_INVALID`: a null pointer.
//
// # Safety
//
// `indices` must point to `n` numbers; `out` and `error` must be NULL or writable.
slotline_status slotline_sampler_indices(const size_t *indices,
                                         size_t n,
                                         slotline_sampler **out,
                                         slotline_error **error);

// Makes a sampler of a callback. It is the sampler's from here on, also if this fails. Any thread.
//
// # Errors
//
// `SLOTLINE_INVALID`: a null pointer, or a short struct.
//
// # Safety
//
// `callback` must be NULL, or what `slotline_order_callback` says; `out` and `error` must be NULL or writable.
slotline_status slotline_sampler_from_callback(const slotline_order_callback *callback,
                                               slotline_sampler **out,
                                               slotline_error **error);

// Starts the process's default generator over with this seed (`torch.manual_seed`): what loaders and samplers draw from that
// have no seed of their own. It begins with one that nobody can foresee. Any thread.
void slotline_manual_seed(uint64_t seed);

// Has a sampler draw from a generator of its own with this seed, in loaders that are made from now on. Of no use to those that
// draw nothing, and to distributed ones, which have a seed. Does nothing with NULL.
//
// # Safety
//
// `sampler` must be NULL or a sampler that was not freed, and that nobody uses meanwhile.
void slotline_sampler_seed(slotline_sampler *sampler,
                           uint64_t seed);

// Says which epoch the next pass of a distributed sampler is, of all loaders that were made with it. Does nothing with others,
// or with NULL. Any thread.
//
// # Safety
//
// `sampler` must be NULL or a sampler that was not freed.
void slotline_sampler_set_epoch(const slotline_sampler *sampler,
                                uint64_t epoch);

// Frees a sampler; NULL is fine. Loaders made with it go on. Any thread.
//
// # Safety
//
// As of `slotline_sampler_set_epoch`; nobody may use it from then on.
void slotline_sampler_free(slotline_sampler *sampler);

// Appends bytes to what is saved.
//
// # Errors
//
// `SLOTLINE_INVALID`: a null pointer, or more bytes than memory can have.
//
// # Safety
//
// `saved` must be NULL or what this callback was given; `bytes` must point to `len` bytes.
slotline_status slotline_saved_append(slotline_saved *saved, const uint8_t *bytes, size_t len);

// Says where the loader is: behind what it has given, at any time in a pass or between two. The bytes are the caller's; they
// can be loaded by another process, on any machine. `*out` is NULL if it fails.
//
// # Errors
//
// `SLOTLINE_INVALID`: a null pointer, or the loader is in use.
//
// # Safety
//
// `loader` must be NULL or a loader that was not freed; `out` and `error` NULL or writable.
slotline_status slotline_loader_state(slotline_loader *loader,
                                      slotline_bytes **out,
                                      slotline_error **error);

// Puts the loader where `slotline_loader_state` was called, of this loader or of another one over the same data with the
// same options (but for the number of workers and the like): the next `slotline_loader_epoch` gives the rest of that pass. A
// pass that is not over is given up, unless the bytes are no state at all.
//
// # Errors
//
// `SLOTLINE_INVALID`: a null pointer, or the loader is in use. `SLOTLINE_STATE`: the bytes are damaged, or of a loader that
// does not fit; but for its pass the loader is as it was.
//
// # Safety
//
// As of `slotline_loader_state`; `data` must be NULL or have `len` bytes.
slotline_status slotline_loader_load_state(slotline_loader *loader,
                                           const uint8_t *data,
                                           size_t len,
                                           slotline_error **error);

// Says what the loader has done so far. `out->struct_size` must be set. Any thread may ask at any time, also while another call
// uses the loader.
//
// # Errors
//
// `SLOTLINE_INVALID`: a null pointer, or a short struct.
//
// # Safety
//
// `loader` must be NULL or a loader that was not freed; `out` NULL or writable for `out->struct_size` bytes; `error` NULL or
// writable.
slotline_status slotline_loader_stats(slotline_loader *loader,
                                      slotline_stats *out,
                                      slotline_error **error);

// All that is known of it, as JSON: what each worker did, the slowest samples, those that are bad or stuck. The text is the
// caller's; `*out` is NULL if it fails. Any thread may ask at any time, also while another call uses the loader.
//
// # Errors
//
// `SLOTLINE_INVALID`: a null pointer.
//
// # Safety
//
// `loader` must be NULL or a loader that was not freed; `out` and `error` NULL or writable.
slotline_status slotline_loader_stats_json(slotline_loader *loader,
                                           slotline_bytes **out,
                                           slotline_error **error);

// What held the loader back so far, in words. The text is the caller's; `*out` is NULL if it fails.
//
// # Errors
//
// As of `slotline_loader_stats_json`.
//
// # Safety
//
// As of `slotline_loader_stats_json`.
slotline_status slotline_loader_verdict(slotline_loader *loader, slotline_bytes **out, slotline_error **error);

// What was noticed when the loader was made, and since: a line for each warning, and none as a rule. The text is the
// caller's; `*out` is NULL if it fails.
//
// # Errors
//
// `SLOTLINE_INVALID`: a null pointer, or the loader is in use.
//
// # Safety
//
// As of `slotline_loader_stats_json`.
slotline_status slotline_loader_warnings(slotline_loader *loader, slotline_bytes **out, slotline_error **error);

// The version of the library's header, to be compared with `SLOTLINE_ABI_VERSION`. Any thread.
uint32_t slotline_abi_version(void);

// The library's version, such as "0.1.0". Any thread; the text is there for ever.
const char *slotline_version(void);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* SLOTLINE_H */
