/* precursor: appends records to a file so that the writer does not wait for block allocation, reclaim, the journal or
 * dirty throttling.
 *
 * Generated from src/c_types.rs, c.rs, c_many.rs and c_read.rs by cbindgen; tests/c_abi.rs checks that it is current.
 *
 * Functions return PRECURSOR_OK (0) or another of the codes below. One thread at a time uses an appender; it may move
 * between threads. Different appenders are independent. After fork() only the parent may use an appender; in the child
 * the functions return PRECURSOR_FORKED. Structures begin with their size: set it before the call
 * (precursor_options_default does so for options). A library of another version then reads or fills the fields that
 * both versions have.
 */

#pragma once

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

// Success.
#define PRECURSOR_OK 0

// An argument is null or out of range, a handle is not open, the options contradict one another, the file exists
// although it must not, a commit has no matching reservation, or a position was never appended.
#define PRECURSOR_INVALID 1

// This machine cannot run the requested mode; `PRECURSOR_AUTO` would choose another.
#define PRECURSOR_REFUSED 2

// Another appender has the file open.
#define PRECURSOR_BUSY 3

// No room is left, and the policy is `PRECURSOR_FAIL`: try again later.
#define PRECURSOR_FULL 4

// The disk or the quota is full.
#define PRECURSOR_NO_SPACE 5

// The record is longer than the mode can take.
#define PRECURSOR_TOO_LONG 6

// The device, the file system, a helper thread or recovery failed, or the appender is closed.
#define PRECURSOR_FAILED 7

// A bug in the library. Every later call on the handle returns this too. The file stays locked until the process ends;
// opening it then recovers it.
#define PRECURSOR_PANIC 8

// This process was forked after the handle was opened. Only the process that opened it may use it.
#define PRECURSOR_FORKED 9

// No record is published yet.
#define PRECURSOR_NONE 10

// Records are missing, because files were archived or removed. The next call continues behind the gap.
#define PRECURSOR_MISSING 11

// Version of the header, 0x00MMmmpp. `precursor_version` returns the library's.
#define PRECURSOR_VERSION 66048

// Without room, wait.
#define PRECURSOR_WAIT 0

// Without room, return `PRECURSOR_FULL`.
#define PRECURSOR_FAIL 1

// Without room, grow the ring up to `grow_bytes_max`, then wait.
#define PRECURSOR_GROW 2

// Append to an existing file, at the end of the data.
#define PRECURSOR_CONTINUE 0

// Discard the contents of an existing file.
#define PRECURSOR_REPLACE 1

// Refuse to open an existing file.
#define PRECURSOR_REFUSE 2

// Modes, for `precursor_options.mode` and `precursor_stats.mode`.
enum precursor_mode
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // Probe the machine and choose a mode.
  PRECURSOR_AUTO = 0,
  // The writer stores into a locked ring in memory; a flusher thread writes the file.
  PRECURSOR_RING = 1,
  // The writer stores into a mapped, populated and locked window of the file.
  PRECURSOR_WINDOW = 2,
  // The writer calls `pwrite` on preallocated zeros that a helper thread reads ahead.
  PRECURSOR_PREFETCH = 3,
  // The writer calls `pwrite`; nothing is prepared.
  PRECURSOR_PLAIN = 4,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum precursor_mode precursor_mode;
#else
typedef uint32_t precursor_mode;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// Where `precursor_reader_seek` continues.
enum precursor_seek
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // The first record that exists.
  PRECURSOR_SEEK_FIRST = 0,
  // Behind the last published record.
  PRECURSOR_SEEK_END = 1,
  // The first record that ends after this position.
  PRECURSOR_SEEK_AFTER = 2,
  // The record with this number.
  PRECURSOR_SEEK_NUMBER = 3,
  // The first record whose time is this or later, ns since 1970.
  PRECURSOR_SEEK_TIME = 4,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum precursor_seek precursor_seek;
