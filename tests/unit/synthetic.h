/* SPDX-License-Identifier: Apache-2.0 */
/*
 * synthetic.h - makes traces of any size through the real writer, for tests and benches of what
 * reads them.
 *
 *     struct synthetic s = {.samples = 1000, .threads = 3, .stacks = 50, .depth = 12};
 *     int err = synthetic_trace("/tmp/x/a.zst", "/tmp/x", &s);    // run_dir: where the live file goes
 *
 * The trace is of a fictitious process: `threads` threads with names, each sampled every
 * `period_ns`, over `stacks` distinct stacks; a clock anchor at both ends, config, one metrics record of each kind for
 * every 1000 samples. The clock is SYNTHETIC_REAL at monotonic SYNTHETIC_MONO. Deterministic.
 */
#ifndef PROBING_TESTS_SYNTHETIC_H
#define PROBING_TESTS_SYNTHETIC_H

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "writer/writer.h"

/* 10 s: less than for how long any machine has been up, because a writer adds records with the time of now. */
#define SYNTHETIC_MONO 10000000000ull         /* CLOCK_MONOTONIC */
#define SYNTHETIC_REAL 1700000000000000000ull /* 2023-11-14 22:13:20 UTC */
#define SYNTHETIC_TID  4200u
#define SYNTHETIC_RUN  25u /* ticks of a thread in a row in the file */

struct synthetic {
    uint64_t samples;
    unsigned threads, stacks, depth; /* 0: 1, 10, 8 */
    uint64_t period_ns;              /* 0: 1 ms */
    unsigned native;                 /* return addresses a stack */
    unsigned pcs;                    /* distinct leaf program counters, 0: none */
    int64_t rank;
    unsigned pid;   /* 0: 77 */
    int leave_open; /* no end record: the writer is abandoned, its live file stays */
    unsigned flush; /* samples a block; 0: the writer decides */
};

static inline struct writer_value synthetic_u(uint64_t u) {
    return (struct writer_value){.u = u};
}
static inline struct writer_value synthetic_s(const char *s) {
    return (struct writer_value){.p = s, .n = strlen(s)};
}

static inline void synthetic_process_at(struct writer *w, const struct synthetic *s, uint64_t ts) {
    static const char command[] = "python3\0train.py\0--name\0it's me";
    struct writer_value v[TRACE_process_NFIELDS] = {
        [TRACE_process_ts] = synthetic_u(ts),
        [TRACE_process_start_ts] = synthetic_u(SYNTHETIC_MONO - 5000000000ull),
        [TRACE_process_host] = synthetic_s("node7"),
        [TRACE_process_boot_id] = synthetic_s("8c1f1c3e-0000-4000-8000-000000000001"),
        [TRACE_process_pid] = synthetic_u(s->pid ? s->pid : 77),
        [TRACE_process_ppid] = synthetic_u(76),
        [TRACE_process_uid] = synthetic_u(1000),
        [TRACE_process_rank] = {.i = s->rank},
        [TRACE_process_local_rank] = {.i = -1},
        [TRACE_process_world_size] = {.i = 8},
        [TRACE_process_exe] = synthetic_s("/usr/bin/python3.11"),
        [TRACE_process_cmdline] = {.p = command, .n = sizeof command},
        [TRACE_process_cwd] = synthetic_s("/home/me"),
        [TRACE_process_python] = synthetic_u(0x030b02f0),
        [TRACE_process_agent] = synthetic_s("0.1.0"),
        [TRACE_process_how] = synthetic_s("preload"),
    };
    writer_emit(w, TRACE_process, v);
}
static inline void synthetic_process(struct writer *w, const struct synthetic *s) {
    synthetic_process_at(w, s, SYNTHETIC_MONO);
}

static inline void synthetic_clock(struct writer *w, uint64_t ts) {
    struct writer_value v[TRACE_clock_NFIELDS] = {synthetic_u(ts),
                                                  synthetic_u(SYNTHETIC_REAL + ts - SYNTHETIC_MONO),
                                                  synthetic_u(ts), synthetic_u(100)};
    v[TRACE_clock_ts].u -= 50; /* the middle of the bracket is the instant */
    writer_emit(w, TRACE_clock, v);
}

