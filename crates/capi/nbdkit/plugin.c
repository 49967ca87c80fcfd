/* An nbdkit plugin: a RAM disk or a disk of narrows.
 *
 *   nbdkit ./nbdkit-narrows-plugin.so memory=1G [limit=512M] [backing=FILE]
 *   nbdkit ./nbdkit-narrows-plugin.so disk=FILE [create=10G]
 *
 * Build: cc -shared -fPIC plugin.c -o nbdkit-narrows-plugin.so $(pkg-config --cflags --libs nbdkit narrows)
 *
 * One device serves all connections. It is opened behind nbdkit's fork, since it has threads; what can be found
 * wrong before is found before, while somebody reads the messages.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define NBDKIT_API_VERSION 2
#include <nbdkit-plugin.h>

#include <narrows.h>

#define THREAD_MODEL NBDKIT_THREAD_MODEL_PARALLEL

/* Extents that are asked for at once. */
#define EXTENTS 256

static char *disk;             /* what holds the disk */
static char *backing;          /* for pages of the RAM disk that do not pack */
static uint64_t memory_size;   /* of the RAM disk; 0 where it is a disk */
static uint64_t memory_limit;  /* 0: none */
static uint64_t create_size;   /* of a disk that is not there; 0: do not make one */
static uint32_t profile;       /* 0: the default */
static int read_only;
static narrows_device *device;

static int
parse_bytes (const char *key, const char *value, uint64_t *bytes)
{
  int64_t size = nbdkit_parse_size (value);

  if (size == -1)
    return -1;
  if (size == 0) {
    nbdkit_error ("%s must be more than 0", key);
    return -1;
  }
  *bytes = size;
  return 0;
}

static int
parse_profile (const char *value)
{
  static const char *const names[] = { "fast", "balanced", "dense", "ratio" };

  for (uint32_t i = 0; i < 4; ++i)
    if (strcmp (value, names[i]) == 0) {
      profile = i + 1;
      return 0;
    }
  nbdkit_error ("profile=%s: there are fast, balanced, dense and, in memory, ratio", value);
  return -1;
}

static int
narrows_config (const char *key, const char *value)
{
  if (strcmp (key, "memory") == 0)
    return parse_bytes (key, value, &memory_size);
  if (strcmp (key, "limit") == 0)
    return parse_bytes (key, value, &memory_limit);
  if (strcmp (key, "create") == 0)
    return parse_bytes (key, value, &create_size);
  if (strcmp (key, "profile") == 0)
    return parse_profile (value);
  if (strcmp (key, "readonly") == 0)
    return (read_only = nbdkit_parse_bool (value)) == -1 ? -1 : 0;
  if (strcmp (key, "disk") == 0) {
    free (disk);
    /* An image of Ceph has no path. */
    disk = strncmp (value, "rbd:", 4) == 0 ? strdup (value) : nbdkit_absolute_path (value);
    return disk ? 0 : -1;
  }
  if (strcmp (key, "backing") == 0) {
    free (backing);
    return (backing = nbdkit_absolute_path (value)) ? 0 : -1;
  }
  nbdkit_error ("unknown parameter '%s'", key);
  return -1;
}

static int
narrows_config_complete (void)
{
  if (!disk == !memory_size) {
    nbdkit_error ("give either memory=SIZE or disk=FILE");
    return -1;
  }
  if (disk ? memory_limit || backing : create_size || read_only) {
    nbdkit_error ("limit and backing are for memory, create and readonly for a disk");
    return -1;
  }
  return 0;
}

#define narrows_config_help                                             \
  "memory=SIZE      a RAM disk of this size, whose pages are packed\n"  \
  "limit=SIZE       most memory for its pages\n"                        \
  "backing=FILE     where pages go that do not pack\n"                  \
  "disk=FILE        a disk that `narrows disk create` made\n"           \
  "create=SIZE      make it if it is not there\n"                       \
  "readonly=true    open it for reading\n"                              \
  "profile=NAME     how hard to compress: fast, balanced, dense, ratio"

/* Opens the disk. 0, or an error that has been told. */
static size_t
open_disk (int only_look, narrows_device **opened)
{
  narrows_disk_options options = { .struct_size = sizeof options };
  narrows_reason reason;
  size_t result;

  options.profile = profile;
  options.read_only = read_only || only_look;
  result = narrows_disk_open (disk, &options, opened, &reason);
  if (narrows_get_error_code (result) == NARROWS_ERROR_CODE_NOT_FOUND && only_look && create_size)
    return result;
  if (narrows_is_error (result))
    nbdkit_error ("%s: %s", disk, reason.text);
  return result;
}

/* Before the fork: makes the disk if that is wanted, and sees that it can be opened. A device that takes no writes
 * has no thread.
 */
static int
narrows_get_ready (void)
{
  narrows_device *looked_at;
  size_t result;

  if (!disk)
    return 0;
  result = open_disk (1, &looked_at);
  if (!narrows_is_error (result))
    return narrows_is_error (narrows_device_close (looked_at)) ? -1 : 0;
  if (narrows_get_error_code (result) == NARROWS_ERROR_CODE_NOT_FOUND && create_size) {
    narrows_disk_creation creation = { .struct_size = sizeof creation };
    narrows_reason reason;

    creation.size = create_size;
    creation.profile = profile;
    if (!narrows_is_error (narrows_disk_create (disk, &creation, &reason)))
      return 0;
    nbdkit_error ("%s", reason.text);
  }
  return -1;
}

