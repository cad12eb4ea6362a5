/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/torch/torch_slot.h"

#include <stdio.h>

#include "agent/base/loaded.h"
#include "agent/python/capi.h"
#include "agent/torch/torch_back.h"
#include "agent/torch/torch_cuda.h"
#include "agent/torch/torch_frame.h"
#include "agent/torch/torch_name.h"
#include "agent/torch/torch_step.h"
#include "agent/torch/torch_thread.h"
#include "traces/map.h"

#define TYPES_MAX (1u << 16)
#define RESCAN_NS 5000000000u

typedef void *call_fn(void *self, void *args, void *kw);

/* A class and what its slot held before. It is referred to only by the weak reference `weak`, so it is not kept alive. */
struct type {
    void *type, *weak;
    call_fn *was;
};

static struct type *types;
static size_t ntypes;
static struct map type_index; /* a class's address -> index + 1 */
static call_fn *usual;        /* what the slot of nearly every class held */
static int all_usual;         /* 1: of every class */
static void *module_type;     /* nn.Module, borrowed for as long as it carries our slot */
static void *base, *hook;     /* nn.Module; our __init_subclass__, or NULL: it has its own */
static uint64_t rescanned;
static struct py_method *engine_def;
static void *engine_was;
static capi_function *eval_frame_was;

static call_fn **slot_of(void *type) {
    return capi_at(type, CAPI_TP_CALL);
}

static struct type *type_find(const void *type) {
    uint32_t i = map_find(&type_index, (uint64_t)(uintptr_t)type);
    return i && capi_weak(types[i - 1].weak) == type ? &types[i - 1] : NULL;
}

/* ---- the call ---- */

static call_fn *original(void *self) {
    if (__builtin_expect(all_usual, 1))
        return usual;
    /* A class that a metaclass made, or that inherits the slot in C: take the nearest class that we know. */
    struct type *t = type_find(capi_type(self));
    return t ? t->was : usual;
}

static void scan(void);

/* Returns 1 when a pass computes nothing and only shows its graph: operators are traced (PROXY: torch.compile, torch.export, make_fx), or tensors
 * have no values (FAKE: torch.export traces in it, and has its PROXY on the pre-dispatch stack, which is not asked here). */
static int traces(void) {
    int found = 0;
    if (!torch_lib.modes || !torch_lib.modes(0))
        return 0;
    void *c = capi_module("torch._C");
    CAPI_AUTO void *keys = capi_attr(c, "_TorchDispatchModeKey"),
                   *get = capi_attr(c, "_get_dispatch_mode");
    for (int i = 0; i < 2 && !found; i++) {
        CAPI_AUTO void *key = capi_attr(keys, i ? "FAKE" : "PROXY"),
                       *mode = key ? capi_call(get, key) : NULL;
        found = mode && mode != py.None;
    }
    py.PyErr_Clear();
    return found;
}

/* An outermost call on its thread begins. Returns 0 if it is not to be recorded. */
static int begin_outermost(struct torch_thread *l, struct node *n) {
    if (slots_lost() || (l->last - rescanned > RESCAN_NS && l->last > rescanned))
        scan();
    if ((l->inside && (l->inside = frame_inside())) || traces())
        return 0; /* recording began within a call of a module that we have not seen */
    if (__builtin_expect(cuda_waits, 0))
        cuda_look(l->last);
    l->root = n;
    l->muted = !step_root(l, n);
    return 1;
}

/* What is kept for a call until it ends. */
struct call {
    struct node *node, *up;
    uint32_t generation, outer, depth;
};

/* TORCH_FAILED after an exception, except torch's own, by which it ends a recomputation once it has all tensors (checkpoint, use_reentrant=False). */
static __attribute__((noinline)) unsigned failed(void) {
    const void *type = py.PyErr_Occurred();
    return type && !strcmp(capi_type_name(type), "_StopRecomputationError") ? 0 : TORCH_FAILED;
}

/* The call is over. Returns 1 if it was recorded. */
static inline __attribute__((always_inline)) int leave(struct torch_thread *l, const struct call *c,
                                                       const void *result) {
    if (__builtin_expect(l->generation != c->generation, 0))
        return 0; /* the recording ended meanwhile, or this is a forked child */
    if (!c->node->quiet) {
        back_entered(l);
        torch_thread_exit(l, c->depth, result ? 0 : failed());
        l->call = c->outer;
    }
    l->top = l->top == c->node ? c->up : NULL; /* a greenlet's call may outlive the one around it */
    if (!c->up && !c->node->bare)
        step_root_done(l);
    return !c->node->quiet;
}

