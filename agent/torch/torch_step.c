/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/torch/torch_step.h"

#include "agent/core/steps.h"
#include "agent/python/capi.h"
#include "agent/python/variables_frame.h"
#include "agent/torch/torch_back.h"
#include "agent/torch/torch_cuda.h"
#include "agent/torch/torch_lib.h"
#include "agent/torch/torch_name.h"

#define MILLION   1000000u
#define BY_HAND   64 /* root calls after a backward pass, and no step() was seen: it steps by hand */
#define UNSEEN    8  /* gradients zeroed after backward passes, and no step() was seen */
#define GROUP     16
#define CERTAIN   16 /* first steps whose optimizer is looked up, to know one that comes again */
#define FRAMES    4096
#define NEAR      8  /* frames to the optimizer's decorator */
#define FORGOTTEN 16 /* other roots' calls after which the first root is not waited for any more */

static struct {
    struct torch_thread *leader;     /* (a) whose thread counts */
    uint32_t lock;                   /* while the first optimizer's becomes that */
    uint32_t root;                   /* serial of the root module whose calls count, 0 */
    uint32_t others;                 /* calls of other roots since its last one */
    uint32_t unclaimed;              /* its calls since a backward pass, without an optimizer */
    int optimizer, manual, backward; /* what was seen */
    int by_hand;                     /* the root's calls after a backward pass end steps */
    int seen;                        /* no module's call was in progress as recording began */
    int grouped; /* the last optimizer's step ended a step, and no pass has begun since */
    const void *stepped[GROUP]; /* the optimizers of that step, as far as they are known */
    int certain;                /* it was asked once already: ask at each */
    int called; /* the root was, since the last step ended: 1 evaluated; 2 perhaps; 3: a step's, perhaps */
    int fresh;      /* no pass with gradients since then */
    uint32_t idle;  /* serial of the last root that was called without them since both, 0 */
    uint32_t row;   /* which row of such calls it is */
    int evaluating; /* the outermost call in progress is evaluation; 2: the one that ended goes on */
    uint32_t part;  /* serial of the first part of a bound method's call that is evaluated, 0 */
    int passed;     /* a backward pass since the last zero_grad(), and since a step ended */
    int unseen;     /* steps that zero_grad() ended, not counted yet; -1: a step() was seen */
    uint64_t zeroed[UNSEEN]; /* when they ended */
    uint64_t asked;          /* when a batch was asked for after the last backward pass, 0 */
    uint64_t number, begin, root_end, first; /* first: the number as recording began */
    int anew; /* numbers have begun anew, and no step has ended since */
    uint32_t rate, credit;
    int deep; /* the modules of this step are recorded */
} s = {.rate = MILLION, .deep = 1, .fresh = 1};
static uint64_t counted; /* steps ended by an optimizer or the program, in all recordings */

static int leads(struct torch_thread *l) {
    struct torch_thread *leader = __atomic_load_n(&s.leader, __ATOMIC_ACQUIRE);
    if (leader == l)
        return 1;
    if (leader && __atomic_load_n(&leader->taken, __ATOMIC_RELAXED) &&
        leader->generation == l->generation)
        return 0;
    if (l->beside && l->beside <= s.number && l->beside_from < s.number)
        return 0; /* it has trained beside it, and not for longer */
    return sys_swap(&s.leader, leader, l) == leader; /* nobody yet, or its thread is gone */
}

/* Into the trace: what ended at `end` (0: now). Returns when that was. */
static uint64_t put_end(struct torch_thread *l, enum torch_source source, uint64_t end) {
    uint64_t now;
    uint8_t *p = l ? torch_thread_begin(l, &now) : NULL; /* nothing of torch is recorded */
    if (p && now < l->last) /* as torch_thread_head has it: rows are found by `end` */
        now = l->last;
    if (!end || (p && end > now))
        end = p ? now : sys_now();
    if (p) {
        p = torch_thread_head(l, p, now, TORCH_STEP, source);
        p = varint_put(p, s.number);
        p = varint_put(p, now > end ? now - end : 0);
        torch_thread_done(l, p);
    }
    return end;
}

