/* narrows.h: lossless compression of buffers and streams, and self-compressing block devices.
 *
 * Made by cbindgen from the Rust sources of `crates/capi`; do not edit. docs/c.md begins with examples.
 *
 * Results. A function that returns size_t returns a length or 0, or else an error: ask narrows_is_error().
 * Threads. A device may be used by any number of threads at once. A context or stream is used by one thread at a
 * time; different ones are independent. There is no global state.
 * Pointers. A null pointer where an object or a buffer of some bytes is needed is an error, not a crash.
 * Structs that begin with struct_size grow: set it to sizeof the struct, and every member you do not know to zero.
 */

#ifndef NARROWS_H
#define NARROWS_H

#include <stddef.h>
#include <stdint.h>

/*
 For pwrite, trim and zero: be durable before the call returns.
 */
#define NARROWS_FUA 1

/*
 For zero: keep the range provisioned.
 */
#define NARROWS_KEEP_ALLOCATED 2

/*
 For zero: fail rather than take as long as writing zeroes would.
 */
#define NARROWS_FAST_ONLY 4

/*
 What went wrong, as narrows_get_error_code() tells it. Numbers are never reused.
 */
typedef enum narrows_error_code {
    /*
     No error.
     */
    NARROWS_ERROR_CODE_NONE = 0,
    /*
     A null pointer where something is needed.
     */
    NARROWS_ERROR_CODE_NULL_POINTER = 1,
    /*
     An argument that makes no sense.
     */
    NARROWS_ERROR_CODE_INVALID_ARGUMENT = 2,
    /*
     A parameter or a member of a struct that this version does not know.
     */
    NARROWS_ERROR_CODE_PARAMETER_UNSUPPORTED = 3,
    /*
     A parameter's value is out of its bounds.
     */
    NARROWS_ERROR_CODE_PARAMETER_OUT_OF_BOUND = 4,
    /*
     A call out of its turn, as compressing more after the end.
     */
    NARROWS_ERROR_CODE_STAGE_WRONG = 5,
    /*
     The destination is too small. It may have been written to.
     */
    NARROWS_ERROR_CODE_DST_TOO_SMALL = 6,
    /*
     The input is damaged or not of this format.
     */
    NARROWS_ERROR_CODE_CORRUPT = 7,
    /*
     The input ends too early.
     */
    NARROWS_ERROR_CODE_TRUNCATED = 8,
    /*
     Made by a newer version.
     */
    NARROWS_ERROR_CODE_VERSION_UNSUPPORTED = 9,
    /*
     Larger than the limit given.
     */
    NARROWS_ERROR_CODE_LIMIT_EXCEEDED = 10,
    /*
     The system gives no memory or no thread.
     */
    NARROWS_ERROR_CODE_MEMORY_ALLOCATION = 11,
    /*
     Reading or writing failed.
     */
    NARROWS_ERROR_CODE_IO = 12,
    /*
     No space. What was acknowledged is safe, and trimming makes room.
     */
    NARROWS_ERROR_CODE_NO_SPACE = 13,
    /*
     The device takes no writes.
     */
    NARROWS_ERROR_CODE_READ_ONLY = 14,
    /*
     Nothing of that name.
     */
    NARROWS_ERROR_CODE_NOT_FOUND = 15,
    /*
     Another program has it.
     */
    NARROWS_ERROR_CODE_BUSY = 16,
    /*
     What is there is not a narrows disk.
     */
    NARROWS_ERROR_CODE_NOT_A_DISK = 17,
    /*
     Something else is there already.
     */
    NARROWS_ERROR_CODE_OCCUPIED = 18,
    /*
     A flush failed, so that what is durable is not known. Close the device and open it again.
     */
    NARROWS_ERROR_CODE_POISONED = 19,
    /*
     The device is closed.
     */
    NARROWS_ERROR_CODE_CLOSED = 20,
    /*
     The device cannot do this in the way asked for.
     */
    NARROWS_ERROR_CODE_OPERATION_UNSUPPORTED = 21,
    /*
     A bug in narrows. The object takes no more calls; free it.
     */
    NARROWS_ERROR_CODE_INTERNAL = 22,
} narrows_error_code;

/*
 A block device. Any number of threads may use it at once.
 */
typedef struct narrows_device narrows_device;

/*
 What a new disk is to be.
 */
typedef struct narrows_disk_creation {
    /*
     sizeof(narrows_disk_creation).
     */
    size_t struct_size;
    /*
     Size of the device in bytes.
     */
    uint64_t size;
    /*
     Length of a file that is made for it, in bytes; 0 for one on which even data that does not pack fits.
     */
    uint64_t physical;
    /*
     How hard to compress: 0 balanced, 1 fast, 2 balanced, 3 dense.
     */
    uint32_t profile;
    /*
     1: the device may not promise more than its backing holds.
     */
    uint32_t guaranteed;
    /*
     1: overwrite what is there.
     */
    uint32_t force;
    /*
     0.
     */
    uint32_t reserved;
} narrows_disk_creation;

/*
 Why a call failed, in words. Give one where a function takes it, or null.
 */
typedef struct narrows_reason {
    /*
     Ends with a zero byte; cut where it would be longer. Empty where the call succeeded.
     */
    char text[512];
} narrows_reason;

/*
 How a disk is run.
 */
