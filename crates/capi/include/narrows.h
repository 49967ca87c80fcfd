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

/**
 * For pwrite, trim and zero: be durable before the call returns.
 */
#define NARROWS_FUA 1

/**
 * For zero: keep the range provisioned.
 */
#define NARROWS_KEEP_ALLOCATED 2

/**
 * For zero: fail rather than take as long as writing zeroes would.
 */
#define NARROWS_FAST_ONLY 4

/**
 * What went wrong, as narrows_get_error_code() tells it. Numbers are never reused.
 */
typedef enum {
    /**
     * No error.
     */
    NARROWS_ERROR_CODE_NONE = 0,
    /**
     * A null pointer where something is needed.
     */
    NARROWS_ERROR_CODE_NULL_POINTER = 1,
    /**
     * An argument that makes no sense.
     */
    NARROWS_ERROR_CODE_INVALID_ARGUMENT = 2,
    /**
     * A parameter or a member of a struct that this version does not know.
     */
    NARROWS_ERROR_CODE_PARAMETER_UNSUPPORTED = 3,
    /**
     * A parameter's value is out of its bounds.
     */
    NARROWS_ERROR_CODE_PARAMETER_OUT_OF_BOUND = 4,
    /**
     * A call out of its turn, as compressing more after the end.
     */
    NARROWS_ERROR_CODE_STAGE_WRONG = 5,
    /**
     * The destination is too small. It may have been written to.
     */
    NARROWS_ERROR_CODE_DST_TOO_SMALL = 6,
    /**
     * The input is damaged or not of this format.
     */
    NARROWS_ERROR_CODE_CORRUPT = 7,
    /**
     * The input ends too early.
     */
    NARROWS_ERROR_CODE_TRUNCATED = 8,
    /**
     * Made by a newer version.
     */
    NARROWS_ERROR_CODE_VERSION_UNSUPPORTED = 9,
    /**
     * Larger than the limit given.
     */
    NARROWS_ERROR_CODE_LIMIT_EXCEEDED = 10,
    /**
     * The system gives no memory or no thread.
     */
    NARROWS_ERROR_CODE_MEMORY_ALLOCATION = 11,
    /**
     * Reading or writing failed.
     */
    NARROWS_ERROR_CODE_IO = 12,
    /**
     * No space. What was acknowledged is safe, and trimming makes room.
     */
    NARROWS_ERROR_CODE_NO_SPACE = 13,
    /**
     * The device takes no writes.
     */
    NARROWS_ERROR_CODE_READ_ONLY = 14,
    /**
     * Nothing of that name.
     */
    NARROWS_ERROR_CODE_NOT_FOUND = 15,
    /**
     * Another program has it.
     */
    NARROWS_ERROR_CODE_BUSY = 16,
    /**
     * What is there is not a narrows disk.
     */
    NARROWS_ERROR_CODE_NOT_A_DISK = 17,
    /**
     * Something else is there already.
     */
    NARROWS_ERROR_CODE_OCCUPIED = 18,
    /**
     * A flush failed, so that what is durable is not known. Close the device and open it again.
     */
    NARROWS_ERROR_CODE_POISONED = 19,
    /**
     * The device is closed.
     */
    NARROWS_ERROR_CODE_CLOSED = 20,
    /**
     * The device cannot do this in the way asked for.
     */
    NARROWS_ERROR_CODE_OPERATION_UNSUPPORTED = 21,
    /**
     * A bug in narrows. The object takes no more calls; free it.
     */
    NARROWS_ERROR_CODE_INTERNAL = 22,
} narrows_error_code;

/**
 * What a compression context can be told.
 */
typedef enum {
    /**
     * What compressing is for: a narrows_goal.
     */
    NARROWS_PARAMETER_GOAL = 1,
    /**
     * As fast as zstd at this level, 1 to 19. Takes the place of the goal.
     */
    NARROWS_PARAMETER_LEVEL = 2,
    /**
     * What the content is an array of: a narrows_type. Content of another kind is compressed as right, if not as short.
     */
    NARROWS_PARAMETER_TYPE = 3,
    /**
     * Threads that compress; 0, the default, is one for each processor. What is made does not depend on it.
     */
    NARROWS_PARAMETER_THREADS = 4,
    /**
     * Content bytes that are compressed as one: a multiple of 4096 up to 16 MiB; 0, the default, takes what suits the goal.
     */
    NARROWS_PARAMETER_CHUNK_LENGTH = 5,
} narrows_parameter;

