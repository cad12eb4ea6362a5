/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/python/variables.h"

#include <stdio.h>

#include "agent/core/meta.h"
#include "agent/core/producer.h"
#include "agent/core/role.h"
#include "agent/core/settings.h"
#include "agent/core/steps.h"
#include "agent/python/capi.h"
#include "agent/python/pyvalue.h"
#include "agent/python/variables_frame.h"
#include "traces/exprs.h"
#include "traces/torch_setting.h"

#define COMING_MAX  64 /* values that are on their way from a GPU */
#define SEARCHES    64 /* model calls after each of which missing functions are sought; then rarer */
#define FRAMES_MAX  256             /* frames that are searched for a function, at most */
#define LATE_WITHIN (INT64_MAX - 2) /* as of variable_assigned(): in a loop that is behind it now */

struct watched {
    struct variable var;
    unsigned matched;  /* how often it had a value */
    int complained;    /* its error has been noted */
    int return_sought; /* its function was found by name, not on the stack */
    int on_stack;      /* its function was on the stack when the last step ended */
    long late;         /* what variable_assigned() returned then */
    int within;        /* it is an attribute that a function called by its function assigns later */
    int due;           /* this step's value is to be read: 1: by NEXT or LATE; 2: by LATE */
    int awaited;       /* its function is on the stack, and its return is to be seen */
    int trains;        /* its function was on the stack in a step, or returned in one */
};

struct coming {
    void *value;
    uint64_t ts, step;
    unsigned at, expr;
};

/* All protected by the GIL, except `matched`, which the service thread reads at the end. */
static struct {
    char text[2 * SETTING_TEXT_MAX + 2]; /* what exprs was made from */
    uint64_t version;                    /* versions of the two settings that exprs is from */
    struct exprs exprs;
    struct watched list[EXPRS_MAX];
    struct coming coming[COMING_MAX];
    unsigned ncoming;
    uint32_t generation; /* the recording in which their returns are watched */
    uint64_t steps, seek_at, ask_at;
    uint64_t last_step, last_end; /* number and end of the last step that ended */
    uint64_t works;               /* number of model calls that have ended */
    uint64_t search_at; /* value of `works` at which functions not found are searched for again */
} s;
/* Calls of the functions below in progress, in any thread: the program's code may run in them, and others end steps then. */
static unsigned inside;
static CAPI_KEPT void *parsed; /* not NULL: the objects in `s` belong to the Python that runs now */
static CAPI_KEPT void *returns; /* a Returns of values.py (3.12+); NULL: no return is watched */
static __thread int armed;      /* this thread's returns are watched (before 3.12) */

/* ---- records ---- */

static void record(const struct coming *c, const struct pyvalue *v) {
    struct record_variable r = {.ts = c->ts,
                                .step = c->step,
                                .at = c->at,
                                .func = value_text(s.exprs.expr[c->expr].func),
                                .name = value_text(s.exprs.expr[c->expr].name)};
    pyvalue_put(&r.kind_value, v);
    producer_emit(0, TRACE_variable, &r.ts_value);
}

/* Notes the Python error that is set, once for each expression, and clears it. */
static void complain(unsigned expr) {
    CAPI_AUTO void *type = NULL, *value = NULL, *trace = NULL;
    char what[PYVALUE_TEXT] = "?", line[PYVALUE_TEXT + 2 * EXPRS_TEXT + 8];
    py.PyErr_Fetch(&type, &value, &trace);
    if (!s.list[expr].complained && (s.list[expr].late & 3) != 3) { /* 3: it comes later */
        s.list[expr].complained = 1;
        CAPI_AUTO void *text = value ? py.PyObject_Str(value) : NULL;
        if (text)
            pyvalue_text(text, what, sizeof what);
        py.PyErr_Clear();
        snprintf(line, sizeof line, "%s@%s: %s", s.exprs.expr[expr].name, s.exprs.expr[expr].func,
                 what);
        producer_note(1, "variables", line);
    }
}

/* ---- values ---- */