#else
typedef uint32_t precursor_seek;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// What `precursor_reader_writer` knows of the writer.
enum precursor_writer
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // None is known: the last one has closed, or its shared memory cannot be read by this user.
  PRECURSOR_WRITER_UNKNOWN = 0,
  // It runs.
  PRECURSOR_WRITER_ALIVE = 1,
  // It has died, and its data are not recovered yet. The reader reads what recovery will keep.
  PRECURSOR_WRITER_DEAD = 2,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum precursor_writer precursor_writer;
#else
typedef uint32_t precursor_writer;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// An open appender. One thread at a time may use it, for every function; `precursor_syncer` serves other threads. A
// handle is a number and not an address: a handle that is closed, or was never opened, returns `PRECURSOR_INVALID`.
typedef struct precursor precursor;

// An appender for many threads. Any thread may call any function on it at any time, except that no other call may be
// running during `precursor_many_close`. Later calls return `PRECURSOR_INVALID`.
typedef struct precursor_many precursor_many;

// A reader of a framed file or pattern. One thread at a time may use it; it may move between threads.
typedef struct precursor_reader precursor_reader;

// Syncs and reads counters from any thread, while another thread appends. It outlives its appender; after close it can
// only read counters.
typedef struct precursor_syncer precursor_syncer;

// Options of `precursor_open`. Call `precursor_options_default` first, then change fields: later versions may add
// fields at the end.
typedef struct precursor_options {
  // The caller's `sizeof(precursor_options)`, set by `precursor_options_default`. Fields that a shorter, older
  // structure lacks have their defaults; bytes that a longer, newer one adds must be zero.
  uintptr_t size;
  // A `precursor_mode`.
  uint32_t mode;
  // `PRECURSOR_WAIT`, `PRECURSOR_FAIL` or `PRECURSOR_GROW`.
  uint32_t back_pressure;
  // `PRECURSOR_CONTINUE`, `PRECURSOR_REPLACE` or `PRECURSOR_REFUSE`.
  uint32_t existing;
  // Not zero: each record carries its length, a checksum and its number. `precursor_reader_open` reads such files.
  uint32_t framed;
  // Not zero: readers of the file see each byte once `append` has returned.
  uint32_t readable_at_once;
  // Not zero: measure every append for `worst_append_ns`.
  uint32_t measure;
  // NUMA node of the memory, which the machine must have; -1 = the node of the opening thread.
  int32_t node;
  // CPU of the helper threads, which the machine must have; -1 = any.
  int32_t helper_cpu;
  // Size at which a new file begins, bytes; the path must then contain {}. 0 = one file.
  uint64_t roll_bytes;
  // Bytes prepared and released at a time; 0 = chosen by the library.
  uint64_t window_bytes;
  // Capacity of the ring, bytes.
  uint64_t ring_bytes;
  // Upper limit of memory, bytes.
  uint64_t memory_bytes_max;
  // With `PRECURSOR_GROW`: upper limit of all rings together, bytes.
  uint64_t grow_bytes_max;
  // Interval at which a thread of the library syncs, ms; 0 = only `precursor_sync_to` syncs.
  uint64_t sync_every_ms;
  // Directory for shared memory, zero-terminated; null = /dev/shm.
  const char *shm_dir;
  // Not zero: `PRECURSOR_WINDOW` does not install a SIGBUS handler.
  uint32_t leave_sigbus;
  // Not zero: `PRECURSOR_AUTO` may choose a mode whose records survive the process only after `precursor_sync_to`.
  uint32_t process_death_may_lose;
  // Not zero: framed records carry the time of their append.
  uint32_t times;
  // Always 0.
  uint32_t reserved;
  // Age at which a new file begins, ms; needs `roll_bytes`. 0 = at no age.
  uint64_t roll_every_ms;
  // Most files of a pattern; older files are removed. 0 = all are kept.
  uint64_t retain_files;
  // Most bytes of all files of a pattern; older files are removed. 0 = all are kept.
  uint64_t retain_bytes;
} precursor_options;

