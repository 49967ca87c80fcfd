/* Conjugate gradients on a 27-point stencil, as the HPCG benchmark has it, written anew: cg SIDE ITERATIONS
 *
 * The matrix is stored whole (27 values and columns a row), preconditioned by symmetric Gauss-Seidel sweeps. Prints a hash of
 * the solution's bytes, then the seconds that the iterations took on stderr. Source of the problem: Dongarra, Heroux,
 * Luszczek, "HPCG benchmark: a new metric for ranking high performance computing systems", 2015.
 *
 * Bytes: SIDE^3 * (27 * 12 + 8 * 6); SIDE 118 takes 600 MiB. Build: cc -O2 -o cg cg.c -lm
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { POINTS = 27 };

static size_t side, rows;
static double *values;
static int32_t *columns;

static void *take(size_t count, size_t len) {
    void *memory = calloc(count, len);
    if (!memory) {
        fprintf(stderr, "no memory\n");
        exit(1);
    }
    return memory;
}

static void stencil(void) {
    for (size_t row = 0; row < rows; row++) {
        long z = row / (side * side), y = row / side % side, x = row % side;
        size_t at = row * POINTS;
        for (long dz = -1; dz <= 1; dz++)
            for (long dy = -1; dy <= 1; dy++)
                for (long dx = -1; dx <= 1; dx++, at++) {
                    long n = (long)side;
                    int inside = z + dz >= 0 && z + dz < n && y + dy >= 0 && y + dy < n && x + dx >= 0 && x + dx < n;
                    columns[at] = inside ? (int32_t)(row + (dz * n + dy) * n + dx) : (int32_t)row;
                    values[at] = !inside ? 0 : dz || dy || dx ? -1 : 26;
                }
    }
}

static void multiply(double *out, const double *x) {
    for (size_t row = 0; row < rows; row++) {
        double sum = 0;
        for (size_t at = row * POINTS; at < (row + 1) * POINTS; at++)
            sum += values[at] * x[columns[at]];
        out[row] = sum;
    }
}

static void sweep(double *x, const double *right, size_t row) {
    double sum = right[row];
    for (size_t at = row * POINTS; at < (row + 1) * POINTS; at++)
        sum -= values[at] * x[columns[at]];
    x[row] += sum / 26;
}

/* x = M^-1 right, M of symmetric Gauss-Seidel: forward, then backward. */
static void precondition(double *x, const double *right) {
    for (size_t row = 0; row < rows; row++)
        x[row] = 0;
    for (size_t row = 0; row < rows; row++)
        sweep(x, right, row);
    for (size_t row = rows; row-- > 0;)
        sweep(x, right, row);
}

static double dot(const double *a, const double *b) {
    double sum = 0;
    for (size_t row = 0; row < rows; row++)
        sum += a[row] * b[row];
    return sum;
}

int main(int count, char **words) {
    side = count > 1 ? strtoul(words[1], 0, 10) : 64;
    int iterations = count > 2 ? atoi(words[2]) : 3;
    rows = side * side * side;
    values = take(rows * POINTS, sizeof *values);
    columns = take(rows * POINTS, sizeof *columns);
    double *x = take(rows, 8), *r = take(rows, 8), *z = take(rows, 8), *p = take(rows, 8), *ap = take(rows, 8);
    struct timespec from, to;
    clock_gettime(CLOCK_MONOTONIC, &from);
    stencil();
    for (size_t row = 0; row < rows; row++)
        x[row] = 1;
    multiply(r, x);
    for (size_t row = 0; row < rows; row++)
        x[row] = 0;
    double rz = 0;
    for (int i = 0; i < iterations; i++) {
        precondition(z, r);
        double now = dot(r, z), beta = i ? now / rz : 0;
        rz = now;
        for (size_t row = 0; row < rows; row++)
            p[row] = z[row] + beta * p[row];
        multiply(ap, p);
        double alpha = rz / dot(p, ap);
        for (size_t row = 0; row < rows; row++) {
            x[row] += alpha * p[row];
            r[row] -= alpha * ap[row];
        }
    }
    clock_gettime(CLOCK_MONOTONIC, &to);
    uint64_t hash = 14695981039346656037u;
    for (size_t row = 0; row < rows; row++) {
        union { double value; uint64_t bits; } word = { x[row] };
        hash = (hash ^ word.bits) * 1099511628211u;
    }
    printf("cg %016llx\n", (unsigned long long)hash);
    fprintf(stderr, "cg %.2f s\n", (double)(to.tv_sec - from.tv_sec) + (double)(to.tv_nsec - from.tv_nsec) * 1e-9);
    return 0;
}