static inline void synthetic_config(struct writer *w, const char *key, const char *value) {
    struct writer_value v[TRACE_config_NFIELDS] = {synthetic_u(SYNTHETIC_MONO), synthetic_s(key),
                                                   synthetic_s(value)};
    writer_emit(w, TRACE_config, v);
}

static inline void synthetic_thread(struct writer *w, unsigned i) {
    char name[32];
    struct writer_value v[TRACE_thread_NFIELDS] = {synthetic_u(SYNTHETIC_MONO),
                                                   synthetic_u(SYNTHETIC_TID + i)};
    snprintf(name, sizeof name, i ? "worker-%u" : "MainThread", i);
    v[TRACE_thread_name] = synthetic_s(name);
    v[TRACE_thread_ident] = synthetic_u(0x7000 + i);
    v[TRACE_thread_state] = synthetic_u(1);
    writer_emit(w, TRACE_thread, v);
}

/* Defines stack k: root, then functions chosen so that stacks share their outer half. Each frame is an entry frame. */
static inline void synthetic_dictionary(struct writer *w, const struct synthetic *s) {
    unsigned depth = s->depth ? s->depth : 8, stacks = s->stacks ? s->stacks : 10;
    char name[32], file[32];

    for (unsigned f = 0; f < stacks + depth; f++) {
        struct writer_value v[TRACE_frame_NFIELDS] = {{.u = 0}};
        snprintf(name, sizeof name, "function_%u", f);
        snprintf(file, sizeof file, "/src/file_%u.py", f % 7);
        v[TRACE_frame_key] = synthetic_u(0x1000 + f);
        v[TRACE_frame_name] = synthetic_s(name);
        v[TRACE_frame_file] = synthetic_s(file);
        v[TRACE_frame_firstline] = synthetic_u(10 * f + 1);
        v[TRACE_frame_line] = synthetic_u(10 * f + 5);
        writer_emit(w, TRACE_frame, v);
    }
    for (unsigned k = 0; k < stacks; k++) {
        struct writer_value v[TRACE_stack_NFIELDS] = {{.u = 0}};
        uint64_t frames[512], pcs[512];
        unsigned n = depth > 256 ? 256 : depth, nn = s->native > 256 ? 256 : s->native;
        for (unsigned d = 0; d < n; d++) /* innermost its own, the outer half shared */
            frames[d] = 0x1000 + (d < n / 2 ? (k + d) % (stacks + depth) : stacks + d);
        for (unsigned d = 0; d < nn; d++)
            pcs[d] = 0x500000 + 64 * ((k + d) % 1000);
        v[TRACE_stack_key] = synthetic_u(0x900000 + k);
        v[TRACE_stack_flags] = synthetic_u(1);
        v[TRACE_stack_python] = (struct writer_value){.p = frames, .n = n};
        v[TRACE_stack_native] = (struct writer_value){.p = pcs, .n = nn};
        writer_emit(w, TRACE_stack, v);
    }
}

static inline void synthetic_metrics(struct writer *w, uint64_t ts, uint64_t i) {
    struct writer_value cpu[TRACE_cpu_NFIELDS] = {{.u = ts}},
                        mem[TRACE_memory_NFIELDS] = {{.u = ts}};
    struct writer_value io[TRACE_io_NFIELDS] = {{.u = ts}},
                        net[TRACE_network_NFIELDS] = {{.u = ts}};

    cpu[TRACE_cpu_user_us] = synthetic_u(i * 500);
    cpu[TRACE_cpu_system_us] = synthetic_u(i * 250);
    cpu[TRACE_cpu_threads] = synthetic_u(4);
    cpu[TRACE_cpu_agent_us] = synthetic_u(i);
    cpu[TRACE_cpu_handler_us] = synthetic_u(i);
    writer_emit(w, TRACE_cpu, cpu);
    mem[TRACE_memory_rss] = synthetic_u(100000000 + i);
    mem[TRACE_memory_vms] = synthetic_u(200000000);
    writer_emit(w, TRACE_memory, mem);
    io[TRACE_io_rchar] = synthetic_u(i * 10);
    io[TRACE_io_write_bytes] = synthetic_u(i * 4096);
    writer_emit(w, TRACE_io, io);
    net[TRACE_network_interface] = synthetic_s("eth0");
    net[TRACE_network_rx_bytes] = synthetic_u(i * 100);
    writer_emit(w, TRACE_network, net);
}