static int
narrows_after_fork (void)
{
  narrows_memory_options options = { .struct_size = sizeof options };
  narrows_reason reason;

  if (disk)
    return narrows_is_error (open_disk (0, &device)) ? -1 : 0;
  options.size = memory_size;
  options.mem_limit = memory_limit;
  options.backing = backing;
  options.profile = profile;
  if (narrows_is_error (narrows_memory_open (&options, &device, &reason))) {
    nbdkit_error ("%s", reason.text);
    return -1;
  }
  return 0;
}

/* Behind the last connection. */
static void
narrows_cleanup (void)
{
  size_t result = narrows_device_close (device);

  device = NULL;
  if (narrows_is_error (result))
    nbdkit_error ("closing: %s", narrows_error_name (result));
}

static void
narrows_unload (void)
{
  free (disk);
  free (backing);
}

static void *
narrows_open (int client_reads_only)
{
  (void) client_reads_only;
  return NBDKIT_HANDLE_NOT_NEEDED;
}

/* What nbdkit is told of a result: 0, or -1 and the error number. */
static int
told (const char *call, size_t result)
{
  if (!narrows_is_error (result))
    return 0;
  nbdkit_error ("%s: %s", call, narrows_error_name (result));
  nbdkit_set_error (narrows_error_errno (result));
  return -1;
}

static int64_t
narrows_get_size (void *handle)
{
  uint64_t size;

  (void) handle;
  if (told ("size", narrows_device_size (device, &size)) == -1)
    return -1;
  if (size > INT64_MAX) {
    nbdkit_error ("a device of %" PRIu64 " bytes is more than nbdkit serves", size);
    return -1;
  }
  return size;
}

static int
narrows_can_write (void *handle)
{
  (void) handle;
  return narrows_device_is_read_only (device) == 0;
}

static int
yes (void *handle)
{
  (void) handle;
  return 1;
}

static int
narrows_can_fua (void *handle)
{
  (void) handle;
  return NBDKIT_FUA_NATIVE;
}

static int
narrows_block_size (void *handle, uint32_t *minimum, uint32_t *preferred, uint32_t *maximum)
{
  (void) handle;
  *minimum = 1;
  *preferred = 4096;
  *maximum = 0xffffffff;
  return 0;
}

static uint32_t
fua (uint32_t flags)
{
  return flags & NBDKIT_FLAG_FUA ? NARROWS_FUA : 0;
}

static int
narrows_pread (void *handle, void *buffer, uint32_t count, uint64_t offset, uint32_t flags)
{
  (void) handle, (void) flags;
  return told ("pread", narrows_device_pread (device, buffer, count, offset));
}

static int
narrows_pwrite (void *handle, const void *buffer, uint32_t count, uint64_t offset, uint32_t flags)
{
  (void) handle;
  return told ("pwrite", narrows_device_pwrite (device, buffer, count, offset, fua (flags)));
}

static int
narrows_flush (void *handle, uint32_t flags)
{
  (void) handle, (void) flags;
  return told ("flush", narrows_device_flush (device));
}

static int
narrows_trim (void *handle, uint32_t count, uint64_t offset, uint32_t flags)
{
  (void) handle;
  return told ("trim", narrows_device_trim (device, count, offset, fua (flags)));
}

static int
narrows_zero (void *handle, uint32_t count, uint64_t offset, uint32_t flags)
{
  uint32_t how = fua (flags);

  (void) handle;
  if (!(flags & NBDKIT_FLAG_MAY_TRIM))
    how |= NARROWS_KEEP_ALLOCATED;
  if (flags & NBDKIT_FLAG_FAST_ZERO)
    how |= NARROWS_FAST_ONLY;
  return told ("zero", narrows_device_zero (device, count, offset, how));
}

static int
narrows_extents (void *handle, uint32_t count, uint64_t offset, uint32_t flags,
                 struct nbdkit_extents *extents)
{
  const uint64_t end = offset + count;
  narrows_extent found[EXTENTS];

  (void) handle;
  while (offset < end) {
    size_t n = narrows_device_extents (device, end - offset, offset, found,
                                       flags & NBDKIT_FLAG_REQ_ONE ? 1 : EXTENTS);

    if (told ("extents", n) == -1)
      return -1;
    for (size_t i = 0; i < n; ++i) {
      uint32_t type = (found[i].hole ? NBDKIT_EXTENT_HOLE : 0) |
                      (found[i].zero ? NBDKIT_EXTENT_ZERO : 0);

      if (nbdkit_add_extent (extents, offset, found[i].length, type) == -1)
        return -1;
      offset += found[i].length;
    }
    if (flags & NBDKIT_FLAG_REQ_ONE)
      break;
  }
  return 0;
}

static struct nbdkit_plugin plugin = {
  .name             = "narrows",
  .longname         = "narrows: disks and RAM disks that compress themselves",
  .version          = "0.1.0",
  .description      = "serves a disk or a RAM disk of narrows",
  .config           = narrows_config,
  .config_complete  = narrows_config_complete,
  .config_help      = narrows_config_help,
  .magic_config_key = "disk",
  .get_ready        = narrows_get_ready,
  .after_fork       = narrows_after_fork,
  .cleanup          = narrows_cleanup,
  .unload           = narrows_unload,
  .open             = narrows_open,
  .get_size         = narrows_get_size,
  .block_size       = narrows_block_size,
  .can_write        = narrows_can_write,
  .can_flush        = yes,
  .can_trim         = yes,
  .can_zero         = yes,
  .can_fast_zero    = yes,
  .can_fua          = narrows_can_fua,
  .can_multi_conn   = yes,
  .can_extents      = yes,
  .pread            = narrows_pread,
  .pwrite           = narrows_pwrite,
  .flush            = narrows_flush,
  .trim             = narrows_trim,
  .zero             = narrows_zero,
  .extents          = narrows_extents,
};

NBDKIT_REGISTER_PLUGIN (plugin)
