/* SPDX-License-Identifier: Apache-2.0 */
#include "opened.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "source.h"

#define MOST 4 /* maximum number of threads */
#define ROOM 8 /* maximum number of files that are open and not taken */
#define A_THREADS                                                                                  \
    (2u << 20) /* bytes for each thread: starting one takes longer than indexing fewer */

struct file {
    enum { NOBODYS, SOMEBODYS, OPENED } state;
    int err;
    struct reader *reader;
};

struct opened {
    const struct inputs *in;
    const struct reader_stored *stored;
    size_t nstored;
    pthread_t thread[MOST];
    size_t threads;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* Access with the lock held. */
    struct file *file;
    /* indices of the files to be opened next, and last asked for by the caller */
    size_t next, taken;
    int stop;
};

/* Returns 1 for a regular file, which can be opened and read without waiting for anybody. */
static int is_file(const char *path) {
    struct stat st;

    return !source_is_remote(path) && stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

static void *work(void *arg) {
    struct opened *o = arg;

    pthread_mutex_lock(&o->lock);
    for (;;) {
        while (!o->stop && o->next < o->in->n && o->next > o->taken + ROOM)
            pthread_cond_wait(&o->changed, &o->lock);
        if (o->stop || o->next >= o->in->n)
            break;
        size_t i = o->next++;
        if (o->file[i].state != NOBODYS)
            continue;
        struct file f = {OPENED, -EAGAIN, NULL};
        o->file[i].state = SOMEBODYS;
        pthread_mutex_unlock(&o->lock);
        if (is_file(o->in->file[i].path))
            f.err = reader_open_stored(&f.reader, o->in->file[i].path, o->stored, o->nstored);
        pthread_mutex_lock(&o->lock);
        o->file[i] = f;
        pthread_cond_broadcast(&o->changed);
    }
    pthread_mutex_unlock(&o->lock);
    return NULL;
}

/* Returns how many threads there is work for. */
static size_t shares(const struct inputs *in) {
    uint64_t bytes = 0;
    struct stat st;

    for (size_t i = 0; i < in->n && bytes < MOST * A_THREADS; i++)
        if (!source_is_remote(in->file[i].path) && stat(in->file[i].path, &st) == 0 &&
            st.st_size > 0)
            bytes += (uint64_t)st.st_size;
    return (size_t)(bytes / A_THREADS);
}

struct opened *opened_start(const struct inputs *in, const struct reader_stored *stored, size_t n) {
    struct opened *o = calloc(1, sizeof *o);
    struct file *file = calloc(in->n + 1, sizeof *file);
    cpu_set_t set;
    sigset_t all, old;

    if (!o || !file) {
        free(o);
        free(file);
        return NULL;
    }
    o->in = in;
    o->stored = stored;
    o->nstored = n;
    o->file = file;
    pthread_mutex_init(&o->lock, NULL);
    pthread_cond_init(&o->changed, NULL);
    size_t want = sched_getaffinity(0, sizeof set, &set) == 0 ? (size_t)CPU_COUNT(&set) : 1;
    size_t most = shares(in);
    most = most < in->n ? most : in->n - (in->n > 0);
    want = want > MOST ? MOST : want;
    want = want < most ? want : most;
    sigfillset(&all); /* signals are for the caller's thread */
    pthread_sigmask(SIG_SETMASK, &all, &old);
    while (o->threads < want && pthread_create(&o->thread[o->threads], NULL, work, o) == 0)
        o->threads++;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return o;
}

int opened_take(struct opened *o, size_t file, struct reader **r) {
    struct file *f = &o->file[file];

    pthread_mutex_lock(&o->lock);
    o->taken = file;
    pthread_cond_broadcast(&o->changed);
    if (f->state == NOBODYS)
        *f = (struct file){OPENED, -EAGAIN, NULL};
    while (f->state != OPENED)
        pthread_cond_wait(&o->changed, &o->lock);
    int err = f->err;
    *r = f->reader;
    f->reader = NULL;
    pthread_mutex_unlock(&o->lock);
    return err == -EAGAIN ? reader_open_stored(r, o->in->file[file].path, o->stored, o->nstored)
                          : err;
}

void opened_stop(struct opened *o) {
    if (!o)
        return;
    pthread_mutex_lock(&o->lock);
    o->stop = 1;
    pthread_cond_broadcast(&o->changed);
    pthread_mutex_unlock(&o->lock);
    for (size_t i = 0; i < o->threads; i++)
        pthread_join(o->thread[i], NULL);
    for (size_t i = 0; i < o->in->n; i++)
        reader_close(o->file[i].reader);
    pthread_mutex_destroy(&o->lock);
    pthread_cond_destroy(&o->changed);
    free(o->file);
    free(o);
}
