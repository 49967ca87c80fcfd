/* nvCOMP 6.0 on a device whose memory is the host's, and as much of a driver as that takes: one library stands for both.
 *
 * Declared from the public documentation: names, parameters, options by value, arrays in "device" memory, a status for
 * each chunk. The work is done by functions that the test gives (standin_codec), so the formats are the real ones.
 * -DVERSION=5100 is another version; -DNO_SNAPPY lacks a function.
 */
#include "standin.h"

#ifndef VERSION
#define VERSION 6000
#endif

typedef void *stream_t;

/* Returns the length that was made, or a negative number. Formats count LZ4, Snappy, Zstd, Deflate from 0. */
typedef long (*codec_fn)(int format, int packs, const void *in, size_t len, void *out, size_t room);
static codec_fn codec;

void standin_codec(codec_fn function) { codec = function; }

/* The driver: memory is malloc's, work is done at once. */

enum { OK = 0, INVALID = 1, NOT_SUPPORTED = 801 };

static _Thread_local void *current;

int cuInit(unsigned flags) { return absent() ? 100 : flags ? INVALID : OK; }
int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return ordinal ? 101 : OK; }
static int make(void **handle) { live++; *handle = malloc(1); return OK; }
static int destroy(void *handle) { live--; free(handle); return OK; }
int cuCtxCreate_v2(void **context, unsigned flags, int device) { (void)flags; (void)device; return make(context); }
int cuCtxDestroy_v2(void *context) { return destroy(context); }
int cuCtxSetCurrent(void *context) { current = context; return OK; }
int cuStreamCreateWithPriority(void **stream, unsigned flags, int priority) { (void)flags; (void)priority; return make(stream); }
int cuStreamDestroy_v2(void *stream) { return destroy(stream); }
int cuStreamSynchronize(void *stream) { return stream ? OK : INVALID; }

int cuMemAlloc_v2(uint64_t *address, size_t len)
{
    void *memory = aligned_alloc(256, (len + 255) / 256 * 256);
    if (!current)
        return misuse("an allocation without a context"), 201;
    memset(memory, 0xa5, len);
    live++;
    *address = (uintptr_t)memory;
    return OK;
}

int cuMemFree_v2(uint64_t address) { return destroy((void *)(uintptr_t)address); }

int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t len, void *stream)
{
    (void)stream;
    memcpy((void *)(uintptr_t)to, from, len);
    return OK;
}

int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t len, void *stream)
{
    (void)stream;
    memcpy(to, (void *)(uintptr_t)from, len);
    return OK;
}

#define NOT(name) int name(void) { return NOT_SUPPORTED; }
NOT(cuDriverGetVersion) NOT(cuDeviceGetName) NOT(cuDeviceGetUuid_v2) NOT(cuDeviceTotalMem_v2) NOT(cuDeviceGetAttribute)
NOT(cuDeviceGetPCIBusId) NOT(cuCtxSynchronize) NOT(cuMemGetInfo_v2) NOT(cuMemFreeAsync) NOT(cuMemHostAlloc)
NOT(cuMemFreeHost) NOT(cuMemcpyDtoDAsync_v2) NOT(cuMemsetD2D8Async) NOT(cuMemsetD2D16Async) NOT(cuMemsetD2D32Async)
NOT(cuStreamQuery) NOT(cuStreamWaitEvent) NOT(cuLaunchHostFunc) NOT(cuEventCreate) NOT(cuEventDestroy_v2)
NOT(cuEventRecord) NOT(cuEventSynchronize) NOT(cuEventQuery) NOT(cuEventElapsedTime) NOT(cuModuleLoadDataEx)
NOT(cuModuleUnload) NOT(cuModuleGetGlobal_v2) NOT(cuModuleGetFunctionCount) NOT(cuModuleEnumerateFunctions)
NOT(cuFuncGetName) NOT(cuFuncGetParamInfo) NOT(cuFuncGetAttribute) NOT(cuFuncSetAttribute)
NOT(cuOccupancyMaxActiveBlocksPerMultiprocessor) NOT(cuLaunchKernel) NOT(cuLinkCreate_v2) NOT(cuLinkAddData_v2)
NOT(cuLinkComplete) NOT(cuLinkDestroy) NOT(cuTexObjectCreate) NOT(cuTexObjectDestroy)

