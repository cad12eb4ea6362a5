/* SPDX-License-Identifier: Apache-2.0 */
/* Renders stacks as text for people, as JSON and as folded lines. probing-backtrace(1) documents the last two: keep it up to date. */
#include "stacks.h"
#include "text.h"

/* Colours for a terminal; all "" without INSPECT_COLOR. */
struct paint {
    const char *bold, *python, *native, *place, *warn, *off;
};
static const struct paint plain = {"", "", "", "", "", ""};
static const struct paint colours = {"\033[1m",  "\033[32m", "\033[2m",
                                     "\033[36m", "\033[33m", "\033[0m"};

static const char *const states[] = {"unknown", "running", "idle", "stopped", "ended"};

static void head(struct text *t, const struct stacks *st, const struct paint *p) {
    const char *warnings[] = {st->missing, st->note};
    const struct origin *s = st->s;

    if (s->kind == ORIGIN_CORE) {
        text_put(t, s->command[0] ? "%sCore of process %d (%q)%s" : "%sCore of process %d%q%s",
                 p->bold, s->pid, s->command, p->off);
        if (s->signal)
            text_put(t, ", ended by signal %d (%s) in thread %d", s->signal, strsignal(s->signal),
                     s->struck);
        text_put(t, "\n");
    }
    for (int i = 0; i < 2; i++)
        if (warnings[i])
            text_put(t, "%s(%s)%s\n", p->warn, warnings[i], p->off);
    if (s->kind == ORIGIN_CORE)
        text_put(t, "\n");
}

static void thread(struct text *t, const struct stacks *st, const struct stack_thread *v,
                   const struct paint *p) {
    text_put(t, v->name[0] ? "%sThread %d \"%q\"" : "%sThread %d%q", p->bold, v->tid, v->name);
    text_put(t, "%s%s, %s%s%s%s", v->tid == st->s->pid ? " (main)" : "", p->off, states[v->state],
             v->flags & PYWALK_HOLDS_GIL ? ", holds the GIL" : "",
             v->flags & PYWALK_COLLECTING ? ", collecting garbage" : "",
             v->flags & PYWALK_FINALIZING ? ", finalizing" : "");
    if (v->interp > 0)
        text_put(t, ", subinterpreter %d", (int)v->interp);
    if (!v->python && st->python[0])
        text_put(t, ", no Python thread");
    if (!v->consistent)
        text_put(t, "%s, not consistent: it ran while it was read%s", p->warn, p->off);
    text_put(t, "\n");
    if (v->problem)
        text_put(t, "  %s(%s)%s\n", p->warn, v->problem, p->off);
}

/* Returns the function's name, or the address when no symbol is known. */
static const char *function(const struct stack_frame *f, char hex[32]) {
    snprintf(hex, 32, "0x%lx", f->pc);
    return f->func ? f->func : f->python ? "?" : hex;
}

static void frame(struct text *t, const struct stack_frame *f, size_t depth,
                  const struct paint *p) {
    char hex[32];

    text_add(t, "  #%-3zu ", depth);
    text_put(t, "%s%q%s", f->python ? p->python : p->native, function(f, hex), p->off);
    if (f->python || f->file)
        text_put(t, " (%s%q", p->place, f->file ? f->file : "?");
    if (f->at.line > 0) /* some instructions have no line */
        text_put(t, ":%d", f->at.line);
    if (f->python || f->file)
        text_put(t, "%s)", p->off);
    if (!f->python)
        text_put(t, " %s[%q%s]%s", p->native, f->module ? f->module : "?",
                 f->inlined ? ", inlined" : "", p->off);
    text_add(t, "\n");
    for (size_t i = 0; i < f->nlocals; i++)
        text_put(t, "         %s%q%s = %q\n", p->place, f->locals[i].name, p->off,
                 f->locals[i].value);
    if (f->flags & STACK_FRAME_CUT)
        text_put(t, "       %s(outer Python frames are missing here)%s\n", p->warn, p->off);
}

