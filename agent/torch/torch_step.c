/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/torch/torch_step.h"

#include "agent/core/steps.h"
#include "agent/python/capi.h"
#include "agent/torch/torch_cuda.h"
#include "agent/torch/torch_frame.h"
#include "agent/torch/torch_lib.h"
#include "agent/torch/torch_name.h"

#define MILLION   1000000u
#define BY_HAND   64 /* root calls after backward passes, without a step(): it steps by hand */
#define UNSEEN    8  /* steps that only zero_grad() or another root shows count from so many on */
#define GROUP     16
#define CERTAIN   16 /* first steps whose optimizer is looked up, to know one that comes again */
#define FORGOTTEN 16 /* calls of other roots after which another one becomes the root */
#define TEACHERS  8  /* most calls without gradients that a step begins with (a teacher's) */
#define IDLE      16 /* calls kept until it is known whether they were evaluation */
#define RECENT    4  /* steps after its last call with gradients for which a model is trained */

static struct {
    struct torch_thread *leader; /* (a) the thread that counts */
    uint32_t lock;               /* held while the first optimizer's thread becomes the leader */
    uint32_t root;               /* serial of the root module whose calls count, 0 */
    uint32_t others;             /* calls of other roots since its last one */
    uint32_t other, turns;       /* one of these that is trained, steps that it has begun, and */
    uint64_t turned[UNSEEN];     /* when these began */
    uint32_t unclaimed;          /* the root's calls since a backward pass */
    int optimizer, manual, backward; /* 1: was seen */
    int by_hand;                     /* the root's calls after a backward pass end steps */
    int grouped; /* the last optimizer's step ended a step, and no pass has begun since */
    const void *stepped[GROUP]; /* the optimizers of that step, as far as they are known */
    int certain;                /* is_another() was called: look the optimizer up at each step */
    int called; /* the root was called since a step ended: 1: evaluation; 2: perhaps; 3: perhaps in a step */
    int fresh;     /* no pass with gradients since a step ended, or since a backward pass */
    int amid;      /* a backward pass since a step ended; 2: and that part of the step is written */
    uint32_t idle; /* serial of the root called last; 0: the last call had gradients */
    uint32_t row;  /* number of the sequence of calls without gradients */
    int evaluating; /* the outermost call in progress is evaluation; 2: the last one, continued */
    int evaluated;  /* `evaluating` when the call began that this one may be a part of */
    const void *whole;    /* the module whose unseen call the last call was a part of; or NULL */
    uint32_t part;        /* serial of the first part of that call */
    uint64_t ends[IDLE];  /* calls without gradients that have ended and may be evaluation */
    const void *of[IDLE]; /* whose calls these were, unless a model was called twice */
    unsigned idles, now;  /* number of `ends`; of calls without gradients */
    unsigned usual[2];    /* the same before the last pass: at a step's begin, and amid one */
    int again;            /* one of these models was called twice */
    int passed;           /* a backward pass since the last zero_grad(), and since a step ended */
    int unseen;           /* steps that zero_grad() ended, not counted yet; -1: a step() was seen */
    uint64_t zeroed[UNSEEN]; /* when they ended */
    uint64_t asked;          /* when a batch was asked for after the last backward pass, 0 */
    uint64_t number, begin, root_end, first; /* first: the number as recording began */
    int anew; /* numbers have begun anew, and no step has ended since */
    uint32_t rate, credit;
    int deep; /* the modules of this step are recorded */
} s = {.rate = MILLION, .deep = 1, .fresh = 1};
static uint64_t counted; /* steps ended by an optimizer or the program, in all recordings */

/* Whether the thread that counts runs no Python any more: join() has returned, its destructors may still run. Asked when l begins, and at its first step. */
static int has_left(struct torch_thread *l, const struct torch_thread *leader) {
    int first = !l->asked && !l->beside;
    l->asked = 1;
    return first && frame_left(leader->self);
}