/* nvCOMP. */

typedef enum { SUCCESS = 0, ERROR_INVALID = 10, CANNOT_DECOMPRESS = 12, ALIGNMENT = 17, ERROR_CUDA = 1000 } status_t;
typedef enum { BACKEND_DEFAULT = 0, BACKEND_HARDWARE = 1, BACKEND_CUDA = 2 } backend_t;
typedef struct { uint32_t version, cudart_version; } properties_t;
typedef struct { size_t input, output, temp; } alignments_t;

typedef struct { int data_type, bitshuffle_mode; char reserved[56]; } LZ4_pack_t;
typedef struct { backend_t backend; int sort, data_type, bitshuffle_mode; char reserved[48]; } LZ4_unpack_t;
typedef struct { char reserved[64]; } Snappy_pack_t, Zstd_pack_t;
typedef struct { backend_t backend; int sort; char reserved[56]; } Snappy_unpack_t, Deflate_unpack_t;
typedef struct { backend_t backend; char reserved[60]; } Zstd_unpack_t;
typedef struct { int algorithm; char reserved[60]; } Deflate_pack_t;

/* Options that the documentation allows: the first number as given, all else zero. */
static int right(const void *opts, int first)
{
    char expected[64] = {0};
    memcpy(expected, &first, sizeof first);
    return !memcmp(opts, expected, 64) || (misuse("options that are none"), 0);
}

struct batch {
    int format, packs;
    const void *const *in;
    const size_t *in_lens;
    void *const *out;
    const size_t *rooms;
    size_t room, *out_lens, count;
    status_t *statuses;
};

/* Where the test gives none there is zlib, for DEFLATE. */
static long work(struct batch *batch, size_t i, size_t room)
{
    size_t read;
    const void *in = batch->in[i];
    if (codec)
        return codec(batch->format, batch->packs, in, batch->in_lens[i], batch->out[i], room);
    if (batch->format != 3)
        return -1;
    return batch->packs ? pack(in, batch->in_lens[i], batch->out[i], room, 1, 15, 1 << 30)
                        : unpack(in, batch->in_lens[i], batch->out[i], room, 15, &read);
}

/* Workspace that every batch needs, and writes to. */
enum { TEMP_LEN = 1000 };

static status_t run(struct batch batch, alignments_t needs, void *temp, size_t temp_len)
{
    if (!current || !batch.count || temp_len != TEMP_LEN || (uintptr_t)temp % needs.temp)
        return misuse("a batch without a context, chunks or workspace"), ERROR_INVALID;
    memset(temp, 0xee, temp_len);
    for (size_t i = 0; i < batch.count; i++) {
        size_t room = batch.rooms ? batch.rooms[i] : batch.room, read = 0, written = 0;
        if ((uintptr_t)batch.in[i] % needs.input || (uintptr_t)batch.out[i] % needs.output)
            misuse("an address that is not aligned");
        enum fault fault = next_fault();
        long made = work(&batch, i, room);
        if (made < 0 || fault == STATUS) {
            batch.statuses[i] = CANNOT_DECOMPRESS;
            continue;
        }
        written = made;
        spoil(fault, batch.out[i], room, &written, &read);
        batch.out_lens[i] = written;
        if (fault != UNREAD)
            batch.statuses[i] = SUCCESS;
    }
    return SUCCESS;
}

status_t nvcompGetProperties(properties_t *properties)
{
    *properties = (properties_t){VERSION, 12090};
    return SUCCESS;
}

