/* SPDX-License-Identifier: Apache-2.0 */
#include "ahead.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#define BATCHES                                                                                    \
    8 /* batches of one block each, so that the thread that fills them can continue while the rows of a new trace that are not samples are inserted */
#define MOST 64

/* A file that is being prepared or inserted. */
struct prefetch {
    const struct input *in;
    size_t nth; /* number in align of its first trace */
    struct reader *reader;
    unsigned part;
    struct prepared trace;
    struct sample_batch batch[BATCHES];
    int given; /* the caller has this trace */
    /* Shared: access with the lock held. */
    int opened; /* the file was opened, or failed to; open_err is set */
    int open_err;
    int ready;            /* a trace is ready for the caller */
    int ended;            /* there are no more traces; `failed` says why */
    int failed;           /* 0 or -errno */
    size_t filled, taken; /* total numbers of batches of the trace that were filled and taken */
    int samples_end;      /* state after `filled` batches: 1: no more will come, -errno: failed */
};

struct ahead {
    struct ahead_options opt;
    size_t nfiles;
    struct prefetch *prefetch; /* file i of them: prefetch[i % nprefetch] */
    size_t nprefetch;
    size_t now;      /* number of the caller's current file, from 1 */
    uint32_t traces; /* the last id given out; used by the thread that has the turn */
    pthread_t *thread;
    size_t nthreads;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* Access with the lock held. */
    size_t claimed; /* number of files that a thread prepares or has prepared */
    size_t turn;    /* the file whose samples may be resolved now */
    int stop;
};

static struct prefetch *prefetch_of(struct ahead *a, size_t file) {
    return &a->prefetch[file % a->nprefetch];
}

static void lock(struct ahead *a) {
    pthread_mutex_lock(&a->lock);
}

static void unlock(struct ahead *a) {
    pthread_cond_broadcast(&a->changed);
    pthread_mutex_unlock(&a->lock);
}

/* Waits, with the lock held, until something has changed. Returns 0, or -1 when everything must end. */
static int wait(struct ahead *a) {
    if (!a->stop)
        pthread_cond_wait(&a->changed, &a->lock);
    return a->stop ? -1 : 0;
}

static int open_file(struct ahead *a, struct prefetch *s, size_t file) {
    s->in = &a->opt.in->file[file];
    s->nth = a->opt.first[file];
    s->part = 0;
    return reader_open_kept(&s->reader, s->in->path, align_kept(a->opt.plan->align, file));
}

/* Reads those parts of the reader's current trace that may be read in parallel with others. The file may have been appended to since the
 * clocks were aligned. */
static int read_trace(struct ahead *a, struct prefetch *s, size_t file) {
    size_t nth = s->nth + s->part++, end = a->opt.first[file + 1];

    return prepare_read(&s->trace, a->opt.plan, s->in, s->part, s->reader,
                        nth < end ? nth : SIZE_MAX);
}

/* Reads the samples of the trace into the batches of the file, which must have the turn. */
static int take_samples(struct ahead *a, struct prefetch *s) {
    int more = 1, stop = 0;

    while (more > 0) {
        lock(a);
        while (!stop && s->filled - s->taken >= BATCHES)
            stop = wait(a);
        pthread_mutex_unlock(&a->lock);
        if (stop)
            break;
        more = prepare_samples(&s->trace, &s->batch[s->filled % BATCHES]);
        lock(a);
        if (more > 0)
            s->filled++;
        else
            s->samples_end = more < 0 ? more : 1;
        unlock(a);
    }
    return stop ? -EINTR : more < 0 ? more : 0;
}

static int drain(struct prefetch *s) {
    const struct load *l = &s->trace.load;

    return queue_drain(l->stacks->rows, l->db, l->trace) == SQLITE_OK ? 0 : -ENOMEM;
}

/* Called by the thread that resolves samples. The caller inserts the waiting rows, at the latest when it asks for samples and there are none yet. */
static int wait_for_space(void *ctx) {
    struct ahead *a = ctx;
    int stop = 0;

    if (a->nthreads == 0)
        return drain(prefetch_of(a, a->now - 1));
    lock(a);
    pthread_cond_broadcast(&a->changed);
    while (!stop && queue_is_full(a->opt.plan->stacks->rows))
        stop = wait(a);
    pthread_mutex_unlock(&a->lock);
    return stop ? -EINTR : 0;
}