static void ended(struct torch_thread *l, enum torch_source source, uint64_t end) {
    end = put_end(l, source, end);
    int root = source == TORCH_BY_ROOT || source == TORCH_BY_PASS;
    struct step done = {s.number, s.begin, end, root && s.by_hand, s.anew};
    if (__builtin_expect(cuda_on && l, 0)) /* anew: its first passes were timed as steps */
        cuda_step(l, s.number, s.anew ? 0 : s.begin, end);
    s.number++;
    counted = root ? counted : s.number;
    if (!root)
        s.idle = 0, s.row++;
    s.begin = end;
    s.called = s.passed = s.anew = 0;
    s.fresh = 1;
    s.credit += s.rate;
    s.deep = s.credit >= MILLION;
    if (s.deep)
        s.credit -= MILLION;
    steps_ended(&done);
}

/* The first that counts but by the root's calls: unless these trained by hand, they were evaluation, or the first step's own passes. */
static void count_anew(uint64_t number) {
    s.anew = !s.by_hand || s.unclaimed <= BY_HAND;
    s.number = s.anew ? number : s.number;
}

static void work(int begins) {
    void (*fn)(int) = __atomic_load_n(&steps_work, __ATOMIC_ACQUIRE);
    if (__builtin_expect(fn != NULL, 0))
        fn(begins);
}

/* Whether an object of this class of optimizers was ever made: torch's Optimizer marks the step() of its class then. */
static int is_used(void *class) {
    CAPI_AUTO void *step = capi_attr(class, "step"), *mark = capi_attr(step, "hooked");
    return mark != NULL;
}

/* Whether the training steps without an optimizer: else its passes may be an accumulation before the first Optimizer.step. GIL held. */
static int steps_by_hand(void) {
    if (!s.by_hand) {
        CAPI_AUTO void *base = capi_attr(capi_module("torch.optim.optimizer"), "Optimizer");
        if ((s.unclaimed > BY_HAND && !s.unseen) || !base || !capi_classes(base, is_used))
            count_anew(s.first), s.by_hand = 1;
    }
    return s.by_hand;
}

/* By the root's next call. Before any backward pass: calls with gradients may be one step's (a triplet loss) or inference without no_grad(). */
static void root_ended(struct torch_thread *l) {
    int known = s.backward || (s.fresh && s.called < 3);
    ended(l, known ? TORCH_BY_ROOT : TORCH_BY_PASS, s.backward ? 0 : s.root_end);
}

/* Without gradients as in the call before, or behind the same one as earlier in this row of calls: policy, value, policy, value. */
static int comes_again(const struct node *n) {
    return n->serial == s.idle || (s.idle && n->row == s.row && n->after == s.idle);
}

/* Of a call that is not seen: m.__call__(x). GIL held. */
static int is_part(struct node *n) {
    n->within = n->within ? n->within : 1 + step_within();
    return n->within == 2;
}

/* An outermost call where neither an optimizer nor the program counts. */
static void root_counts(struct torch_thread *l, struct node *n, int gradients) {
    if (!s.root || s.others >= FORGOTTEN)
        s.root = n->serial;
    if (n->serial != s.root) {
        s.others += !is_part(n); /* else it may be the root's own */
        if (!gradients && s.fresh && s.called && comes_again(n))
            s.called = 1; /* generate() calls the root, and then for each token its parts */
        if (gradients && s.fresh && s.called == 1 && !s.backward) /* another one is trained */
            root_ended(l);
        return;
    }
    s.others = 0;
    s.unclaimed += s.backward != 0;
    if (s.backward ? s.passed && steps_by_hand() : s.called)
        root_ended(l);
    s.called = gradients ? 3 : comes_again(n) ? 1 : node_evaluates(n) ? 2 : 3;
}

/* An optimizer steps in this thread. 1: that counts, as the first one's does. */
static int counts(struct torch_thread *l) {
    if (!__atomic_load_n(&s.optimizer, __ATOMIC_ACQUIRE)) {
        sys_lock(&s.lock); /* several may step first */
        if (!s.optimizer) {
            __atomic_store_n(&s.leader, l, __ATOMIC_RELEASE); /* who counted so far had none */
            count_anew(counted);
            __atomic_store_n(&s.optimizer, 1, __ATOMIC_RELEASE);
        }
        sys_unlock(&s.lock);
    }
    return leads(l);
}