// Counters; see the Rust documentation of `Stats`.
typedef struct precursor_stats {
  // Set to `sizeof(precursor_stats)` before the call; the library stores how many bytes it filled.
  uintptr_t size;
  // The mode in use, never `PRECURSOR_AUTO`.
  uint32_t mode;
  // 1 if the mode's memory is locked.
  uint32_t locked;
  // Records accepted.
  uint64_t appends;
  // End of the appended data.
  uint64_t position;
  // Bytes that the writer can append without waiting for the helper.
  uint64_t run_ahead_bytes;
  // How often the writer reached a window or a file that was not ready.
  uint64_t late_windows;
  // How many appends waited.
  uint64_t waits;
  // Longest append, ns; 0 if not measured.
  uint64_t worst_append_ns;
  // Accepted bytes that are not yet written to the file.
  uint64_t flusher_lag_bytes;
  // Bytes that would be lost if the machine died now.
  uint64_t at_risk_bytes;
  // Last durable position.
  uint64_t durable;
  // Upper limit of the memory before the writer.
  uint64_t memory_bytes;
  // Files begun after the first.
  uint64_t rolls;
  // Rings added after the first.
  uint64_t grown;
  // How often `window` switched to its ring.
  uint64_t fallbacks;
  // `UINT64_MAX` while there is enough space; otherwise the bytes left on the full disk.
  uint64_t out_of_space;
} precursor_stats;

// Result of `precursor_recover`.
typedef struct precursor_recovered {
  // Set to `sizeof(precursor_recovered)` before the call; the library stores how many bytes it filled.
  uintptr_t size;
  // Exact length of the last file after recovery, bytes.
  uint64_t len;
  // Bytes written from the ring to the file.
  uint64_t replayed_bytes;
  // Bytes cut off beyond the end of the data.
  uint64_t cut_bytes;
  // How the end was found: 0 length, 1 live block (exact), 2 frames, 3 journalled position, 4 unproven length.
  uint32_t evidence;
  // Always 0.
  uint32_t reserved;
} precursor_recovered;

// A record, filled in by `precursor_reader_next`.
typedef struct precursor_record {
  // Set to `sizeof(precursor_record)` before the call; the library stores how many bytes it filled.
  uintptr_t size;
  // Number of the record: consecutive over all files.
  uint64_t number;
  // Time of the append, ns since 1970; 0 if the writer recorded none.
  uint64_t time_ns;
  // End of the record, as `precursor_append` stored it.
  uint64_t position;
  // The payload, valid until the next call on the reader.
  const uint8_t *bytes;
  // Length of the payload, bytes.
  uintptr_t len;
} precursor_record;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Version of the library: 0x00MMmmpp. A library is compatible with a header that has the same MM in
// `PRECURSOR_VERSION`.
uint32_t precursor_version(void);

// Fills in the defaults. `size` is the caller's `sizeof(precursor_options)`, which may differ from the library's.
//
// # Safety
// `options` is null, or points to `size` writable bytes aligned for a pointer.
int precursor_options_default(struct precursor_options *options, uintptr_t size);

// Opens `path` and stores the appender in `*out`. On failure `*out` is null, and `message` (if not null) receives the
// cause and the remedy.
//
// # Safety
// `path` is a zero-terminated string. `options` is null (defaults) or filled by `precursor_options_default`. `out` is
// null or writable. `message` is null or has `message_len` writable bytes.
int precursor_open(const char *path,
                   const struct precursor_options *options,
                   struct precursor **out,
                   char *message,
                   uintptr_t message_len);

// Appends `len` bytes. `*position` (may be null) receives the end of the record.
//
// # Safety
// No other thread uses `handle` now. `bytes` has `len` readable bytes. `position` is null or
// writable.
int precursor_append(struct precursor *handle, const uint8_t *bytes, uintptr_t len, uint64_t *position);