/* Waits for a batch, with the lock held. Returns 0 or -errno. */
static int wait_for_batch(struct ahead *a, struct prefetch *s) {
    int err = 0;

    while (!err && s->filled == s->taken && !s->samples_end) {
        if (!queue_is_full(a->opt.plan->stacks->rows)) {
            if (wait(a) != 0)
                break;
            continue;
        }
        pthread_mutex_unlock(&a->lock);
        err = drain(s);
        lock(a);
        pthread_cond_broadcast(&a->changed);
    }
    return err;
}

/* The callback by which load.h gets the samples. Without threads they are made here. */
static int samples_next(void *ctx, const struct sample_batch **batch) {
    struct ahead *a = ctx;
    struct prefetch *s = prefetch_of(a, a->now - 1);
    int rc;

    if (a->nthreads == 0) {
        rc = prepare_samples(&s->trace, &s->batch[0]);
        *batch = rc > 0 ? &s->batch[0] : NULL;
        return rc;
    }
    lock(a);
    if (*batch) /* the batch given out before is free only now */
        s->taken++;
    pthread_cond_broadcast(&a->changed);
    if ((rc = wait_for_batch(a, s)) == 0)
        rc = s->filled != s->taken ? 1 : s->samples_end < 0 ? s->samples_end : 0;
    *batch = rc > 0 ? &s->batch[s->taken % BATCHES] : NULL;
    unlock(a);
    return rc;
}

/* Gives the trace that was read to the caller and, in a worker thread, resolves its samples. */
static int hand_over(struct ahead *a, struct prefetch *s) {
    int same = s->trace.state == APPEND_SAME;
    a->traces += s->trace.state == APPEND_NEW;
    int err = same ? 0 : prepare_begin(&s->trace, a->opt.plan, a->traces);

    s->trace.load.samples_next = samples_next;
    s->trace.load.wait_for_space = wait_for_space;
    s->trace.load.samples_ctx = a;
    lock(a);
    s->filled = s->taken = 0;
    s->samples_end = same;
    s->ready = !err;
    unlock(a);
    return err || same || a->nthreads == 0 ? err : take_samples(a, s);
}

/* Moves on to the next trace of the file, once the caller is done with the current one. Returns 1; 0: there is none; -errno. */
static int go_on(struct ahead *a, struct prefetch *s, size_t file) {
    int stop = 0;

    if (reader_is_last(s->reader))
        return 0;
    lock(a);
    while (!stop && s->ready)
        stop = wait(a);
    pthread_mutex_unlock(&a->lock);
    int more = stop ? -EINTR : reader_next(s->reader);
    int err = more > 0 ? read_trace(a, s, file) : more;
    return err ? err : more;
}

static void prepare_file(struct ahead *a, size_t file) {
    struct prefetch *s = prefetch_of(a, file);
    int open_err = open_file(a, s, file), stop = 0;
    int err = open_err ? 0 : read_trace(a, s, file);

    lock(a);
    s->open_err = open_err;
    s->opened = 1;
    pthread_cond_broadcast(&a->changed);
    while (a->turn != file && !stop)
        stop = wait(a);
    pthread_mutex_unlock(&a->lock);
    int more = !open_err && !stop && !err;
    while (more > 0) {
        err = hand_over(a, s);
        more = err ? 0 : go_on(a, s, file);
        err = more < 0 ? more : err;
    }
    lock(a);
    s->ended = 1;
    s->failed = err;
    a->turn = file + 1;
    unlock(a);
}

static void *worker(void *arg) {
    struct ahead *a = arg;
    int stop = 0;

    while (!stop) {
        size_t file;
        lock(a);
        while (!stop && a->claimed < a->nfiles &&
               a->claimed >= (a->now ? a->now - 1 : 0) + a->nprefetch)
            stop = wait(a);
        file = a->claimed;
        stop = stop || a->stop || file >= a->nfiles;
        a->claimed += !stop;
        pthread_mutex_unlock(&a->lock);
        if (!stop)
            prepare_file(a, file);
    }
    return NULL;
}

