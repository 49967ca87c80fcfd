/* Stands in for libqpl.so.1. Declarations after QPL's public headers, qpl/c_api, of 1.6. */
#include "standin.h"

typedef enum { qpl_path_auto, qpl_path_hardware, qpl_path_software } qpl_path_t;
typedef enum { qpl_op_decompress, qpl_op_compress } qpl_operation;
typedef enum { qpl_level_1 = 1, qpl_level_3 = 3 } qpl_compression_levels;
typedef enum { qpl_compression_mode = 1 } qpl_statistics_mode;
typedef enum { qpl_mblk_size_none } qpl_mini_block_size;

typedef struct {
    uint8_t *next_in_ptr;
    uint32_t available_in;
    uint32_t total_in;
    uint8_t *next_out_ptr;
    uint32_t available_out;
    uint32_t total_out;
    qpl_operation op;
    uint32_t flags;
    uint32_t crc;
    uint32_t xor_checksum;
    uint32_t last_bit_offset;
    qpl_compression_levels level;
    qpl_statistics_mode statistics_mode;
    void *huffman_table;
    void *dictionary;
    qpl_mini_block_size mini_block_size;
    uint64_t *idx_array;
    uint32_t idx_max_size;
    uint32_t idx_num_written;
    uint8_t decomp_end_processing, ignore_start_bits, ignore_end_bits;
    uint64_t crc64_poly;
    uint64_t crc64;
    uint8_t *next_src2_ptr;
    uint32_t available_src2;
    uint32_t analytics[12];
    int32_t numa_id;
    /* qpl_aux_data: five pointers and the path, the library's own. */
    struct state *state;
    void *aux[4];
    qpl_path_t path;
} qpl_job;

_Static_assert(sizeof(qpl_job) == 240, "as in QPL 1.6");

enum {
    QPL_STS_OK = 0,
    QPL_STS_BEING_PROCESSED = 1,
    QPL_STS_MORE_OUTPUT_NEEDED = 2,
    QPL_STS_QUEUES_ARE_BUSY_ERR = 5,
    QPL_STS_JOB_NOT_SUBMITTED = 7,
    QPL_STS_NULL_PTR_ERR = 50,
    QPL_STS_FLAG_CONFLICT_ERR = 56,
    QPL_STS_UNSUPPORTED_COMPRESSION_LEVEL = 87,
    QPL_STS_BAD_DIST_ERR = 217,
    QPL_STS_INTL_VERIFY_ERR = 229,
    QPL_STS_INTL_HARDWARE_TIMEOUT = 334,
    QPL_STS_TRANSFER_SIZE_INVALID = 319,
    QPL_STS_INIT_WORK_QUEUES_NOT_AVAILABLE = 503,
};

#define QPL_FLAG_FIRST 0x0001u
#define QPL_FLAG_LAST 0x0002u
#define QPL_FLAG_DYNAMIC_HUFFMAN 0x2000u
#define QPL_FLAG_OMIT_VERIFY 0x4000u
#define MAGIC 0x4a4f4221

struct state {
    uint32_t magic;
    atomic_int threads;
    int submitted, polls, hung;
    uint32_t status;
};

int qpl_get_job_size(qpl_path_t path, uint32_t *size)
{
    if (!size)
        return QPL_STS_NULL_PTR_ERR;
    *size = sizeof(qpl_job) + sizeof(struct state) + (path == qpl_path_hardware ? 8192 : 65536);
    return QPL_STS_OK;
}

int qpl_init_job(qpl_path_t path, qpl_job *job)
{
    if (!job)
        return QPL_STS_NULL_PTR_ERR;
    memset(job, 0, sizeof *job);
    job->numa_id = -1;
    job->path = path;
    if (path != qpl_path_software && absent())
        return QPL_STS_INIT_WORK_QUEUES_NOT_AVAILABLE;
    job->state = (struct state *)(job + 1);
    memset(job->state, 0, sizeof *job->state);
    job->state->magic = MAGIC;
    live++;
    return QPL_STS_OK;
}

