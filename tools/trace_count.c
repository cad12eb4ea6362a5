/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HOW IT WORKS: every block has a hint frame in front that says how long it is and which record
 * types it holds. We step from hint to hint. Blocks are unpacked for their lost counters and the few record types
 * that we count; of a file above the budget only those are that say whose it is. Other frames (the seek table) are stepped over by their length.
 */
#include "trace_count.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

#include "../traces/block.h"
#include "../traces/plain_file.h"

/* Blocks with these are read whatever the budget is. In a segment they come after copies of the dictionaries. */
#define WHOSE    (1ull << TRACE_process | 1ull << TRACE_config)
#define NO_VALUE " had no value"

struct scan {
    int fd;
    uint64_t off;
    ZSTD_DCtx *dctx;
    uint8_t *packed, *raw;
    size_t packed_size;
};

static int read_at(const struct scan *s, void *buf, size_t n, uint64_t off) {
    size_t have;
    int err = plain_file_read(s->fd, off, buf, n, &have);

    return !err && have < n ? -EBADMSG : err; /* the file ends in the middle of a frame */
}

/* Keeps the first warning about a variable. Warnings that variables had no value say more than the reason, and may come later: they replace it, joined. */
static void keep_note(char *note, size_t size, const char *text, size_t n) {
    const char *here = memmem(text, n, NO_VALUE, strlen(NO_VALUE)), *there = strstr(note, NO_VALUE);
    char all[sizeof((struct trace_count *)0)->variable_note];
    int len;

    if (note[0] && (!here || (there && memmem(note, strlen(note), text, (size_t)(here - text)))))
        return;
    if (there)
        len = snprintf(all, size, "%.*s, %.*s", (int)(there - note), note, (int)n, text);
    else
        len = snprintf(all, size, "%.*s", (int)n, text);
    if (!there || len < (int)size) /* if one more has no space, the first ones stay */
        memcpy(note, all, size);
}

static int is(const struct trace_value *v, const char *text) {
    return v->n == strlen(text) && !memcmp(v->p, text, v->n);
}

static void count_row(struct trace_count *c, int type, const struct trace_value *v) {
    switch (type) {
    case TRACE_sample:
        c->samples += v[TRACE_sample_count].u;
        break;
    case TRACE_process:
        if (!c->process_start)
            c->process_start = v[TRACE_process_start_ts].u;
        c->pid = (uint32_t)v[TRACE_process_pid].u;
        c->rank = (int32_t)v[TRACE_process_rank].i;
        break;
    case TRACE_config:
        if (is(&v[TRACE_config_key], "probing.session")) {
            size_t n = v[TRACE_config_value].n;
            if (n >= sizeof c->session)
                n = sizeof c->session - 1;
            memcpy(c->session, v[TRACE_config_value].p, n);
            c->session[n] = '\0';
        }
        break;
    case TRACE_variable:
        c->variables++;
        break;
    case TRACE_note:
        if (v[TRACE_note_level].u && is(&v[TRACE_note_part], "variables"))
            keep_note(c->variable_note, sizeof c->variable_note, (const char *)v[TRACE_note_text].p,
                      v[TRACE_note_text].n);
        else if (v[TRACE_note_level].u > 1 && is(&v[TRACE_note_part], "sampler"))
            snprintf(c->unsampled, sizeof c->unsampled, "%.*s", (int)v[TRACE_note_text].n,
                     (const char *)v[TRACE_note_text].p);
        break;
    case TRACE_children:
        c->children +=
            v[TRACE_children_ended].u + v[TRACE_children_failed].u + v[TRACE_children_gone].u;
        c->lost[TRACE_NLOST] += v[TRACE_children_ticks].u;
        break;
    case TRACE_end:
        c->closed = 1;
        break;
    }
}