static int leads(struct torch_thread *l) {
    struct torch_thread *leader = __atomic_load_n(&s.leader, __ATOMIC_ACQUIRE);
    if (leader == l)
        return 1;
    if (leader && __atomic_load_n(&leader->taken, __ATOMIC_RELAXED) &&
        leader->generation == l->generation && !has_left(l, leader))
        return 0;
    if (l->beside && l->beside <= s.number && l->beside_from < s.number)
        return 0; /* it has trained beside the leader, and made no more steps */
    return sys_swap(&s.leader, leader, l) == leader; /* there was no leader, or it is gone */
}

/* Writes to the trace that a step or evaluation ended at `end` (0: now). Returns that time. */
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
    int evaluation = torch_lib.gradients && !torch_lib.gradients();
    int over = root && s.by_hand ? 1 + evaluation : 0;
    struct step done = {s.number, s.begin, end, over, s.anew};
    if (__builtin_expect(cuda_on && l, 0)) /* anew: its first passes were timed as steps */
        cuda_step(l, s.number, s.anew ? 0 : s.begin, end);
    s.number++;
    counted = root ? counted : s.number;
    if (!root)
        s.idle = 0, s.row++, s.whole = NULL;
    if (!root || s.by_hand)
        s.idles = s.now = s.again = 0;
    s.begin = end;
    s.called = s.passed = s.anew = s.amid = 0;
    s.fresh = 1;
    s.deep = (s.credit += s.rate) >= MILLION;
    s.credit -= s.deep ? MILLION : 0;
    steps_ended(&done);
    torch_thread_show(l); /* nothing may follow for long */
}

/* Called when steps are first counted otherwise than by the root's calls: unless these trained by hand, they were evaluation, or the first step's passes. */
static void count_anew(uint64_t number) {
    s.anew = !s.by_hand || s.unclaimed <= BY_HAND;
    s.number = s.anew ? number : s.number;
}

static void work(int begins) {
    void (*fn)(int) = __atomic_load_n(&steps_work, __ATOMIC_ACQUIRE);
    if (__builtin_expect(fn != NULL, 0))
        fn(begins);
}

/* Whether this optimizer class was ever instantiated: torch's Optimizer then marks the step() of the class. */
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

/* Where the root's calls are counted, the next one ends a step. Before any backward pass, calls with gradients may be of one step (a triplet loss) or inference without no_grad(). */
static void root_ended(struct torch_thread *l) {
    int known = s.backward || (s.fresh && s.called < 3);
    ended(l, known ? TORCH_BY_ROOT : TORCH_BY_PASS, s.backward ? 0 : s.root_end);
}

/* Whether n was also the last model called without gradients, or follows the same model as it did earlier in this row: policy, value, policy, value. */
static int comes_again(const struct node *n) {
    return n->serial == s.idle || (s.idle && n->row == s.row && n->after == s.idle);
}

/* Whether the node's model was trained in the last steps; a part of a model must also be in evaluation mode. GIL held. */
static int is_trained(const struct node *n) {
    uint64_t at = *node_trained(n); /* number of the last step that trained it, + 1 */
    return at && (int64_t)(s.number - at) < RECENT && (!n->part || node_evaluates(n));
}

/* Returns the model whose call begins: n, or, if n is a part of an unseen call (m.__call__(x)), m's node where it has one. NULL: that call goes on. GIL held. */
static struct node *model_of(struct node *n) {
    const void *before = s.whole;
    s.whole = n->part && !is_trained(n) ? NULL : n->whole;
    if (s.whole && s.whole == before && s.part != n->serial)
        return NULL;
    s.part = n->serial; /* the call's first part: it comes again with the next call */
    struct node *m = s.whole ? node_find(NULL, s.whole) : NULL;
    return m ? m : n;
}