/* Optimizer.zero_grad, or evaluation begins. Where no step() is seen (a compiled one), either ends a step if a backward pass went before.
 * The first UNSEEN are counted at once when there are so many: steps that GradScaler skips look the same. */
static void zeroes(struct torch_thread *l) {
    int n = __atomic_load_n(&s.unseen, __ATOMIC_RELAXED); /* two threads may be here */
    if (!s.passed || n < 0 || n >= UNSEEN || s.by_hand || s.manual ||
        l->marks[TORCH_MARK_OPTIMIZER].open || (s.optimizer && !leads(l)))
        return;
    s.zeroed[n] = s.asked ? s.asked : sys_now();
    s.unseen = n + 1;
    s.passed = 0;
    if (!s.optimizer && n + 1 < UNSEEN)
        return;
    for (int i = 0; i <= n && counts(l); i++)
        ended(l, TORCH_BY_OPTIMIZER, s.zeroed[i]);
    s.unseen = 0;
}

int step_root(struct torch_thread *l, struct node *n) {
    int gradients = !torch_lib.gradients || torch_lib.gradients();
    if (l->passes || !leads(l))
        return s.deep;
    work(1);
    if (gradients && !n->bare)
        steps_underway(1);
    if (l->marks[TORCH_MARK_OPTIMIZER].open) { /* a closure's */
        s.grouped = 0; /* this optimizer does not belong to the one before */
        n->trained |= gradients != 0;
        if (!s.optimizer && !s.manual && s.called && !s.backward) /* the first; evaluation before */
            root_ended(l);
        return s.deep;
    }
    if (!s.begin)
        s.begin = l->last ? l->last : sys_now();
    s.grouped = 0;
    steps_alive(l->last);
    if (n->bare)
        return s.deep;
    if (!s.optimizer && !s.manual)
        root_counts(l, n, gradients);
    int evaluates = !gradients && n->trained && node_evaluates(n);
    if (evaluates)
        zeroes(l);
    s.evaluating = !gradients && s.fresh && (evaluates || comes_again(n));
    if (s.evaluating && (!is_part(n) || !s.part))
        s.part = is_part(n) ? n->serial : 0;
    else if (s.evaluating)
        s.evaluating += n->serial != s.part; /* the first part comes again: another call */
    if (gradients)
        n->trained = 1, s.fresh = s.idle = 0, s.row++;
    else
        n->row = s.row, n->after = s.idle, s.idle = n->serial;
    return s.deep;
}

void step_root_done(struct torch_thread *l) {
    if (l != s.leader || l->passes)
        return;
    s.root_end = l->last;
    work(0);
    steps_alive(l->last);
    if (s.evaluating && (s.optimizer || s.by_hand) && !s.manual) {
        s.begin = put_end(l, s.evaluating == 2 ? TORCH_GOES_ON : TORCH_EVALUATION, 0);
        __atomic_store_n(&steps_begun, s.begin, __ATOMIC_RELAXED);
    }
    s.evaluating = 0;
}

void step_backward(struct torch_thread *l) {
    s.backward = s.passed = 1;
    s.asked = 0;
    steps_alive(sys_now());
    if (l == s.leader) {
        s.grouped = s.fresh = 0;
        steps_underway(1);
    }
}

/* ---- what only Python frames show ---- */

/* Whether the frame runs that function (or one whose name has it in it) of torch's own. */
static int is_of(void *frame, const char *func, const char *source) {
    CAPI_AUTO void *code = variable_code(frame);
    CAPI_AUTO void *name = capi_attr(code, "co_name"), *file = capi_attr(code, "co_filename");
    const char *n = name ? capi_utf8(name) : NULL;
    const char *f = file ? capi_utf8(file) : NULL;
    size_t len = f ? strlen(f) : 0, want = strlen(source);
    return n && len >= want && strstr(n, func) && !strcmp(f + len - want, source);
}

/* What fn says of the innermost frame of which it says something, from this one on, of `most` at most; NULL: of none. */
static const void *first_frame(void *frame, unsigned most, const void *(*fn)(void *frame)) {
    const void *said = NULL;
    capi_ref(frame);
    for (unsigned i = 0; frame && !said && i < most; i++) {
        said = fn(frame);
        void *back = said ? NULL : variable_back(frame);
        py.Py_DecRef(frame);
        frame = back;
    }
    capi_unref(frame);
    py.PyErr_Clear();
    return said;
}

static const void *in_call(void *frame) {
    return is_of(frame, "call_impl", "torch/nn/modules/module.py") ? frame : NULL;
}

void step_seen(void) {
    CAPI_AUTO void *current = capi_attr(capi_module("sys"), "_current_frames");
    CAPI_AUTO void *frames = capi_call(current); /* by thread */
    void *frame;
    ssize_t i = 0;
    s.seen = frames != NULL;
    while (s.seen && py.PyDict_Next(frames, &i, NULL, &frame))
        s.seen = !first_frame(frame, FRAMES, in_call);
}

int step_within(void) {
    return first_frame(py.PyEval_GetFrame(), FRAMES, in_call) != NULL;
}

/* Where all were seen to begin, one that is found is a bound method's: m.__call__(x), which runs by no slot. */
int step_inside(void) {
    return !s.seen && step_within();
}

/* Its decorator's frame: wrapper(*args, **kwargs), 1.13 to 2.14. */
static const void *in_optimizer(void *frame) {
    static struct variable args;
    if ((!args.n && variable_init(&args, "args", "wrapper")) ||
        !is_of(frame, "wrapper", "torch/optim/optimizer.py"))
        return NULL;
    CAPI_AUTO void *code = variable_code(frame);
    CAPI_AUTO void *value = code ? variable_read(&args, frame, code) : NULL;
    return value && capi_type(value) == py.Tuple_Type && py.PyTuple_Size(value) > 0
               ? py.PyTuple_GetItem(value, 0)
               : NULL;
}

/* The optimizer whose step() this thread is in, to be compared only; NULL: not found. GIL held or not. */
static const void *optimizer(void) {
    struct capi_state state; /* a step may end by an exception */
    if (!capi_usable())
        return NULL;
    capi_enter(&state);
    const void *self = first_frame(py.PyEval_GetFrame(), NEAR, in_optimizer);
    capi_leave(&state);
    return self;
}

/* ---- who steps ---- */

/* Another optimizer than those that have stepped since the last pass: it belongs to their step. */
static int is_another(void) {
    const void *now = optimizer();
    int i = 0;
    s.certain = 1;
    while (i < GROUP && s.stepped[i] && s.stepped[i] != now)
        i++;
    int again = i < GROUP && now && s.stepped[i] == now;
    if (i < GROUP)
        s.stepped[i] = now;
    return !again;
}

/* The thread whose backward pass this one is in: its own, or as one of the engine's any; NULL: none. */
static struct torch_thread *in_pass(struct torch_thread *l) {
    struct torch_thread *of = l;
    for (unsigned i = 0; of && !(of->passes && of->generation == l->generation); i++)
        of = l->node.state || (torch_lib.task && torch_lib.task() >= 0) ? torch_thread_at(i) : NULL;
    return of;
}

static void optimizer_done(struct torch_thread *l) {
    struct torch_thread *pass = in_pass(l);
    if (pass) /* by a hook: the step ends with the pass */
        __atomic_store_n(&pass->stepped, 1, __ATOMIC_RELAXED);
    if (pass || s.manual)
        return;
    if (!counts(l)) {
        l->beside_from = l->beside++ ? l->beside_from : s.number;
        return;
    }
    s.unseen = -1;
    if (!s.grouped || !is_another()) {
        ended(l, TORCH_BY_OPTIMIZER, 0);
        memset(s.stepped, 0, sizeof s.stepped);
        s.stepped[0] = s.certain || s.number <= CERTAIN ? optimizer() : NULL;
    }
    s.grouped = 1;
}

void step_backward_done(struct torch_thread *l) {
    if (__atomic_exchange_n(&l->stepped, 0, __ATOMIC_RELAXED))
        optimizer_done(l);
}

/* probing.step() */
static void manual(int64_t number) {
    struct torch_thread *l = torch_thread_here();
    int first = !s.manual;
    s.manual = 1;
    if (first && !s.optimizer)
        count_anew(counted);
    if (first && s.grouped) /* the optimizer has ended this one already */
        return;
    if (number >= 0)
        s.number = (uint64_t)number;
    ended(l, TORCH_BY_MARK, 0);
}

/* ---- callbacks: no GIL, any thread ---- */

/* What a start callback gives the end callback: an object whose virtual table has two destructors. Ours are two that stay for ever. */
static void nothing(void *self UNUSED) {}
static void *const table[2] = {(void *)nothing, (void *)nothing};
static struct { void *const *table; } marks[TORCH_MARKS] = {{table}, {table}};

/* By name: what to give on_end(), NULL when it is none of ours. */
static void *mark_begins(const char *name) {
    static const char *const heads[] = {"Optimizer.step#", "enumerate(DataLoader)#",
                                        "Optimizer.zero_grad#"};
    struct torch_thread *l;
    int k = 0;
    while (name && k <= TORCH_MARKS && strncmp(name, heads[k], strlen(heads[k])))
        k++;
    if (!name || k > TORCH_MARKS || !(l = torch_thread_here()) || l->depth >= TORCH_DEPTH - 8)
        return NULL;
    if (k == TORCH_MARKS) {
        zeroes(l);
        return NULL;
    }
    if (l->marks[k].open++ == 0)
        l->marks[k].depth = torch_thread_enter(
            l, TORCH_SPAN, k == TORCH_MARK_OPTIMIZER ? TORCH_SPAN_OPTIMIZER : TORCH_SPAN_DATA);
    if (k == TORCH_MARK_LOADER) {
        steps_alive(l->last);
        if (leads(l)) {
            work(1);
            s.begin = s.begin ? s.begin : l->last;
            s.asked = s.asked ? s.asked : l->last;
        }
    }
    return &marks[k];
}

static void on_end(const void *rf UNUSED, void *mark) {
    struct torch_thread *l = mark ? torch_thread_here() : NULL;
    size_t k = (size_t)((char *)mark - (char *)marks) / sizeof *marks;
    if (!l || !l->marks[k].open || --l->marks[k].open)
        return;
    torch_thread_exit(l, l->marks[k].depth, 0);
    steps_alive(l->last);
    if (k == TORCH_MARK_OPTIMIZER)
        optimizer_done(l);
    else if (l == s.leader)
        work(0);
}

static uint64_t handle; /* of the callback, 0: not registered */
static int with_nodes;

/* sret holds a unique_ptr, which the end callback is given. */
static void *on_begin(void *sret, const void *rf) {
    void *mark = back_begins(rf) ? NULL : mark_begins(torch_lib.name(rf));
    memcpy(sret, &mark, sizeof mark);
    return sret;
}

void step_observe(int nodes) {
    struct torch_callback cb = {.start = on_begin, .end = on_end, .probability = 1};
    uint64_t old = handle;
    if (handle && with_nodes == nodes)
        return;
    cb.scopes[TORCH_SCOPE_USER] = 1;
    cb.scopes[TORCH_SCOPE_BACKWARD] = nodes != 0;
    handle = torch_lib_add(cb);
    with_nodes = nodes;
    torch_lib_remove(old); /* only now: none is missed, two count as one (depth) */
}

void step_observe_end(void) {
    torch_lib_remove(handle);
    handle = 0;
}

/* ---- life ---- */

void step_rate(uint32_t millionths) {
    s.rate = millionths;
}

void step_reset(int anew) {
    uint64_t number = anew ? 0 : s.number;
    uint32_t rate = s.rate;
    memset(&s, 0, sizeof s);
    s.number = s.first = number;
    s.rate = rate;
    s.deep = s.fresh = 1;
    counted = anew ? 0 : counted;
    __atomic_store_n(&steps_manual, manual, __ATOMIC_RELEASE);
}
