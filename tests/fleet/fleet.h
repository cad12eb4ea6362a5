/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fleet.h - traces of a simulated training job whose truth is known; README.md says how it is used.
 *
 * Order of things: options (main.c) -> clocks of the nodes (clocks.c) -> what each rank does when, in true time
 * (timeline.c) -> its trace, in its node's CLOCK_MONOTONIC (rank.c, out.c), with stacks of a real recording (recorded.c).
 *
 * True time is int64 ns since the job began. Every random number is a hash of the seed and of its purpose, so the same options
 * give the same bytes, however many processes write them.
 */
#ifndef PROBING_TESTS_FLEET_H
#define PROBING_TESTS_FLEET_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "writer/encode.h"
#include "writer/file.h"

#define SECOND 1000000000ll
#define NEVER  INT64_MAX
#define EPOCH  1760000000000000000ll /* UTC of true time 0 */

struct options {
    unsigned ranks, nodes, tp, pp, layers, runs, job, port, jobs, threads, stragglers;
    uint64_t seed;
    double minutes, hz, step_ms, vary;
    double offset, drift, wander; /* seconds, ppm: the most, either way */
    double jitter_us, sigma, outliers, asymmetry_us;
    const char *out, *like;
    int truth, quiet, restarts, world,
        boots;     /* world 0: no collective of all ranks; boots 0: no boot ids */
    int slow_data; /* stragglers wait for their data */
    int raises;    /* who is killed raises an exception instead, and ends a second later */
    /* What goes wrong. A rank or node of -1: this does not happen. Times are seconds of true time. */
    int straggler, hang, kill, late, duplicate, lose, tear, step_node, suspend_node, broken_node;
    double straggler_ms, hang_at, kill_at, late_at, step_at, step_s, suspend_at, suspend_s,
        broken_years, launcher; /* launcher: seconds until it ends all others */
};
extern struct options opt;

/* ---- clocks.c ---- */

enum purpose {
    FOR_COMPUTE = 1,
    FOR_JITTER,
    FOR_OUTLIER,
    FOR_CLOCK,
    FOR_STACK,
    FOR_METRIC,
    FOR_BOOT
};
/* Numbers that depend only on their arguments and the seed: 64 bits; in (0, 1); of a normal distribution. */
uint64_t hash(enum purpose why, uint64_t a, uint64_t b, uint64_t c);
double uniform(enum purpose why, uint64_t a, uint64_t b, uint64_t c);
double normal(enum purpose why, uint64_t a, uint64_t b, uint64_t c);

struct node {
    uint64_t mono0;       /* CLOCK_MONOTONIC at true time 0 */
    int64_t offset;       /* of CLOCK_REALTIME to UTC at true time 0, ns */
    double drift, wander; /* of the oscillator: ns a ns, amplitude of a slow swing */
    char name[32], boot_id[40];
};
extern struct node *nodes;
int clocks_make(void);
unsigned node_of(unsigned rank);
unsigned local_rank(unsigned rank);
uint64_t node_mono(unsigned node, int64_t t);
uint64_t node_real(unsigned node, int64_t t);
uint64_t node_boot(unsigned node, int64_t t);
/* Returns the time at which a process of the node can do what it would do at t: later, if the machine sleeps then. */
int64_t node_awake(unsigned node, int64_t t);
/* Returns the time at which work is done that takes `work` ns and begins at t. */
int64_t node_work(unsigned node, int64_t t, int64_t work);

/* ---- timeline.c ---- */

enum phase { DATA_WAIT, FORWARD, BACKWARD, OPTIMIZER, COMM, PHASES };
enum group { WORLD = 1, DP, TP, PP };
struct span_of {
    int64_t begin, end; /* end NEVER: it never ended */
    uint32_t seq, step;
    uint8_t phase, op, group, flags; /* op: enum op; flags: as in records.def */
    int16_t src, dst;
    uint32_t bytes;
};
enum op { BARRIER, ALL_REDUCE, BROADCAST, SEND, RECV };
struct story { /* of a rank */
    struct span_of *span;
    size_t n, cap;
    int64_t begin, end; /* of its recording */
    const char *reason; /* of the end; NULL: the trace just stops */
    int signal;
    int64_t failed; /* when it raised an exception; NEVER */
    const char *exception;
    int told; /* to end, by its launcher */
};
/* Simulates what the n ranks from `first` on do in the run that begins at `start` (ns), and stores it in story[0 .. n - 1]. Returns 0 or -ENOMEM. */
int timeline(unsigned run, int64_t start, unsigned first, unsigned n, struct story *story);
unsigned size_of_group(enum group g);
/* Returns the k-th rank of the group that `rank` is in; the others: the group's index, and the rank's place in it. */
unsigned member_of(enum group g, unsigned rank, unsigned k);
unsigned index_of_group(enum group g, unsigned rank);
unsigned place_in(enum group g, unsigned rank);
int has_group(enum group g);

/* ---- recorded.c: stacks of a real training ---- */

struct recorded_frame {
    char *name, *file;
    uint64_t firstline, line;
};
struct recorded_stack {
    uint64_t flags, *python, *native; /* python: index of the frame + 1, 0 after entry frames */
    size_t npython, nnative;
};
struct recorded_module {
    char *path;
    uint8_t build_id[64];
    size_t build_id_len;
    uint64_t start, end, bias;
};
struct recorded_sample {
    uint32_t stack; /* index */
    uint64_t pc;
    uint8_t flags;
};
struct recorded {
    struct recorded_frame *frame;
    struct recorded_stack *stack;
    struct recorded_module *module;
    struct recorded_sample *sample[PHASES];
    size_t nframes, nstacks, nmodules, nsamples[PHASES];
    uint64_t eval_start, eval_end, cold_start, cold_end;
};
extern struct recorded recorded;
/* Returns 0, or -errno after printing the error. */
int recorded_load(const char *path);

/* ---- out.c: a trace file, by the writer's encoder ---- */

struct out {
    struct tracefile file;
    struct encoder enc;
    struct dicts dicts;
    uint32_t seq;
    uint64_t began; /* when the first record of the block lay in it */
    void *zstd;
    uint8_t *buf;
    size_t cap;
    int err; /* sticky */
};
int out_open(struct out *o, const char *path);
/* ts: the record's time in the trace's clock. It decides when a block ends: when it is large, or covers 10 s. */
void out_put(struct out *o, unsigned type, uint64_t ts, struct writer_value *v);
void out_flush(struct out *o);
/* cut: closes without an end record and a seek table. Returns 0 or the first -errno. */
int out_close(struct out *o, int cut);

/* ---- rank.c ---- */

/* Writes the trace of one rank. copy 1: the trace of another process that claims to be the same rank. Returns 0 or -errno. */
int rank_write(unsigned run, int64_t start, unsigned rank, const struct story *s, int copy,
               uint64_t *samples);
void rank_path(char *buf, size_t n, unsigned run, unsigned rank, int copy);

#endif
