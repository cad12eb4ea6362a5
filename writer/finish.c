/* SPDX-License-Identifier: Apache-2.0 */
/*
 * finish.c - completes the trace of a process that died: declared in writer.h.
 *
 * The dictionaries, the sequence number and the losses counted so far are read back from the trace; the records that had not reached the trace come from the
 * live file (internal.h says why each is written exactly once). The rest is done by the writer's own code, on a copy of the live file: nobody can change it
 * during the work, and if this finisher is killed, the next one begins where this one did.
 */
#include <signal.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "internal.h"

/* ---- reading the trace back ---- */

struct scan {
    struct writer *w;
    ZSTD_DCtx *zstd;
    struct trace_rows *rows;
    struct buffer frame, raw; /* one compressed frame, one block */
    uint64_t end;             /* end of the last good block */
    int ended;   /* the last block holds the `end` record of the process, and not of a segment */
    int foreign; /* the trace belongs to another process */
};

/* Puts the block's definitions into the dictionaries of its epoch; notes `end` and `process` records. */
static int scan_rows(struct scan *s, const struct trace_block_header *h) {
    struct writer *w = s->w;
    struct trace_value v[TRACE_MAX_FIELDS];
    struct dicts *d = h->epoch == w->now.epoch ? &w->now : &w->old;
    int type, rc = 0;

    if (h->kind == TRACE_KIND_DATA || h->encoding != TRACE_ENCODING_ROWS)
        return 0;
    trace_rows_start(s->rows, h, s->raw.bytes);
    while (!rc && (type = trace_rows_next(s->rows, UINT64_MAX, v)) > 0) {
        const struct trace_record *rec = trace_record_by_id((unsigned)type);
        if (type == TRACE_end)
            s->ended = v[TRACE_end_reason].n != 7 || memcmp(v[TRACE_end_reason].p, "rotated", 7);
        if (type == TRACE_process && v[TRACE_process_pid].u != w->live->pid)
            s->foreign = 1;
        if (rec->kind != TRACE_KIND_DICT || h->epoch != d->epoch)
            continue;
        uint64_t id = v[0].u, key = v[1].u;
        if (type == TRACE_string)
            key = string_key(v[TRACE_string_text].p, v[TRACE_string_text].n);
        if (id && key && id <= UINT32_MAX)
            rc = dicts_define(d, rec->id, key, (uint32_t)id);
    }
    return rc;
}

/* Scans the block at `pos`. Returns 0 and *next; -EBADMSG when there is no good block there; or -errno. */
static int scan_block(struct scan *s, uint64_t pos, uint64_t limit, uint64_t *next) {
    struct tracefile *f = &s->w->file;
    struct trace_block_header h;
    struct trace_hint hint;
    int rc = frame_hint(f, pos, limit, &hint, next);
    if (!rc)
        rc = frame_get(f, pos, &hint, s->zstd, &s->frame, &s->raw, &h);
    if (rc)
        return rc;
    s->ended = 0;
    rc = scan_rows(s, &h);
    if (rc)
        return rc;
    for (unsigned i = 0; i < TRACE_NLOST; i++)
        s->w->lost_written[i] += h.lost[i];
    if (h.last_ts > s->w->last_ts)
        s->w->last_ts = h.last_ts;
    s->w->seq = h.seq + 1;
    return 0;
}

static const uint8_t start[12] = {0x5d, 0x2a, 0x4d, 0x18, TRACE_HINT_SIZE - 8, 0, 0, 0,
                                  'P',  'R',  'B',  'h'};

/* Returns the next place at or after pos where a hint frame may begin, or limit. */
static uint64_t find_hint(struct scan *s, uint64_t pos, uint64_t limit) {
    uint8_t buf[4096];
    while (limit - pos >= sizeof start) {
        size_t n = limit - pos < sizeof buf ? (size_t)(limit - pos) : sizeof buf;
        if (tracefile_read(&s->w->file, pos, buf, n))
            break;
        uint8_t *at = memmem(buf, n, start, sizeof start);
        if (at)
            return pos + (uint64_t)(at - buf);
        pos += n - sizeof start + 1;
    }
    return limit;
}

