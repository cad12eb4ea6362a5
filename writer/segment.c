/* SPDX-License-Identifier: Apache-2.0 */
/*
 * segment.c - continues a trace in a new file: declared in writer.h.
 *
 * The new file is complete by itself: it begins with copies of all dictionary blocks of the epochs that are still in use.
 * So ids stay the same, no producer has to define anything anew, and nothing is lost between the two files.
 *
 * At whatever point the process is killed, the finisher (finish.c) finds a trace at trace_path that it can complete: the new
 * file is made under another name, the old one gets its second name, and then one rename() replaces it. By then the rings
 * are empty up to their tails, so `next` and `next_at`, which refer to the old file, are withdrawn before. What the earlier
 * segments hold is noted before, too, with the new file's inode: by that the finisher knows which of the two it has found.
 */
#include <stdio.h>

#include "internal.h"

struct copy {
    struct writer *w;
    struct tracefile to;
    ZSTD_DCtx *zstd;
    struct buffer frame, raw;
    uint32_t seq;
};

/* Copies the block at `pos`, with a sequence number of the new file and without its losses, which the old file has. */
static int copy_block(struct copy *c, uint64_t pos, struct trace_hint *hint) {
    struct trace_block_header h;
    size_t n = 0;
    int rc = frame_get(&c->w->file, pos, hint, c->zstd, &c->frame, &c->raw, &h);
    if (rc)
        return rc;
    h.seq = hint->seq = c->seq++;
    memset(h.lost, 0, sizeof h.lost);
    trace_block_header_put(c->raw.bytes, &h);
    rc = frame_put(c->w->zstd, c->raw.bytes, hint->raw, hint, &c->frame, &n);
    return rc ? rc : tracefile_append(&c->to, c->frame.bytes, n);
}

static int copy_dictionaries(struct copy *c, uint64_t len) {
    const struct dicts *old = &c->w->old;
    struct trace_hint hint;
    int rc = 0;
    for (uint64_t pos = 0, next; !rc && pos < len; pos = next) {
        /* The frame may also be the seek table of a failed attempt. */
        rc = frame_at(&c->w->file, pos, len, &hint, &next);
        if (!rc && hint.compressed && hint.kind == TRACE_KIND_DICT &&
            (hint.epoch == c->w->now.epoch || (old->entries && hint.epoch == old->epoch)))
            rc = copy_block(c, pos, &hint);
    }
    return rc;
}

/* Writes the first block of the new file, the schema. No other record is pending. */
static int put_first_block(struct copy *c) {
    static const uint64_t none[TRACE_NLOST];
    struct writer *w = c->w;
    struct builder *b = &w->enc.block[TRACE_KIND_META];
    struct trace_hint hint;
    size_t n = 0;
    int rc = writer_put_schema(w);
    if (rc)
        return rc;
    size_t raw = builder_finish(b, c->seq++, w->block_epoch, none, &hint);
    rc = frame_put(w->zstd, b->buf, raw, &hint, &c->frame, &n);
    rc = rc ? rc : tracefile_append(&c->to, c->frame.bytes, n);
    builder_reset(b);
    w->oldest = 0;
    return rc;
}

/* Makes the new file the current one. Nothing can fail here: the names are changed already, and the live file follows. */
static void take_over(struct copy *c) {
    struct writer *w = c->w;
    struct live *l = w->live;
    __atomic_store_n(&l->trace_bytes, c->to.len, __ATOMIC_RELEASE);
    tracefile_close(&w->file);
    strcpy(c->to.path, w->file.path);
    w->file = c->to;
    c->to.fd = -1;
    w->seq = c->seq;
    w->carried = w->file.len;
    w->began = sys_now();
    l->before[__atomic_fetch_add(&l->segment, 1, __ATOMIC_RELEASE) & 1].ino = 0;
}

/* Whether a file is a trace of ours, or the empty beginning of one; other files are not touched. */
static int is_trace(const char *path) {
    struct trace_hint hint;
    struct tracefile f;
    uint64_t next;
    int rc = tracefile_open(&f, path, geteuid());

    if (!rc && f.len)
        rc = frame_hint(&f, 0, UINT64_MAX, &hint, &next); /* the frame may be cut off */
    tracefile_close(&f);
    return !rc;
}

int writer_next_segment(struct writer *w, const char *old_name) {
    struct copy c = {.w = w, .to.fd = -1, .zstd = ZSTD_createDCtx()};
    struct live_before *b = &w->live->before[~w->live->segment & 1];
    char temporary[4096];
    uint64_t len;
    int rc = c.zstd ? w->status : -ENOMEM;

    if (!rc && w->file.none)
        rc = -ENOTSUP;
    if (!rc &&
        snprintf(temporary, sizeof temporary, "%s.next", w->file.path) >= (int)sizeof temporary)
        rc = -ENAMETOOLONG;
    if (!rc && access(old_name, F_OK) == 0)
        rc = -EEXIST;
    if (!rc) {
        writer_read_rings(w, 0);
        rc = writer_flush(w);
    }
    if (!rc) {
        rc = tracefile_create(&c.to, temporary);
        if (rc == -EEXIST && is_trace(temporary) && unlink(temporary) == 0)
            rc = tracefile_create(&c.to, temporary); /* a process was killed here before */
    }
    if (rc)
        goto out;
    b->ino = c.to.ino;
    len = w->file.len;
    rc = put_first_block(&c);
    rc = rc ? rc : copy_dictionaries(&c, len);
    rc = rc ? rc : WRITER_ENCODE(w, end, .ts = sys_now(), .reason = value_text("rotated"));
    rc = rc ? rc : writer_flush(w);
    rc = rc ? rc : tracefile_seek_table(&w->file);
    if (!rc) {
        for (unsigned i = 0; i < w->live->nrings; i++)
            __atomic_store_n(&live_ring(w->live, i)->next_at, UINT64_MAX, __ATOMIC_RELEASE);
        memcpy(b->lost, w->lost_written, sizeof b->lost);
        /* link(), not rename(), so that there is a file at trace_path at all times. On file systems without hard links rename() leaves a short gap. */
        if (link(w->file.path, old_name) < 0)
            rc = errno == EEXIST || rename(w->file.path, old_name) < 0 ? -errno : 0;
    }
    if (!rc && rename(temporary, w->file.path) < 0) {
        rc = -errno;
        if (!rename(old_name, w->file.path)) /* which does nothing to two names of one file */
            unlink(old_name);
    }
    if (!rc)
        take_over(&c);
out:
    if (c.to.fd >= 0) {
        tracefile_close(&c.to);
        unlink(temporary);
    }
    ZSTD_freeDCtx(c.zstd);
    free(c.frame.bytes);
    free(c.raw.bytes);
    return rc;
}

uint64_t writer_segment_bytes(const struct writer *w) {
    return w->file.len > w->carried ? w->file.len - w->carried : 0;
}

uint64_t writer_segment_began(const struct writer *w) {
    return w->began;
}
