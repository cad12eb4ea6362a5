/* SPDX-License-Identifier: Apache-2.0 */
#include "arrow_read.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "arrow_source.h"
#include "arrow_stop.h"
#include "source.h"

#define BATCH_ROWS  65536
#define BATCH_BYTES (64u << 20)

struct stream {
    struct probing_request rq; /* with copies of everything that it points to */
    struct arrow_notes *notes;
    struct arrow_source *source;
    struct arrow_batch batch;
    pthread_mutex_t lock; /* a consumer may call from several threads */
    int more, err;
};

/* ---- a request's own copy ---- */

static const char *const *copy_texts(const char *const *texts, size_t n) {
    char **copy = calloc(n + 1, sizeof *copy);

    for (size_t i = 0; copy && i < n; i++)
        if (!(copy[i] = strdup(texts[i]))) {
            while (i)
                free(copy[--i]);
            free(copy);
            return NULL;
        }
    return (const char *const *)copy;
}

static void free_texts(const char *const *texts, size_t n) {
    for (size_t i = 0; texts && i < n; i++)
        free((void *)texts[i]);
    free((void *)texts);
}

static void free_request(struct probing_request *rq) {
    free_texts(rq->paths, rq->npaths);
    free_texts(rq->columns, rq->ncolumns);
    free((void *)rq->table);
    free((void *)rq->sql);
    free((void *)rq->clocks);
    free((void *)rq->ranks);
}

static int copy_request(struct probing_request *to, const struct probing_request *rq) {
    *to = *rq;
    to->paths = copy_texts(rq->paths, rq->npaths);
    to->columns = copy_texts(rq->columns, rq->ncolumns);
    to->table = rq->table ? strdup(rq->table) : NULL;
    to->sql = rq->sql ? strdup(rq->sql) : NULL;
    to->clocks = rq->clocks ? strdup(rq->clocks) : NULL;
    to->ranks = malloc((rq->nranks + 1) * sizeof *rq->ranks);
    if (to->ranks && rq->nranks)
        memcpy((void *)to->ranks, rq->ranks, rq->nranks * sizeof *rq->ranks);
    if (to->paths && to->columns && to->ranks && (to->table || !rq->table) &&
        (to->sql || !rq->sql) && (to->clocks || !rq->clocks))
        return 0;
    free_request(to);
    return -ENOMEM;
}

/* ---- the stream's functions ---- */

static int get_schema(struct ArrowArrayStream *st, struct ArrowSchema *out) {
    struct stream *s = st->private_data;

    return -arrow_schema_export(s->source->fields, s->source->nfields, out);
}

static int fill(struct stream *s, struct ArrowArray *out) {
    size_t want = s->rq.batch ? s->rq.batch : BATCH_ROWS;
    int err = s->err;

    while (!err && s->more && s->batch.n < want && arrow_batch_bytes(&s->batch) < BATCH_BYTES) {
        err = arrow_stopped() ? arrow_fail(s->notes, -EINTR, "interrupted")
                              : s->source->next(s->source, &s->batch);
        s->more = err > 0;
        err = err > 0 ? 0 : err;
    }
    if (!err && s->batch.n && (err = arrow_batch_export(&s->batch, out)) != 0)
        arrow_fail(s->notes, err, "no memory");
    s->err = err; /* an error is permanent */
    return -err;
}

static int get_next(struct ArrowArrayStream *st, struct ArrowArray *out) {
    struct stream *s = st->private_data;

    memset(out, 0, sizeof *out); /* released: means the end of the stream */
    pthread_mutex_lock(&s->lock);
    int err = fill(s, out);
    pthread_mutex_unlock(&s->lock);
    return err;
}

static const char *get_last_error(struct ArrowArrayStream *st) {
    struct stream *s = st->private_data;

    return s->err ? arrow_failure(s->notes) : NULL;
}