/* A call of another module than the root begins. Returns 1 if that becomes the root: UNSEEN of its steps have begun since the root was called, or the root is forgotten. */
static int becomes_root(struct torch_thread *l, const struct node *n, int gradients) {
    s.other = s.turns ? s.other : n->serial;
    if (gradients && s.fresh && s.passed && n->serial == s.other)
        s.turned[s.turns++] = sys_now();
    if (s.root && s.turns < UNSEEN && s.others++ < FORGOTTEN)
        return 0;
    for (unsigned i = 0; i < s.turns && steps_by_hand(); i++)
        ended(l, TORCH_BY_ROOT, s.turned[i]);
    s.root = n->serial;
    return 1;
}

/* An outermost call begins while neither an optimizer nor the program counts. */
static void root_counts(struct torch_thread *l, struct node *n, int gradients) {
    if (n->serial != s.root && !becomes_root(l, n, gradients)) {
        if (!gradients && s.fresh && s.called && comes_again(n))
            s.called = 1;
        if (gradients && s.fresh && s.called == 1 && !s.backward) /* another one is trained */
            root_ended(l);
        return;
    }
    s.others = s.turns = 0;
    s.unclaimed += s.backward != 0;
    if (s.backward ? s.passed && steps_by_hand() : s.called)
        root_ended(l);
    s.called = gradients ? 3 : comes_again(n) ? 1 : node_evaluates(n) ? 2 : 3;
}

/* An optimizer steps in this thread. Returns 1 if that counts, as the first optimizer's step does. */
static int counts(struct torch_thread *l) {
    if (!__atomic_load_n(&s.optimizer, __ATOMIC_ACQUIRE)) {
        sys_lock(&s.lock); /* several may step first */
        if (!s.optimizer) {
            __atomic_store_n(&s.leader, l, __ATOMIC_RELEASE); /* who counted so far had none */
            if (s.by_hand && s.turns) /* another model was trained by hand before */
                ended(l, TORCH_BY_ROOT, s.turned[0]);
            count_anew(counted);
            __atomic_store_n(&s.optimizer, 1, __ATOMIC_RELEASE);
        }
        sys_unlock(&s.lock);
    }
    return leads(l);
}

/* Optimizer.zero_grad, or evaluation begins. Where no step() is seen (a compiled one), either ends a step if a backward pass went before.
 * The first UNSEEN steps are counted only once there are so many, all at once: steps that GradScaler skips look the same. */
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

/* Writes that what ended at `end` (0: now) was evaluation, if steps are counted; the coming step begins after it. */
static void put_evaluation(struct torch_thread *l, uint64_t end) {
    if ((!s.optimizer && !s.by_hand && !s.amid) || s.manual)
        return;
    s.begin = put_end(l, s.evaluating == 2 ? TORCH_GOES_ON : TORCH_EVALUATION, end);
    __atomic_store_n(&steps_begun, s.begin, __ATOMIC_RELAXED);
}

/* Writes that the calls in s.ends were evaluation, except the last `but` of them. */
static void put_idles(struct torch_thread *l, unsigned but) {
    unsigned n = s.idles > but ? s.idles - but : 0;
    for (unsigned i = 0; i < n; i++)
        put_evaluation(l, s.ends[i]);
    s.idles -= n;
    memmove(s.ends, s.ends + n, s.idles * sizeof *s.ends);
    memmove(s.of, s.of + n, s.idles * sizeof *s.of);
}

/* Returns how many calls without gradients before a pass belong to the step: as many as before. */
static unsigned usual_calls(void) {
    return s.usual[s.amid && s.usual[1] > s.usual[0]];
}

/* A call of m without gradients begins; n is the module whose call is seen. */
static void idles(struct torch_thread *l, struct node *m, struct node *n) {
    int trained = is_trained(m) || is_trained(n), again = comes_again(m);
    int evaluates = trained && node_evaluates(n);
    if (evaluates)
        zeroes(l);
    if ((s.fresh ? s.amid == 1 : evaluates && s.backward) && !s.manual)
        put_end(l, TORCH_PART, 0), s.fresh = 1, s.amid = 2;
    unsigned usual = usual_calls();
    int behind = s.evaluated && s.idle && !trained; /* a reference model's call after a model's */
    s.evaluating = s.evaluated =
        s.fresh && (evaluates || (again && trained) || ((again || behind) && !usual));
    if (s.fresh) {
        s.again |= again;
        s.now = again && trained ? 0 : s.now + !evaluates;
        s.idles += !s.evaluating && s.idles < IDLE;
        if (!s.evaluating)
            s.of[s.idles - 1] = again ? NULL : n->self;
        if (s.evaluating || s.again)
            put_idles(l, s.evaluating ? 0 : usual);
    }
    m->row = s.row, m->after = s.idle, s.idle = m->serial;
    n->by = n->passed ? n->by : node_evaluates(n) ? NULL : frame_code();
}

/* A pass with gradients begins. Before it, as many calls without gradients as before the last one are a teacher's, and the step's. */
static void freshens(struct torch_thread *l) {
    if (s.fresh && s.again && usual_calls())
        put_idles(l, usual_calls());
    if (s.fresh && s.now <= TEACHERS)
        s.usual[s.amid != 0] = s.now;
    s.fresh = s.idles = s.now = s.again = 0;
}

/* Whether a module that was called earlier is n, or a part of n in training mode now (a teacher within n is not). Called in training mode by the code that trains n
 * now, it may have made the targets. */
static int is_probe(const struct node *n, const void *self) {
    struct node *part = self ? node_find(NULL, self) : NULL; /* NULL: it is gone */
    return part && !node_evaluates(part) && node_holds(n, self) && part->by != frame_code();
}

/* A pass with gradients of n begins. If it is n's first, calls before it by which the program learnt the shape of its result, or of a part's, were evaluation. */
static void put_probes(struct torch_thread *l, struct node *n) {
    unsigned i = n->passed || !s.fresh ? 0 : s.idles;
    n->passed = 1;
    while (i && !is_probe(n, s.of[i - 1]))
        i--;
    s.now -= i;
    if (i && (s.optimizer || s.manual || s.backward)) {
        put_idles(l, s.idles - i);
    } else if (i) {
        s.root_end = s.ends[i - 1], s.called = 1;
        root_ended(l);
    }
}

int step_root(struct torch_thread *l, struct node *n) {
    int gradients = !torch_lib.gradients || torch_lib.gradients();
    if (l->passes || !leads(l))
        return s.deep;
    work(1);
    if (gradients && !n->bare)
        steps_underway(1);
    if (l->marks[TORCH_MARK_OPTIMIZER].open) { /* it is called by a step's closure */
        s.grouped = 0; /* this optimizer does not belong to the step of the one before */
        *node_trained(n) = gradients ? s.number + 1 : *node_trained(n);
        if (!s.optimizer && !s.manual && s.called && !s.backward) /* first step, after evaluation */
            root_ended(l);
        return s.deep;
    }
    s.begin = s.begin ? s.begin : l->last ? l->last : sys_now();
    s.grouped = 0;
    steps_alive(l->last);
    if (n->bare || l->marks[TORCH_MARK_LOADER].open) /* or the call makes a batch */
        return s.deep;
    int known = s.optimizer || s.manual;
    if (gradients)
        put_probes(l, n);
    struct node *m = gradients && known ? n : model_of(n);
    if (m && !known)
        root_counts(l, m, gradients);
    if (gradients) {
        freshens(l);
        *node_trained(n) = s.number + 1, s.idle = s.evaluating = 0, s.row++;
        s.whole = known ? NULL : s.whole;
    } else if (!m) {
        s.evaluating = s.evaluated && s.fresh ? 2 : 0;
    } else {
        idles(l, m, n);
    }
    return s.deep;
}

void step_root_done(struct torch_thread *l) {
    if (l != s.leader || l->passes)
        return;
    s.root_end = l->last;
    work(0);
    steps_alive(l->last);
    if (s.evaluating)
        put_evaluation(l, 0);
    else if (s.fresh && s.idles)
        s.ends[s.idles - 1] = l->last;
    s.evaluating = 0;
}

