/* SPDX-License-Identifier: Apache-2.0 */
/* Lists all tasks, and finds which task awaits which. */
#include "tasks.h"

#include "task_read.h"
#include "traces/proc.h"

#include <stdio.h>

#define MAX_THREADS 4096
#define MAX_READS   (1u << 22)
#define MAX_CHAIN   20000 /* reads for the frames of one task */
#define MAX_CALLS   256   /* callbacks of one future */
#define MAX_DEPTH   4     /* futures between a task and its awaiter */

struct list {
    struct task_reader tr;
    struct pywalk_task *out;
    size_t max, n;
    int *more;
    uint64_t interp;
};

/* ---- which there are ------------------------------------------------------------------------- */

static struct pywalk_task *find_task(struct list *l, uint64_t addr) {
    for (size_t i = 0; i < l->n; i++)
        if (l->out[i].task == addr)
            return &l->out[i];
    return NULL;
}

static int add(void *ctx, uint64_t addr) {
    struct list *l = ctx;

    if (find_task(l, addr) != NULL)
        return 0;
    if (l->n == l->max) {
        *l->more = 1;
        return 1;
    }
    if (task_read(&l->tr, addr, &l->out[l->n]))
        l->out[l->n++].interp = l->interp;
    return 0;
}

/* Adds the task that a weak reference refers to, unless it is gone. */
static int add_weak(void *ctx, uint64_t addr) {
    struct list *l = ctx;
    struct object_type t;
    uint64_t object = 0;

    if (obj_type_of(&l->tr.r, addr, &t) &&
        (strcmp(t.native, "weakref.ReferenceType") == 0 || strcmp(t.native, "weakref") == 0))
        object = obj_pointer(&l->tr.r, addr + l->tr.f->weakref_object);
    return obj_error(&l->tr.r) == 0 && object != 0 ? add(l, object) : 0;
}

/* Adds the tasks that asyncio.tasks keeps: a WeakSet of tasks, and a set of eager ones (3.12+). False: the module is not imported. */
static bool from_module(struct list *l) {
    static const char *const weak_sets[] = {"_all_tasks", "_scheduled_tasks"}; /* 3.11, later */
    struct render *r = &l->tr.r;
    struct object_type t;
    struct dict_iter it;
    uint64_t modules = obj_pointer(r, l->interp + l->tr.f->modules), module, names, set, data;

    if (obj_dict_open(r, modules, &it) && !obj_dict_find(r, modules, "asyncio.tasks", &module))
        return false;
    if (r->rc == 0 && obj_expect(r, module, KIND_MODULE)) {
        names = obj_pointer(r, module + r->f->module_dict);
        for (size_t i = 0; i < sizeof weak_sets / sizeof *weak_sets; i++)
            if (obj_dict_find(r, names, weak_sets[i], &set) && obj_type_of(&l->tr.r, set, &t) &&
                obj_attrs_find(r, set, &t, "data", &data))
                task_each_in_set(&l->tr, data, add_weak, l);
        if (obj_dict_find(r, names, "_eager_tasks", &set))
            task_each_in_set(&l->tr, set, add, l);
    }
    obj_error(r);
    return true;
}

/* Adds a thread's tasks, 3.14+: a ring through the thread state and its tasks. */
static void from_thread(struct list *l, uint64_t tstate) {
    uint64_t head = tstate + l->tr.f->thread_tasks, node = obj_pointer(&l->tr.r, head);

    for (size_t guard = 0; obj_error(&l->tr.r) == 0 && node != head && node != 0 && guard < l->max;
         guard++) {
        if (add(l, node - l->tr.layout->node) != 0)
            return;
        node = obj_pointer(&l->tr.r, node);
    }
}

/* ---- who awaits whom --------------------------------------------------------------------------- */

static void awaits(struct pywalk_task *task, uint64_t awaiter) {
    for (uint32_t i = 0; i < task->awaiters && i < PYWALK_TASK_AWAITERS; i++)
        if (task->awaiter[i] == awaiter)
            return;
    if (awaiter == task->task)
        return;
    if (task->awaiters < PYWALK_TASK_AWAITERS)
        task->awaiter[task->awaiters] = awaiter;
    task->awaiters++;
}