/* Records the expression's value in this frame, if it has one. */
static void take(unsigned expr, void *frame, void *code, uint64_t step, unsigned at) {
    struct coming c = {.ts = sys_now(), .step = step, .at = at, .expr = expr};
    struct pyvalue v;
    CAPI_AUTO void *value = variable_read(&s.list[expr].var, frame, code);
    __atomic_fetch_add(&s.list[expr].matched, value != NULL, __ATOMIC_RELAXED);
    if (value ? pyvalue_take(value, &v) : py.PyErr_Occurred() != NULL) {
        complain(expr);
    } else if (!value) {
        return;
    } else if (v.kind != PYVALUE_COMING) {
        record(&c, &v);
    } else if (s.ncoming < COMING_MAX) {
        c.value = v.coming;
        s.coming[s.ncoming++] = c;
    } else { /* the GPU is too far behind: this value is left out */
        capi_unref(v.coming);
    }
}

/* Records the values that have arrived since the last step, in order: the first that has not arrived holds back those after it. A value that is asked for
 * is not in the list, because the question may release the GIL, and another thread may come here. */
static void take_coming(void) {
    for (int rc = 1; rc && s.ncoming;) {
        struct coming c = *s.coming;
        struct pyvalue v;
        memmove(s.coming, s.coming + 1, --s.ncoming * sizeof c);
        if ((rc = pyvalue_arrived(c.value, &v)) < 0) {
            complain(c.expr);
        } else if (rc) {
            record(&c, &v);
        } else if (s.ncoming == COMING_MAX) {
            capi_unref(c.value);
        } else {
            memmove(s.coming + 1, s.coming, s.ncoming++ * sizeof c);
            *s.coming = c;
        }
    }
}

/* ---- returns ---- */

/* Calls a method of `returns`. Returns a new reference, or NULL without an error set. */
static void *ask_returns(const char *method, void *arg) {
    CAPI_AUTO void *f = capi_attr(returns, method);
    void *said = capi_call(f, arg);
    py.PyErr_Clear();
    return said;
}

/* Stops watching returns and frees our tool id of sys.monitoring. */
static void leave_returns(void) {
    capi_unref(ask_returns("close", NULL));
    capi_unref(returns);
    returns = NULL;
    for (unsigned i = 0; i < s.exprs.n; i++)
        s.list[i].return_sought = 0;
}

/* What a function that trains and evaluates returns in evaluation is not the last step's; what an evaluating one alone returns (accuracy) is. */
static void take_return(void *frame, void *code) {
    uint64_t step = steps_of_now(), begun = __atomic_load_n(&steps_begun, __ATOMIC_RELAXED);
    int trains = step == steps_current(), evaluates = !trains && begun > s.last_end;
    inside++;
    for (struct watched *w = s.list; w < s.list + s.exprs.n; w++)
        if (variable_is_of(&w->var, code)) {
            w->trains |= trains || w->on_stack;
            if (!evaluates || w->on_stack || !w->trains)
                take((unsigned)(w - s.list), frame, code, step, 1);
            w->due = w->awaited = w->on_stack = 0;
        }
    inside -= inside != 0; /* 0: this is a child forked within */
}

/* Called by sys.monitoring: (code, offset, value) when `code` returns. */
static void *returned(void *self UNUSED, void *args) {
    void *code = py.PyTuple_Size(args) == 3 ? py.PyTuple_GetItem(args, 0) : NULL;
    void *frame = py.PyEval_GetFrame();
    CAPI_AUTO void *its = variable_code(frame);
    if (!producer_recording())
        leave_returns(); /* the recording has ended, the program goes on */
    else if (code && its == code)
        take_return(frame, code);
    return capi_ref(py.None);
}

/*
 * Before 3.12 there is no event for the return of one function. A profile function is used instead, for no longer than needed and in
 * this thread alone: from the end of a step, of a model's call or of a wait for data to the next of these, while a function whose
 * variable is asked for is on the stack. A profiler of the program's own has precedence.
 */
static int on_profile(void *self, void *frame, int what, void *arg);

static int any_awaited(int due) {
    int any = 0;
    for (unsigned i = 0; i < s.exprs.n; i++)
        any |= due ? s.list[i].due == 1 : s.list[i].awaited;
    return any;
}

/* Called when the program got `mark` from sys.getprofile() and passes it to sys.setprofile() later: removes the profile function. */
static void *put_back(void *self UNUSED, void *args UNUSED) {
    py.PyEval_SetProfile(NULL, NULL);
    armed = 0;
    return capi_ref(py.None);
}

