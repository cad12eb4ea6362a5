/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fleet.h"
#include "traces/torch_events.h"

#define STACKS_KEY 0x1000u
#define ANCHORS    (10 * SECOND)

static const char *const op_names[] = {"barrier", "all_reduce", "broadcast", "send", "recv"};

struct trace {
    struct out out;
    const struct story *story;
    unsigned run, rank, node, pid, model;
    uint64_t shift;                /* of all addresses: address space randomisation */
    int64_t sample, metric, clock; /* when the next is due */
    uint64_t nsamples, next[PHASES], number, calls, events, loss_step;
    uint8_t *known_stack, *known_frame; /* their definitions are in the trace; by variation */
    unsigned variations;
};

static struct writer_value u(uint64_t n) {
    return (struct writer_value){.u = n};
}

static struct writer_value str(const char *p) {
    return (struct writer_value){.p = p, .n = strlen(p)};
}

static uint64_t mono(const struct trace *t, int64_t at) {
    return node_mono(t->node, at);
}

static unsigned pid_of(unsigned run, unsigned rank, int copy) {
    return 1000 + (opt.job - 4711 + 7 * (opt.port - 29500) + run) % 200 * 20000 +
           local_rank(rank) * 10 + (copy ? 5 : 0);
}

void rank_path(char *buf, size_t n, unsigned run, unsigned rank, int copy) {
    const struct node *node = &nodes[node_of(rank)];

    snprintf(buf, n, "%s/%s/%s-r%u-%u.zst", opt.out, node->name, node->name, rank,
             pid_of(run, rank, copy));
}

static void clock_anchor(struct trace *t, int64_t at) {
    uint64_t bracket = 60 + (uint64_t)(200 * uniform(FOR_METRIC, t->rank, (uint64_t)at, 7));
    struct writer_value v[TRACE_clock_NFIELDS] = {u(mono(t, at) - bracket / 2),
                                                  u(node_real(t->node, at)),
                                                  u(node_boot(t->node, at)), u(bracket)};

    out_put(&t->out, TRACE_clock, mono(t, at), v);
}

static void process(struct trace *t, int64_t start) {
    static const char command[] = "/usr/bin/python3\0train.py";
    struct writer_value v[TRACE_process_NFIELDS] = {{.u = 0}};
    uint64_t at = mono(t, t->story->begin);
    unsigned first = t->rank - local_rank(t->rank);
    char run[128], job[32], master[32];

    snprintf(master, sizeof master, "node000:%u", opt.port);
    snprintf(run, sizeof run, "%s-%u-%llu", nodes[t->node].name, pid_of(t->run, first, 0),
             (unsigned long long)(start / SECOND));
    snprintf(job, sizeof job, "slurm:%u", opt.restarts ? opt.job : opt.job + t->run);
    v[TRACE_process_ts] = u(at);
    v[TRACE_process_start_ts] = u(at > SECOND ? at - SECOND : 1);
    v[TRACE_process_host] = str(nodes[t->node].name);
    v[TRACE_process_boot_id] = str(opt.boots ? nodes[t->node].boot_id : "");
    v[TRACE_process_pid] = u(t->pid);
    v[TRACE_process_ppid] = u(999);
    v[TRACE_process_uid] = u(1000);
    v[TRACE_process_rank].i = t->rank;
    v[TRACE_process_local_rank].i = local_rank(t->rank);
    v[TRACE_process_world_size].i = opt.ranks;
    v[TRACE_process_exe] = str("/usr/bin/python3.11");
    v[TRACE_process_cmdline] = (struct writer_value){.p = command, .n = sizeof command};
    v[TRACE_process_cwd] = str("/srv/train");
    v[TRACE_process_python] = u(0x030b02f0);
    if (recorded.eval_end) {
        v[TRACE_process_eval_start] = u(recorded.eval_start + t->shift);
        v[TRACE_process_eval_end] = u(recorded.eval_end + t->shift);
    }
    if (recorded.cold_end) {
        v[TRACE_process_cold_start] = u(recorded.cold_start + t->shift);
        v[TRACE_process_cold_end] = u(recorded.cold_end + t->shift);
    }
    v[TRACE_process_agent] = str("fleet");
    v[TRACE_process_how] = str(t->story->begin > start + 2 * SECOND ? "inject" : "preload");
    v[TRACE_process_role] = str("worker");
    v[TRACE_process_master] = str(master);
    v[TRACE_process_run] = str(run);
    v[TRACE_process_job] = str(job);
    out_put(&t->out, TRACE_process, at, v);
}

