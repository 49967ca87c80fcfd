/* Threads that read and write large memory at random, each against what it wrote: model MIB THREADS ACCESSES SEED
 *
 * Each 64-byte line belongs to one thread and holds its address, a version and a sum that follows from both; the
 * versions are kept apart, in memory that is not managed. So a line that is lost, stale or another's is seen. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct { uint64_t address, version, sum[6]; } line;

static line *lines;
static uint32_t *versions;
static uint64_t count, accesses, seed;
static int threads;

static uint64_t mix(uint64_t x) {
    x ^= x >> 33; x *= 0xff51afd7ed558ccdULL; x ^= x >> 33; x *= 0xc4ceb9fe1a85ec53ULL; return x ^ x >> 33;
}

static void check(uint64_t at) {
    line *l = &lines[at];
    uint32_t v = versions[at];
    if (v == 0) {
        static const line zero;
        if (memcmp(l, &zero, sizeof zero)) { fprintf(stderr, "line %lu is not zero\n", at); abort(); }
        return;
    }
    if (l->address != at || l->version != v) {
        fprintf(stderr, "line %lu version %u: found line %lu version %lu\n", at, v, l->address, l->version); abort();
    }
    for (int i = 0; i < 6; i++)
        /* Every fourth megabyte is noise, which does not pack. */
        if (l->sum[i] != ((at >> 14) % 4 ? v + i : mix(at * 8 + i + v))) { fprintf(stderr, "line %lu is torn\n", at); abort(); }
}

static void put(uint64_t at) {
    line *l = &lines[at];
    uint32_t v = ++versions[at];
    l->address = at; l->version = v;
    for (int i = 0; i < 6; i++) l->sum[i] = (at >> 14) % 4 ? v + i : mix(at * 8 + i + v);
}

static void *work(void *me) {
    uint64_t id = (uint64_t)me, state = seed * 1000 + id;
    for (uint64_t n = 0; n < accesses / threads;) {
        /* Runs of different lengths, some in order, some backwards. */
        state = mix(state + 0x9e3779b97f4a7c15ULL);
        uint64_t at = state % count, run = 1 + (state >> 40) % ((state >> 60) < 2 ? 20000 : 8);
        int back = state >> 59 & 1, write = (state >> 57 & 3) == 0;
        for (uint64_t i = 0; i < run && n < accesses / threads; i++) {
            uint64_t mine = (back ? at + count - i % count : at + i) % count / threads * threads + id;
            if (mine >= count) continue;
            check(mine);
            if (write) put(mine);
            n++;
        }
    }
    return NULL;
}

int main(int argc, char **argv) {
    if (argc < 5) return 2;
    count = strtoull(argv[1], 0, 10) << 14; threads = atoi(argv[2]);
    accesses = strtoull(argv[3], 0, 10); seed = strtoull(argv[4], 0, 10);
    lines = malloc(count * sizeof *lines);
    versions = NULL;
    /* Pieces below what is managed. */
    static uint32_t small[64 << 20 >> 2];
    versions = small;
    if (!lines || count > sizeof small / sizeof *small) return 2;
    memset(lines, 0, count * sizeof *lines);
    pthread_t t[64];
    for (long i = 0; i < threads; i++) pthread_create(&t[i], 0, work, (void *)i);
    for (int i = 0; i < threads; i++) pthread_join(t[i], 0);
    for (uint64_t at = 0; at < count; at++) check(at);
    uint64_t sum = 0;
    for (uint64_t at = 0; at < count; at++) sum = sum * 31 + versions[at];
    printf("%016lx\n", sum);
    free(lines);
    return 0;
}
