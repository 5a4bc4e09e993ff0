/* precursor: appends to a file without meeting allocation, reclaim, the journal or dirty throttling.
 *
 * Generated from src/c_types.rs, c.rs and c_many.rs by cbindgen; tests/c_abi.rs checks that it is current.
 *
 * Threads: an appender is used by one thread at a time and may move between threads. Different appenders are independent.
 * After fork() only the parent may use it; the child is answered PRECURSOR_FORKED. Structures begin with their size: set it
 * (options: precursor_options_default does), and a library of another version fills or reads as much as both know. Functions return PRECURSOR_OK (0) or another of the codes below.
 */

#pragma once

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

// Done.
#define PRECURSOR_OK 0

// An argument is null or out of range, or options contradict one another.
#define PRECURSOR_INVALID 1

// The mode asked for cannot be had here; `PRECURSOR_AUTO` would find another.
#define PRECURSOR_REFUSED 2

// Another appender holds the file.
#define PRECURSOR_BUSY 3

// No room, and the policy is `PRECURSOR_FAIL`: try again later.
#define PRECURSOR_FULL 4

// The disk is full.
#define PRECURSOR_NO_SPACE 5

// The record is longer than the mode takes.
#define PRECURSOR_TOO_LONG 6

// The device, the file system or the helper failed.
#define PRECURSOR_FAILED 7

// A bug in the library, caught at the border.
#define PRECURSOR_PANIC 8

// This process was forked after the handle was opened; only the one that opened may use it.
#define PRECURSOR_FORKED 9

// Version of the header, as `precursor_version` gives the library's: 0x00MMmmpp.
#define PRECURSOR_VERSION 65536

// Let the machine be probed and a mode chosen.
#define PRECURSOR_AUTO 0

// Stores into locked memory; a flusher thread writes.
#define PRECURSOR_RING 1

// Stores into a mapped, populated, locked window of the file.
#define PRECURSOR_WINDOW 2

// Preallocated zeros, read ahead, `pwrite`.
#define PRECURSOR_PREFETCH 3

// `pwrite` alone.
#define PRECURSOR_PLAIN 4

// No room: wait.
#define PRECURSOR_WAIT 0

// No room: return `PRECURSOR_FULL`.
#define PRECURSOR_FAIL 1

// No room: grow the ring up to `grow_bytes_max`, then wait.
#define PRECURSOR_GROW 2

// An existing file: find its end and go on.
#define PRECURSOR_CONTINUE 0

// An existing file: empty it.
#define PRECURSOR_REPLACE 1

// An existing file: do not open.
#define PRECURSOR_REFUSE 2

// An open appender. One thread uses it at a time; `precursor_sync_to` and `precursor_get_stats` too.
typedef struct precursor precursor;

// An appender for many threads at a time: every function on it may be called from any thread, but `precursor_many_close` only once
// no other call is under way.
typedef struct precursor_many precursor_many;

// Syncs and looks from any thread, beside the one that appends. It outlives its appender; then it can only look.
typedef struct precursor_syncer precursor_syncer;

// How to open. Fill it with `precursor_options_default` first, then change fields: later versions may add some at the end.
typedef struct precursor_options {
  // `sizeof(precursor_options)` of the caller; set by `precursor_options_default`. A shorter one, of an older header, gets defaults for
  // what it lacks; of a longer one, of a newer header, the rest must be zero.
  uintptr_t size;
  // `PRECURSOR_AUTO` and so on.
  uint32_t mode;
  // `PRECURSOR_WAIT` and so on.
  uint32_t back_pressure;
  // `PRECURSOR_CONTINUE` and so on.
  uint32_t existing;
  // Not zero: records carry length and checksum.
  uint32_t framed;
  // Not zero: readers must see each byte in the file once `append` has returned.
  uint32_t readable_at_once;
  // Not zero: every append is timed for `worst_append_ns`.
  uint32_t measure;
  // NUMA node of the memory; -1 = that of the opening thread.
  int32_t node;
  // CPU of the helper threads; -1 = any.
  int32_t helper_cpu;
  // File size at which a new file begins, bytes; the path must then hold {}. 0 = one file.
  uint64_t roll_bytes;
  // Unit of preparation, bytes; 0 = chosen.
  uint64_t window_bytes;
  // Capacity of the ring, bytes.
  uint64_t ring_bytes;
  // Ceiling on memory, bytes.
  uint64_t memory_bytes_max;
  // With `PRECURSOR_GROW`: all rings together, bytes.
  uint64_t grow_bytes_max;
  // A thread syncs this often, ms; 0 = only `precursor_sync_to` does.
  uint64_t sync_every_ms;
  // Folder for shared memory, zero-terminated; null = /dev/shm.
  const char *shm_dir;
  // Not zero: `PRECURSOR_WINDOW` leaves the process's SIGBUS handler alone.
  uint32_t leave_sigbus;
  // Not zero: `PRECURSOR_AUTO` may take a mode whose records survive the process only after `precursor_sync_to`.
  uint32_t process_death_may_lose;
} precursor_options;

