/* Stands in for libqatzip.so.3. Declarations after QATzip's public header, qatzip.h, of API 2.5. */
#include "standin.h"

typedef struct {
    signed long int hw_session_stat;
    int thd_sess_stat;
    void *internal;
    unsigned long total_in;
    unsigned long total_out;
} QzSession_T;

enum { QZ_DIR_COMPRESS, QZ_DIR_DECOMPRESS, QZ_DIR_BOTH };
enum { QZ_DEFLATE_4B, QZ_DEFLATE_GZIP, QZ_DEFLATE_GZIP_EXT, QZ_DEFLATE_RAW };
enum { QZ_DYNAMIC_HDR, QZ_STATIC_HDR };

typedef struct {
    int direction;
    unsigned int comp_lvl;
    unsigned char comp_algorithm;
    unsigned int max_forks;
    unsigned char sw_backup;
    unsigned int hw_buff_sz;
    unsigned int strm_buff_sz;
    unsigned int input_sz_thrshold;
    unsigned int req_cnt_thrshold;
    unsigned int wait_cnt_thrshold;
    int polling_mode;
    unsigned int is_sensitive_mode;
} QzSessionParamsCommon_T;

typedef struct {
    QzSessionParamsCommon_T common_params;
    int huffman_hdr;
    int data_fmt;
} QzSessionParamsDeflate_T;

enum {
    QZ_OK = 0,
    QZ_DUPLICATE = 1,
    QZ_PARAMS = -1,
    QZ_FAIL = -2,
    QZ_BUF_ERROR = -3,
    QZ_DATA_ERROR = -4,
    QZ_NO_HW = 11,
    QZ_NOSW_NO_HW = -101,
    QZ_NOSW_NO_INST_ATTACH = -103,
};

struct internal {
    QzSessionParamsDeflate_T params;
    atomic_int threads;
};

static atomic_int asked, found;
static atomic_int log_level = 3;

int qzSetLogLevel(int level) { return atomic_exchange(&log_level, level); }

/* As the library has it: who asks a second time hears "duplicate", even where the first time found no device. */
int qzInit(QzSession_T *sess, unsigned char sw_backup)
{
    if (!sess || sw_backup > 1)
        return QZ_PARAMS;
    if (atomic_exchange(&asked, 1))
        return QZ_DUPLICATE;
    if (log_level)
        fprintf(stderr, "Error no hardware, switch to SW if permitted\n");
    if (absent())
        return sw_backup ? QZ_NO_HW : QZ_NOSW_NO_HW;
    found = 1;
    return QZ_OK;
}

int qzGetDefaultsDeflate(QzSessionParamsDeflate_T *params)
{
    *params = (QzSessionParamsDeflate_T){
        .common_params = {QZ_DIR_BOTH, 1, 8, 3, 1, 64 * 1024, 64 * 1024, 1024, 32, 8, 0, 0},
        .huffman_hdr = QZ_DYNAMIC_HDR,
        .data_fmt = QZ_DEFLATE_GZIP_EXT,
    };
    return QZ_OK;
}

int qzSetupSessionDeflate(QzSession_T *sess, QzSessionParamsDeflate_T *params)
{
    if (!sess || !params)
        return QZ_PARAMS;
    const QzSessionParamsCommon_T *common = &params->common_params;
    unsigned size = common->hw_buff_sz;
    if (common->direction > QZ_DIR_BOTH || common->comp_lvl < 1 || common->comp_lvl > 12 || common->comp_algorithm != 8
        || common->sw_backup > 1 || size < 1024 || size > 512 * 1024 || size & (size - 1)
        || common->strm_buff_sz > 2 * 1024 * 1024 - 5 * 1024 || common->input_sz_thrshold < 128
        || common->req_cnt_thrshold < 1 || common->is_sensitive_mode > 1 || params->huffman_hdr > QZ_STATIC_HDR
        || params->data_fmt != QZ_DEFLATE_RAW)
        return QZ_PARAMS;
    if (sess->internal)
        return QZ_DUPLICATE;
    if (!found && !common->sw_backup)
        return QZ_NOSW_NO_HW;
    struct internal *internal = calloc(1, sizeof *internal);
    internal->params = *params;
    sess->internal = internal;
    live++;
    return QZ_OK;
}

/* The session's own, for one thread at a time. */
static struct internal *enter(QzSession_T *sess)
{
    struct internal *internal = sess ? sess->internal : NULL;
    if (!internal)
        misuse("a session that was not set up");
    else if (atomic_fetch_add(&internal->threads, 1))
        misuse("a session used by two threads");
    return internal;
}

static int leave(struct internal *internal, int status, unsigned *src_len, size_t read, unsigned *dest_len, size_t made)
{
    internal->threads--;
    *src_len = status == QZ_OK ? read : 0;
    *dest_len = status == QZ_OK ? made : 0;
    return status;
}

int qzCompress(QzSession_T *sess, const unsigned char *src, unsigned *src_len, unsigned char *dest, unsigned *dest_len,
               unsigned last)
{
    struct internal *internal = enter(sess);
    if (!internal || last != 1)
        return QZ_PARAMS;
    enum fault fault = next_fault();
    if (fault == BUSY || fault == STATUS)
        return leave(internal, fault == BUSY ? QZ_NOSW_NO_INST_ATTACH : QZ_FAIL, src_len, 0, dest_len, 0);
    unsigned level = internal->params.common_params.comp_lvl;
    long made = pack(src, *src_len, dest, *dest_len, level > 9 ? 9 : level, 15, internal->params.common_params.hw_buff_sz);
    if (made < 0)
        return leave(internal, QZ_BUF_ERROR, src_len, 0, dest_len, 0);
    size_t written = made, read = *src_len;
    spoil(fault, dest, *dest_len, &written, &read);
    return leave(internal, QZ_OK, src_len, read, dest_len, written);
}

int qzDecompress(QzSession_T *sess, const unsigned char *src, unsigned *src_len, unsigned char *dest, unsigned *dest_len)
{
    struct internal *internal = enter(sess);
    if (!internal)
        return QZ_PARAMS;
    const QzSessionParamsCommon_T *common = &internal->params.common_params;
    enum fault fault = next_fault();
    if (fault == BUSY || fault == STATUS)
        return leave(internal, fault == BUSY ? QZ_NOSW_NO_INST_ATTACH : QZ_FAIL, src_len, 0, dest_len, 0);
    if (!common->sw_backup && (*src_len < common->input_sz_thrshold || *dest_len > common->hw_buff_sz))
        return leave(internal, QZ_FAIL, src_len, 0, dest_len, 0);
    size_t read = 0;
    long made = unpack(src, *src_len, dest, *dest_len, 15, &read);
    if (made < 0)
        return leave(internal, QZ_DATA_ERROR, src_len, 0, dest_len, 0);
    size_t written = made;
    spoil(fault, dest, *dest_len, &written, &read);
    return leave(internal, QZ_OK, src_len, read, dest_len, written);
}

int qzTeardownSession(QzSession_T *sess)
{
    struct internal *internal = sess->internal;
    if (internal) {
        if (internal->threads)
            misuse("a session torn down in use");
        free(internal);
        sess->internal = NULL;
        live--;
    }
    return QZ_OK;
}

int qzClose(QzSession_T *sess) { return sess ? QZ_OK : QZ_PARAMS; }
