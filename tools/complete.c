/* SPDX-License-Identifier: Apache-2.0 */
#include "complete.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../converter/addresses.h"
#include "../writer/file.h"

#define LEVEL 9 /* zstd level: high, as only a few KB are compressed, and once */

int complete_init(struct complete *c, int debuginfod, int (*tick)(void *ctx), void *ctx) {
    *c = (struct complete){.symbols = symbols_new(debuginfod), .tick = tick, .ctx = ctx};
    return c->symbols ? 0 : -ENOMEM;
}

void complete_free(struct complete *c) {
    symbols_free(c->symbols);
    c->symbols = NULL;
}

/* The state of looking up one trace's addresses and writing their symbols into blocks. */
struct job {
    struct complete *c;
    const struct recorded *rec;
    struct reader *r;
    struct block_out *b;
    struct keys *done; /* {symbols_file, address} */
    uint64_t n;
    unsigned since_tick;
    int keep; /* also write the symbols that the trace has already */
};

static struct writer_value text(const char *p) {
    return (struct writer_value){.p = p, .n = p ? strlen(p) : 0};
}

/* Writes the schema if the trace's own, made by an older writer, lacks the records written here: readers without built-in tables decode by the schema. */
static int put_schema(struct reader *r, struct block_out *b) {
    struct trace_value v[TRACE_MAX_FIELDS];
    struct reader_data data = {0};
    struct trace_rows rows;
    int rc = reader_load(r, 0, &data), known = 0;

    if (!rc) {
        trace_rows_start(&rows, &data.h, data.data);
        while (trace_rows_next(&rows, 1ull << TRACE_schema, v) > 0)
            known |= memmem(v[0].p, v[0].n, " native_file DICT ", 18) != NULL;
    }
    reader_data_free(&data);
    struct writer_value schema[TRACE_schema_NFIELDS] = {text(trace_schema_text())};
    return known || rc == -ENOMEM ? rc == -ENOMEM ? rc : 0 : block_out_put(b, TRACE_schema, schema);
}

static int put_file(struct job *j, const struct module *mod, uint64_t *key) {
    const char *path;
    size_t len;
    const uint8_t *id = symbols_file_id(mod->file, &path, &len);
    struct writer_value v[TRACE_native_file_NFIELDS] = {
        [TRACE_native_file_path] = text(path), [TRACE_native_file_build_id] = {.p = id, .n = len}};

    *key = string_key(path, strlen(path) + 1 + len); /* the id follows the path in memory */
    v[TRACE_native_file_key].u = *key;
    return block_out_put(j->b, TRACE_native_file, v);
}

static int put_symbols(struct job *j, const struct module *mod, uint64_t address,
                       const struct symbol *s) {
    uint64_t key = 0;
    int rc = j->b->dicts.entries ? 0 : put_schema(j->r, j->b); /* before the first symbol */

    if (!rc)
        rc = put_file(j, mod, &key);

    for (; !rc && s; s = s->into) {
        struct writer_value v[TRACE_symbol_NFIELDS] = {
            [TRACE_symbol_file] = {.u = key},
            [TRACE_symbol_address] = {.u = address},
            [TRACE_symbol_name] = text(s->name),
            [TRACE_symbol_source] = text(s->source),
            [TRACE_symbol_line] = {.u = s->line},
            [TRACE_symbol_flags] = {.u = (s->into ? 1u : 0u) | (s->eval ? 2u : 0u) |
                                         (s->named ? 0u : 4u)}};
        rc = block_out_put(j->b, TRACE_symbol, v);
    }
    j->n += !rc;
    j->c->addresses += !rc;
    return rc;
}

static int each(void *ctx, const struct module *mod, uint64_t address) {
    struct job *j = ctx;
    const struct {
        const struct symbols_file *file;
        uint64_t address;
    } key = {mod->file, address};
    const struct symbol *said = recorded_at(j->rec, mod->recorded, address), *best = said;
    struct symbol found;
    int is_new;

    if (!keys_put(j->done, &key, sizeof key, &is_new))
        return -ENOMEM;
    if (!is_new)
        return 0;
    if (++j->since_tick >= 64 || symbols_file_state(mod->file) < 0) { /* opening takes time */
        j->since_tick = 0;
        if (j->c->tick && j->c->tick(j->c->ctx))
            return -EINTR;
    }
    if ((!said || !said->named) && !(j->keep && j->c->recorded_only)) {
        int rc = symbols_lookup(mod->file, address, &found);
        if (rc)
            return rc;
        if (symbols_file_state(mod->file) == 1 && (!said || found.named))
            best = &found;
    }
    if (!best || (best == said && !j->keep))
        return 0;
    return put_symbols(j, mod, address, best);
}

static int records(struct job *j) {
    struct epochs *es = epochs_new(j->r);
    struct recorded rec = {0};
    struct modules mods = {0};
    int rc = es ? recorded_load(&rec, j->r, es) : -ENOMEM;

    j->rec = &rec;
    if (!rc)
        rc = modules_load(&mods, j->r, es, j->c->symbols, &rec);
    if (!rc)
        rc = addresses_each(j->r, es, &mods, each, j);
    if (!rc)
        rc = block_out_end(j->b);
    modules_free(&mods);
    j->rec = NULL;
    recorded_free(&rec);
    epochs_free(es);
    return rc;
}

int complete_records(struct complete *c, struct reader *r, struct block_out *b, struct keys *done) {
    struct job j = {.c = c, .r = r, .b = b, .done = done, .keep = 1};

    return records(&j);
}