// Counters; see the Rust documentation of `Stats`.
typedef struct precursor_stats {
  // Set it to `sizeof(precursor_stats)` before the call; afterwards how much of it was filled.
  uintptr_t size;
  // Mode in use, never `PRECURSOR_AUTO`.
  uint32_t mode;
  // 1 if its memory is locked.
  uint32_t locked;
  uint64_t appends;
  uint64_t position;
  uint64_t run_ahead_bytes;
  uint64_t late_windows;
  uint64_t waits;
  // 0 if not measured.
  uint64_t worst_append_ns;
  uint64_t flusher_lag_bytes;
  uint64_t at_risk_bytes;
  uint64_t durable;
  uint64_t memory_bytes;
  uint64_t rolls;
  uint64_t grown;
  // Times `window` went over to its ring.
  uint64_t fallbacks;
  // `UINT64_MAX`: space enough; else the bytes left on a disk that is running full.
  uint64_t out_of_space;
} precursor_stats;

// What recovery found.
typedef struct precursor_recovered {
  // Set it to `sizeof(precursor_recovered)` before the call; afterwards how much of it was filled.
  uintptr_t size;
  // Exact length of the last file now, bytes.
  uint64_t len;
  // Written from the ring to the file, bytes.
  uint64_t replayed_bytes;
  // Cut off behind the end, bytes.
  uint64_t cut_bytes;
  // 0 length, 1 live block (exact), 2 frames, 3 journalled position, 4 unproven length.
  uint32_t evidence;
  // Zero.
  uint32_t reserved;
} precursor_recovered;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// The library's version: 0x00MMmmpp. The same MM as `PRECURSOR_VERSION` of the header is compatible with it.
uint32_t precursor_version(void);

// Fills in the defaults. `size` is `sizeof(precursor_options)` of the caller, whatever the library's is.
//
// # Safety
// `options` has `size` writable bytes, or is null.
int precursor_options_default(struct precursor_options *options, uintptr_t size);

// Opens `path` and stores the appender in `*out`. On failure `*out` is null and `message` (if not null) holds a sentence that
// says what happened and what to do.
//
// # Safety
// `path` is a zero-terminated string; `options` is null (defaults) or filled; `out` is writable; `message` is null or has
// `message_len` writable bytes.
int precursor_open(const char *path,
                   const struct precursor_options *options,
                   struct precursor **out,
                   char *message,
                   uintptr_t message_len);

// Appends `len` bytes. `*position` (may be null) receives the end of the record.
//
// # Safety
// `handle` is open and used by no other thread now; `bytes` has `len` readable bytes.
int precursor_append(struct precursor *handle, const uint8_t *bytes, uintptr_t len, uint64_t *position);

// Lends `len` bytes of the file's own memory at `*at`, valid until the next call on this appender.
//
// # Safety
// `handle` is open and used by no other thread now; `at` is writable.
int precursor_reserve(struct precursor *handle, uintptr_t len, uint8_t **at);

// Appends the first `len` bytes of the reservation.
//
// # Safety
// As for `precursor_append`.
int precursor_commit(struct precursor *handle, uintptr_t len, uint64_t *position);

// End of what was appended; 0 for null.
//
// # Safety
// `handle` is null or open.
uint64_t precursor_position(const struct precursor *handle);

// Puts everything up to `position` on the device; `*durable` (may be null) receives how far it is safe.
//
// # Safety
// As for `precursor_append`; `message` is null or has `message_len` writable bytes.
int precursor_sync_to(struct precursor *handle,
                      uint64_t position,
                      uint64_t *durable,
                      char *message,
                      uintptr_t message_len);

// Why this mode was chosen and what it does without; valid until close, null for null.
//
// # Safety
// `handle` is null or open.
const char *precursor_reasons(const struct precursor *handle);

