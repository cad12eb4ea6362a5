/* SPDX-License-Identifier: Apache-2.0 */
/* writer: what goes in through rings and writer_emit() is what the file contains. */
#include <errno.h>
#include <pthread.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "trace_reader.h"
#include "writer/encode.h"
#include "writer/intern.h"
#include "writer/writer.h"

static char dir[64];

static int setup(void **state) {
    (void)state;
    strcpy(dir, "/tmp/test_writer.XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **state) {
    char cmd[128];
    (void)state;
    snprintf(cmd, sizeof cmd, "rm -rf %s", dir);
    return system(cmd);
}

static const char *path_of(const char *name) {
    static char path[4][256];
    static int i;
    i = (i + 1) & 3;
    snprintf(path[i], sizeof path[i], "%s/%s", dir, name);
    return path[i];
}

static struct writer *open_writer(const char *name, unsigned nrings, uint64_t ring_size) {
    struct writer *w = NULL;
    assert_int_equal(writer_open(&w, &(struct writer_options){.trace_path = path_of(name),
                                                              .run_dir = dir,
                                                              .nrings = nrings,
                                                              .ring_size = ring_size}),
                     0);
    assert_non_null(w);
    return w;
}

static void put_frame(struct ring *r, uint64_t key, const char *name, const char *file,
                      unsigned line) {
    size_t used = 0;
    uint64_t *f =
        ring_reserve(r, TRACE_frame, TRACE_frame_NFIELDS, strlen(name) + strlen(file) + 16);
    assert_non_null(f);
    f[TRACE_frame_key] = key;
    ring_put_bytes(f, TRACE_frame_NFIELDS, TRACE_frame_name, name, strlen(name), &used);
    ring_put_bytes(f, TRACE_frame_NFIELDS, TRACE_frame_file, file, strlen(file), &used);
    f[TRACE_frame_firstline] = line - 1;
    f[TRACE_frame_line] = line;
    ring_commit(f);
}

static void put_stack(struct ring *r, uint64_t key, const uint64_t *frames, size_t n,
                      const uint64_t *pcs, size_t npcs) {
    size_t used = 0;
    uint64_t *f = ring_reserve(r, TRACE_stack, TRACE_stack_NFIELDS, 8 * (n + npcs));
    assert_non_null(f);
    f[TRACE_stack_key] = key;
    f[TRACE_stack_flags] = 1;
    ring_put_bytes(f, TRACE_stack_NFIELDS, TRACE_stack_python, frames, n * sizeof(uint64_t), &used);
    ring_put_bytes(f, TRACE_stack_NFIELDS, TRACE_stack_native, pcs, npcs * sizeof(uint64_t), &used);
    ring_commit(f);
}

static void put_sample(struct ring *r, uint64_t ts, uint64_t tid, uint64_t stack, uint64_t cpu) {
    uint64_t *f = ring_reserve(r, TRACE_sample, TRACE_sample_NFIELDS, 0);
    assert_non_null(f);
    f[TRACE_sample_ts] = ts;
    f[TRACE_sample_tid] = tid;
    f[TRACE_sample_stack] = stack;
    f[TRACE_sample_pc] = 0x7f0000001000 + cpu;
    f[TRACE_sample_cpu_us] = cpu;
    f[TRACE_sample_count] = 1;
    f[TRACE_sample_flags] = 3;
    ring_commit(f);
}

/* What the rows say, for the tests to check. */
struct seen {
    char strings[64][64];
    struct {
        uint64_t key, name, file, line;
    } frames[64];
    struct {
        uint64_t key, python[8], native[8];
        unsigned npython, nnative;
    } stacks[64];
    struct {
        uint64_t ts, tid, stack, pc, cpu;
    } samples[256];
    unsigned nstrings, nframes, nstacks, nsamples;
    int last_type;
    char end_reason[32];
    uint64_t schema_len;
};

static unsigned get_list(struct trace_value v, uint64_t out[8]) {
    uint64_t prev = 0, x;
    unsigned n = 0;
    while (trace_list_next(&v, &prev, &x))
        if (n < 8)
            out[n++] = x;
    return n;
}

static void see(void *ctx, const struct trace_block_header *h, int type,
                const struct trace_value *v) {
    struct seen *s = ctx;
    (void)h;
    s->last_type = type;
    if (type == TRACE_string && s->nstrings < 64) {
        assert_int_equal(v[TRACE_string_id].u, ++s->nstrings);
        snprintf(s->strings[s->nstrings], 64, "%.*s", (int)v[TRACE_string_text].n,
                 (const char *)v[TRACE_string_text].p);
    } else if (type == TRACE_frame && s->nframes < 63) {
        assert_int_equal(v[TRACE_frame_id].u, ++s->nframes);
        s->frames[s->nframes].key = v[TRACE_frame_key].u;
        s->frames[s->nframes].name = v[TRACE_frame_name].u;
        s->frames[s->nframes].file = v[TRACE_frame_file].u;
        s->frames[s->nframes].line = v[TRACE_frame_line].u;
    } else if (type == TRACE_stack && s->nstacks < 63) {
        assert_int_equal(v[TRACE_stack_id].u, ++s->nstacks);
        s->stacks[s->nstacks].key = v[TRACE_stack_key].u;
        s->stacks[s->nstacks].npython =
            get_list(v[TRACE_stack_python], s->stacks[s->nstacks].python);
        s->stacks[s->nstacks].nnative =
            get_list(v[TRACE_stack_native], s->stacks[s->nstacks].native);
    } else if (type == TRACE_sample && s->nsamples < 256) {
        s->samples[s->nsamples].ts = v[TRACE_sample_ts].u;
        s->samples[s->nsamples].tid = v[TRACE_sample_tid].u;
        s->samples[s->nsamples].stack = v[TRACE_sample_stack].u;
        s->samples[s->nsamples].pc = v[TRACE_sample_pc].u;
        s->samples[s->nsamples++].cpu = v[TRACE_sample_cpu_us].u;
    } else if (type == TRACE_schema) {
        s->schema_len = v[0].n;
    } else if (type == TRACE_end) {
        snprintf(s->end_reason, sizeof s->end_reason, "%.*s", (int)v[TRACE_end_reason].n,
                 (const char *)v[TRACE_end_reason].p);
    }
}

static void test_samples_and_dictionaries(void **state) {
    (void)state;
    struct writer *w = open_writer("a.zst", 4, 0);
    struct ring *r = live_ring_get(writer_live(w), 100);
    struct seen s = {0};

    put_frame(r, 0xf1, "train", "/x/train.py", 10);
    put_frame(r, 0xf2, "main", "/x/train.py", 20);
    put_frame(r, 0xf1, "train", "/x/train.py", 10); /* again: ignored */
    put_stack(r, 0x51, (uint64_t[]){0xf1, 0xf2, 0}, 3, (uint64_t[]){0x7f01, 0x55}, 2);
    put_sample(r, 5000000123, 100, 0x51, 7);
    put_sample(r, 4000000999, 100, 0x51, 8); /* earlier than the first */
    put_sample(r, 6000000000, 101, 0, 9);
    struct writer_value clock[TRACE_clock_NFIELDS] = {
        {.u = 3999999999}, {.u = 1700000000000000000}, {.u = 77}, {.u = 50}};
    assert_int_equal(writer_emit(w, TRACE_clock, clock), 0);
    assert_int_equal(writer_drain(w, WRITER_FLUSH), 0);
    assert_int_equal(writer_live(w)->records, 1 + 1 + 3 + 2 + 1 + 3);
    assert_int_equal(ring_used(r), 0);
    char live_path[4096];
    strcpy(live_path, writer_live_path(w));
    assert_int_equal(access(live_path, F_OK), 0);
    assert_int_equal(writer_close(w, "exit"), 0);
    assert_int_equal(access(live_path, F_OK), -1);

    struct read_trace t = read_trace(path_of("a.zst"), see, &s);
    assert_int_equal(t.blocks, 4);
    assert_int_equal(t.seek_frames, 8);
    assert_int_equal(t.by_type[TRACE_clock], 1);
    assert_int_equal(s.schema_len, strlen(trace_schema_text()));
    assert_int_equal(s.nstrings, 3);
    assert_string_equal(s.strings[s.frames[1].name], "train");
    assert_string_equal(s.strings[s.frames[2].name], "main");
    assert_string_equal(s.strings[s.frames[2].file], "/x/train.py");
    assert_int_equal(s.nframes, 2);
    assert_int_equal(s.frames[1].key, 0xf1);
    assert_int_equal(s.frames[2].line, 20);
    assert_int_equal(s.nstacks, 1);
    assert_int_equal(s.stacks[1].npython, 3);
    assert_int_equal(s.stacks[1].python[0], 1);
    assert_int_equal(s.stacks[1].python[1], 2);
    assert_int_equal(s.stacks[1].python[2], 0);
    assert_int_equal(s.stacks[1].native[0], 0x7f01);
    assert_int_equal(s.stacks[1].native[1], 0x55);
    assert_int_equal(s.nsamples, 3);
    assert_int_equal(s.samples[0].ts, 5000000000);
    assert_int_equal(s.samples[1].ts, 4000000000);
    assert_int_equal(s.samples[2].ts, 6000000000);
    assert_int_equal(s.samples[0].stack, 1);
    assert_int_equal(s.samples[2].stack, 0);
    assert_int_equal(s.samples[1].pc, 0x7f0000001008);
    assert_int_equal(s.samples[2].tid, 101);
    assert_int_equal(s.last_type, TRACE_end);
    assert_string_equal(s.end_reason, "exit");
}

static void test_zstd_tool_reads_it(void **state) {
    (void)state;
    char cmd[256];
    struct writer *w = open_writer("z.zst", 4, 0);
    struct ring *r = live_ring_get(writer_live(w), 1);
    for (int i = 0; i < 1000; i++)
        put_sample(r, 1000 * (uint64_t)i, 1, 0, 1);
    assert_int_equal(writer_close(w, "exit"), 0);
    struct read_trace t = read_trace(path_of("z.zst"), NULL, NULL);
    snprintf(cmd, sizeof cmd, "zstd -tq %s && test $(zstd -dc %s | wc -c) = %llu", path_of("z.zst"),
             path_of("z.zst"), (unsigned long long)t.raw);
    assert_int_equal(system(cmd), 0);
    assert_int_equal(t.by_type[TRACE_sample], 1000);
}

/* A key's definition may be in another ring, before or after its use; one that does not come is waited for, and then counted. */
static void test_unknown_keys_wait(void **state) {
    (void)state;
    struct seen s = {0};
    struct writer *w = open_writer("u.zst", 4, 8192);
    struct live *l = writer_live(w);
    struct ring *b = live_ring_get(l, 1), *a = live_ring_get(l, 2); /* b is read first */

    put_sample(b, 1000, 1, 0x51, 1);
    put_stack(a, 0x51, (uint64_t[]){0xf1}, 1, NULL, 0);
    put_frame(b, 0xf1, "f", "f.py", 3); /* behind the sample that waits for the stack */
    assert_int_equal(writer_drain(w, WRITER_FLUSH), 0);
    assert_true(ring_used(b) > 0); /* a circle: only dropping breaks it */
    for (int i = 0; i < 25; i++)
        assert_int_equal(writer_drain(w, WRITER_FLUSH), 0);
    assert_int_equal(ring_used(b), 0);
    assert_int_equal(l->lost[TRACE_LOST_unresolved], 1);

    put_sample(b, 2000, 1, 0x51, 2); /* known by now */
    put_sample(b, 3000, 1, 0x52, 3); /* comes later */
    assert_int_equal(writer_drain(w, 0), 0);
    put_stack(a, 0x52, (uint64_t[]){0xf1}, 1, NULL, 0);
    assert_int_equal(writer_drain(w, 0), 0);
    put_sample(b, 4000, 1, 0x53, 4); /* never comes: dropped at the close */
    put_sample(b, 5000, 1, 0, 5);
    assert_int_equal(writer_close(w, "exit"), 0);
    struct read_trace t = read_trace(path_of("u.zst"), see, &s);
    assert_int_equal(s.nsamples, 3);
    assert_int_equal(s.samples[0].stack, 1);
    assert_int_equal(s.samples[1].stack, 2);
    assert_int_equal(s.samples[2].ts, 5000);
    assert_int_equal(t.lost[TRACE_LOST_unresolved], 2);
}

static void test_ring_full_and_damaged_are_counted(void **state) {
    (void)state;
    struct writer *w = open_writer("d.zst", 4, 4096);
    struct ring *r = live_ring_get(writer_live(w), 1);
    unsigned put = 0;
    while (put < 1000) {
        uint64_t *f = ring_reserve(r, TRACE_sample, TRACE_sample_NFIELDS, 0);
        if (!f)
            break;
        f[TRACE_sample_ts] = put++;
        ring_commit(f);
    }
    assert_int_equal(put, 64); /* 4096 / 64 */
    assert_int_equal(writer_drain(w, WRITER_FLUSH), 0);
    ring_commit(ring_reserve(r, 60, 1, 0)); /* a type that this writer does not know */
    uint64_t *f = ring_reserve(r, TRACE_config, TRACE_config_NFIELDS, 8);
    f[TRACE_config_key] = 4000ull << 32 | 5; /* outside the record */
    ring_commit(f);
    ring_commit(
        ring_reserve(r, TRACE_stack, TRACE_stack_NFIELDS, 0)); /* a definition without a key */
    f = ring_reserve(r, TRACE_clock, 2, 0);                    /* an older producer: fewer fields */
    f[0] = 9;
    f[1] = 10;
    ring_commit(f);
    assert_int_equal(writer_close(w, "exit"), 0);
    struct read_trace t = read_trace(path_of("d.zst"), NULL, NULL);
    assert_int_equal(t.by_type[TRACE_sample], 64);
    assert_int_equal(t.by_type[TRACE_clock], 1);
    assert_int_equal(t.lost[TRACE_LOST_ring_full], 1);
    assert_int_equal(t.lost[TRACE_LOST_damaged], 3);
}

/* More definitions than the dictionaries hold: a new epoch begins, whose ids start again; keys of the old one still resolve. */
struct epochs {
    uint64_t next_id[4], native[4][DICTS_BOUND + 1];
};

static void see_epochs(void *ctx, const struct trace_block_header *h, int type,
                       const struct trace_value *v) {
    struct epochs *e = ctx;
    assert_true(h->epoch < 4);
    if (type == TRACE_stack) {
        uint64_t native[8];
        assert_int_equal(v[TRACE_stack_id].u, ++e->next_id[h->epoch]);
        assert_true(v[TRACE_stack_id].u <= DICTS_BOUND);
        assert_int_equal(get_list(v[TRACE_stack_native], native), 1);
        e->native[h->epoch][v[TRACE_stack_id].u] = native[0];
    } else if (type == TRACE_sample) {
        /* The sample's cpu_us says which stack was meant. */
        assert_true(v[TRACE_sample_stack].u >= 1);
        assert_true(v[TRACE_sample_stack].u <= e->next_id[h->epoch]);
        assert_int_equal(v[TRACE_sample_cpu_us].u, e->native[h->epoch][v[TRACE_sample_stack].u]);
    }
}

static void test_epochs(void **state) {
    (void)state;
    static struct epochs e;
    struct writer *w = open_writer("e.zst", 4, 0);
    struct live *l = writer_live(w);
    struct ring *r = live_ring_get(l, 1);
    uint32_t epoch = 0;
    uint64_t n = DICTS_BOUND + 5000, in_epoch = 0;

    for (uint64_t i = 1; i <= n; i++) {
        uint32_t now = __atomic_load_n(&l->epoch, __ATOMIC_ACQUIRE);
        if (now != epoch) {
            /* An idle thread's sample, put late, with the first key of the epoch before. */
            put_sample(r, i * 1000, 1, (uint64_t)epoch << 32 | 1, 1);
            epoch = now;
            in_epoch = 0;
        }
        uint64_t key = (uint64_t)epoch << 32 | ++in_epoch;
        put_stack(r, key, NULL, 0, &i, 1);
        put_sample(r, i * 1000, 1, key, i);
        if (i % 200 == 0)
            assert_int_equal(writer_drain(w, 0), 0);
    }
    assert_int_equal(l->epoch, 1);
    assert_int_equal(writer_close(w, "exit"), 0);
    struct read_trace t = read_trace(path_of("e.zst"), see_epochs, &e);
    assert_int_equal(t.max_epoch, 1);
    assert_int_equal(t.by_type[TRACE_stack], n);
    assert_int_equal(t.by_type[TRACE_sample] + t.lost[TRACE_LOST_unresolved], n + 1);
    assert_int_equal(t.lost[TRACE_LOST_unresolved], 0);
}

static void test_large_and_many(void **state) {
    (void)state;
    struct writer *w = open_writer("l.zst", 1, 4096);
    size_t n = 1 << 20;
    char *text = malloc(n);
    memset(text, 'x', n);
    struct writer_value v[TRACE_note_NFIELDS] = {
        {.u = 5}, {.u = 1}, {.p = "t", .n = 1}, {.p = text, .n = n}};
    assert_int_equal(writer_emit(w, TRACE_note, v), 0); /* larger than any ring */
    v[3].n = 1000;
    for (unsigned i = 0; i < 500; i++) /* more than the ring holds, without a drain */
        assert_int_equal(writer_emit(w, TRACE_note, v), 0);
    assert_int_equal(writer_emit(w, 62, v), -EINVAL);
    assert_int_equal(writer_close(w, "exit"), 0);
    struct read_trace t = read_trace(path_of("l.zst"), NULL, NULL);
    assert_int_equal(t.by_type[TRACE_note], 501);
    for (unsigned i = 0; i < TRACE_NLOST; i++)
        assert_int_equal(t.lost[i], 0);
    free(text);
}

static void test_rings_are_reused(void **state) {
    (void)state;
    struct writer *w = open_writer("r.zst", 2, 4096);
    struct live *l = writer_live(w);
    for (unsigned i = 0; i < 100; i++) {
        struct ring *r = live_ring_get(l, i);
        assert_non_null(r);
        put_sample(r, i * 1000, i, 0, i);
        live_ring_orphan(r);
        assert_int_equal(writer_drain(w, i % 2 ? WRITER_FLUSH : 0), 0);
    }
    assert_int_equal(writer_close(w, "exit"), 0);
    assert_int_equal(read_trace(path_of("r.zst"), NULL, NULL).by_type[TRACE_sample], 100);
}

static void test_open_refuses(void **state) {
    (void)state;
    struct writer *w = open_writer("x.zst", 1, 0), *second;
    struct writer_options o = {.trace_path = path_of("x.zst"), .run_dir = dir};
    struct inotify_event made;
    int watch = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    assert_true(inotify_add_watch(watch, dir, IN_CREATE) >= 0);
    assert_int_equal(writer_open(&second, &o), -EEXIST);
    assert_int_equal(read(watch, &made, sizeof made),
                     -1); /* for a name that is taken nothing is made: another is tried */
    assert_int_equal(errno, EAGAIN);
    close(watch);
    assert_int_equal(symlink("/dev/null", path_of("link.zst")), 0);
    o.trace_path = path_of("link.zst");
    assert_int_equal(writer_open(&second, &o), -EEXIST);
    o.trace_path = path_of("no/such/dir.zst");
    assert_int_equal(writer_open(&second, &o), -ENOENT);
    o.trace_path = "relative.zst";
    assert_int_equal(writer_open(&second, &o), -EINVAL);
    o = (struct writer_options){.trace_path = path_of("y.zst"), .run_dir = dir, .ring_size = 5000};
    assert_int_equal(writer_open(&second, &o), -EINVAL);
    assert_int_equal(access(path_of("y.zst"), F_OK), -1); /* nothing is left behind */
    assert_int_equal(writer_close(w, "exit"), 0);
}

/* The first place cannot be used (it is another user's, or full): the next one is, and the recording does not fail. */
static void test_next_place(void **state) {
    (void)state;
    char next[128];
    struct writer *w;
    snprintf(next, sizeof next, "%s/probing", dir);
    struct writer_options o = {
        .trace_path = path_of("n.zst"), .run_dir = path_of("a/b"), .xdg = dir, .nrings = 1};
    assert_int_equal(writer_open(&w, &o), 0);
    assert_memory_equal(writer_live_path(w), next, strlen(next));
    assert_int_equal(writer_close(w, "exit"), 0);
}

/* The target closes all descriptors, and its next file gets the number of ours. */
static void test_stolen_descriptor(void **state) {
    (void)state;
    struct seen s = {0};
    struct stat st;
    struct writer *w = open_writer("s.zst", 1, 0);
    struct ring *r = live_ring_get(writer_live(w), 1);
    put_sample(r, 1000, 1, 0, 1);
    assert_int_equal(writer_drain(w, WRITER_FLUSH), 0);
    FILE *theirs = fopen(path_of("theirs"), "w+");
    assert_non_null(theirs);
    for (int fd = 3; fd < 1024; fd++)
        if (fd != fileno(theirs))
            dup2(fileno(theirs), fd);
    put_sample(r, 2000, 1, 0, 2);
    assert_int_equal(writer_drain(w, WRITER_FLUSH), 0);
    assert_int_equal(writer_close(w, "exit"), 0);
    assert_int_equal(fstat(1000, &st), 0); /* theirs is still open, and empty */
    assert_int_equal(st.st_size, 0);
    for (int fd = 3; fd < 1024; fd++)
        if (fd != fileno(theirs))
            close(fd);
    fclose(theirs);
    read_trace(path_of("s.zst"), see, &s);
    assert_int_equal(s.nsamples, 2);
}

/* A forked child abandons the writer; the parent goes on. */
static void test_abandon_in_child(void **state) {
    (void)state;
    int status;
    struct writer *w = open_writer("f.zst", 1, 0);
    struct ring *r = live_ring_get(writer_live(w), 1);
    put_sample(r, 1000, 1, 0, 1);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct writer *own;
        writer_abandon(w);
        int rc = writer_open(
            &own, &(struct writer_options){.trace_path = path_of("child.zst"), .run_dir = dir});
        if (!rc)
            rc = writer_close(own, "exit");
        _exit(rc ? 1 : 0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(writer_close(w, "exit"), 0);
    assert_int_equal(read_trace(path_of("f.zst"), NULL, NULL).by_type[TRACE_sample], 1);
    assert_int_equal(read_trace(path_of("child.zst"), NULL, NULL).by_type[TRACE_end], 1);
}

/* ---- three producers and the drain at once; keys defined by one are used by all ---- */

#define PRODUCERS 3
#define EACH      20000u

static struct live *shared_live;
static uint64_t newest_key; /* (atomic) defined by producer 0, used by the others */
static unsigned producers_done;

static void *producer(void *arg) {
    uint64_t id = (uint64_t)(uintptr_t)arg;
    struct ring *r = live_ring_get(shared_live, (uint32_t)id);
    for (uint64_t n = 0; n < EACH; n++) {
        uint64_t *f, key;
        if (id == 0 && n % 20 == 0) {
            size_t used = 0;
            while (!(f = ring_reserve(r, TRACE_stack, TRACE_stack_NFIELDS, 8)))
                usleep(100);
            key = n + 1;
            f[TRACE_stack_key] = key;
            ring_put_bytes(f, TRACE_stack_NFIELDS, TRACE_stack_native, &key, 1 * sizeof(uint64_t),
                           &used);
            ring_commit(f);
            __atomic_store_n(&newest_key, key, __ATOMIC_RELEASE);
        }
        key = __atomic_load_n(&newest_key, __ATOMIC_ACQUIRE);
        while (!(f = ring_reserve(r, TRACE_sample, TRACE_sample_NFIELDS, 0)))
            usleep(100);
        f[TRACE_sample_ts] = n;
        f[TRACE_sample_tid] = id;
        f[TRACE_sample_stack] = key;
        f[TRACE_sample_pc] = key;
        f[TRACE_sample_cpu_us] = n;
        ring_commit(f);
    }
    live_ring_orphan(r);
    __atomic_fetch_add(&producers_done, 1, __ATOMIC_RELEASE);
    return NULL;
}

struct order {
    uint64_t next[PRODUCERS], native[EACH + 2];
};

static void see_order(void *ctx, const struct trace_block_header *h, int type,
                      const struct trace_value *v) {
    struct order *o = ctx;
    (void)h;
    if (type == TRACE_stack) {
        uint64_t native[8];
        assert_int_equal(get_list(v[TRACE_stack_native], native), 1);
        o->native[v[TRACE_stack_id].u] = native[0];
    } else if (type == TRACE_sample) {
        uint64_t id = v[TRACE_sample_tid].u;
        assert_true(id < PRODUCERS);
        assert_int_equal(v[TRACE_sample_cpu_us].u, o->next[id]++);
        assert_int_equal(o->native[v[TRACE_sample_stack].u], v[TRACE_sample_pc].u);
    }
}

static void test_concurrent(void **state) {
    (void)state;
    static struct order o;
    pthread_t t[PRODUCERS];
    struct writer *w = open_writer("c.zst", PRODUCERS, 8192);
    shared_live = writer_live(w);
    /* The rings of those that use the keys are read before the ring of the one that defines them. */
    for (uintptr_t i = PRODUCERS; i-- > 0;)
        assert_int_equal(pthread_create(&t[i], NULL, producer, (void *)i), 0);
    while (__atomic_load_n(&producers_done, __ATOMIC_ACQUIRE) < PRODUCERS) {
        assert_int_equal(writer_drain(w, 0), 0);
        usleep(200);
    }
    for (unsigned i = 0; i < PRODUCERS; i++)
        pthread_join(t[i], NULL);
    assert_int_equal(writer_close(w, "exit"), 0);
    struct read_trace r = read_trace(path_of("c.zst"), see_order, &o);
    assert_int_equal(r.lost[TRACE_LOST_unresolved], 0);
    assert_int_equal(r.by_type[TRACE_sample], PRODUCERS * EACH);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_samples_and_dictionaries),
        cmocka_unit_test(test_zstd_tool_reads_it),
        cmocka_unit_test(test_unknown_keys_wait),
        cmocka_unit_test(test_ring_full_and_damaged_are_counted),
        cmocka_unit_test(test_epochs),
        cmocka_unit_test(test_large_and_many),
        cmocka_unit_test(test_rings_are_reused),
        cmocka_unit_test(test_open_refuses),
        cmocka_unit_test(test_next_place),
        cmocka_unit_test(test_stolen_descriptor),
        cmocka_unit_test(test_abandon_in_child),
        cmocka_unit_test(test_concurrent),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