static struct state *enter(qpl_job *job)
{
    struct state *state = job ? job->state : NULL;
    if (!state || state->magic != MAGIC) {
        misuse("a job that is not initialised");
        return NULL;
    }
    if (atomic_fetch_add(&state->threads, 1))
        misuse("a job used by two threads");
    return state;
}

static uint32_t perform(qpl_job *job, enum fault fault)
{
    size_t read = job->available_in;
    long made;
    if (job->op == qpl_op_compress)
        made = pack(job->next_in_ptr, read, job->next_out_ptr, job->available_out, 1, 12, read);
    else
        made = unpack(job->next_in_ptr, read, job->next_out_ptr, job->available_out, 12, &read);
    if (made < 0)
        return job->op == qpl_op_compress ? QPL_STS_MORE_OUTPUT_NEEDED : QPL_STS_BAD_DIST_ERR;
    /* As QPL 1.6 does in software. */
    if (job->op == qpl_op_compress && !(job->flags & QPL_FLAG_OMIT_VERIFY) && read > 32 << 10)
        return QPL_STS_INTL_VERIFY_ERR;
    size_t written = made;
    spoil(fault, job->next_out_ptr, job->available_out, &written, &read);
    job->total_in += read;
    job->total_out += written;
    job->next_in_ptr += read;
    job->next_out_ptr += written;
    job->available_in -= read;
    job->available_out -= written;
    return QPL_STS_OK;
}

int qpl_submit_job(qpl_job *job)
{
    struct state *state = enter(job);
    if (!state)
        return QPL_STS_NULL_PTR_ERR;
    int status = QPL_STS_OK;
    enum fault fault = next_fault();
    if (state->submitted)
        misuse("a job submitted again before it ended");
    if (!job->next_in_ptr || !job->next_out_ptr)
        status = QPL_STS_NULL_PTR_ERR;
    else if ((job->flags & 3) != (QPL_FLAG_FIRST | QPL_FLAG_LAST) || job->huffman_table || job->dictionary
             || job->mini_block_size || job->idx_array)
        status = QPL_STS_FLAG_CONFLICT_ERR;
    else if (job->op == qpl_op_compress && job->level != qpl_level_1 && job->path == qpl_path_hardware)
        status = QPL_STS_UNSUPPORTED_COMPRESSION_LEVEL;
    else if (job->available_in > 2 << 20 || job->available_out > 2 << 20)
        status = QPL_STS_TRANSFER_SIZE_INVALID;
    else if (fault == BUSY)
        status = QPL_STS_QUEUES_ARE_BUSY_ERR;
    if (status == QPL_STS_OK) {
        state->submitted = 1;
        state->polls = fault == SLOW ? 300 : 2;
        state->hung = fault == HANG;
        if (fault == HANG)
            hang(job->next_out_ptr, job->available_out);
        else
            state->status = fault == STATUS ? QPL_STS_INTL_HARDWARE_TIMEOUT : perform(job, fault);
    }
    state->threads--;
    return status;
}

int qpl_check_job(qpl_job *job)
{
    struct state *state = enter(job);
    if (!state)
        return QPL_STS_NULL_PTR_ERR;
    int status = QPL_STS_JOB_NOT_SUBMITTED;
    if (state->submitted) {
        status = state->hung || state->polls-- > 0 ? QPL_STS_BEING_PROCESSED : (int)state->status;
        if (status != QPL_STS_BEING_PROCESSED)
            state->submitted = 0;
    }
    state->threads--;
    return status;
}

int qpl_fini_job(qpl_job *job)
{
    struct state *state = enter(job);
    if (!state)
        return QPL_STS_NULL_PTR_ERR;
    if (state->submitted)
        misuse("a job finished before it ended");
    state->magic = 0;
    live--;
    return QPL_STS_OK;
}