static int count_block(struct scan *s, struct trace_count *c, const struct trace_hint *hint) {
    const uint64_t want = 1ull << TRACE_sample | 1ull << TRACE_process | 1ull << TRACE_config |
                          1ull << TRACE_end | 1ull << TRACE_note | 1ull << TRACE_variable |
                          1ull << TRACE_children;
    struct trace_block_header h;
    struct trace_rows rows;
    struct trace_value v[TRACE_MAX_FIELDS];
    int rc, type;

    if (hint->raw > TRACE_BLOCK_MAX || hint->compressed > ZSTD_compressBound(TRACE_BLOCK_MAX))
        return -EBADMSG;
    if (hint->compressed > s->packed_size) {
        uint8_t *p = realloc(s->packed, hint->compressed);
        if (!p)
            return -ENOMEM;
        s->packed = p;
        s->packed_size = hint->compressed;
    }
    if ((rc = read_at(s, s->packed, hint->compressed, s->off)) < 0)
        return rc;
    size_t n = ZSTD_decompressDCtx(s->dctx, s->raw, TRACE_BLOCK_MAX, s->packed, hint->compressed);
    if (ZSTD_isError(n))
        return -EBADMSG;
    if ((rc = trace_block_header_get(s->raw, n, &h)) < 0)
        return rc;
    for (unsigned i = 0; i < TRACE_NLOST; i++)
        c->lost[i] += h.lost[i];
    trace_rows_start(&rows, &h, s->raw);
    while ((type = trace_rows_next(&rows, want, v)) > 0)
        count_row(c, type, v);
    return type;
}

/* Steps over a hint and its block, or over another frame. Returns 0, or -errno at damage. */
static int step(struct scan *s, struct trace_count *c, uint64_t *blocks) {
    uint8_t head[TRACE_HINT_SIZE];
    struct trace_hint hint;
    uint32_t word[2];
    int rc;

    if ((rc = read_at(s, word, sizeof word, s->off)) < 0)
        return rc;
    if (word[0] != TRACE_HINT_MAGIC) {
        if ((word[0] & 0xfffffff0u) != 0x184D2A50u)
            return -EBADMSG;
        s->off += 8 + (uint64_t)word[1];
        return s->off <= c->bytes ? 0 : -EBADMSG;
    }
    if ((rc = read_at(s, head, sizeof head, s->off)) < 0)
        return rc;
    if ((rc = trace_hint_get(head, sizeof head, &hint)) < 0)
        return rc;
    s->off += TRACE_HINT_SIZE;
    if (hint.compressed > c->bytes - s->off)
        return -EBADMSG;
    if (!c->headers_only || hint.types & WHOSE) {
        if ((rc = count_block(s, c, &hint)) < 0)
            return rc;
    }
    c->records += hint.count;
    if (hint.first_ts && (!c->first_ts || hint.first_ts < c->first_ts))
        c->first_ts = hint.first_ts;
    if (hint.last_ts > c->last_ts)
        c->last_ts = hint.last_ts;
    if (hint.types & 1ull << TRACE_end)
        c->closed = 1;
    s->off += hint.compressed;
    (*blocks)++;
    return 0;
}

int trace_count(struct trace_count *out, const char *path, uint64_t budget) {
    struct scan s = {.fd = -1};
    struct stat st;
    uint64_t blocks = 0;
    int rc = 0;

    memset(out, 0, sizeof *out);
    out->rank = -1;
    /* A FIFO or device that lies among the traces is not even opened: opening a FIFO waits for its writer. */
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode)) {
        rc = -EBADMSG;
        goto out;
    }
    s.fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (s.fd < 0 || fstat(s.fd, &st) < 0) {
        rc = -errno;
        goto out;
    }
    if (!S_ISREG(st.st_mode)) {
        rc = -EBADMSG;
        goto out;
    }
    out->bytes = (uint64_t)st.st_size;
    out->headers_only = budget && out->bytes > budget;
    s.raw = malloc(TRACE_BLOCK_MAX);
    s.dctx = ZSTD_createDCtx();
    if (!s.raw || !s.dctx) {
        rc = -ENOMEM;
        goto out;
    }
    while (rc == 0 && s.off < out->bytes)
        rc = step(&s, out, &blocks);
    if (rc < 0 && rc != -ENOMEM && blocks) { /* the good blocks still count */
        out->damaged = 1;
        rc = 0;
    }
    if (rc == 0 && !blocks)
        rc = -EBADMSG;
out:
    ZSTD_freeDCtx(s.dctx);
    free(s.raw);
    free(s.packed);
    if (s.fd >= 0)
        close(s.fd);
    return rc;
}
