/* SPDX-License-Identifier: Apache-2.0 */
/*
 * live.h - the live file: one per recorded process, mapped MAP_SHARED. It is the whole interface to a live recording.
 *
 *     +--------------------------------------------------------------+ 0
 *     | struct live: who, state, trace path, loss, progress, config, |
 *     | mailbox (request and reply)                                  |
 *     +--------------------------------------------------------------+ rings_off
 *     | ring 0 | ring 1 | ... of nrings, ring_stride bytes each      |
 *     +--------------------------------------------------------------+
 *     | the last nlarge of them, large_stride bytes each: a hole in  |
 *     | the file until a thread takes one                            |
 *     +--------------------------------------------------------------+ file_size
 *
 * The file is in the run directory (mode 0700), the first usable one of: $PROBING_RUN_DIR, $XDG_RUNTIME_DIR/probing, and, in each of /tmp, /dev/shm
 * and /var/tmp, probing-UID, then probing-UID-XXXXXX (a name that nobody can take before us). Its name is PID-STARTNS.live, its mode 0600. Whoever
 * can open the file may send requests: file permission is the authority. It is created with O_EXCL|O_NOFOLLOW and fallocated, so that a full disk is
 * an error at the start and not a SIGBUS later. After the process's death it holds all that had not reached the trace; writer_finish() (writer.h)
 * moves that to the trace and removes the file.
 *
 * Fields marked (a) change while others read: use __atomic loads and stores.
 */
#ifndef PROBING_WRITER_LIVE_H
#define PROBING_WRITER_LIVE_H

#include "../traces/records.h"
#include "ring.h"
#include "sys.h"

#define LIVE_MAGIC   "PRBLIVE\n"
#define LIVE_VERSION 4
#define LIVE_NRINGS  64           /* default number; a thread gets one when it first writes */
#define LIVE_RING    (128u << 10) /* default size of a ring in bytes */
#define LIVE_NLARGE  4            /* number of larger rings, for threads that write much */
#define LIVE_MAIL    (64u << 10)  /* size in bytes of the request, and of the reply */

enum live_state { LIVE_STARTING, LIVE_RUNNING, LIVE_STOPPING, LIVE_STOPPED, LIVE_FAILED };

/* Mailbox for one request at a time. The client takes `lock` (CAS 0 -> its pid; it may replace a dead holder), fills in request, kind and len, stores
 * MAIL_POSTED into state and wakes the futex `wake`. The agent answers, stores MAIL_DONE into state and wakes the futex `state`. */
enum mail_state { MAIL_IDLE, MAIL_POSTED, MAIL_TAKEN, MAIL_DONE };
enum mail_kind {
    /* request: source text; reply: JSON {"ok":bool,"out":str,"value":str|null,"error":str|null} */
    MAIL_EVAL = 1,
    MAIL_STOP,      /* stop recording and close the trace; reply: empty */
    MAIL_FLUSH = 4, /* write out all that is committed now */
    MAIL_CONFIG, /* request: key=value, reply: empty; request empty, reply: all settings (agent/core/settings.h) */
    MAIL_ASK, /* request: a line of options, then text (agent/python/eval.py says which); reply: JSON */
};
struct live_mail {
    uint32_t lock;  /* (a) */
    uint32_t state; /* (a) enum mail_state, futex */
    uint32_t kind;  /* enum mail_kind */
    int32_t status; /* reply: 0 or -errno */
    uint32_t request_len, reply_len;
    char request[LIVE_MAIL];
    char reply[LIVE_MAIL];
};

struct live {
    char magic[8];
    uint32_t version;
    uint32_t header_size; /* sizeof(struct live) */
    uint64_t file_size;
    uint32_t pid, uid;
    uint64_t start_ticks; /* field 22 of /proc/PID/stat, which detects a reused pid */
    char boot_id[40];
    uint64_t start_mono, start_real; /* start of the recording, in ns */
    char host[64];
    char trace_path[4096]; /* absolute; "": the agent only answers requests, without recording */
    char command[256];     /* shortened, for `probing list` */
    char run[160];         /* traces/run.h */
    char how[16]; /* as in the record `process`; "": the recording has not begun, no trace yet */
    int32_t rank;

    uint32_t state; /* (a) enum live_state */
    uint32_t wake;  /* (a) futex of the agent's service thread: incremented to wake it */
    uint32_t epoch; /* (a) current dictionary epoch; producers mix it into their keys */
    uint64_t lost[TRACE_NLOST]; /* (a) since the start, by reason */
    uint64_t samples;           /* (a) samples taken, for status lines */
    uint64_t records;           /* (a) records written to the trace */
    uint64_t trace_bytes;       /* (a) length of the trace file after the last whole block */
    uint64_t handler_ns;        /* (a) time spent in the sampling handler, if it is measured */
    /* (a) latest CLOCK_MONOTONIC time at which the process is known to have run */
    uint64_t last_ts;

    uint64_t period_ns; /* (a) sampling period; 0 = sampler off */
    uint32_t native;    /* (a) 1 = native frames too */
    uint32_t threads;   /* (a) Python threads that are being sampled */
    uint64_t pid_ns;    /* inode of /proc/self/ns/pid: pid is meaningless in other namespaces */

    uint32_t nrings;      /* including the large ones */
    uint32_t mail_cancel; /* (a) set by a client that wants its evaluation interrupted */
    uint64_t rings_off, ring_stride, large_stride; /* where ring i is: live_ring() */
    uint32_t nlarge;
    uint32_t segment;    /* (a) 0, 1, ...: writer.h, writer_next_segment() */
    int32_t write_error; /* (a) errno why the trace cannot be written any more, or 0 */
    struct
        live_before { /* for segment i in before[i & 1]: its file, and part of lost[] in earlier ones */
        uint64_t ino, lost[TRACE_NLOST];
    } before[2];
    struct live_mail mail;
};