// Lends `len` bytes of the file's or the ring's memory at `*at`, valid until the next call on this appender.
//
// # Safety
// No other thread uses `handle` now. `at` is null or writable.
int precursor_reserve(struct precursor *handle, uintptr_t len, uint8_t **at);

// Appends the first `len` bytes of the reservation, and drops the reservation.
//
// # Safety
// As for `precursor_append`.
int precursor_commit(struct precursor *handle, uintptr_t len, uint64_t *position);

// End of the appended data; 0 if `handle` is not open.
//
// # Safety
// No other thread uses `handle` now.
uint64_t precursor_position(const struct precursor *handle);

// Makes everything up to `position` durable. `*durable` (may be null) receives the durable position, at least
// `position`.
//
// # Safety
// No other thread uses `handle` now. `durable` is null or writable. `message` is null or has
// `message_len` writable bytes.
int precursor_sync_to(struct precursor *handle,
                      uint64_t position,
                      uint64_t *durable,
                      char *message,
                      uintptr_t message_len);

// Why this mode was chosen and what it lacks, in one string that is valid until close; null if `handle` is not open.
//
// # Safety
// No other thread uses `handle` now.
const char *precursor_reasons(const struct precursor *handle);

// 1 if a record survives the death of this process once `precursor_append` has returned. 0 if it survives only after
// `precursor_sync_to`: without shared memory, or if that may be removed with a container or at a logout.
//
// # Safety
// No other thread uses `handle` now.
int precursor_survives_process(const struct precursor *handle);

// Writes the reason why appends return `PRECURSOR_FAILED` to `message`; an empty string if nothing has failed.
//
// # Safety
// No other thread uses `handle` now. `message` is null or has `message_len` writable bytes.
int precursor_failure(const struct precursor *handle, char *message, uintptr_t message_len);

// Fills in the counters, as many bytes as `stats->size` says.
//
// # Safety
// No other thread uses `handle` now. `stats` is null or has `stats->size` writable bytes.
int precursor_get_stats(struct precursor *handle, struct precursor_stats *stats);

// Closes: gives the file its exact length and makes it durable. The handle is closed, whatever this returns.
//
// # Safety
// No other thread uses `handle` now. `message` is null or has `message_len` writable
// bytes.
int precursor_close(struct precursor *handle, char *message, uintptr_t message_len);

// Cuts a file or pattern to the true end of the data after a crash.
//
// # Safety
// `path` is a zero-terminated string. `out` is null or has `out->size` writable bytes. `message` is null or has
// `message_len` writable bytes.
int precursor_recover(const char *path, struct precursor_recovered *out, char *message, uintptr_t message_len);

// Opens `path` for many producers: framed records in a ring. Otherwise as `precursor_open`.
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
// No other thread closes `handle` now. `bytes` has `len` readable bytes. `position` is null or writable.
int precursor_many_append(const struct precursor_many *handle, const uint8_t *bytes, uintptr_t len, uint64_t *position);

// Makes everything up to `position` durable. Waits for other producers whose records come before `position`.
//
// # Safety
// No other thread closes `handle` now. `durable` is null or writable. `message` is null or has `message_len` writable
// bytes.
int precursor_many_sync_to(const struct precursor_many *handle,
                           uint64_t position,
                           uint64_t *durable,
                           char *message,
                           uintptr_t message_len);

// Fills in the counters. `worst_append_ns` is 0: it is not measured for many producers.
//
// # Safety
// No other thread closes `handle` now. `stats` is null or has `stats->size` writable bytes.
int precursor_many_get_stats(const struct precursor_many *handle, struct precursor_stats *stats);

// Why this mode was chosen and what it lacks, in one string that is valid until close; null if `handle` is not open.
//
// # Safety
// No other thread closes `handle` now.
const char *precursor_many_reasons(const struct precursor_many *handle);

// As `precursor_failure`, from any thread.
//
// # Safety
// No other thread closes `handle` now. `message` is null or has `message_len` writable bytes.
int precursor_many_failure(const struct precursor_many *handle, char *message, uintptr_t message_len);