/**
 * What compressing is for.
 */
typedef enum {
    /**
     * As fast as zstd at level 3. The default.
     */
    NARROWS_GOAL_BALANCED = 0,
    /**
     * As fast as zstd at level 1.
     */
    NARROWS_GOAL_SPEED = 1,
    /**
     * As short as possible, at the speed of zstd's level 19.
     */
    NARROWS_GOAL_SIZE = 2,
} narrows_goal;

/**
 * What content is an array of, in the order of bytes of the machine (little-endian).
 */
typedef enum {
    /**
     * Not said: the content is looked at. The default.
     */
    NARROWS_TYPE_UNKNOWN = 0,
    /**
     * 16-bit floats.
     */
    NARROWS_TYPE_F16 = 1,
    /**
     * 32-bit floats.
     */
    NARROWS_TYPE_F32 = 2,
    /**
     * 64-bit floats.
     */
    NARROWS_TYPE_F64 = 3,
    /**
     * Signed bytes.
     */
    NARROWS_TYPE_I8 = 4,
    /**
     * Signed 16-bit integers.
     */
    NARROWS_TYPE_I16 = 5,
    /**
     * Signed 32-bit integers.
     */
    NARROWS_TYPE_I32 = 6,
    /**
     * Signed 64-bit integers.
     */
    NARROWS_TYPE_I64 = 7,
    /**
     * Bytes.
     */
    NARROWS_TYPE_U8 = 8,
    /**
     * Unsigned 16-bit integers.
     */
    NARROWS_TYPE_U16 = 9,
    /**
     * Unsigned 32-bit integers.
     */
    NARROWS_TYPE_U32 = 10,
    /**
     * Unsigned 64-bit integers.
     */
    NARROWS_TYPE_U64 = 11,
} narrows_type;

/**
 * What a call of narrows_compress_stream() is to do once the input is read.
 */
typedef enum {
    /**
     * Wait for more.
     */
    NARROWS_END_DIRECTIVE_CONTINUE = 0,
    /**
     * End the file. Call again, with the same, until 0 is returned.
     */
    NARROWS_END_DIRECTIVE_END = 1,
} narrows_end_directive;

/**
 * A compression context: parameters, and the stream in progress. Used by one thread at a time.
 */
typedef struct narrows_cctx narrows_cctx;

/**
 * A decompression context. Used by one thread at a time.
 */
typedef struct narrows_dctx narrows_dctx;

/**
 * A block device. Any number of threads may use it at once.
 */
typedef struct narrows_device narrows_device;

/**
 * Output of a stream.
 */
typedef struct {
    /**
     * Where it begins; may be null if size is 0.
     */
    void *dst;
    /**
     * Its length.
     */
    size_t size;
    /**
     * How far it was written; moved on by the call.
     */
    size_t pos;
} narrows_out_buffer;

/**
 * Input of a stream.
 */
typedef struct {
    /**
     * Where it begins; may be null if size is 0.
     */
    const void *src;
    /**
     * Its length.
     */
    size_t size;
    /**
     * How far it was read; moved on by the call.
     */
    size_t pos;
} narrows_in_buffer;

/**
 * What a new disk is to be.
 */
typedef struct {
    /**
     * sizeof(narrows_disk_creation).
     */
    size_t struct_size;
    /**
     * Size of the device in bytes.
     */
    uint64_t size;
    /**
     * Length of a file that is made for it, in bytes; 0 for one on which even data that does not pack fits.
     */
    uint64_t physical;
    /**
     * How hard to compress: 0 balanced, 1 fast, 2 balanced, 3 dense.
     */
    uint32_t profile;
    /**
     * 1: the device may not promise more than its backing holds.
     */
    uint32_t guaranteed;
    /**
     * 1: overwrite what is there.
     */
    uint32_t force;
    /**
     * 0.
     */
    uint32_t reserved;
} narrows_disk_creation;

/**
 * Why a call failed, in words. Give one where a function takes it, or null.
 */
