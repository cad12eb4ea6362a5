/* SPDX-License-Identifier: Apache-2.0 */
/*
 * perfetto.c - writes a Perfetto trace, for ui.perfetto.dev and its trace processor: processes and threads, tracks of slices, flows from rank
 * to rank, counters. perfetto_samples.c writes the call stacks.
 *
 * HOW IT WORKS: all packets belong to one sequence, so that a text, a frame or a stack is written once, in the packet that first needs it. Times
 * are the aligned time of day, which the first packet makes the clock of the trace. A reader sorts packets by time and keeps the order of those
 * with the same time. So a slice's end can be written right after its beginning: events.h gives the slices of a track in an order in which they
 * nest correctly.
 */
#include "perfetto.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "events.h"

#define SEQUENCE 1
#define PID_MOST 4194304 /* the kernel's PID_MAX_LIMIT: no process has a higher number */

/* The highest byte of a track's uuid says what the track is of. */
enum { UUID_PROCESS = 1, UUID_THREAD = 2, UUID_EVENTS = 3 };

static uint64_t uuid(unsigned of, uint64_t number) {
    return (uint64_t)of << 56 | number;
}

size_t perfetto_packet(struct perfetto *p, int64_t ts) {
    size_t packet = pb_begin(&p->b, TRACE_PACKET);

    if (ts)
        pb_int(&p->b, PACKET_TIMESTAMP, ts);
    pb_uint(&p->b, PACKET_SEQUENCE_ID, SEQUENCE);
    pb_uint(&p->b, PACKET_SEQUENCE_FLAGS, SEQ_NEEDS_INCREMENTAL_STATE);
    if (p->interned.n) {
        pb_bytes(&p->b, PACKET_INTERNED_DATA, p->interned.bytes, p->interned.n);
        p->interned.n = 0;
    }
    return packet;
}

int perfetto_packet_end(struct perfetto *p, size_t packet) {
    pb_end(&p->b, packet);
    return p->interned.err ? p->interned.err : pb_write(&p->b, p->x->out);
}

uint64_t perfetto_intern(struct perfetto *p, struct pb_names *names, enum interned_field field,
                         const char *text) {
    int is_new;
    uint32_t iid = pb_name(names, text, &is_new);

    if (is_new) {
        size_t entry = pb_begin(&p->interned, field);
        pb_uint(&p->interned, ENTRY_IID, iid);
        pb_text(&p->interned, ENTRY_TEXT, text);
        pb_end(&p->interned, entry);
    }
    if (names->err)
        p->interned.err = names->err;
    return iid;
}

static int put_head(struct perfetto *p) {
    struct pb *b = &p->b;
    size_t packet = pb_begin(b, TRACE_PACKET);

    pb_int(b, PACKET_TIMESTAMP, p->x->first);
    pb_uint(b, PACKET_TIMESTAMP_CLOCK_ID, CLOCK_OF_TIME_OF_DAY);
    pb_uint(b, PACKET_SEQUENCE_ID, SEQUENCE);
    pb_uint(b, PACKET_SEQUENCE_FLAGS, SEQ_INCREMENTAL_STATE_CLEARED);
    size_t snapshot = pb_begin(b, PACKET_CLOCK_SNAPSHOT), clock = pb_begin(b, SNAPSHOT_CLOCKS);
    pb_uint(b, CLOCK_ID, CLOCK_OF_TIME_OF_DAY);
    pb_int(b, CLOCK_TIMESTAMP, p->x->first);
    pb_end(b, clock);
    pb_uint(b, SNAPSHOT_PRIMARY_TRACE_CLOCK, CLOCK_OF_TIME_OF_DAY);
    pb_end(b, snapshot);
    size_t defaults = pb_begin(b, PACKET_DEFAULTS);
    pb_uint(b, DEFAULTS_TIMESTAMP_CLOCK_ID, CLOCK_OF_TIME_OF_DAY);
    perfetto_sample_defaults(b);
    pb_end(b, defaults);
    return perfetto_packet_end(p, packet);
}

/* ---- who ---- */

/* Gives numbers to processes and threads. Processes on several machines may have the same pid, and threads one after the other the same tid: the first
 * keeps it. */
static int number(struct perfetto *p) {
    struct export *x = p->x;
    struct map taken = {0};
    uint32_t next = PID_MOST;
    int rc = 0;

    p->pid = calloc(x->nprocesses + 1, sizeof *p->pid);
    p->tid = calloc(x->nthreads + 1, sizeof *p->tid);
    if (!p->pid || !p->tid)
        return -ENOMEM;
    for (size_t i = 0; i < x->nprocesses && rc == 0; i++) {
        int64_t pid = x->process[i].pid;
        p->pid[i] = pid <= 0 || map_find(&taken, (uint64_t)pid) ? ++next : (uint32_t)pid;
        rc = map_put(&taken, p->pid[i], 1);
    }
    for (size_t i = 0; i < x->nthreads && rc == 0; i++) {
        const struct export_thread *t = &x->thread[i];
        if (t->is_main) {
            p->tid[i] = p->pid[t->process - x->process];
            continue;
        }
        p->tid[i] = t->tid <= 0 || map_find(&taken, (uint64_t)t->tid) ? ++next : (uint32_t)t->tid;
        rc = map_put(&taken, p->tid[i], 1);
    }
    map_free(&taken);
    return rc;
}

