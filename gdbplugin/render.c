/* SPDX-License-Identifier: Apache-2.0 */
/* Stacks as text for people (render_json.c and render_folded.c: for programs). */
#include "render.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "inspect.h"
#include "traces/symbol.h"

/* Colours of a terminal, "" without INSPECT_COLOR. */
struct paint {
    const char *bold, *python, *native, *place, *warn, *off;
};
static const struct paint plain = {"", "", "", "", "", ""};
static const struct paint colours = {"\033[1m",  "\033[32m", "\033[2m",
                                     "\033[36m", "\033[33m", "\033[0m"};

const char *render_state(const struct stack_thread *t) {
    static const char *const names[] = {"unknown", "running", "idle", "stopped", "ended"};

    return names[t->state];
}

static void head(struct text *t, const struct stacks *st, const struct paint *p) {
    if (st->kind == ORIGIN_CORE) {
        text_add(t, "%sCore of process %d%s", p->bold, st->pid, st->command[0] ? " (" : "");
        text_plain(t, st->command);
        text_add(t, "%s%s", st->command[0] ? ")" : "", p->off);
        if (st->signal)
            text_add(t, ", ended by signal %d (%s) in thread %d", st->signal, strsignal(st->signal),
                     st->struck);
        text_add(t, "\n");
    }
    if (st->missing)
        text_add(t, "%s(%s)%s\n", p->warn, st->missing, p->off);
    if (st->note)
        text_add(t, "%s(%s)%s\n", p->warn, st->note, p->off);
    if (st->kind == ORIGIN_CORE)
        text_add(t, "\n");
}

static void thread(struct text *t, const struct stacks *st, const struct stack_thread *v,
                   const struct paint *p) {
    text_add(t, "%sThread %d", p->bold, v->tid);
    if (v->name[0]) {
        text_add(t, " \"");
        text_plain(t, v->name);
        text_add(t, "\"");
    }
    text_add(t, "%s%s, %s", v->tid == st->pid ? " (main)" : "", p->off, render_state(v));
    if (v->gil)
        text_add(t, ", holds the GIL");
    if (v->gc)
        text_add(t, ", collecting garbage");
    if (v->finalizing)
        text_add(t, ", finalizing");
    if (v->interp > 0)
        text_add(t, ", subinterpreter %lld", (long long)v->interp);
    if (!v->python && st->python[0])
        text_add(t, ", no Python thread");
    if (!v->consistent)
        text_add(t, "%s, not consistent: it ran while it was read%s", p->warn, p->off);
    text_add(t, "\n");
    if (v->problem)
        text_add(t, "  %s(%s)%s\n", p->warn, v->problem, p->off);
}

static void local(struct text *t, const struct stack_local *l, const struct paint *p) {
    text_add(t, "         %s%s%s = %s\n", p->place, l->name, p->off, l->value);
}

char *render_name(const struct stacks *st, const struct stack_frame *f, struct native_name *name) {
    struct native_frame nf = {f->pc, f->probe};
    char hex[32], *text;

    native_name(st->native, &nf, name);
    if (!name->symbol[0]) {
        snprintf(hex, sizeof hex, "0x%lx", f->pc);
        return strdup(hex);
    }
    text = symbol_readable(name->symbol);
    return text ? text : strdup(name->symbol);
}

static void frame(struct text *t, const struct stacks *st, const struct stack_frame *f,
                  size_t depth, const struct paint *p) {
    struct native_name name;
    char *func;

    if (f->python) {
        text_add(t, "  #%-3zu %s", depth, p->python);
        text_plain(t, f->func ? f->func : "?");
        text_add(t, "%s (%s", p->off, p->place);
        text_plain(t, f->file ? f->file : "?");
        if (f->line > 0) /* some instructions have none */
            text_add(t, ":%d", f->line);
        text_add(t, "%s)\n", p->off);
        for (size_t i = 0; i < f->nlocals; i++)
            local(t, &f->locals[i], p);
        if (f->cut)
            text_add(t, "       %s(outer Python frames are missing here)%s\n", p->warn, p->off);
        return;
    }
    func = render_name(st, f, &name);
    text_add(t, "  #%-3zu %s", depth, p->native);
    text_plain(t, func ? func : "?");
    text_add(t, " [%s]%s\n", name.module[0] ? name.module : "?", p->off);
    free(func);
}

/* --python leaves out threads that have nothing to show. */
int render_shown(const struct stack_thread *v, unsigned flags) {
    return !(flags & INSPECT_PYTHON) || v->n > 0 || v->problem;
}

static void people(struct text *t, const struct stacks *st, unsigned flags) {
    const struct paint *p = flags & INSPECT_COLOR ? &colours : &plain;
    int shown = 0;

    head(t, st, p);
    for (size_t i = 0; i < st->n; i++) {
        if (!render_shown(&st->v[i], flags))
            continue;
        text_add(t, "%s", shown++ ? "\n" : "");
        thread(t, st, &st->v[i], p);
        for (size_t k = 0; k < st->v[i].n; k++)
            frame(t, st, &st->v[i].frames[k], k, p);
    }
    if (!shown)
        text_add(t, "no thread of process %d runs Python%s\n", st->pid,
                 st->python[0] ? "" : " (it has no Python that we know)");
    if (st->tasks)
        text_add(t, "\n%s%s%s%s", p->warn,
                 st->tasks_consistent ? ""
                                      : "(not consistent: threads ran while these were read)\n",
                 p->off, st->tasks);
}

char *render(struct stacks *st, unsigned flags) {
    struct text t = {0};

    if (flags & INSPECT_JSON)
        render_json(&t, st, flags);
    else if (flags & INSPECT_FOLDED)
        render_folded(&t, st);
    else
        people(&t, st, flags);
    return text_take(&t);
}
