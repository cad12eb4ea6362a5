/* SPDX-License-Identifier: Apache-2.0 */
#include "writer.h"

#include <stdio.h>

#include "internal.h"

/* Matches are sought within 128 KiB, about the length of our blocks; this keeps the compressor's tables below 1 MiB. */
#define WINDOW_LOG 17
/* On blocks of this size level 2 compresses as well as level 3, a sixth faster and in half the memory. */
#define LEVEL 2

struct writer *writer_alloc(unsigned nrings) {
    struct writer *w = calloc(1, sizeof *w + nrings * sizeof *w->at);
    if (!w)
        return NULL;
    w->file.fd = -1;
    w->bound = DICTS_BOUND;
    encoder_init(&w->enc);
    w->zstd = ZSTD_createCCtx();
    if (!w->zstd) {
        writer_free(w);
        return NULL;
    }
    ZSTD_CCtx_setParameter(w->zstd, ZSTD_c_compressionLevel, LEVEL);
    ZSTD_CCtx_setParameter(w->zstd, ZSTD_c_windowLog, WINDOW_LOG);
    ZSTD_CCtx_setParameter(w->zstd, ZSTD_c_contentSizeFlag, 1);
    ZSTD_CCtx_setParameter(w->zstd, ZSTD_c_checksumFlag, 1);
    return w;
}

void writer_free(struct writer *w) {
    tracefile_close(&w->file);
    if (w->leave && w->live)
        live_leave(w->live);
    else
        live_free(w->live);
    encoder_free(&w->enc);
    dicts_free(&w->now);
    dicts_free(&w->old);
    ZSTD_freeCCtx(w->zstd);
    free(w->out.bytes);
    free(w);
}

int writer_put_schema(struct writer *w) {
    return WRITER_ENCODE(w, schema, .text = value_text(trace_schema_text()));
}

int writer_open(struct writer **out, const struct writer_options *opt) {
    char dir[4096];
    unsigned nrings = (opt->nrings ? opt->nrings : LIVE_NRINGS) + 1; /* one is the writer's own */
    /* Programs that exec again and again try one name after the other: do not make a live file for each. */
    if (opt->trace_path && !faccessat(AT_FDCWD, opt->trace_path, F_OK, AT_SYMLINK_NOFOLLOW))
        return -EEXIST;
    struct writer *w = writer_alloc(nrings + (opt->large_ring ? LIVE_NLARGE : 0));
    int rc = w ? -ENOENT : -ENOMEM;

    /* The live file is made first, so that a process killed here leaves no empty trace. */
    for (unsigned i = 0; w && !w->live && i < LIVE_PLACES; i++) {
        rc = live_place(i, opt->run_dir, opt->xdg, dir, sizeof dir);
        if (rc)
            continue;
        rc = live_create(&w->live, dir, nrings, opt->ring_size ? opt->ring_size : LIVE_RING,
                         opt->large_ring, w->live_path, sizeof w->live_path);
        if (rc && i > 1)
            rmdir(dir); /* it may have been made for this */
    }
    if (!rc && opt->trace_path) {
        /* the name is stored first, so that a process killed in between leaves no file that nobody knows of */
        snprintf(w->live->trace_path, sizeof w->live->trace_path, "%s", opt->trace_path);
        rc = tracefile_create(&w->file, opt->trace_path);
    }
    if (!rc) {
        w->file.none = !opt->trace_path;
        w->own = live_ring_get(w->live, (uint32_t)syscall(SYS_gettid));
        w->began = sys_now();
        rc = writer_put_schema(w);
    }
    if (!rc)
        *out = w;
    else if (w) {
        if (w->file.fd >= 0)
            unlink(w->file.path);
        if (w->live)
            unlink(w->live_path);
        writer_free(w);
    }
    return rc;
}

struct live *writer_live(struct writer *w) {
    return w->live;
}

const char *writer_live_path(const struct writer *w) {
    return w->live_path;
}

void writer_bound(struct writer *w, uint64_t entries) {
    w->bound = entries > DICTS_BOUND ? DICTS_BOUND : entries ? (uint32_t)entries : 1;
}

/* ---- whole records ---- */

static size_t bytes_of(const struct trace_record *rec, unsigned i, const struct writer_value *v) {
    return trace_type_is_list(rec->fields[i].type) ? v[i].n * 8 : v[i].n;
}

/* Number of bytes that the record's variable fields take in a ring. */
static size_t extra_bytes(const struct trace_record *rec, const struct writer_value *v) {
    size_t n = 0;
    TRACE_EACH(i, rec->vars) n += sys_round8(bytes_of(rec, i, v));
    return n;
}