/* What each sample of synthetic_many() has a new one of. */
enum synthetic_many { SYNTHETIC_FUNCTIONS, SYNTHETIC_THREADS, SYNTHETIC_STACKS, SYNTHETIC_NAMES };

static inline void synthetic_frame(struct writer *w, uint64_t key, const char *name,
                                   uint64_t firstline) {
    struct writer_value v[TRACE_frame_NFIELDS] = {[TRACE_frame_key] = synthetic_u(key),
                                                  [TRACE_frame_name] = synthetic_s(name),
                                                  [TRACE_frame_file] = synthetic_s("/src/a.py"),
                                                  [TRACE_frame_firstline] = synthetic_u(firstline),
                                                  [TRACE_frame_line] = synthetic_u(firstline + 1)};
    writer_emit(w, TRACE_frame, v);
}

/* For Python before 3.11: records a function's plain name and its qualified one. */
static inline void synthetic_code_name(struct writer *w, uint64_t key, const char *name,
                                       uint64_t firstline) {
    char full[64];
    struct writer_value v[TRACE_code_name_NFIELDS] = {
        [TRACE_code_name_key] = synthetic_u(key),
        [TRACE_code_name_name] = synthetic_s(name),
        [TRACE_code_name_file] = synthetic_s("/src/a.py"),
        [TRACE_code_name_firstline] = synthetic_u(firstline)};

    snprintf(full, sizeof full, "Generated.%s", name);
    v[TRACE_code_name_qualname] = synthetic_s(full);
    writer_emit(w, TRACE_code_name, v);
}

static inline void synthetic_named_thread(struct writer *w, uint64_t ts, uint64_t tid, int alive) {
    char name[32];
    struct writer_value v[TRACE_thread_NFIELDS] = {[TRACE_thread_ts] = synthetic_u(ts),
                                                   [TRACE_thread_tid] = synthetic_u(tid),
                                                   [TRACE_thread_state] =
                                                       synthetic_u((uint64_t)alive)};
    snprintf(name, sizeof name, "request-%llu", (unsigned long long)tid);
    v[TRACE_thread_name] = v[TRACE_thread_python_name] = synthetic_s(alive ? name : "");
    v[TRACE_thread_ident] = synthetic_u(alive ? 0x7f0000000000 + tid * 4096 : 0);
    writer_emit(w, TRACE_thread, v);
}

/* Writes the trace of a process that keeps making new things that a converter has to tell apart: n samples, each with another function, thread,
 * stack of 25 frames, or function whose qualified name is known. Returns 0 or -errno. */
