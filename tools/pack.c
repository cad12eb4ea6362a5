/* SPDX-License-Identifier: Apache-2.0 */
#include "pack.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../converter/keys.h"
#include "pack_merge.h"

#define FLUSH (1u << 20)

/* The state of writing one process's packed trace. */
struct out {
    struct pack *p;
    int fd;
    struct block_out *b;
    struct pack_merge m; /* rows that go into b when enough are joined */
    struct keys
        dictionaries; /* {epoch, length, hash} of dictionary blocks written so far: a segment begins with copies of them */
    uint32_t epochs;  /* the first epoch that no block uses */
    uint8_t *table;   /* entries of the seek table: compressed, decompressed */
    size_t entries, cap;
};

static int write_all(int fd, const uint8_t *p, size_t n) {
    while (n) {
        ssize_t k = write(fd, p, n);
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            return k < 0 ? -errno : -EIO;
        p += k;
        n -= (size_t)k;
    }
    return 0;
}

/* Writes the finished blocks to the file and adds their frames to the seek table. */
static int flush(struct out *o) {
    struct block_out *b = o->b;
    struct trace_hint h;

    for (size_t pos = 0; pos < b->n; pos += TRACE_HINT_SIZE + h.compressed) {
        if (trace_hint_get(b->bytes + pos, b->n - pos, &h) != 0)
            return -EBADMSG;
        if (o->entries + 2 > o->cap) {
            size_t cap = o->cap * 2 + 1024;
            uint8_t *p = realloc(o->table, cap * 8);
            if (!p)
                return -ENOMEM;
            o->table = p;
            o->cap = cap;
        }
        trace_seek_entry(o->table + 8 * o->entries, TRACE_HINT_SIZE, 0);
        trace_seek_entry(o->table + 8 * o->entries + 8, h.compressed, h.raw);
        o->entries += 2;
    }
    int rc = write_all(o->fd, b->bytes, b->n);
    o->p->bytes_out += b->n;
    b->n = 0;
    return rc;
}

static int put_seek_table(struct out *o) {
    uint8_t head[8], foot[TRACE_SEEK_FOOT];
    int rc;

    trace_seek_head(head, o->entries);
    trace_seek_foot(foot, o->entries);
    if (!o->entries || o->entries > TRACE_SEEK_MOST)
        return 0;
    if ((rc = write_all(o->fd, head, sizeof head)) == 0 &&
        (rc = write_all(o->fd, o->table, o->entries * 8)) == 0)
        rc = write_all(o->fd, foot, sizeof foot);
    o->p->bytes_out += sizeof head + o->entries * 8 + sizeof foot;
    return rc;
}

/* An input that cannot be read any more, or has lost rows, since pack_find() read it. */
static int changed(struct pack *p, const struct pack_part *part, const char *how) {
    p->say(p->ctx, part->path, how);
    p->failed++;
    return -ESTALE;
}

/*
 * Copies the beginning of a block that the trace was cut off in, so that the packed trace is cut off, too: its process may have done more. The block gets
 * the next number here. Otherwise, if another trace follows, it would look like the first block of a trace of its own.
 */
static int put_tail(struct out *o, const struct pack_part *part) {
    uint8_t buf[65536];
    struct trace_hint h;
    int fd = open(part->path, O_RDONLY | O_CLOEXEC | O_NOCTTY),
        rc = fd < 0 ? changed(o->p, part, strerror(errno)) : 0;

    for (uint64_t left = part->tail_bytes; !rc && left;) {
        ssize_t n =
            pread(fd, buf, left < sizeof buf ? left : sizeof buf, (off_t)(part->end - left));
        if (left == part->tail_bytes && n > 0 && trace_hint_get(buf, (size_t)n, &h) == 0) {
            h.seq = o->b->seq;
            trace_hint_put(buf, &h);
        }
        rc = n > 0 ? write_all(o->fd, buf, (size_t)n)
                   : changed(o->p, part, n < 0 ? strerror(errno) : "it was changed meanwhile");
        left -= n > 0 ? (size_t)n : 0;
        o->p->bytes_out += n > 0 ? (size_t)n : 0;
    }
    if (fd >= 0)
        close(fd);
    return rc;
}

/* Returns whether the dictionary block was written before, or -ENOMEM. */
static int is_repeated(struct out *o, const struct trace_block_header *h, const uint8_t *rows) {
    const struct {
        uint64_t hash;
        uint32_t epoch, len;
    } key = {string_key(rows, h->body_len), h->epoch, h->body_len};
    int is_new;

    return keys_put(&o->dictionaries, &key, sizeof key, &is_new) ? !is_new : -ENOMEM;
}

/* Drops the record `end` of a trace that goes on in another file (reason "rotated"), if it is the last row of its block. */
static void drop_end(struct trace_block_header *h, const uint8_t *block) {
    struct trace_value v[TRACE_MAX_FIELDS];
    struct trace_rows rows;
    const uint8_t *at, *body = block + h->header_len;
    uint32_t len = h->body_len;
    int type;

    if (h->kind != TRACE_KIND_META || !(h->types >> TRACE_end & 1))
        return;
    trace_rows_start(&rows, h, block);
    for (at = rows.p; (type = trace_rows_next(&rows, UINT64_MAX, v)) > 0; at = rows.p)
        if (type == TRACE_end && v[TRACE_end_reason].n == 7 &&
            memcmp(v[TRACE_end_reason].p, "rotated", 7) == 0 && rows.p == rows.end) {
            len = (uint32_t)(at - body);
            break;
        }
    if (len == h->body_len)
        return;
    h->body_len = len;
    h->count--;
    h->types &= ~(1ull << TRACE_end);
}