static int put_process(struct perfetto *p, size_t i) {
    const struct export_process *process = &p->x->process[i];
    char name[500];
    size_t packet = perfetto_packet(p, 0), track = pb_begin(&p->b, PACKET_TRACK_DESCRIPTOR);

    pb_uint(&p->b, TRACK_UUID, uuid(UUID_PROCESS, i));
    size_t m = pb_begin(&p->b, TRACK_PROCESS);
    pb_uint(&p->b, PROCESS_PID, p->pid[i]);
    pb_text(&p->b, PROCESS_CMDLINE, process->command);
    if (process->rank >= 0)
        pb_int(&p->b, PROCESS_SORT_INDEX, process->rank);
    pb_text(&p->b, PROCESS_NAME, export_process_name(process, name, sizeof name));
    pb_end(&p->b, m);
    pb_end(&p->b, track);
    return perfetto_packet_end(p, packet);
}

static int put_thread(struct perfetto *p, size_t i) {
    const struct export_thread *t = &p->x->thread[i];
    char name[400];

    if (!t->process)
        return 0;
    size_t process = (size_t)(t->process - p->x->process);
    size_t packet = perfetto_packet(p, 0), track = pb_begin(&p->b, PACKET_TRACK_DESCRIPTOR);
    pb_uint(&p->b, TRACK_UUID, uuid(UUID_THREAD, i));
    pb_uint(&p->b, TRACK_PARENT_UUID, uuid(UUID_PROCESS, process));
    size_t m = pb_begin(&p->b, TRACK_THREAD);
    pb_uint(&p->b, THREAD_PID, p->pid[process]);
    pb_uint(&p->b, THREAD_TID, p->tid[i]);
    pb_text(&p->b, THREAD_NAME, export_thread_name(t, name, sizeof name));
    pb_end(&p->b, m);
    pb_end(&p->b, track);
    return perfetto_packet_end(p, packet);
}

/* ---- events ---- */

static int put_track(void *ctx, const struct export_track *t) {
    struct perfetto *p = ctx;
    struct export *x = p->x;
    /* A collective's track belongs to the process: which thread called it says little. */
    uint64_t parent = t->thread && t->kind != EXPORT_COLLECTIVE
                          ? uuid(UUID_THREAD, (uint64_t)(t->thread - x->thread))
                          : uuid(UUID_PROCESS, (uint64_t)(t->process - x->process));
    size_t packet = perfetto_packet(p, 0), track = pb_begin(&p->b, PACKET_TRACK_DESCRIPTOR);

    pb_uint(&p->b, TRACK_UUID, uuid(UUID_EVENTS, t->id));
    pb_uint(&p->b, TRACK_PARENT_UUID, parent);
    pb_text(&p->b, TRACK_NAME, t->name); /* lanes of one name are drawn as one track */
    if (t->kind == EXPORT_COUNTER) {
        size_t m = pb_begin(&p->b, TRACK_COUNTER);
        if (strcmp(t->unit, "bytes") == 0)
            pb_uint(&p->b, COUNTER_UNIT, UNIT_SIZE_BYTES);
        else if (*t->unit)
            pb_text(&p->b, COUNTER_UNIT_NAME, strcmp(t->unit, "percent") == 0 ? "%" : t->unit);
        pb_end(&p->b, m);
    }
    pb_end(&p->b, track);
    return perfetto_packet_end(p, packet);
}

/* Returns whether the event's texts come again and again, so are written once. Those of marks and spans may all differ. */
static int comes_again(const struct export_event *e) {
    return e->kind == EXPORT_CALL || e->kind == EXPORT_COLLECTIVE;
}

static void put_value(struct perfetto *p, struct pb *b, const struct export_event *e,
                      const char *key, const struct rows_value *v) {
    uint64_t name = perfetto_intern(p, &p->annotation, INTERNED_ANNOTATION_NAMES, key), text = 0;

    if (v->kind == ROWS_TEXT && comes_again(e))
        text = perfetto_intern(p, &p->string, INTERNED_ANNOTATION_STRINGS, v->p);
    size_t m = pb_begin(b, EVENT_DEBUG_ANNOTATIONS);
    pb_uint(b, ANNOTATION_NAME_IID, name);
    if (v->kind == ROWS_INTEGER)
        pb_int(b, ANNOTATION_INT_VALUE, v->i);
    else if (v->kind == ROWS_REAL)
        pb_double(b, ANNOTATION_DOUBLE_VALUE, v->f);
    else if (text)
        pb_uint(b, ANNOTATION_STRING_VALUE_IID, text);
    else
        pb_text(b, ANNOTATION_STRING_VALUE, v->p);
    pb_end(b, m);
}