static void thread(struct trace *t, unsigned i) {
    struct writer_value v[TRACE_thread_NFIELDS] = {{.u = 0}};
    uint64_t at = mono(t, t->story->begin);
    char name[32];

    snprintf(name, sizeof name, i ? "Thread-%u" : "MainThread", i);
    v[TRACE_thread_ts] = u(at);
    v[TRACE_thread_tid] = u(t->pid + i);
    v[TRACE_thread_name] = str("python3");
    v[TRACE_thread_ident] = u(0x7f0000000000u + 4096 * i);
    v[TRACE_thread_state] = u(1);
    v[TRACE_thread_python_name] = str(name);
    out_put(&t->out, TRACE_thread, at, v);
}

static void group(struct trace *t, enum group g) {
    struct writer_value v[TRACE_process_group_NFIELDS] = {{.u = 0}};
    uint64_t at = mono(t, t->story->begin);
    unsigned n = size_of_group(g);
    static const char *const sort[] = {"", "", "dp", "tp", "pp"};
    uint64_t *ranks = malloc(n * sizeof *ranks);
    char name[32];

    if (!ranks) {
        t->out.err = -ENOMEM;
        return;
    }
    for (unsigned k = 0; k < n; k++)
        ranks[k] = member_of(g, t->rank, k);
    if (g == WORLD)
        snprintf(name, sizeof name, "default_pg");
    else
        snprintf(name, sizeof name, "%s%u", sort[g], index_of_group(g, t->rank));
    v[TRACE_process_group_ts] = u(at);
    v[TRACE_process_group_pg] = u(g);
    v[TRACE_process_group_name] = str(name);
    v[TRACE_process_group_backend] = str("nccl");
    v[TRACE_process_group_rank].i = place_in(g, t->rank);
    v[TRACE_process_group_size].i = n;
    v[TRACE_process_group_ranks] = (struct writer_value){.p = ranks, .n = n};
    out_put(&t->out, TRACE_process_group, at, v);
    free(ranks);
}

/* Defines the modules of the model: "GPT", then its layers. */
static void names(struct trace *t) {
    uint64_t at = mono(t, t->story->begin);

    for (unsigned i = 0; i <= opt.layers; i++) {
        struct writer_value v[TRACE_torch_name_NFIELDS] = {{.u = 0}};
        char name[32];
        snprintf(name, sizeof name, i ? "GPT.layers.%u" : "GPT", i - 1);
        v[TRACE_torch_name_key] = u(i + 1);
        v[TRACE_torch_name_number] = u(i + 1);
        v[TRACE_torch_name_name] = str(name);
        v[TRACE_torch_name_type] = str(i ? "Block" : "GPT");
        v[TRACE_torch_name_model] = u(1);
        out_put(&t->out, TRACE_torch_name, at, v);
    }
}

static void modules(struct trace *t) {
    for (size_t i = 0; i < recorded.nmodules; i++) {
        const struct recorded_module *m = &recorded.module[i];
        struct writer_value v[TRACE_module_NFIELDS] = {{.u = 0}};
        v[TRACE_module_key] = u(i + 1);
        v[TRACE_module_path] = str(m->path);
        v[TRACE_module_build_id] = (struct writer_value){.p = m->build_id, .n = m->build_id_len};
        v[TRACE_module_start] = u(m->start + t->shift);
        v[TRACE_module_end] = u(m->end + t->shift);
        v[TRACE_module_bias] = u(m->bias + t->shift);
        v[TRACE_module_ts] = u(mono(t, t->story->begin));
        out_put(&t->out, TRACE_module, mono(t, t->story->begin), v);
    }
}