/* Appends the blocks and a seek table over the whole file, at `whole`. On an error it cuts the file back to there. */
static int append(struct tracefile *f, uint64_t whole, const struct block_out *b) {
    uint64_t before = whole;
    int rc = whole < f->len ? tracefile_cut(f, whole) : 0;

    if (!rc)
        rc = tracefile_append(f, b->bytes, b->n);
    if (!rc && ((rc = tracefile_seek_table(f)) == -EBADMSG || rc == -EFBIG))
        rc = 0; /* a damaged trace gets no seek table, nor does one of too many frames */
    if (rc && f->len > before)
        tracefile_cut(f, before);
    return rc;
}

/* Up to where the file is good, and whether it ends there with a seek table. */
struct ending {
    uint64_t whole;
    int table;
};

/* Finds the end of a file without what somebody was appending when he was killed: the beginning of a block, or a seek table that still has zeros where its head will
 * be. cut_off: number of bytes of a block that is cut off. */
static void find_end(struct tracefile *f, struct reader *r, uint64_t cut_off, struct ending *end) {
    const struct reader_block *last = reader_block(r, reader_blocks(r) - 1);
    uint64_t pos = 0, next, head = 1;
    struct trace_hint h = {.compressed = 1};

    for (; pos < f->len && frame_at(f, pos, f->len, &h, &next) == 0; pos = next)
        end->table = h.compressed == 0;
    end->whole = f->len;
    if (pos < last->off + last->compressed)
        return; /* what is damaged lies before a good block */
    if (f->len - pos >= sizeof head && tracefile_read(f, pos, &head, sizeof head) != 0)
        return;
    if (head == 0 || cut_off == f->len - pos)
        end->whole = pos;
}

/* Returns whether the trace has an `end` record and ends with a whole frame at end->whole. Otherwise appended blocks could be overwritten, or lost. */
static int is_ended(struct tracefile *f, struct reader *r, struct ending *end) {
    struct reader_loss loss;
    int ended = 0;

    for (size_t i = 0; i < reader_blocks(r); i++)
        ended |= (int)(reader_block(r, i)->types >> TRACE_end & 1);
    if (reader_loss(r, &loss) != 0 || !ended)
        return 0;
    find_end(f, r, loss.tail_bytes, end);
    return !loss.tail_bytes || end->whole < f->len;
}

static uint32_t next_epoch(const struct reader *r) {
    uint32_t epoch = 0;

    for (size_t i = 0; i < reader_blocks(r); i++)
        if (reader_block(r, i)->epoch >= epoch)
            epoch = reader_block(r, i)->epoch + 1;
    return epoch;
}

/* Opens and locks an ended trace, and finds its end. A trace's writer holds the same lock, as does any other process that is appending to it: -EBUSY. */
static int open_ended(const char *path, struct tracefile *f, struct reader **r,
                      struct block_out **b, struct ending *end) {
    char full[PATH_MAX];
    int rc = realpath(path, full) ? tracefile_open(f, full, geteuid()) : -errno;

    if (!rc && flock(f->fd, LOCK_EX | LOCK_NB) < 0)
        rc = errno == EWOULDBLOCK ? -EBUSY : -errno;
    rc = rc == -EAGAIN ? -EBUSY : rc;
    if (!rc)
        rc = reader_open(r, full);
    if (!rc && (reader_size(*r) != f->len || !reader_blocks(*r) || !is_ended(f, *r, end)))
        rc = -ENOTSUP;
    if (!rc && !(*b = block_out_new(LEVEL, reader_block(*r, reader_blocks(*r) - 1)->seq + 1,
                                    next_epoch(*r))))
        rc = -ENOMEM;
    return rc;
}

/* Returns whether the path still names the file that was read, with the same length. */
static int is_same(const struct tracefile *f) {
    struct stat st, now;

    return fstat(f->fd, &st) == 0 && stat(f->path, &now) == 0 && st.st_ino == now.st_ino &&
           st.st_dev == now.st_dev && (uint64_t)st.st_size == f->len;
}

int complete_trace(struct complete *c, const char *path) {
    struct tracefile f = {.fd = -1};
    struct keys done;
    struct job j = {.c = c, .done = &done};
    struct ending end = {0};
    int rc = open_ended(path, &f, &j.r, &j.b, &end);

    keys_init(&done);
    if (!rc)
        rc = records(&j);
    if (!rc && (j.n || end.whole < f.len || !end.table))
        rc = is_same(&f) ? append(&f, end.whole, j.b) : -EBUSY;
    c->traces += !rc && j.n;
    keys_free(&done);
    block_out_free(j.b);
    reader_close(j.r);
    tracefile_close(&f);
    return rc;
}

int complete_fact(const char *path, const char *kind, const char *key, const char *value) {
    struct tracefile f = {.fd = -1};
    struct reader *r = NULL;
    struct block_out *b = NULL;
    uint64_t last = 0; /* the time of the last record: at any later time the process was dead */
    struct ending end = {0};
    int rc = open_ended(path, &f, &r, &b, &end);

    for (size_t i = 0; !rc && i < reader_blocks(r); i++)
        if (reader_block(r, i)->last_ts > last)
            last = reader_block(r, i)->last_ts;
    struct writer_value v[TRACE_fact_NFIELDS] = {[TRACE_fact_ts] = {.u = last},
                                                 [TRACE_fact_kind] = text(kind),
                                                 [TRACE_fact_key] = text(key),
                                                 [TRACE_fact_value] = text(value)};
    if (!rc && (rc = block_out_put(b, TRACE_fact, v)) == 0 && (rc = block_out_end(b)) == 0)
        rc = is_same(&f) ? append(&f, end.whole, b) : -EBUSY;
    block_out_free(b);
    reader_close(r);
    tracefile_close(&f);
    return rc;
}