static void arm(int on) {
    static struct py_method method = {"probing", put_back, PY_VARARGS, NULL};
    static CAPI_KEPT void *mark; /* by which our profile function is recognised */
    if (on == armed || py.version >= 0x030c0000)
        return;
    if (!mark && !(mark = py.PyCFunction_NewEx(&method, NULL, NULL)))
        return;
    CAPI_AUTO void *get = capi_attr(capi_module("sys"), "getprofile");
    CAPI_AUTO void *its = capi_call(get);
    if (its == (on ? py.None : mark))
        py.PyEval_SetProfile(on ? on_profile : NULL, on ? mark : NULL);
    armed = on && its == py.None;
    py.PyErr_Clear();
}

static int on_profile(void *self UNUSED, void *frame, int what, void *arg) {
    enum { RETURN = 3 };
    struct capi_state state;
    if (what != RETURN)
        return 0;
    capi_enter(&state);
    void *code = variable_code(frame);
    if (!producer_recording()) {
        arm(0);
    } else if (code) {
        for (unsigned i = 0; i < s.exprs.n; i++)
            if (s.list[i].var.code == code) {
                CAPI_AUTO void *stays = arg ? capi_call(pyvalue_helper("suspends"), frame) : NULL;
                if (stays != py.True) /* arg is NULL after an exception */
                    take_return(frame, code);
                arm(any_awaited(0));
                break;
            }
    }
    capi_unref(code);
    capi_leave(&state);
    return 0;
}

static void watch_return(void *code) {
    static struct py_method method = {"returned", returned, PY_VARARGS, NULL};
    static CAPI_KEPT void *callback; /* never released: watching may be ended from within it */
    static int noted;
    if (py.version < 0x030c0000)
        return;
    if (!callback)
        callback = py.PyCFunction_NewEx(&method, NULL, NULL);
    if (!returns && callback)
        returns = capi_call(pyvalue_helper("Returns"), callback);
    CAPI_AUTO void *done = ask_returns("watch", code);
    if (done == py.False && !noted) {
        noted = 1;
        producer_note(1, "variables",
                      "values at a return are not recorded: no number of sys.monitoring is free");
    }
    py.PyErr_Clear();
}

/* Searches by name for functions that are not on the stack when a step ends (validate()); done less and less often. */
static void seek_functions(void) {
    void *find = s.steps < s.seek_at ? NULL : pyvalue_helper("find_codes");
    s.seek_at = s.steps < s.seek_at ? s.seek_at : 2 * s.steps + 1;
    for (struct watched *w = s.list; find && w < s.list + s.exprs.n; w++) {
        if (w->return_sought || w->var.code)
            continue;
        CAPI_AUTO void *codes = capi_call(find, w->var.func);
        for (ssize_t k = 0; codes && k < py.PyObject_Size(codes); k++) {
            watch_return(py.PyList_GetItem(codes, k));
            w->return_sought = 1;
        }
        /* Before 3.11 a code object does not know its class, so its name is never Trainer.fit: only the search by name finds that. */
        if (py.version < 0x030c0000 && codes && py.PyObject_Size(codes) == 1)
            variable_found(&w->var, py.PyList_GetItem(codes, 0));
        py.PyErr_Clear();
    }
    py.PyErr_Clear();
}

/* ---- steps ---- */

/* What the stack is searched for, innermost frame first. */
enum search {
    AT_END, /* a step has ended: variables that their function has assigned by now */
    PAUSED, /* likewise, but evaluation has begun: what its functions return is not the step's */
    OVER,   /* likewise, but the next step has begun: no variable is assigned later */
    LATE,   /* the next step has ended: variables assigned later, unless they were read meanwhile */
    NEXT,   /* the next batch or call of a model begins: those assigned by now in the step's loop */
    UNKNOWN, /* functions that were not on the stack when a step ended */
};