static int is_symbols(const struct reader_block *b) {
    return (b->types & (1ull << TRACE_symbol | 1ull << TRACE_native_file)) != 0;
}

/* Copies the blocks of one part; first, last: it is the first, the last part of its process. */
static int copy_part(struct out *o, struct reader *r, const struct pack_part *part, int first,
                     int last) {
    struct reader_data data = {0};
    uint32_t expected = 0;
    uint64_t rows = 0;
    int rc = 0;

    for (size_t i = 0; !rc && i < reader_blocks(r); i++) {
        const struct reader_block *b = reader_block(r, i);
        o->b->seq += b->seq - expected; /* missing blocks leave a gap in the numbers here, too */
        expected = b->seq + 1;
        if (b->epoch >= o->epochs)
            o->epochs = b->epoch + 1;
        rc = reader_load(r, i, &data);
        if (rc == -EBADMSG || rc == -ENOTSUP) {
            o->b->seq++;
            rc = 0;
            continue;
        }
        struct trace_block_header h = data.h;
        if (!rc && h.kind == TRACE_KIND_DATA && !is_symbols(b))
            rows += h.count;
        if (!rc && is_symbols(b))
            continue; /* put_symbols() writes all symbols, these and those that were missing */
        if (!rc && h.kind == TRACE_KIND_DICT &&
            (rc = is_repeated(o, &h, data.data + h.header_len)) > 0 && !first) {
            rc = 0;
            continue;
        }
        rc = rc > 0 ? 0 : rc;
        if (!rc && !last)
            drop_end(&h, data.data);
        if (!rc && (h.body_len || first))
            rc = pack_merge_put(&o->m, &h, data.data + data.h.header_len);
        if (!rc && o->b->n >= FLUSH)
            rc = flush(o);
        if (!rc && o->p->tick && o->p->tick(o->p->ctx))
            rc = -EINTR;
    }
    reader_data_free(&data);
    return rc || rows >= part->rows ? rc : changed(o->p, part, "it was changed meanwhile");
}

/* Opens the part's trace, which may be one of several in its file. */
static int open_part(struct pack *p, struct reader **r, const struct pack_part *part) {
    int rc = reader_open(r, part->path);

    for (unsigned k = 1; !rc && k < part->number; k++) {
        rc = reader_next(*r);
        rc = rc > 0 ? 0 : rc < 0 ? rc : -ESTALE;
    }
    if (!rc)
        return 0;
    if (*r)
        reader_close(*r);
    *r = NULL;
    return rc == -ENOMEM ? rc : changed(p, part, reader_strerror(rc));
}

/* Writes the names of native code in all parts, each address once. */
static int put_symbols(struct out *o, const struct pack_process *proc) {
    struct pack *p = o->p;
    struct keys done;
    int rc = p->ready ? 0 : complete_init(&p->complete, p->debuginfod, p->tick, p->ctx);

    if (rc)
        return rc;
    p->ready = 1;
    p->complete.recorded_only = !p->symbols;
    dicts_free(&o->b->dicts);
    o->b->dicts.epoch = o->epochs;
    keys_init(&done);
    for (size_t i = 0; !rc && i < proc->n; i++) {
        struct reader *r;
        rc = open_part(p, &r, &proc->part[i]);
        if (rc)
            break;
        rc = complete_records(&p->complete, r, o->b, &done);
        reader_close(r);
    }
    keys_free(&done);
    return rc;
}

int pack_process(struct pack *p, struct pack_process *proc, int fd) {
    struct out o = {.p = p, .fd = fd, .b = block_out_new(p->level, 0, 0)};
    int rc = o.b ? 0 : -ENOMEM;

    o.m.b = o.b;
    keys_init(&o.dictionaries);
    for (size_t i = 0; !rc && i < proc->n; i++) {
        struct reader *r = NULL;
        rc = open_part(p, &r, &proc->part[i]);
        if (rc)
            break;
        rc = copy_part(&o, r, &proc->part[i], i == 0, i + 1 == proc->n);
        if (proc->part[i].tail_bytes && i + 1 < proc->n)
            o.b->seq++; /* the block that was cut off is missing */
        reader_close(r);
    }
    if (!rc)
        rc = pack_merge_flush(&o.m);
    if (!rc)
        rc = put_symbols(&o, proc);
    if (!rc)
        rc = flush(&o);
    if (!rc) /* a seek table is for what was closed */
        rc = proc->n && proc->part[proc->n - 1].tail_bytes ? put_tail(&o, &proc->part[proc->n - 1])
                                                           : put_seek_table(&o);
    p->written += !rc;
    keys_free(&o.dictionaries);
    pack_merge_free(&o.m);
    block_out_free(o.b);
    free(o.table);
    return rc;
}
