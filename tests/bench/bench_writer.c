/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_writer - what a record costs: nanoseconds to enqueue, nanoseconds to encode and compress,
 * bytes in the trace. Prints `name value unit`, medians of REPEATS runs, in CPU time of the
 * thread; the fastest run beside it, because on a shared machine the median carries the neighbours' noise.
 *
 * The stream is made like that of a training process: one busy thread whose stack changes among a few
 * hundred, 3 threads that now and then do something, 1 ms ticks with the jitter of a real timer.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "writer/writer.h"

#define REPEATS 9
#define BATCH   1500 /* samples between two drains: fits a ring */
#define BATCHES 400
#define STACKS  300

static uint64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint64_t rnd(void) {
    static uint64_t s = 88172645463325252u;
    s ^= s << 13;
    s ^= s >> 7;
    s ^= s << 17;
    return s;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void show(const char *name, double *v, const char *unit) {
    qsort(v, REPEATS, sizeof *v, by_value);
    printf("%s %.1f %s\n", name, v[REPEATS / 2], unit);
    printf("%s_best %.1f %s\n", name, v[0], unit);
}

static void define(struct ring *r, unsigned i) {
    uint64_t frames[12], pcs[20];
    char name[32];
    size_t used = 0;
    uint64_t *f;
    snprintf(name, sizeof name, "layer_%u.forward", i);
    f = ring_reserve(r, TRACE_frame, TRACE_frame_NFIELDS, 64);
    f[TRACE_frame_key] = 1000 + i;
    ring_put_bytes(f, TRACE_frame_NFIELDS, TRACE_frame_name, name, strlen(name), &used);
    ring_put_bytes(f, TRACE_frame_NFIELDS, TRACE_frame_file, "/x/model.py", 11, &used);
    f[TRACE_frame_line] = i;
    ring_commit(f);
    used = 0;
    for (unsigned k = 0; k < 12; k++)
        frames[k] = 1000 + (i > k ? i - k : i);
    for (unsigned k = 0; k < 20; k++)
        pcs[k] = 0x7f3200000000 + rnd() % 0x200000;
    f = ring_reserve(r, TRACE_stack, TRACE_stack_NFIELDS, sizeof frames + sizeof pcs);
    f[TRACE_stack_key] = 5000 + i;
    ring_put_bytes(f, TRACE_stack_NFIELDS, TRACE_stack_python, frames, 12 * sizeof(uint64_t),
                   &used);
    ring_put_bytes(f, TRACE_stack_NFIELDS, TRACE_stack_native, pcs, 20 * sizeof(uint64_t), &used);
    ring_commit(f);
}

struct tick {
    uint64_t ts, tid, stack, pc, cpu, count, flags;
};

static struct tick *make_stream(void) {
    struct tick *s = malloc(sizeof *s * BATCH * BATCHES);
    uint64_t ts = 1000000000000, stack = 0;
    for (unsigned i = 0; s && i < BATCH * BATCHES; i++) {
        int busy = rnd() % 10 < 7;
        if (busy)
            ts += 1000000 + rnd() % 60000; /* 1 ms and the timer's jitter */
        if (rnd() % 3)
            stack = rnd() % 4 ? (stack + rnd() % 5) % STACKS : rnd() % STACKS;
        s[i] =
            (struct tick){.ts = ts + rnd() % 20000,
                          .tid = busy ? 4711 : 4712 + rnd() % 3,
                          .stack = busy ? 5000 + stack : 5000 + rnd() % 6,
                          /* A stack without its leaf: the pc is one of a few in that function. */
                          .pc = 0x7f3200000000 + stack * 512 + rnd() % 8 * 16,
                          .cpu = busy ? 990 + rnd() % 20 : rnd() % 4,
                          .count = 1,
                          .flags = busy ? 3 : 0};
    }
    return s;
}

/* As the sampler does it. */
static inline int enqueue(struct ring *r, const struct tick *t) {
    uint64_t *f = ring_reserve(r, TRACE_sample, TRACE_sample_NFIELDS, 0);
    if (!f)
        return -1;
    f[TRACE_sample_ts] = t->ts;
    f[TRACE_sample_tid] = t->tid;
    f[TRACE_sample_stack] = t->stack;
    f[TRACE_sample_pc] = t->pc;
    f[TRACE_sample_cpu_us] = t->cpu;
    f[TRACE_sample_count] = t->count;
    f[TRACE_sample_flags] = t->flags;
    ring_commit(f);
    return 0;
}

static long rss_kb(void) {
    long pages = 0, ignored;
    FILE *f = fopen("/proc/self/statm", "r");
    if (f && fscanf(f, "%ld %ld", &ignored, &pages) != 2)
        pages = 0;
    if (f)
        fclose(f);
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

int main(void) {
    char dir[] = "/tmp/bench_writer.XXXXXX", trace[64], cmd[64];
    double put[REPEATS], drain[REPEATS], bytes[REPEATS], memory = 0;
    struct tick *stream = make_stream();
    uint64_t lost = 0;

    if (!stream || !mkdtemp(dir))
        return 1;
    snprintf(trace, sizeof trace, "%s/t.zst", dir);
    for (unsigned rep = 0; rep < REPEATS; rep++) {
        struct writer *w;
        uint64_t put_ns = 0, drain_ns = 0;
        long before = rss_kb();
        unlink(trace);
        if (writer_open(&w, &(struct writer_options){.trace_path = trace, .run_dir = dir}))
            return 1;
        struct ring *r = live_ring_get(writer_live(w), 1);
        for (unsigned i = 0; i < STACKS; i++) {
            define(r, i);
            if (i % 50 == 0)
                writer_drain(w, 0);
        }
        writer_drain(w, WRITER_FLUSH);
        uint64_t start_bytes = writer_live(w)->trace_bytes;
        for (unsigned b = 0; b < BATCHES; b++) {
            uint64_t t0 = now();
            for (unsigned i = 0; i < BATCH; i++)
                lost += enqueue(r, &stream[b * BATCH + i]) != 0;
            uint64_t t1 = now();
            writer_drain(w, b == BATCHES - 1 ? WRITER_FLUSH : 0);
            drain_ns += now() - t1;
            put_ns += t1 - t0;
        }
        double n = (double)BATCH * BATCHES;
        put[rep] = (double)put_ns / n;
        drain[rep] = (double)drain_ns / n;
        bytes[rep] = (double)(writer_live(w)->trace_bytes - start_bytes) / n;
        if (rep == 0)
            memory = (double)(rss_kb() - before) / 1024;
        if (writer_close(w, "exit"))
            return 1;
    }
    show("writer_enqueue", put, "ns/record");
    show("writer_encode", drain, "ns/record");
    show("writer_sample", bytes, "bytes");
    printf("writer_memory %.1f MiB\n", memory);
    printf("writer_lost %llu records\n", (unsigned long long)lost);
    snprintf(cmd, sizeof cmd, "rm -rf %s", dir);
    free(stream);
    return system(cmd) != 0 || lost;
}