/* Whether a thread is shown: --python leaves out threads that have nothing to show. */
static int is_shown(const struct stack_thread *v, unsigned flags) {
    return !(flags & INSPECT_PYTHON) || v->n > 0 || v->problem;
}

static void people(struct text *t, const struct stacks *st, unsigned flags) {
    const struct paint *p = flags & INSPECT_COLOR ? &colours : &plain;
    int shown = 0;

    head(t, st, p);
    for (size_t i = 0; i < st->n; i++) {
        if (!is_shown(&st->v[i], flags))
            continue;
        text_add(t, "%s", shown++ ? "\n" : "");
        thread(t, st, &st->v[i], p);
        for (size_t k = 0; k < st->v[i].n; k++)
            frame(t, &st->v[i].frames[k], k, p);
    }
    if (!shown)
        text_add(t, "no thread of process %d runs Python%s\n", st->s->pid,
                 st->python[0] ? "" : " (it has no Python that we know)");
    if (st->tasks)
        text_add(t, "\n%s%s%s%s", p->warn,
                 st->tasks_consistent ? ""
                                      : "(not consistent: threads ran while these were read)\n",
                 p->off, st->tasks);
}

/* ---- JSON ---- */

static void python(cJSON *o, const struct stack_frame *f) {
    cJSON *locals;

    json_text(o, "func", f->func ? f->func : "?");
    json_text(o, "file", f->file ? f->file : "?");
    cJSON_AddNumberToObject(o, "line", f->at.line);
    json_known(o, "column", f->at.column);
    json_known(o, "end_line", f->at.end_line > 0 ? f->at.end_line : -1);
    json_known(o, "end_column", f->at.end_column);
    cJSON_AddBoolToObject(o, "generator", f->flags & PYWALK_GENERATOR);
    locals = f->has_locals ? cJSON_AddArrayToObject(o, "locals") : NULL;
    for (size_t i = 0; locals && i < f->nlocals; i++) {
        const struct stack_local *l = &f->locals[i];
        cJSON *local = cJSON_CreateObject();
        json_text(local, "name", l->name);
        cJSON_AddBoolToObject(local, "argument", l->flags & 1);
        json_text(local, "type", l->type);
        json_text(local, "value", l->value);
        cJSON_AddItemToArray(locals, local);
    }
}

static void native(cJSON *o, const struct stack_frame *f) {
    json_text(o, "func", f->func);
    json_text(o, "symbol", f->symbol);
    json_text(o, "module", f->module);
    cJSON_AddItemToObject(o, "address", json_address(f->pc));
    if (f->inlined)
        cJSON_AddNullToObject(o, "offset");
    else
        cJSON_AddNumberToObject(o, "offset", (double)f->offset);
    json_text(o, "file", f->file);
    json_known(o, "line", f->at.line > 0 ? f->at.line : -1);
    cJSON_AddBoolToObject(o, "inlined", f->inlined);
}

static cJSON *thread_json(const struct stacks *st, const struct stack_thread *v) {
    cJSON *o = cJSON_CreateObject(), *frames;

    cJSON_AddNumberToObject(o, "tid", v->tid);
    json_text(o, "name", v->name[0] ? v->name : NULL);
    cJSON_AddBoolToObject(o, "main", v->tid == st->s->pid);
    cJSON_AddBoolToObject(o, "python", v->python);
    cJSON_AddBoolToObject(o, "gil", v->flags & PYWALK_HOLDS_GIL);
    cJSON_AddStringToObject(o, "state", states[v->state]);
    cJSON_AddBoolToObject(o, "consistent", v->consistent);
    cJSON_AddBoolToObject(o, "gc", v->flags & PYWALK_COLLECTING);
    cJSON_AddBoolToObject(o, "finalizing", v->flags & PYWALK_FINALIZING);
    json_known(o, "interpreter", (int)v->interp);
    cJSON_AddBoolToObject(o, "cut", v->cut || v->torn);
    json_text(o, "error", v->problem);
    frames = cJSON_AddArrayToObject(o, "frames");
    for (size_t i = 0; i < v->n; i++) {
        const struct stack_frame *f = &v->frames[i];
        cJSON *frame = cJSON_CreateObject();
        cJSON_AddNumberToObject(frame, "depth", (double)i);
        cJSON_AddStringToObject(frame, "type", f->python ? "Python" : "Native");
        if (f->python)
            python(frame, f);
        else
            native(frame, f);
        cJSON_AddItemToArray(frames, frame);
    }
    return o;
}