int writer_put(struct ring *r, unsigned type, const struct writer_value *v) {
    const struct trace_record *rec = trace_record_by_id(type);
    uint64_t *f = ring_reserve(r, type, rec->nfields, extra_bytes(rec, v));
    size_t used = 0;
    if (!f)
        return -ENOSPC;
    for (unsigned i = 0; i < rec->nfields; i++) {
        if (trace_type_is_var(rec->fields[i].type))
            ring_put_bytes(f, rec->nfields, i, v[i].p, bytes_of(rec, i, v), &used);
        else
            f[i] = v[i].u;
    }
    ring_commit(f);
    return 0;
}

/* Uses a ring all the same, as records in a ring survive a kill, and those on our heap do not. */
int writer_emit(struct writer *w, unsigned type, const struct writer_value *v) {
    const struct trace_record *rec = trace_record_by_id(type);
    struct ring *r = w->own;
    int rc;

    if (!rec || type == TRACE_string)
        return -EINVAL;
    size_t need = 8 + 8 * (size_t)rec->nfields + extra_bytes(rec, v);
    if (need > r->size / 2) {
        /* Too long for any ring: write it into the block, behind all earlier records. */
        struct writer_value copy[TRACE_MAX_FIELDS];
        memcpy(copy, v, rec->nfields * sizeof *v);
        writer_read_rings(w, 0);
        writer_flush(w); /* it may fill a block by itself */
        rc = w->status ? w->status : writer_encode(w, rec, copy);
        if (rc)
            live_lose(w->live, rc == -ENOENT ? TRACE_LOST_unresolved : TRACE_LOST_write_error, 1);
        return rc;
    }
    if (ring_used(r) + 2 * need > r->size) { /* a gap at the end may take as much again */
        writer_read_rings(w, 0);
        writer_flush(w);
    }
    rc = writer_put(r, type, v);
    return rc ? rc : w->status;
}

/* ---- drain and close ---- */

/* Whether ring space is short: a ring half full, or few rings left while orphans wait for a flush. */
static int rings_short(struct writer *w) {
    unsigned taken = 0, orphans = 0;
    for (unsigned i = 0; i < w->live->nrings; i++) {
        struct ring *r = live_ring(w->live, i);
        uint32_t state = __atomic_load_n(&r->state, __ATOMIC_ACQUIRE);
        if (state == RING_FREE)
            continue;
        if (ring_used(r) > r->size / 2)
            return 1;
        taken += state != RING_LEFT;
        orphans += state == RING_ORPHAN;
    }
    return orphans && taken > w->live->nrings / 4 * 3;
}

static void free_orphans(struct writer *w) {
    for (unsigned i = 0; i < w->live->nrings; i++) {
        struct ring *r = live_ring(w->live, i);
        if (__atomic_load_n(&r->state, __ATOMIC_ACQUIRE) == RING_ORPHAN && ring_used(r) == 0)
            sys_swap(&r->state, RING_ORPHAN, RING_FREE);
    }
}

int writer_drain(struct writer *w, int flags) {
    writer_read_rings(w, 0);
    if (w->status || (flags & WRITER_FLUSH) || rings_short(w) ||
        (w->oldest && sys_now() - w->oldest >= BLOCK_OLD_NS))
        writer_flush(w);
    free_orphans(w);
    return w->status;
}

int writer_end(struct writer *w, const char *reason, int signal) {
    int before = w->status, rc = 0;
    uint64_t last = 0;

    if (w->dead)
        last = w->live->last_ts > w->last_ts ? w->live->last_ts : w->last_ts;
    w->status = 0;
    if (w->file.len == 0 && w->enc.block[TRACE_KIND_META].count == 0)
        rc = writer_put_schema(w);
    /* After a failed write try once more, so that the trace itself says what is missing. There may be space by now, and this block is small. */
    if (!rc)
        rc = WRITER_ENCODE(w, end, .ts = sys_now(), .reason = value_text(before ? "disk" : reason),
                           .signal = (uint64_t)signal, .last = last);
    if (!rc)
        rc = writer_flush(w);
    if (!rc)
        rc = tracefile_seek_table(&w->file);
    if (!rc)
        __atomic_store_n(&w->live->trace_bytes, w->file.len, __ATOMIC_RELEASE);
    w->status = before ? before : rc;
    return w->status;
}

void writer_leave_live(struct writer *w) {
    w->leave = 1;
}

int writer_close(struct writer *w, const char *reason) {
    writer_read_rings(w, 1);
    writer_flush(w);
    int rc = writer_end(w, reason, 0);
    unlink(w->live_path);
    writer_free(w);
    return rc;
}

void writer_abandon(struct writer *w) {
    /* A child does not have the live file's mapping (MADV_DONTFORK): other memory may be at its address. */
    tracefile_close(&w->file);
}