// 1 if a record survives the death of this process once `append` has returned, 0 if only after `precursor_sync_to`: without shared
// memory, or where it may go with a container or at a logout.
//
// # Safety
// `handle` is null or open.
int precursor_survives_process(const struct precursor *handle);

// Why appends fail with `PRECURSOR_FAILED`: fills in `message`, which becomes empty while nothing has failed.
//
// # Safety
// `handle` is null or open; `message` is null or has `message_len` writable bytes.
int precursor_failure(const struct precursor *handle, char *message, uintptr_t message_len);

// Fills in the counters, as far as `stats->size` says that there is room.
//
// # Safety
// `handle` is open and used by no other thread now; `stats` has as many writable bytes as its size says.
int precursor_get_stats(struct precursor *handle, struct precursor_stats *stats);

// Closes: the file gets its exact length and is durable. The handle is gone whatever is returned.
//
// # Safety
// `handle` is null or open, and used by nobody; `message` is null or has `message_len` writable bytes.
int precursor_close(struct precursor *handle, char *message, uintptr_t message_len);

// Brings a file or pattern to the true end of its data after a crash.
//
// # Safety
// `path` is a zero-terminated string; `out` is null or has as many writable bytes as its size says; `message` is null or has `message_len` writable bytes.
int precursor_recover(const char *path,
                      struct precursor_recovered *out,
                      char *message,
                      uintptr_t message_len);

// Opens `path` for many producers: framed records in a ring. As `precursor_open` otherwise.
//
// # Safety
// As for `precursor_open`.
int precursor_open_many(const char *path,
                        const struct precursor_options *options,
                        struct precursor_many **out,
                        char *message,
                        uintptr_t message_len);

// Appends `len` bytes, from any thread. `*position` (may be null) receives the end of the record.
//
// # Safety
// `handle` is open; `bytes` has `len` readable bytes.
int precursor_many_append(const struct precursor_many *handle, const uint8_t *bytes, uintptr_t len, uint64_t *position);

// Puts everything up to `position` on the device; waits for the records of other producers before it.
//
// # Safety
// `handle` is open; `durable` is null or writable; `message` is null or has `message_len` writable bytes.
int precursor_many_sync_to(const struct precursor_many *handle,
                           uint64_t position,
                           uint64_t *durable,
                           char *message,
                           uintptr_t message_len);

// Fills in the counters; `worst_append_ns` is not measured here.
//
// # Safety
// `handle` is open; `stats` has as many writable bytes as its size says.
int precursor_many_get_stats(const struct precursor_many *handle, struct precursor_stats *stats);

// Why this mode was chosen and what it does without; valid until close, null for null.
//
// # Safety
// `handle` is null or open.
const char *precursor_many_reasons(const struct precursor_many *handle);

// Closes for all producers. The handle is gone whatever is returned.
//
// # Safety
// `handle` is null or open, and used by nobody; `message` is null or has `message_len` writable bytes.
int precursor_many_close(struct precursor_many *handle, char *message, uintptr_t message_len);

// Makes a handle for syncing from another thread; give it back with `precursor_syncer_free`.
//
// # Safety
// `handle` is null or open; `out` is writable.
int precursor_get_syncer(const struct precursor *handle, struct precursor_syncer **out);

// As `precursor_get_syncer`, of an appender for many threads.
//
// # Safety
// As for `precursor_get_syncer`.
int precursor_many_get_syncer(const struct precursor_many *handle, struct precursor_syncer **out);

// As `precursor_sync_to`, from any thread and at any time.
//
// # Safety
// `syncer` was not freed; `durable` is null or writable; `message` is null or has `message_len` writable bytes.
int precursor_syncer_sync_to(const struct precursor_syncer *syncer,
                             uint64_t position,
                             uint64_t *durable,
                             char *message,
                             uintptr_t message_len);

// End of what was appended, as far as it can be seen from here; 0 for null.
//
// # Safety
// `syncer` is null or was not freed.
uint64_t precursor_syncer_position(const struct precursor_syncer *syncer);

// Fills in the counters, from any thread.
//
// # Safety
// `syncer` was not freed; `stats` has as many writable bytes as its size says.
int precursor_syncer_get_stats(const struct precursor_syncer *syncer, struct precursor_stats *stats);

// Gives the handle back; null is nothing.
//
// # Safety
// `syncer` is null or was not freed, and is used by nobody.
void precursor_syncer_free(struct precursor_syncer *syncer);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus
