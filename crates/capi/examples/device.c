/* A disk on a file: made, written, flushed, opened again. And a RAM disk, used by two threads.
 *
 *   cc device.c -o device $(pkg-config --cflags --libs narrows) -lpthread
 *   ./device FILE
 */
#include <narrows.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void
check(const char *what, size_t result, const narrows_reason *reason)
{
    if (narrows_is_error(result)) {
        fprintf(stderr, "%s: %s\n", what, reason ? reason->text : narrows_error_name(result));
        exit(1);
    }
}

static void
a_disk(const char *name)
{
    static const char text[] = "durable from here on";
    narrows_disk_creation creation = { .struct_size = sizeof creation };
    narrows_device *disk;
    narrows_reason reason;
    char read_back[sizeof text];
    uint64_t size;

    creation.size = 64 << 20;
    check("create", narrows_disk_create(name, &creation, &reason), &reason);
    check("open", narrows_disk_open(name, NULL, &disk, &reason), &reason);
    check("pwrite", narrows_device_pwrite(disk, text, sizeof text, 12345, 0), NULL);
    check("flush", narrows_device_flush(disk), NULL);
    check("close", narrows_device_close(disk), NULL);

    check("open again", narrows_disk_open(name, NULL, &disk, &reason), &reason);
    check("pread", narrows_device_pread(disk, read_back, sizeof text, 12345), NULL);
    check("size", narrows_device_size(disk, &size), NULL);
    check("close", narrows_device_close(disk), NULL);
    printf("%llu bytes, of which: %s\n", (unsigned long long)size, read_back);
}

static void *
fill(void *argument)
{
    narrows_device *memory = argument;
    uint8_t page[4096];

    for (uint64_t at = 0; at < 1024; ++at) {
        memset(page, (int)at, sizeof page);
        memcpy(page, &at, sizeof at);
        check("pwrite", narrows_device_pwrite(memory, page, sizeof page, at * sizeof page, 0), NULL);
    }
    return NULL;
}

static void
a_ram_disk(void)
{
    narrows_memory_options options = { .struct_size = sizeof options };
    narrows_device *memory;
    narrows_reason reason;
    pthread_t threads[2];
    uint64_t found = 0;

    options.size = 16 << 20;
    check("memory", narrows_memory_open(&options, &memory, &reason), &reason);
    for (int i = 0; i < 2; ++i)
        if (pthread_create(&threads[i], NULL, fill, memory) != 0)
            exit(1);
    for (int i = 0; i < 2; ++i)
        pthread_join(threads[i], NULL);
    check("pread", narrows_device_pread(memory, &found, sizeof found, 700 * 4096), NULL);
    printf("page 700 begins with %llu\n", (unsigned long long)found);

    /* Mistakes are told, never fatal. */
    size_t result = narrows_device_pread(memory, &found, sizeof found, options.size);
    printf("beyond the end: %s (%d)\n", narrows_error_name(result), narrows_error_errno(result));
    result = narrows_device_pread(NULL, &found, sizeof found, 0);
    printf("without a device: %s\n", narrows_error_name(result));
    check("close", narrows_device_close(memory), NULL);
}

int
main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: device FILE\n");
        return 2;
    }
    a_disk(argv[1]);
    a_ram_disk();
    return 0;
}