struct found {
    struct list *l;
    struct pywalk_task *task;
    unsigned depth;
};

/* Finds a task's awaiters as CPython itself records them (3.14+), for tasks and for the futures between them. */
static int awaited_by(void *ctx, uint64_t addr) {
    struct found *up = ctx, next = *up;
    struct task_reader *tr = &up->l->tr;
    struct object_type t;
    enum future_kind kind = task_kind(tr, addr, &t);
    uint64_t by;
    uint8_t is_set;

    if (kind == FUTURE_TASK_C || kind == FUTURE_TASK_PYTHON) {
        if (find_task(up->l, addr) != NULL && addr != up->task->task)
            awaits(up->task, addr);
        if (addr != up->task->task)
            return 0;
    }
    if ((kind != FUTURE_C && addr != up->task->task) || ++next.depth > MAX_DEPTH)
        return 0;
    by = obj_pointer(&tr->r, addr + tr->layout->awaited_by);
    is_set = obj_u8(&tr->r, addr + tr->layout->is_set);
    if (obj_error(&tr->r) != 0 || by == 0)
        return 0;
    if (is_set != 0)
        task_each_in_set(tr, by, awaited_by, &next);
    else
        awaited_by(&next, by);
    return 0;
}

/* Tasks that wait for one of the tuple's items await `task`. */
static void tuple_waited_for(struct list *l, struct pywalk_task *task, uint64_t tuple, bool cells) {
    struct render *r = &l->tr.r;
    uint64_t n, items = obj_tuple(r, tuple, &n);

    for (uint64_t i = 0; i < n && i < 32 && r->rc == 0; i++) {
        uint64_t item = obj_pointer(r, items + i * 8);
        if (cells && r->rc == 0) {
            item = obj_is(r, item, KIND_CELL) ? obj_pointer(r, item + r->f->cell_value) : 0;
            item = obj_error(r) == 0 ? item : 0;
        }
        for (size_t k = 0; item != 0 && k < l->n; k++)
            if (l->out[k].waits_for == item)
                awaits(task, l->out[k].task);
    }
    obj_error(r);
}

/*
 * Follows a callback that will run when the task is done. gather(), wait() and shield() leave a function there whose
 * closure has what the awaiting task waits for; wait_for() a partial() with that; a TaskGroup one of its methods, and the group knows its task.
 */
static void callback(struct list *l, struct pywalk_task *task, uint64_t addr) {
    struct render *r = &l->tr.r;
    struct object_type t;
    uint64_t to;

    if (addr != 0 && obj_type_of(&l->tr.r, addr, &t)) {
        if (t.kind == KIND_FUNCTION && (to = obj_pointer(r, addr + l->tr.f->closure)) != 0)
            tuple_waited_for(l, task, to, true);
        else if (strcmp(t.name, "functools.partial") == 0) /* behind its function */
            tuple_waited_for(l, task, obj_pointer(r, addr + r->f->ob_head + 8), false);
        else if (t.kind == KIND_METHOD &&
                 obj_type_of(&l->tr.r, to = obj_pointer(r, addr + r->f->method_self), &t) &&
                 obj_attrs_find(r, to, &t, "_parent_task", &to) && find_task(l, to) != NULL)
            awaits(task, to);
    }
    obj_error(r);
}