/* Returns the key of a recorded frame, at its line or `d` lines further down. */
static uint64_t frame_key(struct trace *t, uint64_t i, unsigned d, uint64_t at) {
    const struct recorded_frame *f = &recorded.frame[i];
    uint64_t key = 1 + i * t->variations + d;

    if (!t->known_frame[key - 1]) {
        struct writer_value v[TRACE_frame_NFIELDS] = {{.u = 0}};
        t->known_frame[key - 1] = 1;
        v[TRACE_frame_key] = u(key);
        v[TRACE_frame_name] = str(f->name);
        v[TRACE_frame_file] = str(f->file);
        v[TRACE_frame_firstline] = u(f->firstline);
        v[TRACE_frame_line] = u(f->line + d);
        out_put(&t->out, TRACE_frame, at, v);
    }
    return key;
}

/* Returns the key of variation d of a recorded stack: one of its frames is d lines further down. */
static uint64_t stack_key(struct trace *t, uint32_t i, unsigned d, uint64_t at) {
    const struct recorded_stack *s = &recorded.stack[i];
    uint64_t key = 1 + (uint64_t)i * t->variations + d, python[512], native[512];
    size_t n = s->npython < 512 ? s->npython : 512, m = s->nnative < 512 ? s->nnative : 512;

    if (t->known_stack[key - 1])
        return key;
    t->known_stack[key - 1] = 1;
    for (size_t k = 0; k < n; k++)
        python[k] = s->python[k] ? frame_key(t, s->python[k] - 1, n && k == d % n ? d : 0, at) : 0;
    for (size_t k = 0; k < m; k++)
        native[k] = s->native[k] + t->shift;
    struct writer_value v[TRACE_stack_NFIELDS] = {{.u = 0}};
    v[TRACE_stack_key] = u(key);
    v[TRACE_stack_flags] = u(s->flags);
    v[TRACE_stack_python] = (struct writer_value){.p = python, .n = n};
    v[TRACE_stack_native] = (struct writer_value){.p = native, .n = m};
    out_put(&t->out, TRACE_stack, at, v);
    return key;
}

static void sample(struct trace *t, int64_t at, enum phase phase) {
    uint64_t ts = mono(t, at);

    for (unsigned i = 0; i < opt.threads; i++) {
        enum phase p = i ? (enum phase)(i % PHASES) : phase;
        uint64_t nth = t->next[p]++;
        const struct recorded_sample *s = &recorded.sample[p][nth % recorded.nsamples[p]];
        unsigned d =
            t->variations > 1 ? (unsigned)(hash(FOR_STACK, t->rank, nth, p) % t->variations) : 0;
        struct writer_value v[TRACE_sample_NFIELDS] = {{.u = 0}};
        v[TRACE_sample_ts] = u(ts);
        v[TRACE_sample_tid] = u(t->pid + i);
        v[TRACE_sample_stack] = u(stack_key(t, s->stack, d, ts));
        v[TRACE_sample_pc] = u(s->pc ? s->pc + t->shift : 0);
        v[TRACE_sample_cpu_us] = u(s->flags & 1 ? (uint64_t)(1e6 / opt.hz) : 10);
        v[TRACE_sample_count] = u(1);
        v[TRACE_sample_flags] = u(s->flags);
        out_put(&t->out, TRACE_sample, ts, v);
        t->nsamples++;
    }
}