int ahead_start(struct ahead **out, const struct ahead_options *options) {
    struct ahead *a = *out = calloc(1, sizeof *a);
    unsigned workers = options->threads > MOST ? MOST - 1 : options->threads - 1;
    sigset_t all, old;

    if (!a)
        return -ENOMEM;
    a->opt = *options;
    a->traces = options->last_trace;
    pthread_mutex_init(&a->lock, NULL);
    pthread_cond_init(&a->changed, NULL);
    a->nprefetch = workers + 1;
    a->prefetch = calloc(a->nprefetch, sizeof *a->prefetch);
    a->thread = calloc(workers + 1, sizeof *a->thread);
    if (!a->prefetch || !a->thread) {
        ahead_stop(a);
        *out = NULL;
        return -ENOMEM;
    }
    a->nfiles = options->in->n;
    sigfillset(&all); /* signals are for the caller's thread */
    pthread_sigmask(SIG_SETMASK, &all, &old);
    lock(a); /* the threads begin only when their number is known */
    size_t n = 0;
    while (n < workers && n < a->nfiles && pthread_create(&a->thread[n], NULL, worker, a) == 0)
        n++;
    a->nthreads = n;
    unlock(a);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return 0;
}

/* Called when the caller is done with the trace that it had. */
static void end_trace(struct ahead *a, struct prefetch *s) {
    if (!s->given)
        return;
    s->given = 0;
    prepare_free(&s->trace);
    lock(a);
    s->ready = 0;
    unlock(a);
}

/* Waits until one of two flags of the caller's file is set. Returns whether the first one is. */
static int wait_for(struct ahead *a, const int *one, const int *other) {
    lock(a);
    while (!*one && !*other && wait(a) == 0)
        ;
    int first = *one;
    pthread_mutex_unlock(&a->lock);
    return first;
}

const struct input *ahead_file(struct ahead *a, int *err) {
    if (a->now) {
        struct prefetch *s = prefetch_of(a, a->now - 1);
        end_trace(a, s);
        if (a->nthreads) /* the thread that could not open a file has yet to say that it is done with it */
            wait_for(a, &s->ended, &s->ended);
        reader_close(s->reader);
        s->reader = NULL;
        s->opened = s->ended = s->failed = 0;
    }
    lock(a);
    if (a->now <= a->nfiles)
        a->now++;
    unlock(a);
    if (a->now > a->nfiles)
        return NULL;
    struct prefetch *s = prefetch_of(a, a->now - 1);
    if (a->nthreads == 0)
        s->open_err = open_file(a, s, a->now - 1);
    else
        wait_for(a, &s->opened, &s->ended);
    *err = s->open_err;
    return s->in;
}

struct prepared *ahead_trace(struct ahead *a, int *err) {
    size_t file = a->now - 1;
    struct prefetch *s = prefetch_of(a, file);

    end_trace(a, s);
    if (a->nthreads == 0) {
        int more = s->part ? go_on(a, s, file) : read_trace(a, s, file) ? -ENOMEM : 1;
        *err = more < 0 ? more : more ? hand_over(a, s) : 0;
        s->given = more > 0 && !*err;
    } else {
        s->given = wait_for(a, &s->ready, &s->ended);
        *err = s->given ? 0 : s->failed;
    }
    return s->given ? &s->trace : NULL;
}

size_t ahead_at(const struct ahead *a) {
    return a->now - 1;
}

void ahead_stop(struct ahead *a) {
    if (!a)
        return;
    lock(a);
    a->stop = 1;
    unlock(a);
    for (size_t i = 0; i < a->nthreads; i++)
        pthread_join(a->thread[i], NULL);
    for (size_t i = 0; a->prefetch && i < a->nprefetch; i++) {
        struct prefetch *s = &a->prefetch[i];
        if (s->reader) /* otherwise no trace was prepared */
            prepare_free(&s->trace);
        reader_close(s->reader);
        for (int k = 0; k < BATCHES; k++)
            free(s->batch[k].rows);
    }
    pthread_mutex_destroy(&a->lock);
    pthread_cond_destroy(&a->changed);
    free(a->prefetch);
    free(a->thread);
    free(a);
}