/* Handles the function of expression i, which was found on the stack. */
static void on_frame(unsigned i, void *frame, void *code, uint64_t step, enum search what) {
    struct watched *w = &s.list[i];
    if (what == LATE || what == NEXT) {
        CAPI_AUTO void *late = what == NEXT ? py.PyLong_FromLong(w->late) : NULL;
        if (w->due && (what == LATE || variable_assigned(&w->var, frame, late))) {
            take(i, frame, code, step, 0);
            w->due = 0;
        }
        return;
    }
    if (variable_found(&w->var, code))
        watch_return(code);
    w->awaited = 1;
    if (what == UNKNOWN)
        return;
    w->on_stack = what != PAUSED;
    w->late = what == AT_END ? variable_assigned(&w->var, frame, NULL) : 0;
    if (w->within && (w->late & 3) % 3 == 0)
        w->late = LATE_WITHIN;
    w->awaited = (w->late & 3) != 0 || what == OVER;
    w->due = (w->late & 3) % 3; /* 3: assigned only behind all loops, and seen at the return */
    if (!w->due)
        take(i, frame, code, step, 0);
}

/* Searches this thread's stack for the functions. Returns how many it found. */
static unsigned search_stack(uint64_t step, enum search what) {
    unsigned left = s.exprs.n, all;
    char taken[EXPRS_MAX] = {0};
    void *frame = capi_ref(py.PyEval_GetFrame());
    for (unsigned i = 0; i < s.exprs.n && what == UNKNOWN; i++)
        left -= taken[i] = s.list[i].on_stack != 0;
    all = left;
    for (unsigned n = 0; frame && left && n < FRAMES_MAX; n++, frame = variable_back(frame)) {
        CAPI_AUTO void *code = variable_code(frame);
        for (unsigned i = 0; code && i < s.exprs.n; i++) {
            struct watched *w = &s.list[i];
            if (taken[i])
                continue;
            if ((w->var.code && what > OVER ? w->var.code == code
                                            : variable_is_of(&w->var, code)) &&
                variable_in(&w->var, code)) {
                taken[i] = 1;
                left--;
                on_frame(i, frame, code, step, what);
            } else if (what == AT_END && w->var.n > 1 &&
                       variable_assigned(&w->var, frame, NULL) & 3) {
                w->within = 1;
            }
        }
    }
    capi_unref(frame);
    py.PyErr_Clear();
    return all - left;
}

/* torch.distributed knows the rank where the environment does not (mp.spawn with init_process_group(rank=...)). */
static void ask_rank(void) {
    CAPI_AUTO void *said = capi_call(pyvalue_helper("distributed"));
    if (said && capi_type(said) == py.Tuple_Type)
        role_set_ranks((int32_t)capi_int(py.PyTuple_GetItem(said, 0)),
                       (int32_t)capi_int(py.PyTuple_GetItem(said, 1)));
    py.PyErr_Clear();
}

static uint64_t version_now(void) {
    return (uint64_t)settings_version(SETTING_torch_profiling) << 32 |
           settings_version(SETTING_torch_exprs);
}

/* Reads the settings again if they have changed. */
static void read_settings(void) {
    struct torch_setting torch;
    char text[sizeof s.text], spec[SETTING_TEXT_MAX], own[SETTING_TEXT_MAX], why[SETTING_WHY];
    uint64_t version = version_now();
    if (version == s.version && parsed) /* nearly always, and at every step */
        return;
    capi_keep();
    if (!parsed) {
        s.exprs.n = s.ncoming = 0;
        *s.text = 0;
    }
    parsed = py.None;
    s.version = version; /* read before the texts: a change in between is seen at the next step */
    settings_text(SETTING_torch_profiling, spec, sizeof spec);
    settings_text(SETTING_torch_exprs, own, sizeof own);
    snprintf(text, sizeof text, "%s %s", spec, own);
    if (!strcmp(text, s.text))
        return;
    strcpy(s.text, text);
    for (unsigned i = 0; i < s.exprs.n; i++)
        variable_free(&s.list[i].var);
    for (unsigned i = 0; i < s.ncoming; i++)
        capi_unref(s.coming[i].value);
    memset(&s.exprs, 0, sizeof s.exprs), memset(s.list, 0, sizeof s.list);
    s.ncoming = 0;
    s.seek_at = s.steps;
    leave_returns();
    if (!torch_setting_parse(spec, &torch, why, sizeof why))
        exprs_parse(torch.exprs, &s.exprs, why, sizeof why);
    exprs_parse(own, &s.exprs, why, sizeof why);
    for (unsigned i = 0; i < s.exprs.n; i++)
        if (variable_init(&s.list[i].var, s.exprs.expr[i].name, s.exprs.expr[i].func))
            complain(i);
}