/* Records the metrics of a second, and the true time as an event of the program. */
static void metrics(struct trace *t, int64_t at) {
    uint64_t ts = mono(t, at), n = (uint64_t)((at - t->story->begin) / SECOND);
    struct writer_value cpu[TRACE_cpu_NFIELDS] = {u(ts),      u(n * 900000), u(n * 50000), u(8),
                                                  u(n * 100), u(n * 7),      u(n * 20),    u(0),
                                                  u(n * 400), u(n * 100)};
    struct writer_value memory[TRACE_memory_NFIELDS] = {
        u(ts),          u(2000000000u + n * 4096 + (hash(FOR_METRIC, t->rank, n, 0) & 0xfffff)),
        u(9000000000u), u(300000000),
        u(5000000000u), u(0),
        u(2100000000u)};
    struct writer_value io[TRACE_io_NFIELDS] = {u(ts), u(n * 1000000), u(n * 1000), u(n * 50),
                                                u(n),  u(n * 900000),  u(0)};
    struct writer_value net[TRACE_network_NFIELDS] = {
        u(ts), str("eth0"), u(n * 50000000), u(n * 50000000), u(n * 40000), u(n * 40000)};

    out_put(&t->out, TRACE_cpu, ts, cpu);
    out_put(&t->out, TRACE_memory, ts, memory);
    out_put(&t->out, TRACE_io, ts, io);
    out_put(&t->out, TRACE_network, ts, net);
    if (!opt.truth)
        return;
    struct writer_value event[TRACE_event_NFIELDS] = {
        u(ts), u(++t->events), u(0), u(t->loss_step), u(t->pid), str("fleet.truth")};
    struct writer_value value[TRACE_event_value_NFIELDS] = {
        u(t->events), str("ns"), u(1), {.f = (double)at}};
    out_put(&t->out, TRACE_event, ts, event);
    out_put(&t->out, TRACE_event_value, ts, value);
}

/* Records everything that is due before `until`, while the rank is in `phase`. A machine that sleeps records nothing. */
static void up_to(struct trace *t, int64_t until, enum phase phase) {
    for (;;) {
        int64_t at = t->sample < t->metric ? t->sample : t->metric;
        at = t->clock < at ? t->clock : at;
        if (at >= until)
            return;
        int64_t awake = node_awake(t->node, at);
        if (awake > until)
            return;
        if (at == t->sample) {
            sample(t, awake, phase);
            t->sample = awake + (int64_t)(1e9 / opt.hz);
        } else if (at == t->metric) {
            metrics(t, awake);
            t->metric = awake + SECOND;
        } else {
            clock_anchor(t, awake);
            t->clock = awake + ANCHORS;
        }
    }
}

static void comm(struct trace *t, const struct span_of *s) {
    int64_t end = s->end == NEVER ? t->story->end : s->end;
    struct writer_value v[TRACE_comm_NFIELDS] = {{.u = 0}};
    uint64_t enter = mono(t, s->begin), length = mono(t, end) - enter;

    v[TRACE_comm_ts] = u(enter);
    v[TRACE_comm_number] = u(++t->number);
    v[TRACE_comm_tid] = u(t->pid);
    v[TRACE_comm_pg] = u(s->group);
    v[TRACE_comm_seq] = u(s->seq);
    v[TRACE_comm_op] = str(op_names[s->op]);
    v[TRACE_comm_bytes] = u(s->bytes);
    v[TRACE_comm_dtype] = str(s->bytes ? "float32" : "");
    v[TRACE_comm_duration] = u(length);
    v[TRACE_comm_host] = u(length < 50000 ? length : 50000);
    v[TRACE_comm_src].i = s->src;
    v[TRACE_comm_dst].i = s->dst;
    v[TRACE_comm_flags] = u(s->flags);
    out_put(&t->out, TRACE_comm, mono(t, end), v);
}

struct events {
    uint8_t *p, bytes[32768];
    uint64_t last;
};

static void put(struct events *e, unsigned kind, uint64_t arg, uint64_t at) {
    e->p = varint_put(e->p, kind | arg << 4);
    e->p = varint_put(e->p, at > e->last ? at - e->last : 0);
    e->last = at > e->last ? at : e->last;
}