#define FORMAT(name, number, first, in_pack, in_unpack, out_unpack)                                                       \
    status_t nvcompBatched##name##CompressGetRequiredAlignments(name##_pack_t opts, alignments_t *needs)                  \
    {                                                                                                                     \
        *needs = (alignments_t){in_pack, in_pack, 8};                                                                     \
        return right(&opts, first) ? SUCCESS : ERROR_INVALID;                                                             \
    }                                                                                                                     \
    status_t nvcompBatched##name##CompressGetTempSize(size_t count, size_t longest, name##_pack_t opts, size_t *len,      \
                                                      size_t total, stream_t stream)                                      \
    {                                                                                                                     \
        if (!current || !right(&opts, first) || !count || longest > total || !stream)                                                 \
            return ERROR_INVALID;                                                                                         \
        *len = TEMP_LEN;                                                                                                  \
        return SUCCESS;                                                                                                   \
    }                                                                                                                     \
    status_t nvcompBatched##name##CompressGetMaxOutputChunkSize(size_t longest, name##_pack_t opts, size_t *len)          \
    {                                                                                                                     \
        *len = longest + longest / 8 + 1024;                                                                              \
        return right(&opts, first) ? SUCCESS : ERROR_INVALID;                                                             \
    }                                                                                                                     \
    status_t nvcompBatched##name##CompressAsync(                                                                          \
        const void *const *in, const size_t *in_lens, size_t longest, size_t count, void *temp, size_t temp_len,          \
        void *const *out, size_t *out_lens, name##_pack_t opts, status_t *statuses, stream_t stream)                      \
    {                                                                                                                     \
        if (!right(&opts, first) || !stream || longest > 1 << 24)                                                         \
            return ERROR_INVALID;                                                                                         \
        struct batch batch = {number, 1, in, in_lens, out, NULL, longest + longest / 8 + 1024, out_lens, count, statuses}; \
        return run(batch, (alignments_t){in_pack, in_pack, 8}, temp, temp_len);                                           \
    }                                                                                                                     \
    status_t nvcompBatched##name##DecompressGetRequiredAlignments(name##_unpack_t opts, alignments_t *needs)              \
    {                                                                                                                     \
        *needs = (alignments_t){in_unpack, out_unpack, 8};                                                                \
        return right(&opts, BACKEND_CUDA) ? SUCCESS : ERROR_INVALID;                                                      \
    }                                                                                                                     \
    status_t nvcompBatched##name##DecompressGetTempSize(size_t count, size_t longest, name##_unpack_t opts, size_t *len,  \
                                                        size_t total, stream_t stream)                                    \
    {                                                                                                                     \
        if (!current || !right(&opts, BACKEND_CUDA) || !count || longest > total || !stream)                                          \
            return ERROR_INVALID;                                                                                         \
        *len = TEMP_LEN;                                                                                                  \
        return SUCCESS;                                                                                                   \
    }                                                                                                                     \
    status_t nvcompBatched##name##DecompressAsync(                                                                        \
        const void *const *in, const size_t *in_lens, const size_t *rooms, size_t *out_lens, size_t count, void *temp,    \
        size_t temp_len, void *const *out, name##_unpack_t opts, status_t *statuses, stream_t stream)                     \
    {                                                                                                                     \
        if (fault_kind == BUSY)                                                                                           \
            return ERROR_CUDA;                                                                                            \
        if (!right(&opts, BACKEND_CUDA) || !stream)                                                                       \
            return ERROR_INVALID;                                                                                         \
        struct batch batch = {number, 0, in, in_lens, out, rooms, 0, out_lens, count, statuses};                          \
        return run(batch, (alignments_t){in_unpack, out_unpack, 8}, temp, temp_len);                                      \
    }

FORMAT(LZ4, 0, 0, 4, 4, 4)
#ifndef NO_SNAPPY
FORMAT(Snappy, 1, 0, 1, 1, 1)
#endif
FORMAT(Zstd, 2, 0, 4, 8, 8)
FORMAT(Deflate, 3, 1, 8, 4, 4)