/* The rest of torch_call() where there is a GPU. */
static __attribute__((noinline)) void *call_with_gpu(struct torch_thread *l, const struct call *c,
                                                     call_fn *was, void *self, void *args,
                                                     void *kw) {
    uint64_t ts = l->last;
    uint32_t call = l->call, name = c->node->id;
    uint32_t pair = c->node->quiet ? 0 : cuda_begin(l, STAGE_FORWARD, call, name);
    void *result = was(self, args, kw);
    if (l->generation == c->generation && !c->node->quiet)
        cuda_end(l, pair);
    if (leave(l, c, result) && result)
        cuda_memory_call(l, call, name, ts);
    return result;
}

static void *torch_call(void *self, void *args, void *kw) {
    call_fn *was = original(self);
    struct torch_thread *l = torch_thread_here();
    if (!l || l->depth >= TORCH_DEPTH - 8 || (l->muted && l->top))
        return was(self, args, kw);
    struct node *up = l->top;
    struct node *n = node_find(up, self);
    if (__builtin_expect(!n, 0) && !(n = node_make(l, up, self)))
        return was(self, args, kw);
    if (__builtin_expect(n->edition != l->edition, 0) && !node_write(n, l->edition))
        return was(self, args, kw);
    if (!up && !begin_outermost(l, n))
        return was(self, args, kw);

    struct call c = {.node = n, .up = up, .generation = l->generation, .outer = l->call};
    l->top = n;
    if (!n->quiet) {
        back_entered(l);
        l->call = l->next_call;
        c.depth = torch_thread_enter(l, l->passes ? TORCH_AGAIN : TORCH_ENTER, n->id);
        back_call(l, l->call, c.outer, n->id);
    }
    if (__builtin_expect(cuda_on, 0)) {
        struct call copy = c; /* so that c itself stays in registers */
        return call_with_gpu(l, &copy, was, self, args, kw);
    }
    void *result = was(self, args, kw);
    leave(l, &c, result);
    return result;
}

/* ---- classes ---- */

/* Appends a class to the list, which has space for it. Returns 0 or -ENOMEM. */
static int add(struct type made) {
    int rc = map_put(&type_index, (uint64_t)(uintptr_t)made.type, (uint32_t)ntypes + 1);
    if (!rc)
        types[ntypes++] = made;
    return rc;
}

/* Removes classes that are gone from the list. */
static void drop_gone(void) {
    size_t n = ntypes;
    ntypes = 0;
    map_free(&type_index);
    for (size_t i = 0; i < n; i++)
        if (capi_weak(types[i].weak) != types[i].type || add(types[i]))
            py.Py_DecRef(types[i].weak);
}

static int patch(void *type) {
    call_fn *now = *slot_of(type);
    if (now == torch_call || !now)
        return 0;
    struct type *t = type_find(type);
    if (!t) {
        if (ntypes && !(ntypes & (ntypes - 1))) /* the list would grow */
            drop_gone();
        struct type made = {.type = type, .weak = py.PyWeakref_NewRef(type, NULL), .was = now};
        if (!made.weak || ntypes >= TYPES_MAX || array_grow(&types, ntypes, sizeof *types) ||
            add(made)) {
            capi_unref(made.weak);
            py.PyErr_Clear();
            return 0;
        }
        t = &types[ntypes - 1];
    }
    t->was = now;
    if (!usual)
        usual = now;
    all_usual &= now == usual;
    __atomic_store_n(slot_of(type), torch_call, __ATOMIC_RELEASE);
    return 0;
}

/* Patches nn.Module and all classes derived from it. */
static void scan(void) {
    rescanned = sys_now();
    capi_classes(module_type, patch);
}

/* nn.Module's own __init_subclass__, a new reference; None: it has none. */
static void *own_init_subclass(void) {
    CAPI_AUTO void *names = capi_attr(base, "__dict__");
    return names ? py.PyObject_CallMethod(names, "get", "s", "__init_subclass__") : NULL;
}

/* nn.Module.__init_subclass__(cls, **kw): calls the next one in cls's method resolution order, then patches the slot. */
static void *init_subclass(void *cls, void *args, void *kw) {
    CAPI_AUTO void *super = capi_call(py.Super_Type, base, cls);
    CAPI_AUTO void *next = super ? py.PyObject_GetAttrString(super, "__init_subclass__") : NULL;
    void *result = next ? py.PyObject_Call(next, args, kw) : NULL;
    if (result && agent_word.torch && slots_lost())
        scan(); /* torch.fx has traced a graph and makes a class of it */
    else if (result && agent_word.torch)
        patch(cls);
    rescanned = 0; /* look again at the next outermost call: torch.fx now assigns __call__ */
    return result;
}

static struct py_method init_subclass_def = {"__init_subclass__", init_subclass,
                                             PY_VARARGS | PY_KEYWORDS, NULL};

/* ---- the engine and Dynamo ---- */