typedef struct narrows_disk_options {
    /*
     sizeof(narrows_disk_options).
     */
    size_t struct_size;
    /*
     How hard to compress: 0 as the disk was made, 1 fast, 2 balanced, 3 dense.
     */
    uint32_t profile;
    /*
     1: take no writes and write nothing.
     */
    uint32_t read_only;
    /*
     1: do not pack data again while the device is idle.
     */
    uint32_t no_recompress;
    /*
     0.
     */
    uint32_t reserved;
} narrows_disk_options;

/*
 What a RAM disk is to be.
 */
typedef struct narrows_memory_options {
    /*
     sizeof(narrows_memory_options).
     */
    size_t struct_size;
    /*
     Size of the device in bytes.
     */
    uint64_t size;
    /*
     Most memory for its pages in bytes; 0 for no limit.
     */
    uint64_t mem_limit;
    /*
     A file or block device for pages that do not pack; null for none. What it holds is lost.
     */
    const char *backing;
    /*
     Most bytes of it; 0 for no limit.
     */
    uint64_t backing_limit;
    /*
     How hard to compress: 0 dense, 1 fast, 2 balanced, 3 dense, 4 ratio.
     */
    uint32_t profile;
    /*
     1: do not pack cold pages harder.
     */
    uint32_t no_recompress;
} narrows_memory_options;

/*
 A run of bytes in one state.
 */
typedef struct narrows_extent {
    /*
     Length in bytes, at least 1.
     */
    uint64_t length;
    /*
     1: nothing is stored for it.
     */
    uint32_t hole;
    /*
     1: it reads as zeroes.
     */
    uint32_t zero;
} narrows_extent;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/*
 Version of the library that runs: major * 10000 + minor * 100 + patch.
 */
unsigned int narrows_version_number(void);

/*
 Version of the library that runs, as text. Never freed.
 */
const char *narrows_version_string(void);

/*
 Whether a result is an error: 1, else 0.
 */
int narrows_is_error(size_t result);

/*
 Which error a result is, as narrows_error_code has them; NARROWS_ERROR_CODE_NONE if it is none.
 */
int narrows_get_error_code(size_t result);

/*
 What a result says, in a few words. Never null, never freed.
 */
const char *narrows_error_name(size_t result);

/*
 The error number of errno.h that comes nearest to a result; 0 if it is no error.
 */
int narrows_error_errno(size_t result);

/*
 Makes a disk on a file, a block device or an image ("rbd:POOL/IMAGE"). A file that is not there is made. Fails with
 NARROWS_ERROR_CODE_OCCUPIED if something is there. reason may be null.
 */
size_t narrows_disk_create(const char *name,
                           const struct narrows_disk_creation *creation,
                           struct narrows_reason *reason);

/*
 Opens a disk, after a crash too, as its only user. options may be null, and so may reason. Starts a thread, so a
 program that forks does so first.
 */
size_t narrows_disk_open(const char *name,
                         const struct narrows_disk_options *options,
                         struct narrows_device **device,
                         struct narrows_reason *reason);

/*
 Makes an empty RAM disk whose pages are kept packed. It ends when it is closed. reason may be null. Starts threads,
 so a program that forks does so first.
 */
size_t narrows_memory_open(const struct narrows_memory_options *options,
                           struct narrows_device **device,
                           struct narrows_reason *reason);

/*
 Fills buffer with the bytes at offset; 0, or an error.
 */
size_t narrows_device_pread(const struct narrows_device *device,
                            void *buffer,
                            size_t length,
                            uint64_t offset);

/*
 Writes the bytes of buffer at offset; 0, or an error. Volatile until narrows_device_flush() returns, or with
 NARROWS_FUA until this does.
 */
size_t narrows_device_pwrite(const struct narrows_device *device,
                             const void *buffer,
                             size_t length,
                             uint64_t offset,
                             uint32_t flags);

/*
 Makes every write that returned before durable; 0, or an error.
 */
size_t narrows_device_flush(const struct narrows_device *device);

/*
 The content of the range is no longer wanted; 0, or an error. What it reads as is not said, but stable.
 */
size_t narrows_device_trim(const struct narrows_device *device,
                           uint64_t length,
                           uint64_t offset,
                           uint32_t flags);

/*
 The range reads as zeroes from now on; 0, or an error. flags: NARROWS_FUA, NARROWS_KEEP_ALLOCATED, NARROWS_FAST_ONLY.
 */
size_t narrows_device_zero(const struct narrows_device *device,
                           uint64_t length,
                           uint64_t offset,
                           uint32_t flags);

/*
 Says in which state the range is, from its beginning: writes at most capacity extents and returns how many, at
 least 1. They may end before the range does.
 */
size_t narrows_device_extents(const struct narrows_device *device,
                              uint64_t length,
                              uint64_t offset,
                              struct narrows_extent *extents,
                              size_t capacity);

/*
 Writes the size of the device in bytes; 0, or an error.
 */
size_t narrows_device_size(const struct narrows_device *device, uint64_t *size);

/*
 1 if the device takes no writes, 0 if it does, or an error.
 */
size_t narrows_device_is_read_only(const struct narrows_device *device);

/*
 Makes everything durable and frees the device, whatever is returned: 0, or the error of the last writes. What was
 flushed before is safe all the same. A null pointer is no error.
 */
size_t narrows_device_close(struct narrows_device *device);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* NARROWS_H */