/* Records a step's module calls, made of its spans: the times of forward and backward are divided evenly among the layers. */
static void torch_step(struct trace *t, const struct span_of *s, size_t n, uint32_t step) {
    struct events e = {.p = e.bytes, .last = mono(t, s[0].begin)};
    int64_t part[PHASES][2];
    unsigned layers = opt.layers < 200 ? opt.layers : 200;
    struct writer_value v[TRACE_torch_calls_NFIELDS] = {u(e.last), u(t->pid), u(t->calls + 1),
                                                        u(step)};

    for (int p = 0; p < PHASES; p++)
        part[p][0] = part[p][1] = 0;
    for (size_t i = 0; i < n; i++) {
        int64_t *p = part[s[i].phase];
        if (s[i].end == NEVER)
            return;
        p[0] = p[0] ? p[0] : s[i].begin;
        p[1] = s[i].end;
    }
    if (!part[FORWARD][0] || !part[BACKWARD][0] || !part[OPTIMIZER][0])
        return;
    if (part[DATA_WAIT][0]) {
        put(&e, TORCH_SPAN, TORCH_SPAN_DATA, mono(t, part[DATA_WAIT][0]));
        put(&e, TORCH_EXIT, 0, mono(t, part[DATA_WAIT][1]));
    }
    int64_t f = part[FORWARD][0], fn = (part[FORWARD][1] - f) / (layers + 1);
    put(&e, TORCH_ENTER, 1, mono(t, f));
    for (unsigned i = 0; i < layers; i++) {
        put(&e, TORCH_ENTER, i + 2, mono(t, f + fn * i + 1000));
        put(&e, TORCH_EXIT, 0, mono(t, f + fn * (i + 1)));
    }
    put(&e, TORCH_EXIT, 0, mono(t, part[FORWARD][1]));
    t->calls += layers + 1;
    int64_t b = part[BACKWARD][0], bn = (part[BACKWARD][1] - b) / (layers + 1);
    put(&e, TORCH_SPAN, TORCH_SPAN_BACKWARD, mono(t, b));
    put(&e, TORCH_BACK, 1, mono(t, b + 500));
    e.p = varint_put(e.p, layers + 1);
    for (unsigned i = 0; i < layers; i++) {
        put(&e, TORCH_BACK, layers + 1 - i, mono(t, b + bn * i + 1000));
        e.p = varint_put(e.p, i + 1);
        put(&e, TORCH_EXIT, 0, mono(t, b + bn * (i + 1)));
    }
    put(&e, TORCH_EXIT, 0, mono(t, part[BACKWARD][1]));
    put(&e, TORCH_EXIT, 0, mono(t, part[BACKWARD][1]));
    put(&e, TORCH_SPAN, TORCH_SPAN_OPTIMIZER, mono(t, part[OPTIMIZER][0]));
    put(&e, TORCH_EXIT, 0, mono(t, part[OPTIMIZER][1]));
    put(&e, TORCH_STEP, TORCH_BY_OPTIMIZER, mono(t, part[OPTIMIZER][1]));
    e.p = varint_put(e.p, step);
    e.p = varint_put(e.p, 0);
    v[TRACE_torch_calls_events] = (struct writer_value){.p = e.bytes, .n = (size_t)(e.p - e.bytes)};
    out_put(&t->out, TRACE_torch_calls, e.last, v);
    struct writer_value loss[TRACE_variable_NFIELDS] = {u(e.last),
                                                        u(step),
                                                        u(0),
                                                        str("train_step"),
                                                        str("loss"),
                                                        u(2),
                                                        {.f = 5.0 / (1 + 0.01 * step)}};
    out_put(&t->out, TRACE_variable, e.last, loss);
    t->loss_step = step;
}

static void trigger(struct trace *t, int64_t at, unsigned id, const char *kind,
                    const char *detail) {
    uint64_t ts = mono(t, at);
    struct writer_value v[TRACE_trigger_NFIELDS] = {
        u(ts), u(id),       str(kind), u(t->pid), {.i = (int64_t)t->loss_step + 1},
        u(0),  str(detail), str("")};

    out_put(&t->out, TRACE_trigger, ts, v);
}

