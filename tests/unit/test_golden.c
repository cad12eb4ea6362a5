/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The golden traces (tests/golden), read with the C codec, must give the same text as the Python reader gave when they were made. Run from
 * the repository's root, as `make unit` does.
 */
#include "trace_reader.h"

static const char *const kinds[] = {"META", "DICT", "DATA"};

struct names { /* text of string ids, by epoch */
    const uint8_t *text[8][64];
    uint32_t len[8][64];
    unsigned nfields[TRACE_MAX_ID + 1]; /* as the writer of the trace knew them: ours may be more */
};

/* Counts the fields of each type in the schema row. */
static void learn(struct names *names, const uint8_t *text, size_t n) {
    const char *line = (const char *)text, *end = line + n;
    while (line < end) {
        const char *eol = memchr(line, '\n', (size_t)(end - line));
        unsigned id = (unsigned)atoi(line);
        assert_non_null(eol);
        assert_true(id >= 1 && id <= TRACE_MAX_ID);
        names->nfields[id] = 0; /* of several schema rows the last holds */
        for (; line < eol; line++)
            names->nfields[id] += *line == ':';
        line = eol + 1;
        assert_true(names->nfields[id] <= trace_record_by_id(id)->nfields); /* none may go */
    }
}

static void put_quoted(FILE *out, const uint8_t *p, size_t n) {
    fputc('"', out);
    for (size_t i = 0; i < n; i++) {
        if (p[i] >= 32 && p[i] < 127 && p[i] != '"' && p[i] != '\\')
            fputc(p[i], out);
        else
            fprintf(out, "\\x%02x", p[i]);
    }
    fputc('"', out);
}

static void put_value(FILE *out, enum trace_type type, struct trace_value v, uint32_t epoch,
                      const struct names *names) {
    uint64_t prev = 0, x;
    switch (type) {
    case TRACE_S:
        fprintf(out, "%lld", (long long)v.i);
        break;
    case TRACE_F:
        fprintf(out, "%.17g", v.f);
        break;
    case TRACE_TXT:
    case TRACE_BIN:
        put_quoted(out, v.p, v.n);
        break;
    case TRACE_REFS:
    case TRACE_US:
        fputc('[', out);
        for (const char *comma = ""; trace_list_next(&v, &prev, &x); comma = ",")
            fprintf(out, "%s%llu", comma, (unsigned long long)x);
        fputc(']', out);
        break;
    case TRACE_STR:
        fprintf(out, "%llu", (unsigned long long)v.u);
        if (v.u) {
            assert_true(v.u < 64 && names->text[epoch][v.u]);
            fputc(':', out);
            put_quoted(out, names->text[epoch][v.u], names->len[epoch][v.u]);
        }
        break;
    default:
        fprintf(out, "%llu", (unsigned long long)v.u);
    }
}

static void put_block(FILE *out, const uint8_t *raw, size_t n, struct names *names) {
    static struct trace_rows rows;
    struct trace_block_header h;
    struct trace_value v[TRACE_MAX_FIELDS];
    int type;

    assert_int_equal(trace_block_header_get(raw, n, &h), 0);
    assert_true(h.epoch < 8);
    fprintf(out, "block seq=%u epoch=%u count=%u first_ts=%llu last_ts=%llu kind=", h.seq, h.epoch,
            h.count, (unsigned long long)h.first_ts, (unsigned long long)h.last_ts);
    if (h.kind < 3)
        fputs(kinds[h.kind], out);
    else
        fprintf(out, "%u", h.kind);
    for (unsigned i = 0; i < TRACE_NLOST; i++)
        if (h.lost[i])
            fprintf(out, " lost_%s=%llu", trace_lost_name(i), (unsigned long long)h.lost[i]);
    if (h.kind > 2 || h.encoding != TRACE_ENCODING_ROWS) {
        fputs(" skipped\n", out);
        return;
    }
    fputc('\n', out);
    trace_rows_start(&rows, &h, raw);
    while ((type = trace_rows_next(&rows, UINT64_MAX, v)) > 0) {
        const struct trace_record *rec = trace_record_by_id((unsigned)type);
        if (type == TRACE_string && v[0].u < 64) {
            names->text[h.epoch][v[0].u] = v[1].p; /* blocks are not freed before the end */
            names->len[h.epoch][v[0].u] = v[1].n;
        }
        if (type == TRACE_schema)
            learn(names, v[0].p, v[0].n);
        fprintf(out, "  %s", rec->name);
        for (unsigned i = 0; i < names->nfields[type]; i++) {
            fprintf(out, " %s=", rec->fields[i].name);
            put_value(out, rec->fields[i].type, v[i], h.epoch, names);
        }
        fputc('\n', out);
    }
    assert_int_equal(type, 0);
}

static void check_golden(const char *name) {
    static struct names names;
    char path[64], *text = NULL;
    size_t n, len = 0, want_len, pos = 0;
    struct trace_hint hint;
    uint8_t *blocks[32];
    unsigned nblocks = 0;

    memset(&names, 0, sizeof names);
    snprintf(path, sizeof path, "tests/golden/%s.zst", name);
    uint8_t *p = slurp(path, &n);
    FILE *out = open_memstream(&text, &len);
    while (n - pos >= 8) {
        if (trace_hint_get(p + pos, n - pos, &hint)) {
            /* a seek table; future.zst: a foreign skippable frame */
            assert_true(le32(p + pos) == 0x184D2A5E || le32(p + pos) == 0x184D2A50);
            pos += 8 + le32(p + pos + 4);
            continue;
        }
        pos += TRACE_HINT_SIZE;
        assert_true(nblocks < 32);
        uint8_t *raw = blocks[nblocks++] = malloc(hint.raw);
        assert_int_equal(ZSTD_decompress(raw, hint.raw, p + pos, hint.compressed), hint.raw);
        put_block(out, raw, hint.raw, &names);
        pos += hint.compressed;
    }
    fclose(out);
    snprintf(path, sizeof path, "tests/golden/%s.txt", name);
    char *want = (char *)slurp(path, &want_len);
    want[want_len] = '\0';
    char *a = text, *b = want; /* line by line: a difference is then small enough to be shown */
    while (*a && *b) {
        char *a_end = a + strcspn(a, "\n"), *b_end = b + strcspn(b, "\n");
        *a_end = *b_end = '\0';
        assert_string_equal(a, b);
        a = a_end + 1;
        b = b_end + 1;
    }
    assert_string_equal(a, b);
    for (unsigned i = 0; i < nblocks; i++)
        free(blocks[i]);
    free(want);
    free(text);
    free(p);
}

/* damaged.zst is for the Python reader and the converter: the codec under test does not search for the next block. */
static void test_basic(void **state) {
    (void)state;
    check_golden("basic");
}

static void test_killed(void **state) {
    (void)state;
    check_golden("killed");
}

static void test_epochs(void **state) {
    (void)state;
    check_golden("epochs");
}

static void test_future(void **state) {
    (void)state;
    check_golden("future");
}

static void test_complete(void **state) {
    (void)state;
    check_golden("complete");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_basic),    cmocka_unit_test(test_killed),
        cmocka_unit_test(test_epochs),   cmocka_unit_test(test_future),
        cmocka_unit_test(test_complete),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
