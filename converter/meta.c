/* SPDX-License-Identifier: Apache-2.0 */
#include "meta.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text.h"

#define BIT(type) (1ull << TRACE_##type)

/* Stores a text in *to; an empty text does not replace a known one. */
static int set(char **to, const struct trace_value *v, char *(*make)(const void *, size_t)) {
    char *text;

    if (*to && v->n == 0)
        return 0;
    text = make ? make(v->p, v->n) : text_utf8(v->p, v->n, NULL);
    if (!text)
        return -ENOMEM;
    free(*to);
    *to = text;
    return 0;
}

static int take_process(struct meta *m, const struct trace_value *v) {
    int err = 0;

    m->has_process = 1;
    m->process_ts = m->process_ts ? m->process_ts : v[TRACE_process_ts].u;
    m->process_start = v[TRACE_process_start_ts].u;
    m->pid = v[TRACE_process_pid].u;
    m->ppid = v[TRACE_process_ppid].u;
    m->uid = v[TRACE_process_uid].u;
    m->rank = v[TRACE_process_rank].i;
    m->local_rank = v[TRACE_process_local_rank].i;
    m->world_size = v[TRACE_process_world_size].i;
    if (v[TRACE_process_python].u)
        m->python = v[TRACE_process_python].u;
    if (v[TRACE_process_eval_end].u) {
        m->eval_start = v[TRACE_process_eval_start].u;
        m->eval_end = v[TRACE_process_eval_end].u;
        m->cold_start = v[TRACE_process_cold_start].u;
        m->cold_end = v[TRACE_process_cold_end].u;
    }
    err |= set(&m->host, &v[TRACE_process_host], NULL);
    err |= set(&m->boot_id, &v[TRACE_process_boot_id], NULL);
    err |= set(&m->exe, &v[TRACE_process_exe], NULL);
    err |= set(&m->command, &v[TRACE_process_cmdline], text_command);
    err |= set(&m->cwd, &v[TRACE_process_cwd], NULL);
    err |= set(&m->agent, &v[TRACE_process_agent], NULL);
    err |= set(&m->how, &v[TRACE_process_how], NULL);
    err |= set(&m->role, &v[TRACE_process_role], NULL);
    err |= set(&m->master, &v[TRACE_process_master], NULL);
    err |= set(&m->run, &v[TRACE_process_run], NULL);
    err |= set(&m->job, &v[TRACE_process_job], NULL);
    return err ? -ENOMEM : 0;
}

/* Takes the config record probing.sample_rate: seconds between samples. */
static int take_config(struct meta *m, const struct trace_value *v) {
    static const char key[] = "probing.sample_rate";
    const struct trace_value *k = &v[TRACE_config_key], *value = &v[TRACE_config_value];
    char text[64];

    if (k->n != sizeof key - 1 || memcmp(k->p, key, k->n) != 0 || value->n >= sizeof text)
        return 0;
    memcpy(text, value->p, value->n);
    text[value->n] = 0;
    double seconds = strtod(text, NULL);
    if (!(seconds >= 0 && seconds < 1e6))
        return 0;
    struct meta_period p = {v[TRACE_config_ts].u, (uint64_t)(seconds * 1e9 + 0.5)};
    if (m->nperiods && m->periods[m->nperiods - 1].ns == p.ns)
        return 0;
    void *more = realloc(m->periods, (m->nperiods + 1) * sizeof *m->periods);
    if (!more)
        return -ENOMEM;
    m->periods = more;
    size_t i = m->nperiods++;
    for (; i > 0 && m->periods[i - 1].since > p.since; i--)
        m->periods[i] = m->periods[i - 1];
    m->periods[i] = p;
    return 0;
}

/* Takes from the environment how often a launcher had started the process again. */
static void take_fact(struct meta *m, const struct trace_value *v) {
    static const char *const keys[META_RESTARTS] = {"TORCHELASTIC_RESTART_COUNT",
                                                    "SLURM_RESTART_COUNT"};
    const struct trace_value *kind = &v[TRACE_fact_kind], *key = &v[TRACE_fact_key];
    char text[24] = "";

    for (int i = 0; i < META_RESTARTS && kind->n == 3 && memcmp(kind->p, "env", 3) == 0; i++) {
        if (key->n != strlen(keys[i]) || memcmp(key->p, keys[i], key->n) != 0)
            continue;
        memcpy(text, v[TRACE_fact_value].p,
               v[TRACE_fact_value].n < sizeof text ? v[TRACE_fact_value].n : sizeof text - 1);
        long n = strtol(text, NULL, 10);
        if (n > 0 && (uint64_t)n > m->restarts[i])
            m->restarts[i] = n < 1000000 ? (uint64_t)n : 1000000;
    }
}

static int take_thread(struct meta *m, struct epochs *es, uint32_t epoch,
                       const struct trace_value *v) {
    uint64_t comm = v[TRACE_thread_name].u, python = v[TRACE_thread_python_name].u;
    const struct dict *d = comm || python ? epochs_get(es, epoch) : NULL;
    uint64_t tid = v[TRACE_thread_tid].u;
    char *names[2] = {NULL, NULL};
    int err = (comm || python) && !d ? -ENOMEM : 0;

    for (int i = 0; !err && i < 2; i++) {
        size_t n = 0;
        const char *p = d ? dict_string(d, i ? python : comm, &n) : "";
        err = (names[i] = text_utf8(p, n, NULL)) ? 0 : -ENOMEM;
    }
    if (!err)
        err =
            threads_record(&m->threads, v[TRACE_thread_ts].u, tid, *names[1] ? names[1] : names[0],
                           names[0], v[TRACE_thread_ident].u, v[TRACE_thread_state].u != 0);
    free(names[0]);
    free(names[1]);
    return err;
}