static void *run_backward(void *self, void *args, void *kw) {
    call_fn *was = engine_was;
    struct torch_thread *l = torch_thread_here();
    uint32_t generation, depth;
    struct back_pass pass;
    if (slots_lost())
        scan();
    if (!l || l->depth >= TORCH_DEPTH - 8 || (l->inside && (l->inside = frame_inside())))
        return was(self, args, kw);
    if (traces()) {
        l->unseen++;
        __atomic_fetch_add(&torch_threads_unseen, 1, __ATOMIC_RELAXED);
        void *graph = was(self, args, kw);
        __atomic_fetch_sub(&torch_threads_unseen, 1, __ATOMIC_RELAXED);
        l->unseen--;
        return graph;
    }
    generation = l->generation;
    step_backward(l);
    depth = back_begin(l, &pass);
    void *result = was(self, args, kw);
    if (l->generation == generation && back_end(l, &pass, depth, result ? 0 : TORCH_FAILED))
        step_backward_done(l);
    return result;
}

/* The method's definition lies in libtorch_python's data; the descriptor points to it behind type, name and qualname. */
static int hook_engine(void) {
    if (!engine_def) {
        CAPI_AUTO void *type = capi_attr(capi_module("torch._C"), "_ImperativeEngine");
        CAPI_AUTO void *d = capi_attr(type, "run_backward");
        struct py_method *def = NULL;
        if (d && !strcmp(capi_type_name(capi_type(d)), "method_descriptor"))
            def = *(struct py_method **)capi_at(d, CAPI_D_METHOD);
        if (def && def->name && !strcmp(def->name, "run_backward") &&
            def->flags == (PY_VARARGS | PY_KEYWORDS)) {
            engine_was = def->fn;
            engine_def = def;
        }
    }
    return engine_def && !loaded_patch(&engine_def->fn, run_backward) ? 0 : -ENOTSUP;
}

/* Stands in for Dynamo's set_eval_frame(callback), by which it enters compiled code (None: leaves it) and which it never traces. */
static void *set_eval_frame(void *self, void *callback, ssize_t n, void *names) {
    void *old = eval_frame_was(self, callback, n, names);
    struct torch_thread *l = old == py.None && callback != old ? torch_thread_here() : NULL;
    if (l)
        step_compiled(l);
    return old;
}

/* ---- life ---- */

int slots_install(char *why, size_t n) {
    CAPI_AUTO void *type =
        capi_attr(capi_module("torch.nn.modules.module"), "Module"); /* the module keeps it alive */
    if (!type)
        return -EAGAIN;
    CAPI_AUTO void *weak = py.PyWeakref_NewRef(type, NULL), *own = NULL;
    CAPI_AUTO void *outer = capi_attr(capi_module("torch._C"), "_dynamo"),
                   *dynamo = capi_attr(outer, "eval_frame");
    const char *wrong = py.PyType_GetSlot(type, PY_TP_CALL) != (void *)*slot_of(type)
                            ? "the slot of calls is not where this Python should have it"
                        : !weak || capi_weak(weak) != type
                            ? "weak references are not as this Python should have them"
                            : NULL;
    if (wrong) {
        snprintf(why, n, "%s", wrong);
    } else {
        module_type = base = type;
        all_usual = 1;
        usual = NULL;
        scan();
        frame_seen();
        if ((own = own_init_subclass()) == py.None &&
            (hook = py.PyDescr_NewClassMethod(type, &init_subclass_def)))
            py.PyObject_SetAttrString(type, "__init_subclass__", hook);
        if (!eval_frame_was)
            eval_frame_was = capi_replace(dynamo, "set_eval_frame", PY_ONE, set_eval_frame);
        if (hook_engine())
            snprintf(why, n, "no time of backward passes: the engine's method is not as expected");
    }
    py.PyErr_Clear();
    return wrong ? -ENOTSUP : 0;
}

void slots_remove(void) {
    if (!module_type)
        return;
    for (struct type *t = types; t < types + ntypes; t++)
        if (capi_weak(t->weak) == t->type && *slot_of(t->type) == torch_call)
            __atomic_store_n(slot_of(t->type), t->was, __ATOMIC_RELEASE);
    CAPI_AUTO void *own = own_init_subclass();
    if (own && own == hook)
        py.PyObject_SetAttrString(base, "__init_subclass__", NULL);
    py.PyErr_Clear();
    capi_unref(hook);
    hook = NULL;
    if (engine_def && engine_def->fn == (void *)run_backward)
        loaded_patch(&engine_def->fn, engine_was);
    module_type = NULL;
}

int slots_lost(void) {
    void *type = __atomic_load_n(&module_type, __ATOMIC_ACQUIRE);
    return type && __atomic_load_n(slot_of(type), __ATOMIC_RELAXED) != torch_call;
}

void slots_again(void) {
    if (module_type && !frame_call()) /* otherwise a part of the traced model would be outermost */
        scan();
}

unsigned slots_count(void) {
    return module_type ? (unsigned)ntypes : 0;
}