typedef struct {
    /**
     * Ends with a zero byte; cut where it would be longer. Empty where the call succeeded.
     */
    char text[512];
} narrows_reason;

/**
 * How a disk is run.
 */
typedef struct {
    /**
     * sizeof(narrows_disk_options).
     */
    size_t struct_size;
    /**
     * How hard to compress: 0 as the disk was made, 1 fast, 2 balanced, 3 dense.
     */
    uint32_t profile;
    /**
     * 1: take no writes and write nothing.
     */
    uint32_t read_only;
    /**
     * 1: do not pack data again while the device is idle.
     */
    uint32_t no_recompress;
    /**
     * 0.
     */
    uint32_t reserved;
} narrows_disk_options;

/**
 * What a RAM disk is to be.
 */
typedef struct {
    /**
     * sizeof(narrows_memory_options).
     */
    size_t struct_size;
    /**
     * Size of the device in bytes.
     */
    uint64_t size;
    /**
     * Most memory for its pages in bytes; 0 for no limit.
     */
    uint64_t mem_limit;
    /**
     * A file or block device for pages that do not pack; null for none. What it holds is lost.
     */
    const char *backing;
    /**
     * Most bytes of it; 0 for no limit.
     */
    uint64_t backing_limit;
    /**
     * How hard to compress: 0 dense, 1 fast, 2 balanced, 3 dense, 4 ratio.
     */
    uint32_t profile;
    /**
     * 1: do not pack cold pages harder.
     */
    uint32_t no_recompress;
} narrows_memory_options;

/**
 * A run of bytes in one state.
 */
typedef struct {
    /**
     * Length in bytes, at least 1.
     */
    uint64_t length;
    /**
     * 1: nothing is stored for it.
     */
    uint32_t hole;
    /**
     * 1: it reads as zeroes.
     */
    uint32_t zero;
} narrows_extent;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Version of the library that runs: major * 10000 + minor * 100 + patch.
 */
unsigned int narrows_version_number(void);

/**
 * Version of the library that runs, as text. Never freed.
 */
const char *narrows_version_string(void);

/**
 * Whether a result is an error: 1, else 0.
 */
int narrows_is_error(size_t result);

/**
 * Which error a result is, as narrows_error_code has them; NARROWS_ERROR_CODE_NONE if it is none.
 */
int narrows_get_error_code(size_t result);

/**
 * What a result says, in a few words. Never null, never freed.
 */
const char *narrows_error_name(size_t result);

/**
 * The error number of errno.h that comes nearest to a result; 0 if it is no error.
 */
int narrows_error_errno(size_t result);

/**
 * Makes a compression context; never null. Free it by narrows_cctx_free().
 */
narrows_cctx *narrows_cctx_create(void);

/**
 * Frees a compression context. A null pointer is no error.
 */
size_t narrows_cctx_free(narrows_cctx *cctx);

/**
 * Drops the stream in progress; parameters stay.
 */
size_t narrows_cctx_reset(narrows_cctx *cctx);

/**
 * Sets a narrows_parameter. Between streams only: NARROWS_ERROR_CODE_STAGE_WRONG while one is in progress.
 */
size_t narrows_cctx_set_parameter(narrows_cctx *cctx,
                                  int parameter,
                                  int value);

/**
 * The most bytes that so many bytes of content become, whatever the parameters.
 */
size_t narrows_compress_bound(size_t src_size);

/**
 * Compresses src to dst with the context's parameters; the length, or an error. cctx may be null for the defaults.
 */
size_t narrows_compress2(narrows_cctx *cctx,
                         void *dst,
                         size_t dst_capacity,
                         const void *src,
                         size_t src_size);

/**
 * Unpacks src, which must be whole, to dst; the length, or an error: NARROWS_ERROR_CODE_DST_TOO_SMALL where the content
 * is longer than dst.
 */
size_t narrows_decompress(void *dst,
                          size_t dst_capacity,
                          const void *src,
                          size_t src_size);

/**
 * Writes how long the content of src is, which must be whole; 0, or an error. src is not trusted: it may claim any
 * length, so check it before you allocate.
 */
size_t narrows_content_size(const void *src,
                            size_t src_size,
                            uint64_t *content_size);