static inline int synthetic_many(const char *path, const char *run_dir, enum synthetic_many what,
                                 uint64_t n) {
    const unsigned depth = what == SYNTHETIC_STACKS ? 25 : 1;
    uint64_t seed = 1, frames[25], ts = SYNTHETIC_MONO;
    char name[32];
    struct writer *w;
    int err = writer_open(&w, &(struct writer_options){.trace_path = path, .run_dir = run_dir});

    if (err)
        return err;
    synthetic_process(w, &(struct synthetic){.rank = 0});
    synthetic_clock(w, ts);
    synthetic_config(w, "probing.sample_rate", "0.001");
    for (uint64_t i = 0; i < n && !err; i++) {
        uint64_t tid = SYNTHETIC_TID + (what == SYNTHETIC_THREADS ? i : 0), key = 0x900000 + i;
        ts += 1000000;
        for (unsigned d = 0; d < depth; d++) { /* of stacks: 64 functions in any order */
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            uint64_t f = what == SYNTHETIC_THREADS ? 0 : what == SYNTHETIC_STACKS ? seed >> 58 : i;
            frames[d] = 0x1000 + f;
            snprintf(name, sizeof name, "generated_%llu", (unsigned long long)f);
            if (what == SYNTHETIC_NAMES)
                synthetic_code_name(w, frames[d], name, f + 1);
            synthetic_frame(w, frames[d], name, f + 1);
        }
        if (what == SYNTHETIC_THREADS) {
            synthetic_named_thread(w, ts, tid, 1);
            key = 0x900000;
        }
        struct writer_value st[TRACE_stack_NFIELDS] = {
            [TRACE_stack_key] = synthetic_u(key),
            [TRACE_stack_flags] = synthetic_u(1),
            [TRACE_stack_python] = {.p = frames, .n = depth}};
        writer_emit(w, TRACE_stack, st);
        struct writer_value v[TRACE_sample_NFIELDS] = {[TRACE_sample_ts] = synthetic_u(ts + 1000),
                                                       [TRACE_sample_tid] = synthetic_u(tid),
                                                       [TRACE_sample_stack] = synthetic_u(key),
                                                       [TRACE_sample_count] = synthetic_u(1)};
        err = writer_emit(w, TRACE_sample, v);
        if (what == SYNTHETIC_THREADS)
            synthetic_named_thread(w, ts + 2000, tid, 0);
        if (i % 1024 == 0)
            writer_drain(w, 0);
    }
    synthetic_clock(w, ts);
    if (err) {
        writer_abandon(w);
        return err;
    }
    return writer_close(w, "exit");
}

/* Returns 0 or -errno. */
static inline int synthetic_trace(const char *path, const char *run_dir,
                                  const struct synthetic *s) {
    unsigned threads = s->threads ? s->threads : 1, stacks = s->stacks ? s->stacks : 10;
    uint64_t period = s->period_ns ? s->period_ns : 1000000, ts = SYNTHETIC_MONO;
    uint64_t last = ts, seed = 1;
    char seconds[32];
    struct writer *w;
    int err = writer_open(&w, &(struct writer_options){.trace_path = path, .run_dir = run_dir});

    if (err)
        return err;
    snprintf(seconds, sizeof seconds, "%.9g", (double)period / 1e9);
    synthetic_process(w, s);
    synthetic_clock(w, ts);
    synthetic_config(w, "probing.sample_rate", seconds);
    for (unsigned i = 0; i < threads; i++)
        synthetic_thread(w, i);
    synthetic_dictionary(w, s);
    for (uint64_t i = 0; i < s->samples && !err; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        /* as rings are drained: RUN ticks of one thread, then of the next */
        uint64_t chunk = SYNTHETIC_RUN * threads, t = i % chunk / SYNTHETIC_RUN;
        ts = SYNTHETIC_MONO + period * (i / chunk * SYNTHETIC_RUN + i % SYNTHETIC_RUN + 1);
        last = ts > last ? ts : last;
        struct writer_value v[TRACE_sample_NFIELDS] = {{.u = 0}};
        v[TRACE_sample_ts] = synthetic_u(ts + 1000 * t);
        v[TRACE_sample_tid] = synthetic_u(SYNTHETIC_TID + t);
        v[TRACE_sample_stack] = synthetic_u(0x900000 + (seed >> 33) % stacks);
        v[TRACE_sample_pc] = synthetic_u(s->pcs ? 0x400000 + 16 * ((seed >> 40) % s->pcs) : 0);
        v[TRACE_sample_cpu_us] = synthetic_u((seed >> 50) % 1000);
        v[TRACE_sample_count] = synthetic_u(1);
        v[TRACE_sample_flags] = synthetic_u(seed >> 60 & 1);
        err = writer_emit(w, TRACE_sample, v);
        if (i % 1000 == 0)
            synthetic_metrics(w, ts, i);
        if (s->flush ? i % s->flush == s->flush - 1 : i % 1024 == 0)
            writer_drain(w, s->flush ? WRITER_FLUSH : 0);
    }
    synthetic_clock(w, last);
    if (err || s->leave_open) {
        writer_drain(w, WRITER_FLUSH);
        writer_abandon(w);
        return err;
    }
    return writer_close(w, "exit");
}

#endif