/* Follows the callbacks of a task: the first one by itself, the others as a list of (callback, context). */
static void callbacks(struct list *l, struct pywalk_task *task) {
    const struct task_layout *at = l->tr.layout;
    struct render *r = &l->tr.r;
    struct object_type t;
    uint64_t first = 0, list = 0, items, n, pair, count;
    enum future_kind kind = task_kind(&l->tr, task->task, &t);

    if (kind == FUTURE_TASK_C) {
        first = obj_pointer(r, task->task + at->callback);
        list = obj_pointer(r, task->task + at->callbacks);
    } else if (kind == FUTURE_TASK_PYTHON) {
        obj_attrs_find(r, task->task, &t, "_callbacks", &list);
    }
    if (obj_error(r) != 0)
        return;
    callback(l, task, first);
    if (list != 0 && obj_is(r, list, KIND_LIST)) {
        n = obj_count(r, list + r->f->ob_size);
        items = obj_pointer(r, list + r->f->list_items);
        for (uint64_t i = 0; i < n && i < MAX_CALLS && r->rc == 0; i++) {
            pair = obj_tuple(r, obj_pointer(r, items + i * 8), &count);
            first = obj_pointer(r, pair);
            if (obj_error(r) == 0)
                callback(l, task, first);
        }
    }
    obj_error(r);
}

/* ---- all of it --------------------------------------------------------------------------------- */

int pywalk_tasks(const struct pywalk_objects *ob, struct pywalk_task *out, size_t max, int *more) {
    AUTO_FREE struct pywalk_thread *threads = NULL;
    struct list l = {.out = out, .max = max < INT32_MAX ? max : INT32_MAX};
    uint64_t last = 0;
    int rc = task_reader_init(&l.tr, ob, MAX_READS), dummy = 0, cut = 0, n, known = 0;

    l.more = more != NULL ? more : &dummy;
    *l.more = 0;
    if (rc != 0)
        return rc;
    threads = malloc(MAX_THREADS * sizeof *threads);
    if (threads == NULL)
        return -ENOMEM;
    n = pywalk_threads(ob->pw, threads, MAX_THREADS, &cut);
    for (int i = 0; i < n; i++) {
        l.interp = threads[i].interp;
        if (l.tr.f->thread_tasks != 0)
            from_thread(&l, threads[i].tstate);
        if (l.interp != last && from_module(&l))
            known = 1;
        last = l.interp;
    }
    if (n < 0)
        return n;
    if (cut != 0)
        *l.more = 1;
    for (size_t i = 0; i < l.n; i++) {
        struct found up = {&l, &out[i], 0};
        struct object_type t;
        for (size_t k = 0; k < l.n; k++)
            if (out[k].waits_for == out[i].task)
                awaits(&out[i], out[k].task);
        if (l.tr.layout->awaited_by != 0 && task_kind(&l.tr, out[i].task, &t) == FUTURE_TASK_C)
            awaited_by(&up, out[i].task);
        else
            callbacks(&l, &out[i]);
    }
    return l.n == 0 && !known ? -ENOENT : (int)l.n;
}

int pywalk_task_frames(const struct pywalk_objects *ob, struct pywalk_task *task,
                       struct pywalk_frame *out, size_t max) {
    struct task_reader tr;
    struct object_type t;
    uint64_t at = task->coroutine, next = 0;
    size_t n = 0;
    int rc = task_reader_init(&tr, ob, MAX_CHAIN), state;

    if (rc != 0)
        return rc;
    while (at != 0 && n < max) {
        rc = task_coroutine(&tr, at, &out[n], &state, &next);
        if (rc <= 0)
            break;
        for (size_t k = 0; k < n; k++) /* two that await each other: a torn read */
            if (out[k].frame == out[n].frame)
                return -EBADMSG;
        n++;
        at = next;
    }
    for (size_t i = 0; i < n / 2; i++) {
        struct pywalk_frame swap = out[i];
        out[i] = out[n - 1 - i];
        out[n - 1 - i] = swap;
    }
    if (task->waits_for != 0)
        at = task->waits_for;
    task->waits_on[0] = '\0';
    if (at != 0 && obj_type_of(&tr.r, at, &t) && t.kind != KIND_GENERATOR) {
        snprintf(task->waits_on, sizeof task->waits_on, "%s", obj_short(t.name));
        for (char *c = task->waits_on; *c != '\0'; c++)
            if ((unsigned char)*c < ' ' || (unsigned char)*c > '~')
                *c = '?';
    }
    return rc < 0 && n == 0 ? rc : (int)n;
}
