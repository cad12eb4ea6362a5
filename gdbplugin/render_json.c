/* SPDX-License-Identifier: Apache-2.0 */
/* Stacks as JSON, and as folded lines. probing-backtrace(1) documents both: keep it true. */
#include <stdlib.h>
#include <string.h>

#include "inspect.h"
#include "render.h"

static const char *yes(int x) {
    return x ? "true" : "false";
}

static void number_or_null(struct text *t, const char *name, int value, int known) {
    if (known)
        text_add(t, ",\"%s\":%d", name, value);
    else
        text_add(t, ",\"%s\":null", name);
}

static void python(struct text *t, const struct stack_frame *f, size_t depth) {
    text_add(t, "{\"depth\":%zu,\"type\":\"Python\",\"func\":", depth);
    text_json(t, f->func ? f->func : "?");
    text_add(t, ",\"file\":");
    text_json(t, f->file ? f->file : "?");
    text_add(t, ",\"line\":%d", f->line);
    number_or_null(t, "column", f->column, f->column >= 0);
    number_or_null(t, "end_line", f->end_line, f->end_line > 0);
    number_or_null(t, "end_column", f->end_column, f->end_column >= 0);
    text_add(t, ",\"generator\":%s", yes(f->generator));
    if (f->has_locals) {
        text_add(t, ",\"locals\":[");
        for (size_t i = 0; i < f->nlocals; i++) {
            const struct stack_local *l = &f->locals[i];
            text_add(t, "%s{\"name\":", i ? "," : "");
            text_json(t, l->name);
            text_add(t, ",\"argument\":%s,\"type\":", yes(l->flags & 1));
            text_json(t, l->type);
            text_add(t, ",\"value\":");
            text_json(t, l->value);
            text_add(t, "}");
        }
        text_add(t, "]");
    }
    text_add(t, "}");
}

static void native(struct text *t, const struct stacks *st, const struct stack_frame *f,
                   size_t depth) {
    struct native_name name;
    char *func = render_name(st, f, &name);

    text_add(t, "{\"depth\":%zu,\"type\":\"Native\",\"func\":", depth);
    text_json(t, name.symbol[0] ? func : NULL);
    text_add(t, ",\"symbol\":");
    text_json(t, name.symbol[0] ? name.symbol : NULL);
    text_add(t, ",\"module\":");
    text_json(t, name.module[0] ? name.module : NULL);
    text_add(t, ",\"address\":\"0x%lx\",\"offset\":%lu}", f->pc, name.offset);
    free(func);
}

static void thread(struct text *t, const struct stacks *st, const struct stack_thread *v) {
    text_add(t, "{\"tid\":%d,\"name\":", v->tid);
    text_json(t, v->name[0] ? v->name : NULL);
    text_add(t, ",\"main\":%s,\"python\":%s,\"gil\":%s,\"state\":\"%s\"", yes(v->tid == st->pid),
             yes(v->python), yes(v->gil), render_state(v));
    text_add(t,
             ",\"consistent\":%s,\"gc\":%s,\"finalizing\":%s,\"interpreter\":", yes(v->consistent),
             yes(v->gc), yes(v->finalizing));
    if (v->interp >= 0)
        text_add(t, "%lld", (long long)v->interp);
    else
        text_add(t, "null");
    text_add(t, ",\"cut\":%s,\"error\":", yes(v->cut || v->torn));
    text_json(t, v->problem);
    text_add(t, ",\"frames\":[");
    for (size_t i = 0; i < v->n; i++) {
        text_add(t, "%s", i ? "," : "");
        if (v->frames[i].python)
            python(t, &v->frames[i], i);
        else
            native(t, st, &v->frames[i], i);
    }
    text_add(t, "]}");
}

void render_json(struct text *t, const struct stacks *st, unsigned flags) {
    static const char *const kinds[] = {"live", "stopped", "core", "gdb"};
    int shown = 0;

    text_add(t, "{\"pid\":%d,\"source\":\"%s\",\"python\":", st->pid, kinds[st->kind]);
    text_json(t, st->python[0] ? st->python : NULL);
    text_add(t, ",\"stopped_ms\":%.3f,\"signal\":%d,\"note\":", (double)st->stood_ns / 1e6,
             st->signal);
    text_json(t, st->note);
    number_or_null(t, "signal_thread", st->struck, st->struck != 0);
    text_add(t, ",\"missing\":");
    text_json(t, st->missing);
    if (flags & INSPECT_TASKS)
        text_add(t, ",\"tasks\":%s,\"tasks_consistent\":%s", st->tasks ? st->tasks : "null",
                 yes(st->tasks_consistent));
    text_add(t, ",\"threads\":[");
    for (size_t i = 0; i < st->n; i++) {
        if (!render_shown(&st->v[i], flags))
            continue;
        text_add(t, "%s", shown++ ? "," : "");
        thread(t, st, &st->v[i]);
    }
    text_add(t, "]}\n");
}

/* ---- folded ---- */

/* ';' parts frames and a newline ends the stack: neither may be in a name. */
static void part(struct text *t, const char *s) {
    for (; *s; s++)
        text_add(t, "%c", *s == ';' ? ':' : (unsigned char)*s < ' ' ? ' ' : *s);
}

static char *fold(const struct stacks *st, const struct stack_thread *v) {
    struct text t = {0};

    part(&t, v->name[0] ? v->name : "thread");
    for (size_t i = v->n; i-- > 0;) {
        const struct stack_frame *f = &v->frames[i];
        struct native_name name;
        char *func;

        text_add(&t, ";");
        if (f->python) {
            part(&t, f->func ? f->func : "?");
            text_add(&t, " (");
            part(&t, f->file ? f->file : "?");
            text_add(&t, ":%d)", f->line);
            continue;
        }
        func = render_name(st, f, &name);
        part(&t, func ? func : "?");
        text_add(&t, " [");
        part(&t, name.module[0] ? name.module : "?");
        text_add(&t, "]");
        free(func);
    }
    return text_take(&t);
}

static int compare(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

void render_folded(struct text *t, const struct stacks *st) {
    char **lines = calloc(st->n + 1, sizeof *lines);
    size_t n = 0;

    for (size_t i = 0; lines && i < st->n; i++) {
        if (st->v[i].n > 0 && (lines[n] = fold(st, &st->v[i])))
            n++;
    }
    if (lines)
        qsort(lines, n, sizeof *lines, compare);
    else
        t->failed = 1;
    for (size_t i = 0, same = 1; i < n; i++, same++) {
        if (i + 1 == n || strcmp(lines[i], lines[i + 1]) != 0) {
            text_add(t, "%s %zu\n", lines[i], same);
            same = 0;
        }
    }
    for (size_t i = 0; i < n; i++)
        free(lines[i]);
    free(lines);
}