/**
 * Compresses a stream: reads input and writes output as far as there is both. Returns how many bytes wait for room in
 * output (call again before you give more input), or an error. end is a narrows_end_directive; with
 * NARROWS_END_DIRECTIVE_END, 0 says that the file is whole, and the next call begins another.
 */
size_t narrows_compress_stream(narrows_cctx *cctx,
                               narrows_out_buffer *output,
                               narrows_in_buffer *input,
                               int end);

/**
 * Makes a decompression context; never null. Free it by narrows_dctx_free().
 */
narrows_dctx *narrows_dctx_create(void);

/**
 * Frees a decompression context. A null pointer is no error.
 */
size_t narrows_dctx_free(narrows_dctx *dctx);

/**
 * Drops the stream in progress, after an error too.
 */
size_t narrows_dctx_reset(narrows_dctx *dctx);

/**
 * Unpacks a stream: reads input and writes output as far as there is both. Returns 0 where a file has ended, all of its
 * content was written and no more input is there; otherwise a positive number, and input that ends so was cut. Files
 * that follow one another are read as one. After an error, narrows_dctx_reset() begins anew.
 */
size_t narrows_decompress_stream(narrows_dctx *dctx,
                                 narrows_out_buffer *output,
                                 narrows_in_buffer *input);

/**
 * Makes a disk on a file, a block device or an image ("rbd:POOL/IMAGE"). A file that is not there is made. Fails with
 * NARROWS_ERROR_CODE_OCCUPIED if something is there. reason may be null.
 */
size_t narrows_disk_create(const char *name,
                           const narrows_disk_creation *creation,
                           narrows_reason *reason);

/**
 * Opens a disk, after a crash too, as its only user. options may be null, and so may reason. Starts a thread, so a
 * program that forks does so first.
 */
size_t narrows_disk_open(const char *name,
                         const narrows_disk_options *options,
                         narrows_device **device,
                         narrows_reason *reason);

/**
 * Makes an empty RAM disk whose pages are kept packed. It ends when it is closed. reason may be null. Starts threads,
 * so a program that forks does so first.
 */
size_t narrows_memory_open(const narrows_memory_options *options,
                           narrows_device **device,
                           narrows_reason *reason);

/**
 * Fills buffer with the bytes at offset; 0, or an error.
 */
size_t narrows_device_pread(const narrows_device *device,
                            void *buffer,
                            size_t length,
                            uint64_t offset);

/**
 * Writes the bytes of buffer at offset; 0, or an error. Volatile until narrows_device_flush() returns, or with
 * NARROWS_FUA until this does.
 */
size_t narrows_device_pwrite(const narrows_device *device,
                             const void *buffer,
                             size_t length,
                             uint64_t offset,
                             uint32_t flags);

/**
 * Makes every write that returned before durable; 0, or an error.
 */
size_t narrows_device_flush(const narrows_device *device);

/**
 * The content of the range is no longer wanted; 0, or an error. What it reads as is not said, but stable.
 */
size_t narrows_device_trim(const narrows_device *device,
                           uint64_t length,
                           uint64_t offset,
                           uint32_t flags);

/**
 * The range reads as zeroes from now on; 0, or an error. flags: NARROWS_FUA, NARROWS_KEEP_ALLOCATED, NARROWS_FAST_ONLY.
 */
size_t narrows_device_zero(const narrows_device *device,
                           uint64_t length,
                           uint64_t offset,
                           uint32_t flags);

/**
 * Says in which state the range is, from its beginning: writes at most capacity extents and returns how many, at
 * least 1. They may end before the range does.
 */
size_t narrows_device_extents(const narrows_device *device,
                              uint64_t length,
                              uint64_t offset,
                              narrows_extent *extents,
                              size_t capacity);

/**
 * Writes the size of the device in bytes; 0, or an error.
 */
size_t narrows_device_size(const narrows_device *device, uint64_t *size);

/**
 * 1 if the device takes no writes, 0 if it does, or an error.
 */
size_t narrows_device_is_read_only(const narrows_device *device);

/**
 * Makes everything durable and frees the device, whatever is returned: 0, or the error of the last writes. What was
 * flushed before is safe all the same. A null pointer is no error.
 */
size_t narrows_device_close(narrows_device *device);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* NARROWS_H */