static void json(struct text *t, const struct stacks *st, unsigned flags) {
    static const char *const kinds[] = {"live", "stopped", "core", "gdb"};
    cJSON *o = cJSON_CreateObject(), *threads;
    const struct origin *s = st->s;

    cJSON_AddNumberToObject(o, "pid", s->pid);
    cJSON_AddStringToObject(o, "source", kinds[s->kind]);
    json_text(o, "python", st->python[0] ? st->python : NULL);
    cJSON_AddNumberToObject(o, "stopped_ms", (double)(st->stood_ns / 1000) / 1e3);
    cJSON_AddNumberToObject(o, "signal", s->signal);
    json_text(o, "note", st->note);
    json_known(o, "signal_thread", s->struck ? s->struck : -1);
    json_text(o, "missing", st->missing);
    if (flags & INSPECT_TASKS) {
        cJSON_AddRawToObject(o, "tasks", st->tasks ? st->tasks : "null");
        cJSON_AddBoolToObject(o, "tasks_consistent", st->tasks_consistent);
    }
    threads = cJSON_AddArrayToObject(o, "threads");
    for (size_t i = 0; i < st->n; i++)
        if (is_shown(&st->v[i], flags))
            cJSON_AddItemToArray(threads, thread_json(st, &st->v[i]));
    json_put(t, o);
    text_add(t, "\n");
}

/* ---- folded ---- */

/* ';' separates frames and a newline ends the stack, so neither may be in a name. */
static void part(struct text *t, const char *s) {
    AUTO_FREE char *name = say("%s", s);

    for (const char *p = name; p && *p; p++)
        text_add(t, "%c", *p == ';' ? ':' : *p);
}

static char *fold(const struct stack_thread *v) {
    struct text t = {0};
    char hex[32];

    part(&t, v->name[0] ? v->name : "thread");
    for (size_t i = v->n; i-- > 0;) {
        const struct stack_frame *f = &v->frames[i];

        text_add(&t, ";");
        part(&t, function(f, hex));
        text_add(&t, f->python ? " (" : " [");
        part(&t, f->python ? f->file ? f->file : "?" : f->module ? f->module : "?");
        if (f->python)
            text_add(&t, ":%d)", f->at.line);
        else
            text_add(&t, "]");
    }
    return text_take(&t);
}

static int compare(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void folded(struct text *t, const struct stacks *st) {
    AUTO_FREE char **lines = calloc(st->n + 1, sizeof *lines);
    size_t n = 0;

    for (size_t i = 0; lines && i < st->n; i++)
        if (st->v[i].n > 0 && (lines[n] = fold(&st->v[i])))
            n++;
    if (n)
        qsort(lines, n, sizeof *lines, compare);
    for (size_t i = 0, same = 1; i < n; i++, same++) {
        if (i + 1 == n || strcmp(lines[i], lines[i + 1]) != 0) {
            text_add(t, "%s %zu\n", lines[i], same);
            same = 0;
        }
    }
    for (size_t i = 0; i < n; i++)
        free(lines[i]);
}

char *render(struct stacks *st, unsigned flags) {
    struct text t = {0};

    if (flags & INSPECT_JSON)
        json(&t, st, flags);
    else if (flags & INSPECT_FOLDED)
        folded(&t, st);
    else
        people(&t, st, flags);
    return text_take(&t);
}