/* Counts n more lost records. */
static inline void live_lose(struct live *l, enum trace_lost why, uint64_t n) {
    __atomic_fetch_add(&l->lost[why], n, __ATOMIC_RELAXED);
}

static inline struct ring *live_ring(const struct live *l, unsigned i) {
    uint32_t small = l->nrings - l->nlarge;
    uint64_t at =
        i < small ? i * l->ring_stride : small * l->ring_stride + (i - small) * l->large_stride;
    return (struct ring *)((char *)l + l->rings_off + at);
}

/* Stores the path of the i-th place for live files (see above) in buf; `own` and `xdg`: $PROBING_RUN_DIR and $XDG_RUNTIME_DIR, or NULL. Creates the
 * directory when it is missing, and checks it: ours, mode 0700, no symlink, with space. Returns 0 or -errno. */
#define LIVE_PLACES 8
int live_place(unsigned i, const char *own, const char *xdg, char *buf, size_t n);

/* Creates a live file in `dir` and maps it (MADV_DONTFORK). path gets its name. Fills in the geometry, and the identity fields from the
 * calling process. large: size in bytes of each of LIVE_NLARGE additional rings, 0 for none. Returns 0 or -errno (ENOSPC: no space). */
int live_create(struct live **out, const char *dir, unsigned nrings, uint64_t ring_size,
                uint64_t large, char *path, size_t n);
/* Suffix of the file's name until the file is complete; it is locked (flock) as long. */
#define LIVE_BEGUN ".new"

/* Opens the head of an existing live file, without the rings: as a private copy, or (writable) as a mapping of the file itself, which its
 * owner may change or truncate at any time (live_watch). Checks it before it is trusted: owner (this user or root; root opens anybody's),
 * regular file, mode, magic, version, sizes. Returns 0 or -errno (EPERM, EBADMSG, EPROTONOSUPPORT, ENOENT). */
int live_open(struct live **out, const char *path, int writable);
void live_close(struct live *l);
/* Handles SIGBUS for a writable live file until live_unwatch(): when the file was truncated, its mapping becomes zeros, which say that the
 * process is gone. For tools; never in a target. One thread at a time. Returns 0 or -EMFILE. */
int live_watch(struct live *l);
void live_unwatch(struct live *l);
/* Makes a private, unchanging copy of a whole live file of this user; checks the rings and their geometry. Errors as above. */
int live_load(struct live **out, int fd);
/* Frees what live_create() or live_load() returned. */
void live_free(struct live *l);
/* Takes the place of live_free() when somebody may still use the memory: the memory becomes a private copy, no longer
 * a mapping of the file, and is never freed. */
void live_leave(struct live *l);
/* Whether the process of this live file still runs here (same pid, start ticks and boot; a zombie only runs if it has
 * other threads). Also 1 when that cannot be known, as it is in another pid namespace. */
int live_process_alive(const struct live *l);

/* Writes one line that the user of this live recording should know to buf and returns buf; "" when all is well. */
const char *live_problem(const struct live *l, char *buf, size_t n);

/* Returns a ring of the live file for the calling producer thread `tid`, or NULL when all are taken. Async-signal-safe, as is live_ring_orphan(). */
struct ring *live_ring_get(struct live *l, uint32_t tid);
/* Returns a large ring if one is free and there is space for it, which is allocated now (Linux 5.14); else as live_ring_get(). Not for signal handlers. */
struct ring *live_ring_get_large(struct live *l, uint32_t tid);
/* Gives up the ring of a thread that has ended: it is drained, then becomes free again. A program that starts many short threads must not use up all rings
 * before they are drained: so live_ring_leave() is for threads that have completed all their records. Another thread can have that ring at once. */
void live_ring_orphan(struct ring *r);
void live_ring_leave(struct ring *r);

/* Client side of the mailbox. Posts a request and waits for the reply, at most timeout_ms. Returns 0, with the agent's *status, the reply
 * cut to n - 1 bytes (n > 0) plus a NUL, and *reply_len set; 1: the same, for an evaluation that was interrupted because its time was over;
 * -EBUSY: another client was using the mailbox all that time; -EINTR: interrupted meanwhile; -ETIMEDOUT; -ECANCELED: interrupted twice, it
 * no longer waits; -ESRCH: the process is gone; -EMSGSIZE. */
int live_mail_call(struct live *l, enum mail_kind kind, const char *request, size_t len,
                   int timeout_ms, int *status, char *reply, size_t n, size_t *reply_len);
/* Asks to interrupt the evaluation that the client waits for; the client goes on waiting for its answer. l = NULL: the evaluation that it
 * is about to request. Async-signal-safe. */
void live_mail_interrupt(struct live *l);
/* Forgets the interruptions so far, so that they do not apply to a later request. */
void live_mail_forget(void);
/* The agent's side. Takes a posted request: returns 1 with *kind, *request (in the mapping, not terminated) and *len, or 0 when there is
 * none. Exactly one live_mail_reply() must follow; it cuts a reply longer than LIVE_MAIL. One thread at a time. */
int live_mail_take(struct live *l, enum mail_kind *kind, const char **request, size_t *len);
void live_mail_reply(struct live *l, int status, const char *reply, size_t n);
static inline void live_mail_text(struct live *l, int status, const char *text) {
    live_mail_reply(l, status, text, strlen(text));
}

#endif