static int scan_trace(struct scan *s, uint64_t limit) {
    for (uint64_t pos = 0, next; pos < limit;) {
        int rc = scan_block(s, pos, limit, &next);
        if (rc && rc != -EBADMSG)
            return rc;
        if (!rc)
            s->end = next;
        pos = rc ? find_hint(s, pos + 1, limit) : next;
    }
    return 0;
}

static int read_back(struct writer *w, struct scan *s) {
    struct live *l = w->live;
    const struct live_before *b = &l->before[l->segment & 1], *next = &l->before[~l->segment & 1];
    uint64_t bytes = __atomic_load_n(&l->trace_bytes, __ATOMIC_ACQUIRE);
    char name[sizeof w->file.path + 8];
    struct stat st;
    int rc = -ENOMEM;

    if (next->ino == w->file.ino) { /* killed just after the rename in writer_next_segment() */
        b = next;
        bytes = w->file.len;
    } else if (next->ino) {
        snprintf(name, sizeof name, "%s.next", w->file.path);
        if (!lstat(name, &st) && st.st_ino == next->ino)
            unlink(name);
    }
    memcpy(w->lost_written, b->lost, sizeof w->lost_written);
    *s = (struct scan){.w = w, .zstd = ZSTD_createDCtx(), .rows = malloc(sizeof *s->rows)};
    if (s->zstd && s->rows)
        rc = scan_trace(s, w->file.len < bytes ? w->file.len : bytes);
    if (!rc && s->foreign)
        rc = -ESTALE;
    ZSTD_freeDCtx(s->zstd);
    free(s->rows);
    free(s->frame.bytes);
    free(s->raw.bytes);
    return rc;
}

/* ---- the live file ---- */

/* Opens and locks the live file, so that two finishers do not collide. Returns the descriptor that holds the lock, or -errno. */
static int lock_live(const char *path) {
    struct stat st;
    int rc, fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return -errno;
    rc = flock(fd, LOCK_EX | LOCK_NB) < 0 || fstat(fd, &st) < 0 ? -errno : 0;
    if (!rc && st.st_nlink == 0) /* another finisher was faster */
        rc = -ENOENT;
    if (rc)
        close(fd);
    return rc ? rc : fd;
}

/* Sets where reading each ring begins: at its tail, or at `next` when the file already has the group up to there. */
static void place_cursors(struct writer *w) {
    uint64_t bytes = __atomic_load_n(&w->live->trace_bytes, __ATOMIC_ACQUIRE);
    for (unsigned i = 0; i < w->live->nrings; i++) {
        struct ring *r = live_ring(w->live, i);
        uint64_t tail = r->tail, used = r->head - tail, ahead = r->next - tail;
        if (r->next_at && r->next_at <= bytes && ahead <= used)
            ring_release(r, r->next);
        r->next_at = UINT64_MAX;
        w->at[i].pos = r->tail;
    }
}

static int open_trace(struct writer *w) {
    struct live *l = w->live;
    int rc = tracefile_open(&w->file, l->trace_path, l->uid);
    /* The file was removed while the process ran: the rings' records are worth a new file. */
    if (rc == -ENOENT && geteuid() == l->uid)
        rc = tracefile_create(&w->file, l->trace_path);
    if (!rc && !w->file.len &&
        flock(w->file.fd, LOCK_EX | LOCK_NB)) /* somebody begins to write it */
        rc = -EAGAIN;
    /* A memory error in the process may have changed the name to another file's: do not touch a file that does not begin as a trace. */
    size_t n = w->file.len < sizeof start ? (size_t)w->file.len : sizeof start;
    uint8_t begin[sizeof start];
    if (!rc)
        rc = tracefile_read(&w->file, 0, begin, n);
    return rc ? rc : memcmp(begin, start, n) ? -ESTALE : 0;
}

/* Writes who the process was, as far as the live file tells: it was killed before it wrote its process record, or that was removed with its trace. */
static int put_process(struct writer *w) {
    const struct live *l = w->live;
#define TEXT(field) value_bytes(l->field, strnlen(l->field, sizeof l->field))
    return WRITER_ENCODE(w, process, .ts = l->start_mono, .host = TEXT(host),
                         .boot_id = TEXT(boot_id), .pid = l->pid, .uid = l->uid, .rank = l->rank,
                         .local_rank = -1, .world_size = -1, .cmdline = TEXT(command),
                         .how = TEXT(how), .run = TEXT(run));
#undef TEXT
}

