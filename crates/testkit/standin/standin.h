/* What all stand-ins share: faults on demand, and a record of calls that the real library would not forgive.
 *
 * A stand-in has the ABI of a device library, declared here in C so that a C compiler lays the structures out, and does the
 * device's work with zlib. Build: cc -shared -fPIC -o OUT FILE.c -lz -lpthread
 *
 * A fault comes from standin_fault(kind, skip, count): after `skip` operations, the next `count` suffer `kind`; or from
 * the environment variable NARROWS_STANDIN_FAULT, KIND[:SKIP], for all operations after the first SKIP.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

enum fault {
    NONE,
    ABSENT,   /* no device: nothing can be opened */
    STATUS,   /* an operation ends with an error */
    SHORT,    /* success, with half of the output */
    LONG,     /* success, with more output than there was room for, though none is written there */
    WRONG,    /* success, with a byte of the output changed */
    UNREAD,   /* success, with part of the input left */
    BUSY,     /* no queue has room */
    HANG,     /* never ends, and writes late */
    SLOW,     /* ends rightly, after some polls */
    KINDS,
};

static const char *const NAMES[KINDS] = {"none",  "absent", "status", "short", "long",
                                         "wrong", "unread", "busy",   "hang",  "slow"};

static atomic_int fault_kind, misuses, live;
static atomic_long fault_skip, fault_count;

int standin_fault(int kind, long skip, long count)
{
    fault_kind = NONE;
    fault_skip = skip;
    fault_count = count;
    fault_kind = kind;
    return kind >= 0 && kind < KINDS;
}

/* Calls out of order, of dead objects or from two threads at once, so far. */
int standin_misuses(void) { return misuses; }

/* Objects made and not yet destroyed. */
int standin_live(void) { return live; }

__attribute__((constructor)) static void standin_start(void)
{
    const char *name = getenv("NARROWS_STANDIN_FAULT");
    size_t len = name ? strcspn(name, ":") : 0;
    for (int kind = 0; name && kind < KINDS; kind++)
        if (strlen(NAMES[kind]) == len && !strncmp(name, NAMES[kind], len))
            standin_fault(kind, name[len] ? atol(name + len + 1) : 0, 1L << 40);
}

/* Whether there is a device at all. */
static int absent(void) { return fault_kind == ABSENT; }

/* The fault of this operation. */
static enum fault next_fault(void)
{
    enum fault kind = fault_kind;
    if (kind == NONE || kind == ABSENT)
        return NONE;
    if (atomic_fetch_sub(&fault_skip, 1) > 0)
        return NONE;
    return atomic_fetch_sub(&fault_count, 1) > 0 ? kind : NONE;
}

static int misuse(const char *what)
{
    fprintf(stderr, "stand-in: %s\n", what);
    misuses++;
    return -1;
}

/* Bare DEFLATE with a window of 1 << bits. Every `block` bytes end in a full flush. Returns the length, or -1. */
static long pack(const void *raw, size_t len, void *out, size_t room, int level, int bits, size_t block)
{
    z_stream z = {.next_in = (void *)raw, .next_out = out, .avail_out = room};
    if (deflateInit2(&z, level, Z_DEFLATED, -bits, 9, Z_DEFAULT_STRATEGY) != Z_OK)
        return -1;
    int status = Z_OK;
    do {
        z.avail_in = len < block ? len : block;
        len -= z.avail_in;
        status = deflate(&z, len ? Z_FULL_FLUSH : Z_FINISH);
    } while (status == Z_OK && !z.avail_in && len);
    long made = status == Z_STREAM_END ? (long)z.total_out : -1;
    deflateEnd(&z);
    return made;
}

/* The reverse; `*read` is what the stream took. Returns the length, or -1 for what is not one whole stream that fits.
 *
 * zlib looks at the window only for what lies before its output buffer, so a small window gets small buffers. */
static long unpack(const void *packed, size_t len, void *out, size_t room, int bits, size_t *read)
{
    z_stream z = {.next_in = (void *)packed, .avail_in = len, .next_out = out};
    if (inflateInit2(&z, -bits) != Z_OK)
        return -1;
    size_t step = bits < 15 ? 64 : room;
    int status = Z_OK;
    while (status == Z_OK) {
        if (!z.avail_out && z.total_out < room)
            z.avail_out = room - z.total_out < step ? room - z.total_out : step;
        size_t before = z.total_out + z.total_in;
        status = inflate(&z, Z_SYNC_FLUSH);
        if (status == Z_OK && z.total_out + z.total_in == before)
            status = Z_BUF_ERROR;
    }
    long made = status == Z_STREAM_END ? (long)z.total_out : -1;
    *read = z.total_in;
    inflateEnd(&z);
    return made;
}

/* Spoils a good answer as `fault` says. */
static void spoil(enum fault fault, uint8_t *out, size_t room, size_t *written, size_t *read)
{
    switch (fault) {
    case SHORT:
        *written /= 2;
        break;
    case LONG:
        *written = room + 4097;
        break;
    case WRONG:
        out[*written / 2] ^= 0x10;
        break;
    case UNREAD:
        *read -= 1;
        break;
    default:
        break;
    }
}

struct late {
    uint8_t *out;
    size_t room;
};

static void *write_late(void *argument)
{
    struct late late = *(struct late *)argument;
    free(argument);
    usleep(1300 * 1000);
    memset(late.out, 0xee, late.room);
    return NULL;
}

/* What a device does whose answer nobody waits for any more. */
static __attribute__((unused)) void hang(uint8_t *out, size_t room)
{
    struct late *late = malloc(sizeof *late);
    *late = (struct late){out, room};
    pthread_t thread;
    if (!pthread_create(&thread, NULL, write_late, late))
        pthread_detach(thread);
}
