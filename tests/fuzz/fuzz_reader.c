/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_reader - hostile bytes through the reader, the dictionaries and the rows.
 *
 *     fuzz_reader FILE...       replays files (or corpora that a fuzzer found); exit code 0, or it crashed
 *
 * With clang -fsanitize=fuzzer -DFUZZ_LIBFUZZER the main below is left out and libFuzzer brings its own. A mutated
 * zstd frame hardly ever passes its checksum: so an input that begins with 'R' gives the rows of a block instead,
 * which the harness wraps itself.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#include "converter/dict.h"
#include "converter/meta.h"
#include "converter/modules.h"
#include "converter/reader.h"
#include "converter/strips.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_one(struct reader *r) {
    struct reader_data d = {0};
    struct reader_loss loss;
    struct strips strips = {0};
    struct trace_value v[TRACE_MAX_FIELDS];
    struct trace_rows rows;
    struct meta m;
    struct recorded rec;
    struct modules mods;
    int type;

    struct epochs *es = epochs_new(r);
    struct symbols *s = symbols_new(0);
    for (size_t i = 0; es && i < reader_blocks(r); i++) {
        if (reader_load(r, i, &d) != 0)
            continue;
        const struct dict *dict = epochs_get(es, d.h.epoch);
        strips_take(&strips, i, &d.h, d.data, STRIPS_TYPES);
        trace_rows_start(&rows, &d.h, d.data);
        while ((type = trace_rows_next(&rows, UINT64_MAX, v)) > 0) {
            const struct trace_record *type_of = trace_record_by_id((unsigned)type);
            for (unsigned k = 0; k < type_of->nfields; k++) {
                uint64_t prev = 0, x;
                size_t len;
                if (type_of->fields[k].type == TRACE_STR && dict)
                    dict_string(dict, v[k].u, &len);
                else if (type_of->fields[k].type == TRACE_REFS ||
                         type_of->fields[k].type == TRACE_US)
                    while (trace_list_next(&v[k], &prev, &x))
                        ;
            }
        }
    }
    if (es && s) {
        meta_load(&m, r, es);
        clock_utc(&m.clock, 12345);
        meta_free(&m);
        recorded_load(&rec, r, es);
        modules_load(&mods, r, es, s, &rec);
        const struct module *mod = modules_at(&mods, 0x400000, 1);
        recorded_at(&rec, mod ? mod->recorded : 1, 0x1000);
        modules_free(&mods);
        recorded_free(&rec);
    }
    reader_loss(r, &loss);
    strips_free(&strips);
    reader_data_free(&d);
    symbols_free(s);
    epochs_free(es);
}

static void read_everything(const uint8_t *p, size_t n) {
    struct reader *r;

    if (reader_open_memory(&r, p, n) != 0)
        return;
    do
        read_one(r);
    while (reader_next(r) > 0);
    reader_close(r);
}

/* Wraps the rows of an input: 'R', the kind, then the rows. */
static void wrap_rows(const uint8_t *data, size_t size) {
    size_t body = size - 2, n = TRACE_BLOCK_HEADER + body, cap = ZSTD_compressBound(n);
    uint8_t *raw = malloc(n), *out = malloc(TRACE_HINT_SIZE + cap);

    if (raw && out && n <= TRACE_BLOCK_MAX) {
        struct trace_block_header h = {.kind = data[1] % 3,
                                       .encoding = TRACE_ENCODING_ROWS,
                                       .body_len = (uint32_t)body,
                                       .first_ts = 1000,
                                       .last_ts = 2000,
                                       .types = UINT64_MAX};
        trace_block_header_put(raw, &h);
        memcpy(raw + TRACE_BLOCK_HEADER, data + 2, body);
        size_t c = ZSTD_compress(out + TRACE_HINT_SIZE, cap, raw, n, 1);
        struct trace_hint hint = {
            .kind = h.kind, .compressed = (uint32_t)c, .raw = (uint32_t)n, .types = UINT64_MAX};
        trace_hint_put(out, &hint);
        if (!ZSTD_isError(c))
            read_everything(out, TRACE_HINT_SIZE + c);
    }
    free(raw);
    free(out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size >= 2 && data[0] == 'R')
        wrap_rows(data, size);
    else
        read_everything(data, size);
    return 0;
}

#ifndef FUZZ_LIBFUZZER
int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        FILE *f = fopen(argv[i], "rb");
        uint8_t *p = NULL;
        size_t n = 0, cap = 0, k = 1;
        if (!f) {
            perror(argv[i]);
            return 3;
        }
        while (k > 0) {
            if (n == cap) {
                uint8_t *more = realloc(p, cap = cap * 2 + 65536);
                if (!more)
                    return 3;
                p = more;
            }
            n += k = fread(p + n, 1, cap - n, f);
        }
        fclose(f);
        LLVMFuzzerTestOneInput(p, n);
        free(p);
    }
    printf("%d files read\n", argc - 1);
    return 0;
}
#endif