void step_backward(struct torch_thread *l) {
    s.backward = s.passed = 1;
    s.asked = 0;
    steps_alive(sys_now());
    if (l == s.leader) {
        freshens(l);
        s.grouped = 0;
        s.fresh = s.amid = 1;
        steps_underway(1);
    }
}

/* ---- who steps ---- */

/* Whether the optimizer is another one than those that have stepped since the last pass: then it belongs to their step. */
static int is_another(void) {
    const void *now = frame_optimizer();
    int i = 0;
    s.certain = 1;
    while (i < GROUP && s.stepped[i] && s.stepped[i] != now)
        i++;
    int again = i < GROUP && now && s.stepped[i] == now;
    if (i < GROUP)
        s.stepped[i] = now;
    return !again;
}

/* The thread whose backward pass this thread is in: itself, or, for one of the engine's threads, any that has one; NULL: none. */
static struct torch_thread *in_pass(struct torch_thread *l) {
    struct torch_thread *of = l;
    for (unsigned i = 0; of && !(of->passes && of->generation == l->generation); i++)
        of = l->node.state || (torch_lib.pass && torch_lib.pass()) ? torch_thread_at(i) : NULL;
    return of;
}

static void optimizer_done(struct torch_thread *l) {
    struct torch_thread *pass = in_pass(l);
    if (pass) /* by a hook: the step ends with the pass */
        __atomic_store_n(&pass->stepped, 1, __ATOMIC_RELAXED);
    if (pass || s.manual)
        return;
    l->asked &= l->beside != 0;
    if (!counts(l)) {
        l->beside_from = l->beside++ ? l->beside_from : s.number;
        return;
    }
    s.unseen = -1;
    if (!s.grouped || !is_another()) {
        ended(l, TORCH_BY_OPTIMIZER, 0);
        memset(s.stepped, 0, sizeof s.stepped);
        s.stepped[0] = s.certain || s.number <= CERTAIN ? frame_optimizer() : NULL;
    }
    s.grouped = 1;
}

void step_backward_done(struct torch_thread *l) {
    if (__atomic_exchange_n(&l->stepped, 0, __ATOMIC_RELAXED))
        optimizer_done(l);
}

void step_compiled(struct torch_thread *l) {
    if (s.passed && !l->passes && !l->marks[TORCH_MARK_OPTIMIZER].open && frame_compiled())
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
    s.number = number < 0 ? s.number : (uint64_t)number;
    ended(l, TORCH_BY_MARK, 0);
}

/* ---- callbacks: no GIL, any thread ---- */

/* What a start callback passes to the end callback: an object whose virtual table has two destructors. Ours are two static objects, never freed. */
static void nothing(void *self UNUSED) {}
static void *const table[2] = {(void *)nothing, (void *)nothing};
static struct { void *const *table; } marks[TORCH_MARKS] = {{table}, {table}};

void *step_mark_begins(const char *name) {
    static const char *const heads[] = {"Optimizer.step#", "enumerate(DataLoader)#",
                                        "Optimizer.zero_grad#"};
    struct torch_thread *l;
    int k = 0;
    while (name && k <= TORCH_MARKS && strncmp(name, heads[k], strlen(heads[k])))
        k++;
    if (!name || k > TORCH_MARKS || !(l = torch_thread_here()) || l->depth >= TORCH_DEPTH - 8)
        return NULL;
    if (k == TORCH_MARKS)
        return zeroes(l), NULL;
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

void step_mark_ends(const void *rf UNUSED, void *mark) {
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

/* ---- life ---- */

void step_rate(uint32_t millionths) {
    s.rate = millionths;
}

void step_reset(int anew) {
    uint64_t n = anew ? 0 : s.number;
    s = (__typeof__(s)){.number = n, .first = n, .rate = s.rate, .deep = 1, .fresh = 1};
    frame_forget();
    counted = anew ? 0 : counted;
    __atomic_store_n(&steps_manual, manual, __ATOMIC_RELEASE);
}