/* Writes the event's fields to `b`, not to the packet: what they intern must be known before the packet begins. */
static void put_fields(struct perfetto *p, struct pb *b, const struct export_event *e) {
    const char *key;
    struct rows_value v;

    pb_uint(b, EVENT_TYPE, e->kind == EXPORT_MARK ? TYPE_INSTANT : TYPE_SLICE_BEGIN);
    pb_uint(b, EVENT_TRACK_UUID, uuid(UUID_EVENTS, e->track->id));
    pb_uint(b, EVENT_CATEGORY_IIDS,
            perfetto_intern(p, &p->category, INTERNED_EVENT_CATEGORIES, e->category));
    if (comes_again(e))
        pb_uint(b, EVENT_NAME_IID, perfetto_intern(p, &p->event, INTERNED_EVENT_NAMES, e->name));
    else
        pb_text(b, EVENT_NAME, e->name);
    if (e->place != EXPORT_FLOW_NONE)
        pb_fixed64(b, e->place == EXPORT_FLOW_LAST ? EVENT_TERMINATING_FLOW_IDS : EVENT_FLOW_IDS,
                   e->flow);
    for (int i = 0; i < e->nargs; i++) {
        key = export_event_arg(e, i, &v);
        if (v.kind != ROWS_NULL)
            put_value(p, b, e, key, &v);
    }
    if (e->recorded != e->duration) {
        v = (struct rows_value){.kind = ROWS_INTEGER, .i = e->recorded};
        put_value(p, b, e, "recorded_ns", &v);
    }
}

static int put_end(struct perfetto *p, const struct export_event *e) {
    size_t packet = perfetto_packet(p, e->ts + e->duration);
    size_t event = pb_begin(&p->b, PACKET_TRACK_EVENT);

    pb_uint(&p->b, EVENT_TYPE, TYPE_SLICE_END);
    pb_uint(&p->b, EVENT_TRACK_UUID, uuid(UUID_EVENTS, e->track->id));
    pb_end(&p->b, event);
    return perfetto_packet_end(p, packet);
}

static int put_counter(struct perfetto *p, const struct export_event *e) {
    size_t packet = perfetto_packet(p, e->ts), event = pb_begin(&p->b, PACKET_TRACK_EVENT);

    pb_uint(&p->b, EVENT_TYPE, TYPE_COUNTER);
    pb_uint(&p->b, EVENT_TRACK_UUID, uuid(UUID_EVENTS, e->track->id));
    pb_double(&p->b, EVENT_DOUBLE_COUNTER_VALUE, e->value);
    pb_end(&p->b, event);
    return perfetto_packet_end(p, packet);
}

static int put_event(void *ctx, const struct export_event *e) {
    struct perfetto *p = ctx;

    if (e->kind == EXPORT_COUNTER)
        return put_counter(p, e);
    p->event_fields.n = 0;
    put_fields(p, &p->event_fields, e);
    size_t packet = perfetto_packet(p, e->ts);
    pb_bytes(&p->b, PACKET_TRACK_EVENT, p->event_fields.bytes, p->event_fields.n);
    int rc = perfetto_packet_end(p, packet);
    if (rc < 0 || e->kind == EXPORT_MARK || e->open) /* an open slice stays open in the viewer */
        return rc;
    return put_end(p, e);
}

static int write_perfetto(struct export *x) {
    struct perfetto p = {.x = x};
    int rc = number(&p);

    if (rc == 0)
        rc = put_head(&p);
    for (size_t i = 0; i < x->nprocesses && rc == 0; i++)
        rc = put_process(&p, i);
    for (size_t i = 0; i < x->nthreads && rc == 0; i++)
        rc = put_thread(&p, i);
    if (rc == 0)
        rc = export_events(x, put_track, put_event, &p);
    if (rc == 0)
        rc = p.event_fields.err ? p.event_fields.err : perfetto_samples(&p);
    pb_names_free(&p.event);
    pb_names_free(&p.category);
    pb_names_free(&p.annotation);
    pb_names_free(&p.string);
    pb_free(&p.b);
    pb_free(&p.interned);
    pb_free(&p.event_fields);
    free(p.pid);
    free(p.tid);
    return rc;
}

const struct export_format export_perfetto = {
    "perfetto", ".pftrace", "Perfetto's own: tracks, flows, counters, samples", 1, write_perfetto};