static void stream_free(struct stream *s) {
    if (s->source)
        s->source->free(s->source);
    arrow_batch_free(&s->batch);
    arrow_notes_free(s->notes);
    free_request(&s->rq);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

static void release(struct ArrowArrayStream *st) {
    stream_free(st->private_data);
    st->release = NULL;
}

/* ---- what is exported ---- */

/* Checks what can be known before a row is requested. */
static int check_paths(const struct probing_request *rq, struct arrow_notes *notes) {
    struct reader *r;

    for (size_t i = 0; i < rq->npaths; i++)
        if (!source_is_remote(rq->paths[i]) && access(rq->paths[i], R_OK) != 0)
            return arrow_fail(notes, -errno, "cannot open %s: %s", rq->paths[i], strerror(errno));
    if (rq->npaths != 1 || strcmp(rq->paths[0], "-") == 0)
        return 0;
    int err = reader_open(&r, rq->paths[0]);
    if (err == -EISDIR)
        return 0;
    if (err)
        return arrow_fail(notes, err, "%s: %s", rq->paths[0], reader_strerror(err));
    err = reader_error(r);
    reader_close(r);
    if (err)
        return arrow_fail(notes, err, "cannot read %s: %s", rq->paths[0], strerror(-err));
    return 0;
}

static int init_batch(struct stream *s) {
    if (arrow_batch_init(&s->batch, s->source->fields, s->source->nfields) != 0)
        return arrow_fail(s->notes, -ENOMEM, "no memory");
    return 0;
}

static int open_source(struct stream *s) {
    const struct probing_request *rq = &s->rq;
    int err;

    if (!rq->npaths || (!rq->table && !rq->sql))
        return arrow_fail(s->notes, -EINVAL, "no file, or no table");
    if (rq->sql) {
        s->source = arrow_sql(rq, s->notes);
        return s->source ? init_batch(s) : -EINVAL; /* after arrow_fail() */
    }
    static const struct {
        const char *name;
        struct arrow_source *(*make)(const struct probing_request *rq, struct arrow_notes *notes);
    } made[] = {{"samples", arrow_samples}, {"stacks", arrow_stack_rows}, {"traces", arrow_traces}};
    struct arrow_source *(*make)(const struct probing_request *, struct arrow_notes *) = NULL;
    for (size_t i = 0; i < sizeof made / sizeof *made; i++)
        make = strcmp(rq->table, made[i].name) == 0 ? made[i].make : make;
    if (!make && trace_record_by_name(rq->table))
        make = arrow_records;
    if (!make)
        return arrow_fail(s->notes, -EINVAL, "no table %s in a trace", rq->table);
    if ((err = check_paths(rq, s->notes)) != 0)
        return err;
    if (!(s->source = make(rq, s->notes)))
        return -EINVAL; /* after arrow_fail() */
    return init_batch(s);
}

int probing_stream(const struct probing_request *rq, struct ArrowArrayStream *out,
                   struct arrow_notes **notes, char *error, size_t n) {
    struct stream *s = calloc(1, sizeof *s);
    int err;

    source_stopped = arrow_stopped;
    memset(out, 0, sizeof *out);
    if (n)
        snprintf(error, n, "no memory");
    if (!s)
        return -ENOMEM;
    pthread_mutex_init(&s->lock, NULL);
    s->more = 1;
    if (!(s->notes = arrow_notes_new()) || copy_request(&s->rq, rq) != 0) {
        memset(&s->rq, 0, sizeof s->rq);
        stream_free(s);
        return -ENOMEM;
    }
    if ((err = open_source(s)) != 0) {
        if (n)
            snprintf(error, n, "%s", arrow_failure(s->notes));
        stream_free(s);
        return err;
    }
    if (notes)
        *notes = arrow_notes_ref(s->notes);
    *out = (struct ArrowArrayStream){.get_schema = get_schema,
                                     .get_next = get_next,
                                     .get_last_error = get_last_error,
                                     .release = release,
                                     .private_data = s};
    return 0;
}

size_t probing_notes_text(struct arrow_notes *notes, char *buf, size_t n) {
    return arrow_notes_text(notes, buf, n);
}

void probing_notes_free(struct arrow_notes *notes) {
    arrow_notes_free(notes);
}

const char *probing_tables(void) {
    static const char text[] = "samples\tWhat each thread did at a tick, names resolved\n"
                               "stacks\tThe stacks that samples have\n"
                               "traces\tThe traces themselves: file, run, rank, times, sizes\n"
#define RECORD(name, id, kind, doc) #name "\t" doc "\n"
#include "../traces/records.def"
        ;
    return text;
}

void probing_set_remote(int64_t (*size)(const char *),
                        int64_t (*read)(const char *, uint64_t, void *, size_t)) {
    static struct source_remote remote;

    remote = (struct source_remote){size, read};
    source_set_remote(&remote);
}

int probing_is_database(const char *path) {
    char magic[16];
    struct stat st;

    /* reading from a pipe would consume its bytes */
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode))
        return 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);

    if (fd < 0)
        return -errno;
    ssize_t n = read(fd, magic, sizeof magic);
    close(fd);
    return n == (ssize_t)sizeof magic && memcmp(magic, "SQLite format 3", 16) == 0;
}

/* ---- PyCapsules ---- */

static void *capsule_pointer(void *capsule, const char *name) {
    void *(*get)(void *, const char *) =
        (void *(*)(void *, const char *))dlsym(RTLD_DEFAULT, "PyCapsule_GetPointer");

    return get ? get(capsule, name) : NULL;
}

void *probing_capsule_memory(size_t n) {
    return calloc(1, n);
}

void probing_capsule_stream(void *capsule) {
    struct ArrowArrayStream *st = capsule_pointer(capsule, "arrow_array_stream");

    if (st && st->release)
        st->release(st);
    free(st);
}

void probing_capsule_schema(void *capsule) {
    struct ArrowSchema *s = capsule_pointer(capsule, "arrow_schema");

    if (s && s->release)
        s->release(s);
    free(s);
}
