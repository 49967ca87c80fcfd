/* Compresses an array of doubles, tells the library what it is, and unpacks it again.
 *
 *   cc buffers.c -o buffers $(pkg-config --cflags --libs narrows)
 */
#include <narrows.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT 100000

static size_t
check(size_t result)
{
    if (narrows_is_error(result)) {
        fprintf(stderr, "narrows: %s\n", narrows_error_name(result));
        exit(1);
    }
    return result;
}

int
main(void)
{
    static double values[COUNT], read_back[COUNT];
    narrows_cctx *cctx = narrows_cctx_create();
    size_t capacity = check(narrows_compress_bound(sizeof values)), length;
    void *packed = malloc(capacity);
    uint64_t size;

    if (!packed)
        return 1;
    for (int i = 0; i < COUNT; ++i)
        values[i] = (i * 7919 % 10007) / 100.0;

    check(narrows_cctx_set_parameter(cctx, NARROWS_PARAMETER_TYPE, NARROWS_TYPE_F64));
    length = check(narrows_compress2(cctx, packed, capacity, values, sizeof values));
    check(narrows_content_size(packed, length, &size));
    check(narrows_decompress(read_back, sizeof read_back, packed, length));
    printf("%llu bytes, %s than a fourth, %s\n", (unsigned long long)size,
           length * 4 < sizeof values ? "less" : "more",
           memcmp(values, read_back, sizeof values) == 0 ? "the same again" : "different");

    /* Damage is told. */
    ((unsigned char *)packed)[length / 2] ^= 1;
    length = narrows_decompress(read_back, sizeof read_back, packed, length);
    printf("damaged: %s\n", narrows_error_name(length));
    check(narrows_cctx_free(cctx));
    free(packed);
    return 0;
}