// Closes for all producers. The handle is closed, whatever this returns.
//
// # Safety
// No other thread uses `handle` now. `message` is null or has `message_len` writable
// bytes.
int precursor_many_close(struct precursor_many *handle, char *message, uintptr_t message_len);

// Creates a handle for syncing on another thread; free it with `precursor_syncer_free`.
//
// # Safety
// No other thread uses `handle` now. `out` is null or writable.
int precursor_get_syncer(const struct precursor *handle, struct precursor_syncer **out);

// As `precursor_get_syncer`, for an appender of many producers, from any thread.
//
// # Safety
// No other thread closes `handle` now. `out` is null or writable.
int precursor_many_get_syncer(const struct precursor_many *handle, struct precursor_syncer **out);

// As `precursor_sync_to`, from any thread and at any time. After close it succeeds only up to the durable position.
//
// # Safety
// No other thread frees `syncer` now. `durable` is null or writable. `message` is null or has `message_len` writable
// bytes.
int precursor_syncer_sync_to(const struct precursor_syncer *syncer,
                             uint64_t position,
                             uint64_t *durable,
                             char *message,
                             uintptr_t message_len);

// End of the appended data, as published to other threads; 0 if `syncer` is not open.
//
// # Safety
// No other thread frees `syncer` now.
uint64_t precursor_syncer_position(const struct precursor_syncer *syncer);

// Fills in the counters, from any thread.
//
// # Safety
// No other thread frees `syncer` now. `stats` is null or has `stats->size` writable bytes.
int precursor_syncer_get_stats(const struct precursor_syncer *syncer, struct precursor_stats *stats);

// Frees the handle. Does nothing if it is null or not open.
//
// # Safety
// No other thread uses `syncer` now.
void precursor_syncer_free(struct precursor_syncer *syncer);

// What a code means, in one English sentence. Never null; for an unknown number, a sentence that says so.
const char *precursor_strerror(int code);

// Opens the framed file or pattern `path` at its first record, and stores the reader in `*out`. The file need not
// exist yet. On failure `*out` is null, and `message` (if not null) receives the cause and the remedy.
//
// # Safety
// `path` is a zero-terminated string. `out` is null or writable. `message` is null or has `message_len` writable
// bytes.
int precursor_reader_open(const char *path, struct precursor_reader **out, char *message, uintptr_t message_len);

// Fills in the next record; waits for it at most `wait_us` microseconds. Returns `PRECURSOR_NONE` if there is none.
// `record->bytes` is valid until the next call on this reader.
//
// # Safety
// No other thread uses `handle` now. `record` is null or has `record->size` writable bytes. `message` is null or has
// `message_len` writable bytes.
int precursor_reader_next(struct precursor_reader *handle,
                          struct precursor_record *record,
                          uint64_t wait_us,
                          char *message,
                          uintptr_t message_len);

// Continues elsewhere: `to` is a `precursor_seek`, `value` the position, number or time.
//
// # Safety
// No other thread uses `handle` now. `message` is null or has `message_len` writable bytes.
int precursor_reader_seek(struct precursor_reader *handle,
                          uint32_t to,
                          uint64_t value,
                          char *message,
                          uintptr_t message_len);

// Not zero: the reader spins while it waits, which costs the writer nothing. 0 (default): it sleeps.
//
// # Safety
// No other thread uses `handle` now.
int precursor_reader_spin(struct precursor_reader *handle, int spin);

// What is known of the writer now, a `precursor_writer`; `PRECURSOR_WRITER_UNKNOWN` also if `handle` is not open.
//
// # Safety
// No other thread uses `handle` now.
uint32_t precursor_reader_writer(const struct precursor_reader *handle);

// Closes a reader.
//
// # Safety
// No other thread uses `handle`.
int precursor_reader_close(struct precursor_reader *handle);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus
