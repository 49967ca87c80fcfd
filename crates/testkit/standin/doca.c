/* Stands in for libdoca_compress and libdoca_common. Prototypes after DOCA's public documentation of 2.5 to 3.2; every
 * object is opaque there, so what is in them here is the stand-in's own. It holds callers to the documented order of
 * calls. With -DUNPACKS_ONLY it is a BlueField-3.
 */
#include "standin.h"

typedef int doca_error_t;
enum {
    DOCA_SUCCESS = 0,
    DOCA_ERROR_IN_USE = 3,
    DOCA_ERROR_NOT_SUPPORTED = 4,
    DOCA_ERROR_AGAIN = 5,
    DOCA_ERROR_INVALID_VALUE = 6,
    DOCA_ERROR_NO_MEMORY = 7,
    DOCA_ERROR_INITIALIZATION = 8,
    DOCA_ERROR_NOT_CONNECTED = 14,
    DOCA_ERROR_NOT_FOUND = 16,
    DOCA_ERROR_IO_FAILED = 17,
    DOCA_ERROR_BAD_STATE = 18,
    DOCA_ERROR_IN_PROGRESS = 26,
};

union doca_data {
    void *ptr;
    uint64_t u64;
};

struct doca_devinfo {
    int compresses;
};
struct doca_dev {
    struct doca_devinfo info;
};
struct doca_pe;
struct doca_task;
typedef void (*callback)(void *task, union doca_data task_data, union doca_data ctx_data);

enum { IDLE, STARTING, RUNNING, STOPPING };

struct conf {
    callback completed, failed;
    uint32_t tasks;
};

/* A context and the compress object around it are one. */
struct doca_compress {
    struct doca_dev *dev;
    struct doca_pe *pe;
    int state;
    struct conf pack, unpack;
    struct doca_task *in_flight;
    int tasks;
};
struct doca_pe {
    struct doca_compress *ctx;
};
struct doca_mmap {
    struct doca_dev *dev;
    uint32_t permissions;
    uint8_t *addr;
    size_t len;
    int started, buffers;
};
struct doca_buf_inventory {
    size_t room;
    int started, taken;
};
struct doca_buf {
    struct doca_buf_inventory *inventory;
    struct doca_mmap *mmap;
    uint8_t *addr, *data;
    size_t len, data_len;
};
struct doca_task {
    struct doca_compress *ctx;
    const struct doca_buf *src;
    struct doca_buf *dst;
    union doca_data data;
    int unpacks, submitted, polls;
    enum fault fault;
    doca_error_t status;
};

static void *make(size_t size)
{
    live++;
    return calloc(1, size);
}

static doca_error_t destroy(void *object)
{
    live--;
    free(object);
    return DOCA_SUCCESS;
}

const char *doca_version_runtime(void) { return "2.9.1"; }

/* A network card that packs nothing, then the BlueField. */
doca_error_t doca_devinfo_create_list(struct doca_devinfo ***list, uint32_t *len)
{
    uint32_t devices = absent() ? 1 : 2;
    *list = make(3 * sizeof **list); /* ends in a null pointer, for destroy_list */
    for (uint32_t i = 0; i < devices; i++) {
        (*list)[i] = malloc(sizeof(struct doca_devinfo));
        (*list)[i]->compresses = i == 1;
    }
    *len = devices;
    return DOCA_SUCCESS;
}

doca_error_t doca_devinfo_destroy_list(struct doca_devinfo **list)
{
    for (int i = 0; list[i]; i++)
        free(list[i]);
    return destroy(list);
}

doca_error_t doca_dev_open(struct doca_devinfo *info, struct doca_dev **dev)
{
    /* Stays open as long as the process, so it does not count as live. */
    *dev = calloc(1, sizeof **dev);
    (*dev)->info = *info;
    return DOCA_SUCCESS;
}

doca_error_t doca_compress_cap_task_compress_deflate_is_supported(const struct doca_devinfo *info)
{
#ifdef UNPACKS_ONLY
    (void)info;
    return DOCA_ERROR_NOT_SUPPORTED;
#else
    return info->compresses ? DOCA_SUCCESS : DOCA_ERROR_NOT_SUPPORTED;
#endif
}

doca_error_t doca_compress_cap_task_compress_deflate_get_max_buf_size(const struct doca_devinfo *info, uint64_t *max)
{
    *max = 128 << 20;
    return doca_compress_cap_task_compress_deflate_is_supported(info);
}

doca_error_t doca_compress_cap_task_decompress_deflate_is_supported(const struct doca_devinfo *info)
{
    return info->compresses ? DOCA_SUCCESS : DOCA_ERROR_NOT_SUPPORTED;
}

doca_error_t doca_compress_cap_task_decompress_deflate_get_max_buf_size(const struct doca_devinfo *info, uint64_t *max)
{
    *max = 1 << 20;
    return doca_compress_cap_task_decompress_deflate_is_supported(info);
}

doca_error_t doca_compress_create(struct doca_dev *dev, struct doca_compress **compress)
{
    if (!dev)
        return DOCA_ERROR_INVALID_VALUE;
    *compress = make(sizeof **compress);
    (*compress)->dev = dev;
    return DOCA_SUCCESS;
}

doca_error_t doca_compress_destroy(struct doca_compress *compress)
{
    if (compress->state != IDLE || compress->tasks)
        return misuse("a context destroyed in use"), DOCA_ERROR_IN_USE;
    if (compress->pe)
        compress->pe->ctx = NULL;
    return destroy(compress);
}

void *doca_compress_as_ctx(struct doca_compress *compress) { return compress; }

static doca_error_t set_conf(struct doca_compress *ctx, struct conf *conf, callback completed, callback failed, uint32_t n)
{
    if (ctx->state != IDLE || !completed || !failed || !n)
        return misuse("tasks configured late or without callbacks"), DOCA_ERROR_BAD_STATE;
    *conf = (struct conf){completed, failed, n};
    return DOCA_SUCCESS;
}

doca_error_t doca_compress_task_compress_deflate_set_conf(struct doca_compress *ctx, callback completed, callback failed,
                                                          uint32_t n)
{
#ifdef UNPACKS_ONLY
    return DOCA_ERROR_NOT_SUPPORTED;
#endif
    return set_conf(ctx, &ctx->pack, completed, failed, n);
}

doca_error_t doca_compress_task_decompress_deflate_set_conf(struct doca_compress *ctx, callback completed,
                                                            callback failed, uint32_t n)
{
    return set_conf(ctx, &ctx->unpack, completed, failed, n);
}

doca_error_t doca_pe_create(struct doca_pe **pe)
{
    *pe = make(sizeof **pe);
    return DOCA_SUCCESS;
}

doca_error_t doca_pe_destroy(struct doca_pe *pe)
{
    if (pe->ctx)
        return misuse("a progress engine destroyed before its context"), DOCA_ERROR_IN_USE;
    return destroy(pe);
}

doca_error_t doca_pe_connect_ctx(struct doca_pe *pe, struct doca_compress *ctx)
{
    if (ctx->state != IDLE || ctx->pe)
        return misuse("a context connected late or twice"), DOCA_ERROR_BAD_STATE;
    ctx->pe = pe;
    pe->ctx = ctx;
    return DOCA_SUCCESS;
}

doca_error_t doca_ctx_start(struct doca_compress *ctx)
{
    if (!ctx->pe)
        return misuse("a context started without a progress engine"), DOCA_ERROR_NOT_CONNECTED;
    ctx->state = RUNNING;
    return DOCA_SUCCESS;
}

/* Not at once: callers must let the progress engine finish it. */
doca_error_t doca_ctx_stop(struct doca_compress *ctx)
{
    if (ctx->state != RUNNING || ctx->tasks)
        return misuse("a context stopped with tasks, or not running"), DOCA_ERROR_BAD_STATE;
    ctx->state = STOPPING;
    return DOCA_ERROR_IN_PROGRESS;
}

doca_error_t doca_ctx_get_state(const struct doca_compress *ctx, int *state)
{
    *state = ctx->state;
    return DOCA_SUCCESS;
}

doca_error_t doca_mmap_create(struct doca_mmap **mmap)
{
    *mmap = make(sizeof **mmap);
    return DOCA_SUCCESS;
}

doca_error_t doca_mmap_add_dev(struct doca_mmap *mmap, struct doca_dev *dev)
{
    mmap->dev = dev;
    return mmap->started ? DOCA_ERROR_BAD_STATE : DOCA_SUCCESS;
}

doca_error_t doca_mmap_set_permissions(struct doca_mmap *mmap, uint32_t permissions)
{
    mmap->permissions = permissions;
    return mmap->started ? DOCA_ERROR_BAD_STATE : DOCA_SUCCESS;
}

doca_error_t doca_mmap_set_memrange(struct doca_mmap *mmap, void *addr, size_t len)
{
    if (mmap->started || mmap->addr || !addr || !len)
        return misuse("a memory range set late or twice"), DOCA_ERROR_BAD_STATE;
    mmap->addr = addr;
    mmap->len = len;
    return DOCA_SUCCESS;
}

doca_error_t doca_mmap_start(struct doca_mmap *mmap)
{
    if (!mmap->addr || !mmap->dev)
        return misuse("a mapping started without memory or device"), DOCA_ERROR_INVALID_VALUE;
    mmap->started = 1;
    return DOCA_SUCCESS;
}

doca_error_t doca_mmap_destroy(struct doca_mmap *mmap)
{
    if (mmap->buffers)
        return misuse("a mapping destroyed under its buffers"), DOCA_ERROR_IN_USE;
    return destroy(mmap);
}

doca_error_t doca_buf_inventory_create(size_t room, struct doca_buf_inventory **inventory)
{
    *inventory = make(sizeof **inventory);
    (*inventory)->room = room;
    return DOCA_SUCCESS;
}

doca_error_t doca_buf_inventory_start(struct doca_buf_inventory *inventory)
{
    inventory->started = 1;
    return DOCA_SUCCESS;
}

doca_error_t doca_buf_inventory_destroy(struct doca_buf_inventory *inventory)
{
    if (inventory->taken)
        return misuse("an inventory destroyed before its buffers came back"), DOCA_ERROR_IN_USE;
    return destroy(inventory);
}

doca_error_t doca_buf_inventory_buf_get_by_args(struct doca_buf_inventory *inventory, struct doca_mmap *mmap, void *addr,
                                                size_t len, void *data, size_t data_len, struct doca_buf **buf)
{
    if (!inventory->started || !mmap->started)
        return misuse("a buffer from what was not started"), DOCA_ERROR_BAD_STATE;
    if ((uint8_t *)addr < mmap->addr || (uint8_t *)addr + len > mmap->addr + mmap->len || (uint8_t *)data < (uint8_t *)addr
        || (uint8_t *)data + data_len > (uint8_t *)addr + len)
        return misuse("a buffer outside of its mapping"), DOCA_ERROR_INVALID_VALUE;
    if ((size_t)inventory->taken == inventory->room)
        return DOCA_ERROR_NO_MEMORY;
    inventory->taken++;
    mmap->buffers++;
    *buf = make(sizeof **buf);
    **buf = (struct doca_buf){inventory, mmap, addr, data, len, data_len};
    return DOCA_SUCCESS;
}

doca_error_t doca_buf_get_data_len(const struct doca_buf *buf, size_t *len)
{
    *len = buf->data_len;
    return DOCA_SUCCESS;
}

doca_error_t doca_buf_dec_refcount(struct doca_buf *buf, uint16_t *before)
{
    if (before)
        *before = 1;
    buf->inventory->taken--;
    buf->mmap->buffers--;
    return destroy(buf);
}

static doca_error_t alloc_init(struct doca_compress *ctx, const struct doca_buf *src, struct doca_buf *dst,
                               union doca_data data, struct doca_task **task, int unpacks)
{
    const struct conf *conf = unpacks ? &ctx->unpack : &ctx->pack;
    if (ctx->state != RUNNING || !conf->tasks)
        return misuse("a task of a context that does not run, or is not configured for it"), DOCA_ERROR_BAD_STATE;
    if ((uint32_t)ctx->tasks == conf->tasks)
        return DOCA_ERROR_NO_MEMORY;
    ctx->tasks++;
    *task = make(sizeof **task);
    **task = (struct doca_task){.ctx = ctx, .src = src, .dst = dst, .data = data, .unpacks = unpacks};
    return DOCA_SUCCESS;
}

doca_error_t doca_compress_task_compress_deflate_alloc_init(struct doca_compress *ctx, const struct doca_buf *src,
                                                            struct doca_buf *dst, union doca_data data,
                                                            struct doca_task **task)
{
    return alloc_init(ctx, src, dst, data, task, 0);
}

doca_error_t doca_compress_task_decompress_deflate_alloc_init(struct doca_compress *ctx, const struct doca_buf *src,
                                                              struct doca_buf *dst, union doca_data data,
                                                              struct doca_task **task)
{
    return alloc_init(ctx, src, dst, data, task, 1);
}

struct doca_task *doca_compress_task_compress_deflate_as_task(struct doca_task *task) { return task; }

struct doca_task *doca_compress_task_decompress_deflate_as_task(struct doca_task *task) { return task; }

doca_error_t doca_task_submit(struct doca_task *task)
{
    if (task->submitted || task->ctx->in_flight)
        return misuse("a task submitted twice"), DOCA_ERROR_BAD_STATE;
    if (!(task->dst->mmap->permissions & 1))
        return misuse("a destination that may not be written"), DOCA_ERROR_INVALID_VALUE;
    task->fault = next_fault();
    if (task->fault == BUSY)
        return DOCA_ERROR_AGAIN;
    task->submitted = 1;
    task->polls = task->fault == SLOW ? 300 : 2;
    task->ctx->in_flight = task;
    if (task->fault == HANG)
        hang(task->dst->addr, task->dst->len);
    return DOCA_SUCCESS;
}

/* The work itself. Whatever is behind the stream is refused here; no documentation says what a device does. */
static void perform(struct doca_task *task)
{
    const struct doca_buf *src = task->src;
    struct doca_buf *dst = task->dst;
    size_t read = src->data_len;
    long made = task->unpacks ? unpack(src->data, read, dst->addr, dst->len, 15, &read)
                              : pack(src->data, read, dst->addr, dst->len, 1, 15, read);
    task->status = made < 0 || read != src->data_len || task->fault == STATUS ? DOCA_ERROR_IO_FAILED : DOCA_SUCCESS;
    if (task->status == DOCA_SUCCESS) {
        size_t written = made;
        spoil(task->fault, dst->addr, dst->len, &written, &read);
        dst->data = dst->addr;
        dst->data_len = written;
    }
}

uint8_t doca_pe_progress(struct doca_pe *pe)
{
    struct doca_compress *ctx = pe->ctx;
    if (!ctx)
        return 0;
    struct doca_task *task = ctx->in_flight;
    if (task && task->fault != HANG && task->polls-- <= 0) {
        perform(task);
        task->submitted = 0;
        ctx->in_flight = NULL;
        const struct conf *conf = task->unpacks ? &ctx->unpack : &ctx->pack;
        (task->status ? conf->failed : conf->completed)(task, task->data, (union doca_data){0});
        return 1;
    }
    if (!task && ctx->state == STOPPING) {
        ctx->state = IDLE;
        return 1;
    }
    return 0;
}

doca_error_t doca_task_get_status(const struct doca_task *task) { return task->status; }

void doca_task_free(struct doca_task *task)
{
    if (task->submitted)
        misuse("a task freed in flight");
    task->ctx->tasks--;
    destroy(task);
}