/* A function that has returned before its step ends (Lightning's training_step) is found here: it is on the stack when its model's call ends. */
static void search_others(void) {
    int known = 0, unknown = 0;
    for (unsigned i = 0; i < s.exprs.n; i++) {
        known |= !s.list[i].on_stack && s.list[i].var.code && py.version < 0x030c0000;
        unknown |= !s.list[i].var.code;
    }
    s.works++;
    if (known || (unknown && s.works >= s.search_at))
        s.search_at = search_stack(0, UNKNOWN) || s.works < SEARCHES ? 0 : 2 * s.works;
}

static void at_work(int begins) {
    struct capi_state state;
    if ((begins ? !armed && !any_awaited(1) : !s.exprs.n && s.version == version_now()) ||
        !producer_recording() || !capi_usable())
        return;
    capi_enter(&state);
    if (++inside == 1 && !begins)
        read_settings();
    if (!begins)
        search_others();
    else if (any_awaited(1))
        search_stack(s.last_step, NEXT);
    arm(!begins && any_awaited(0));
    inside -= inside != 0;
    capi_leave(&state);
}

static void work(const struct step *step) {
    if (++inside == 1) /* else it would change what is in use */
        read_settings();
    take_coming();
    if (s.generation != producer_generation()) { /* leave_returns() may have been called */
        s.generation = producer_generation(), s.seek_at = s.steps;
        for (unsigned i = 0; i < s.exprs.n; i++)
            if (s.list[i].var.code)
                watch_return(s.list[i].var.code);
    }
    if (s.steps >= s.ask_at && !role_has_rank())
        ask_rank(), s.ask_at = 2 * s.steps + 1;
    if (s.exprs.n) {
        seek_functions();
        if (!step->anew)
            search_stack(s.last_step, LATE);
        for (unsigned i = 0; i < s.exprs.n; i++)
            s.list[i].on_stack = s.list[i].due = s.list[i].awaited = s.list[i].within = 0;
        search_stack(step->number, !step->over ? AT_END : step->over == 1 ? OVER : PAUSED);
        s.last_step = step->number, s.last_end = step->end;
        arm(!step->over && any_awaited(0)); /* over: at_work() arms when the call has ended */
    }
    s.steps++;
    inside -= inside != 0;
}

/* Whether work() would find nothing to do. That is so at nearly every step of a program that names no expression, for which
 * taking the GIL again with cold caches would cost microseconds. Needs no GIL: only this thread changes these fields. */
static int is_idle(void) {
    return !s.exprs.n && !s.ncoming && s.version == version_now() &&
           s.generation == producer_generation() && (s.steps < s.ask_at || role_has_rank());
}

static void at_step(const struct step *step) {
    if (!producer_recording())
        return;
    if (is_idle()) {
        s.steps++;
        return;
    }
    if (capi_load(NULL) || !capi_usable())
        return;
    struct capi_state state; /* torch may have released the GIL, and an exception may be set */
    capi_enter(&state);
    work(step);
    capi_leave(&state);
}

/* ---- life ---- */

void variables_open(void) {
    for (unsigned i = 0; i < EXPRS_MAX; i++)
        __atomic_store_n(&s.list[i].matched, 0, __ATOMIC_RELAXED);
    steps_on_end(at_step);
    __atomic_store_n(&steps_work, at_work, __ATOMIC_RELEASE);
}

void variables_close(struct writer *w) {
    for (unsigned i = 0; i < s.exprs.n && i < EXPRS_MAX && s.steps; i++)
        if (!__atomic_load_n(&s.list[i].matched, __ATOMIC_RELAXED))
            meta_note(w, 1, "variables",
                      "%s@%s had no value when a step ended, nor at a return (is the name right?)",
                      s.exprs.expr[i].name, s.exprs.expr[i].func);
    if (!s.steps && settings_number(SETTING_torch_exprs))
        meta_note(w, 0, "variables", "no step ended in this process, so no variable was recorded");
}

void variables_after_fork(void) {
    inside = 0;
    s.ncoming = 0; /* they belong to the parent, whose GPU cannot be used here */
    s.steps = s.seek_at = s.ask_at = s.works = s.search_at = 0;
}
