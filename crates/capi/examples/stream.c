/* Compresses or unpacks standard input to standard output, in little memory.
 *
 *   cc stream.c -o stream $(pkg-config --cflags --libs narrows)
 *   ./stream < FILE > FILE.narrows;  ./stream -d < FILE.narrows
 */
#include <narrows.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static size_t
check(size_t result)
{
    if (narrows_is_error(result)) {
        fprintf(stderr, "narrows: %s\n", narrows_error_name(result));
        exit(1);
    }
    return result;
}

static void
put(const narrows_out_buffer *output)
{
    if (fwrite(output->dst, 1, output->pos, stdout) != output->pos) {
        perror("writing");
        exit(1);
    }
}

static char in[65536], out[65536];

static void
compress(void)
{
    narrows_cctx *cctx = narrows_cctx_create();
    int at_end;

    check(narrows_cctx_set_parameter(cctx, NARROWS_PARAMETER_GOAL, NARROWS_GOAL_SPEED));
    do {
        narrows_in_buffer input = { in, fread(in, 1, sizeof in, stdin), 0 };
        size_t waiting;

        at_end = feof(stdin) || ferror(stdin);
        do {
            narrows_out_buffer output = { out, sizeof out, 0 };

            waiting = check(narrows_compress_stream(cctx, &output, &input,
                at_end ? NARROWS_END_DIRECTIVE_END : NARROWS_END_DIRECTIVE_CONTINUE));
            put(&output);
        } while (waiting > 0 || input.pos < input.size);
    } while (!at_end);
    check(narrows_cctx_free(cctx));
}

static void
decompress(void)
{
    narrows_dctx *dctx = narrows_dctx_create();
    size_t result = 0, length;

    while ((length = fread(in, 1, sizeof in, stdin)) > 0) {
        narrows_in_buffer input = { in, length, 0 };
        narrows_out_buffer output = { out, sizeof out, 0 };

        do {
            output.pos = 0;
            result = check(narrows_decompress_stream(dctx, &output, &input));
            put(&output);
        } while (input.pos < input.size || output.pos == output.size);
    }
    if (result != 0) {
        fprintf(stderr, "the input ends too early\n");
        exit(1);
    }
    check(narrows_dctx_free(dctx));
}

int
main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "-d") == 0)
        decompress();
    else
        compress();
    if (ferror(stdin) || fflush(stdout) != 0) {
        perror("stream");
        return 1;
    }
    return 0;
}