static int has_begun(const struct live *l) {
    int begun = l->how[0] || l->trace_bytes;
    for (unsigned i = 0; !begun && i < l->nrings; i++)
        begun = live_ring(l, i)->head > 0;
    return begun;
}

/* Removes what the process left under its trace's name: an empty file, or nothing. Any other file belongs to another process; so does an
 * empty one that somebody has locked to write it. Only under the lock its length is certain: another finisher may just have filled it. */
static int undo(struct writer *w) {
    struct stat st;
    int rc = tracefile_open(&w->file, w->live->trace_path, w->live->uid);
    if (!rc && !flock(w->file.fd, LOCK_EX | LOCK_NB) && !fstat(w->file.fd, &st) && !st.st_size &&
        unlink(w->file.path) < 0)
        rc = -errno;
    return rc == -ENOENT ? 0 : rc;
}

static int finish(struct writer *w, const char *reason, int signal) {
    struct scan s;
    int rc = 0;
    if (!w->live->trace_path[0]) /* it recorded nothing: there is only a live file */
        return 0;
    if (!has_begun(w->live))
        return undo(w);
    if ((rc = open_trace(w)) || (rc = read_back(w, &s)))
        return rc;
    place_cursors(w);
    if (s.end < w->file.len && (rc = tracefile_cut(&w->file, s.end)))
        return rc;
    int is_new = !w->file.len, was_removed = is_new && w->live->trace_bytes;
    __atomic_store_n(&w->live->trace_bytes, w->file.len, __ATOMIC_RELEASE);
    if (is_new && !(rc = writer_put_schema(w)) && was_removed)
        rc = put_process(w);
    if (!rc)
        rc = writer_read_rings(w, 1);
    if (!rc && is_new && !was_removed && !w->recovered)
        rc = put_process(w);
    if (!rc)
        rc = writer_flush(w);
    if (rc)
        return rc;
    if (s.ended && w->recovered == 0)
        return tracefile_seek_table(&w->file); /* it died just before removing the live file */
    return writer_end(w, reason, signal);
}

int writer_finish(const char *live_path, const char *reason, int signal,
                  struct writer_finished *out) {
    struct writer *w = NULL;
    struct live *l = NULL;
    sigset_t xfsz, before;
    int rc = lock_live(live_path), lock = rc;

    if (rc < 0)
        return rc;
    /* With SIGXFSZ blocked, exceeding a file size limit makes write() fail and does not kill the calling process. */
    sigemptyset(&xfsz);
    sigaddset(&xfsz, SIGXFSZ);
    pthread_sigmask(SIG_BLOCK, &xfsz, &before);
    /* First check that it is dead: only then the live file does not change any more, and a copy of it is complete. */
    rc = live_open(&l, live_path, 0);
    if (!rc && live_process_alive(l) && l->pid != (uint32_t)getpid())
        rc = -EBUSY;
    live_close(l);
    l = NULL;
    if (!rc)
        rc = live_load(&l, lock);
    if (!rc && !(w = writer_alloc(l->nrings)))
        rc = -ENOMEM;
    if (!rc) {
        w->live = l;
        w->dead = 1;
        w->now.epoch = __atomic_load_n(&l->epoch, __ATOMIC_ACQUIRE);
        w->old.epoch = w->now.epoch - 1;
        w->block_epoch = w->now.epoch;
        rc = finish(w, reason, signal);
        if (out)
            *out = (struct writer_finished){w->recovered, w->file.len, w->last_ts, ""};
        if (out)
            memcpy(out->trace_path, l->trace_path,
                   sizeof l->trace_path); /* it has a NUL: check_head() */
    }
    if (!rc && unlink(live_path) < 0)
        rc = -errno;
    if (w)
        writer_free(w); /* also frees the copy of the live file */
    else
        live_free(l);
    if (!sigismember(&before, SIGXFSZ)) {
        while (sigtimedwait(&xfsz, NULL, &(struct timespec){0, 0}) == SIGXFSZ)
            ;
        pthread_sigmask(SIG_SETMASK, &before, NULL);
    }
    close(lock);
    return rc;
}