static int take_code_name(struct meta *m, struct epochs *es, uint32_t epoch,
                          const struct trace_value *v) {
    const unsigned at[3] = {TRACE_code_name_name, TRACE_code_name_file, TRACE_code_name_qualname};
    const struct dict *d = epochs_get(es, epoch);
    char *text[3] = {NULL, NULL, NULL};
    int err = d ? 0 : -ENOMEM;

    for (int i = 0; !err && i < 3; i++) {
        size_t n;
        const char *p = dict_string(d, v[at[i]].u, &n);
        err = (text[i] = text_utf8(p, n, NULL)) ? 0 : -ENOMEM;
    }
    if (!err)
        err = code_names_put(&m->code_names, text[0], text[1], v[TRACE_code_name_firstline].u,
                             text[2]);
    for (int i = 0; i < 3; i++)
        free(text[i]);
    return err;
}

static int take_block(struct meta *m, struct epochs *es, const struct reader_data *data,
                      uint64_t want) {
    struct trace_value v[TRACE_MAX_FIELDS];
    struct trace_rows rows;
    int type, err = 0;

    trace_rows_start(&rows, &data->h, data->data);
    while (!err && (type = trace_rows_next(&rows, want, v)) > 0) {
        switch (type) {
        case TRACE_process:
            err = take_process(m, v);
            break;
        case TRACE_clock:
            err = clock_add(&m->clock, v[TRACE_clock_ts].u, v[TRACE_clock_realtime].u,
                            v[TRACE_clock_bracket].u);
            break;
        case TRACE_config:
            err = take_config(m, v);
            break;
        case TRACE_fact:
            take_fact(m, v);
            break;
        case TRACE_thread:
            err = take_thread(m, es, data->h.epoch, v);
            break;
        case TRACE_code_name:
            err = take_code_name(m, es, data->h.epoch, v);
            break;
        case TRACE_end:
            m->end_ts = v[TRACE_end_ts].u;
            m->end_last = v[TRACE_end_last].u;
            m->end_signal = v[TRACE_end_signal].u;
            err = set(&m->end_reason, &v[TRACE_end_reason], NULL);
            break;
        }
    }
    return err;
}

int meta_load(struct meta *m, struct reader *r, struct epochs *es) {
    /* Code names belong to stacks, and occur throughout a recording; reading them requires reading its dictionary to the end. */
    const uint64_t want = BIT(process) | BIT(clock) | BIT(config) | BIT(fact) | BIT(thread) |
                          BIT(end) | (epochs_have_stacks(es) ? BIT(code_name) : 0);
    struct reader_data data = {0};
    int err = 0;

    memset(m, 0, sizeof *m);
    m->rank = m->local_rank = m->world_size = -1;
    threads_init(&m->threads);
    for (size_t i = 0; !err && i < reader_blocks(r); i++) {
        if (!reader_may_hold(r, i, want))
            continue;
        err = reader_load(r, i, &data);
        if (!err)
            err = take_block(m, es, &data, want);
        else if (err != -ENOMEM)
            err = 0;
    }
    reader_data_free(&data);
    clock_ready(&m->clock);
    m->clock_anchors = m->clock.n;
    m->mark = m->process_ts ? 0 : reader_mark(r);
    return err;
}

void meta_recording_of(char buf[META_RECORDING], const char *boot_id, uint64_t pid, uint64_t start,
                       uint64_t process_ts, uint64_t mark) {
    int n = snprintf(buf, META_RECORDING, "%.64s %llu %llu %llu", boot_id, (unsigned long long)pid,
                     (unsigned long long)start, (unsigned long long)process_ts);

    if (!process_ts)
        snprintf(buf + n, META_RECORDING - (size_t)n, " %016llx", (unsigned long long)mark);
}

void meta_recording(const struct meta *m, char buf[META_RECORDING]) {
    meta_recording_of(buf, m->boot_id ? m->boot_id : "", m->pid, m->process_start, m->process_ts,
                      m->mark);
}

int64_t meta_told(const struct meta *m) {
    return m->rank >= 0 ? (int64_t)(m->restarts[0] + m->restarts[1]) : 0;
}

const char *meta_boot(const struct meta *m, char buf[META_RECORDING]) {
    meta_recording(m, buf);
    return m->boot_id && *m->boot_id ? m->boot_id : buf;
}

uint64_t meta_period_at(const struct meta *m, uint64_t ts) {
    size_t lo = 0, hi = m->nperiods;

    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (m->periods[mid].since > ts)
            hi = mid;
        else
            lo = mid + 1;
    }
    return m->nperiods ? m->periods[lo ? lo - 1 : 0].ns : 0;
}

void meta_free(struct meta *m) {
    char *texts[] = {m->host, m->boot_id,    m->exe,  m->command, m->cwd, m->agent,
                     m->how,  m->end_reason, m->role, m->master,  m->run, m->job};

    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        free(texts[i]);
    clock_free(&m->clock);
    threads_free(&m->threads);
    code_names_free(&m->code_names);
    free(m->periods);
    memset(m, 0, sizeof *m);
}