static void end(struct trace *t) {
    const struct story *s = t->story;
    int killed = s->signal != 0;
    uint64_t last = mono(t, s->end);
    struct writer_value v[TRACE_end_NFIELDS] = {u(last + (killed ? 3 * SECOND : 0)), str(s->reason),
                                                u(killed ? last : 0), u((uint64_t)s->signal)};

    out_flush(&t->out); /* a block of its own */
    out_put(&t->out, TRACE_end, last, v);
}

static void begin(struct trace *t, int64_t start) {
    struct writer_value rate[TRACE_config_NFIELDS] = {u(mono(t, t->story->begin)),
                                                      str("probing.sample_rate")};
    char seconds[32];

    snprintf(seconds, sizeof seconds, "%.9g", 1 / opt.hz);
    rate[TRACE_config_value] = str(seconds);
    process(t, start);
    clock_anchor(t, t->story->begin);
    out_put(&t->out, TRACE_config, rate[0].u, rate);
    for (unsigned i = 0; i < opt.threads; i++)
        thread(t, i);
    modules(t);
    names(t);
    for (int g = WORLD; g <= PP; g++)
        if (has_group((enum group)g))
            group(t, (enum group)g);
    t->metric = t->story->begin + SECOND / 10;
    t->clock = t->story->begin + ANCHORS;
    t->sample = t->story->begin + (int64_t)(1e9 / opt.hz * uniform(FOR_STACK, t->rank, t->run, 77));
}

static void tell(struct trace *t) {
    const struct story *s = t->story;
    size_t from = 0;

    for (size_t i = 0; i < s->n; i++) {
        const struct span_of *p = &s->span[i];
        int64_t until = p->end == NEVER ? s->end : p->end;
        if (p->end == NEVER && s->end - p->begin > 12 * SECOND && opt.hang >= 0) {
            up_to(t, p->begin + 10 * SECOND, (enum phase)p->phase);
            trigger(t, p->begin + 10 * SECOND, 1, "hang", "no step for 10 s");
        }
        up_to(t, until, (enum phase)p->phase);
        if (p->phase == COMM)
            comm(t, p);
        if (i + 1 == s->n || s->span[i + 1].step != p->step) {
            torch_step(t, &s->span[from], i + 1 - from, p->step);
            from = i + 1;
        }
    }
    if (s->failed != NEVER)
        trigger(t, s->failed, 2, "exception", s->exception);
    up_to(t, s->end, s->failed != NEVER ? DATA_WAIT : OPTIMIZER);
    if (s->told)
        trigger(t, s->end, 3, "term", "SIGTERM sent by pid 999");
    if (!s->signal)
        clock_anchor(t, s->end);
}

int rank_write(unsigned run, int64_t start, unsigned rank, const struct story *s, int copy,
               uint64_t *samples) {
    struct trace t = {.story = s,
                      .run = run,
                      .rank = rank,
                      .node = node_of(rank),
                      .pid = pid_of(run, rank, copy)};
    char path[4096];

    t.variations = opt.vary > 1 ? (unsigned)opt.vary : 1;
    t.shift = (hash(FOR_STACK, rank, run, 1234) & 0xfffff) << 12;
    t.known_stack = calloc(recorded.nstacks, t.variations);
    t.known_frame = calloc(recorded.nframes, t.variations);
    int err = t.known_stack && t.known_frame ? 0 : -ENOMEM;
    rank_path(path, sizeof path, run, rank, copy);
    if (!err)
        err = out_open(&t.out, path);
    if (!err) {
        begin(&t, start);
        tell(&t);
        int torn = (int)rank == opt.tear;
        if (!torn)
            end(&t);
        err = out_close(&t.out, torn);
    }
    if (err)
        fprintf(stderr, "probing-fleet: %s: %s\n", path, strerror(-err));
    free(t.known_stack);
    free(t.known_frame);
    *samples += t.nsamples;
    return err;
}
