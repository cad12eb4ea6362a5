/* SPDX-License-Identifier: Apache-2.0 */
/* All tasks, and who awaits whom. */
#include "tasks.h"

#include "task_read.h"

#include <stdio.h>
#include <stdlib.h>

#define MAX_THREADS 4096
#define MAX_READS   (1u << 20)
#define MAX_CHAIN   20000 /* reads for the frames of one task */
#define MAX_CALLS   256   /* callbacks of one future */
#define MAX_DEPTH   4     /* futures between a task and who awaits it */

struct list {
    struct task_reader tr;
    struct pywalk_task *out;
    size_t max, n;
    int *more;
    uint64_t interp;
};

/* ---- which there are ------------------------------------------------------------------------- */

static int add(void *ctx, uint64_t addr) {
    struct list *l = ctx;

    for (size_t i = 0; i < l->n; i++)
        if (l->out[i].task == addr)
            return 0;
    if (l->n == l->max) {
        *l->more = 1;
        return 1;
    }
    if (task_read(&l->tr, addr, &l->out[l->n]) > 0)
        l->out[l->n++].interp = l->interp;
    return 0;
}

/* A weak reference that is alive. */
static int add_weak(void *ctx, uint64_t addr) {
    struct list *l = ctx;
    struct object_type t;
    uint64_t object;

    if (task_type_of(&l->tr, addr, &t) != 0 || strcmp(t.native, "weakref.ReferenceType") != 0)
        if (strcmp(t.native, "weakref") != 0)
            return 0;
    if (obj_get_pointer(&l->tr.r, addr + l->tr.f->weakref_object, &object) != 0 || object == 0)
        return 0;
    return add(l, object);
}

/* What asyncio.tasks keeps: a WeakSet of tasks, and a set of eager ones (3.12+). -ENOENT: it is not imported. */
static int from_module(struct list *l) {
    static const char *const weak_sets[] = {"_all_tasks", "_scheduled_tasks"}; /* 3.11, later */
    struct render *r = &l->tr.r;
    struct object_type t;
    uint64_t modules, module, names, set, data;
    int rc = obj_get_pointer(r, l->interp + l->tr.f->modules, &modules);

    if (rc == 0)
        rc = obj_dict_find(r, modules, "asyncio.tasks", &module);
    if (rc == 0)
        rc = task_type_of(&l->tr, module, &t);
    if (rc == 0 && t.kind != KIND_MODULE)
        rc = -EBADMSG;
    if (rc == 0)
        rc = obj_get_pointer(r, module + (uint64_t)r->f->module_dict, &names);
    if (rc != 0)
        return rc;
    for (size_t i = 0; i < sizeof weak_sets / sizeof *weak_sets; i++)
        if (obj_dict_find(r, names, weak_sets[i], &set) == 0 &&
            task_type_of(&l->tr, set, &t) == 0 && obj_attrs_find(r, set, &t, "data", &data) == 0)
            task_each_in_set(&l->tr, data, add_weak, l);
    if (obj_dict_find(r, names, "_eager_tasks", &set) == 0)
        task_each_in_set(&l->tr, set, add, l);
    return 0;
}

/* 3.14+: a ring through the thread state and its tasks. */
static void from_thread(struct list *l, uint64_t tstate) {
    uint64_t head = tstate + l->tr.f->thread_tasks, node;

    if (obj_get_pointer(&l->tr.r, head, &node) != 0)
        return;
    for (size_t guard = 0; node != head && node != 0 && guard < l->max; guard++) {
        if (add(l, node - l->tr.layout->node) != 0 || obj_get_pointer(&l->tr.r, node, &node) != 0)
            return;
    }
}

/* ---- who awaits whom --------------------------------------------------------------------------- */

static struct pywalk_task *find_task(struct list *l, uint64_t addr) {
    for (size_t i = 0; i < l->n; i++)
        if (l->out[i].task == addr)
            return &l->out[i];
    return NULL;
}

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

/* 3.14+: CPython keeps it, for tasks and for the futures between them. */
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
    if (kind != FUTURE_C && addr != up->task->task)
        return 0;
    if (++next.depth > MAX_DEPTH ||
        obj_get_pointer(&tr->r, addr + tr->layout->awaited_by, &by) != 0 || by == 0 ||
        get(&tr->r, addr + tr->layout->is_set, &is_set, 1) != 0)
        return 0;
    if (is_set != 0)
        task_each_in_set(tr, by, awaited_by, &next);
    else
        awaited_by(&next, by);
    return 0;
}

/* Is that what some tasks wait for? Then they await this one. */
static void waited_for(struct list *l, struct pywalk_task *task, uint64_t object) {
    for (size_t i = 0; object != 0 && i < l->n; i++)
        if (l->out[i].waits_for == object)
            awaits(task, l->out[i].task);
}

static void tuple_waited_for(struct list *l, struct pywalk_task *task, uint64_t tuple, bool cells) {
    struct render *r = &l->tr.r;
    struct object_type t;
    uint64_t n, item;

    if (task_type_of(&l->tr, tuple, &t) != 0 || t.kind != KIND_TUPLE ||
        obj_get_count(r, tuple + (uint64_t)r->f->ob_size, &n) != 0)
        return;
    for (uint64_t i = 0; i < n && i < 32; i++) {
        if (obj_get_pointer(r, tuple + (uint64_t)r->f->tuple_items + i * 8, &item) != 0)
            return;
        if (cells && (task_type_of(&l->tr, item, &t) != 0 || t.kind != KIND_CELL ||
                      obj_get_pointer(r, item + (uint64_t)r->f->cell_value, &item) != 0))
            continue;
        waited_for(l, task, item);
    }
}

/*
 * A callback that will run when the task is done. gather(), wait() and shield() leave a function there that has in its
 * closure what the awaiting task waits for; wait_for() a partial() with it; a TaskGroup a method that knows its task.
 */
static void callback(struct list *l, struct pywalk_task *task, uint64_t addr) {
    struct render *r = &l->tr.r;
    struct object_type t;
    uint64_t to;

    if (addr == 0 || task_type_of(&l->tr, addr, &t) != 0)
        return;
    if (t.kind == KIND_FUNCTION && obj_get_pointer(r, addr + l->tr.f->closure, &to) == 0 && to != 0)
        tuple_waited_for(l, task, to, true);
    /* Behind its function. */
    if (strcmp(t.name, "functools.partial") == 0 &&
        obj_get_pointer(r, addr + (uint64_t)r->f->ob_head + 8, &to) == 0)
        tuple_waited_for(l, task, to, false);
    if (t.kind == KIND_METHOD && obj_get_pointer(r, addr + (uint64_t)r->f->method_self, &to) == 0 &&
        task_type_of(&l->tr, to, &t) == 0 && obj_attrs_find(r, to, &t, "_parent_task", &to) == 0 &&
        find_task(l, to) != NULL)
        awaits(task, to);
}

/* The callbacks of a future: the first one by itself, the others as a list of (callback, context). */
static void callbacks(struct list *l, struct pywalk_task *task) {
    const struct task_layout *at = l->tr.layout;
    struct render *r = &l->tr.r;
    struct object_type t;
    uint64_t first = 0, list = 0, items, n, pair;

    switch (task_kind(&l->tr, task->task, &t)) {
    case FUTURE_TASK_C:
        if (obj_get_pointer(r, task->task + at->callback, &first) != 0 ||
            obj_get_pointer(r, task->task + at->callbacks, &list) != 0)
            return;
        break;
    case FUTURE_TASK_PYTHON:
        if (obj_attrs_find(r, task->task, &t, "_callbacks", &list) != 0)
            return;
        break;
    default:
        return;
    }
    callback(l, task, first);
    if (list == 0 || task_type_of(&l->tr, list, &t) != 0 || t.kind != KIND_LIST ||
        obj_get_count(r, list + (uint64_t)r->f->ob_size, &n) != 0 ||
        obj_get_pointer(r, list + (uint64_t)r->f->list_items, &items) != 0)
        return;
    for (uint64_t i = 0; i < n && i < MAX_CALLS; i++)
        if (obj_get_pointer(r, items + i * 8, &pair) == 0 && task_type_of(&l->tr, pair, &t) == 0 &&
            t.kind == KIND_TUPLE &&
            obj_get_pointer(r, pair + (uint64_t)r->f->tuple_items, &first) == 0)
            callback(l, task, first);
}

/* ---- all of it --------------------------------------------------------------------------------- */

int pywalk_tasks(const struct pywalk_objects *ob, struct pywalk_task *out, size_t max, int *more) {
    struct pywalk_thread *threads;
    struct list l = {.out = out, .max = max < INT32_MAX ? max : INT32_MAX};
    uint64_t last = 0;
    int rc = task_reader_init(&l.tr, ob, MAX_READS), dummy = 0, rest = 0, n, known = 0;

    l.more = more != NULL ? more : &dummy;
    *l.more = 0;
    if (rc != 0)
        return rc;
    threads = malloc(MAX_THREADS * sizeof *threads);
    if (threads == NULL)
        return -ENOMEM;
    n = pywalk_threads(ob->pw, threads, MAX_THREADS, &rest);
    for (int i = 0; i < n; i++) {
        l.interp = threads[i].interp;
        if (l.tr.f->thread_tasks != 0)
            from_thread(&l, threads[i].tstate);
        if (l.interp != last && from_module(&l) != -ENOENT)
            known = 1;
        last = l.interp;
    }
    free(threads);
    if (n < 0)
        return n;
    if (rest != 0)
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
        for (size_t k = 0; k < n; k++) /* two that await each other: it was torn */
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
    if (at != 0 && task_type_of(&tr, at, &t) == 0 && t.kind != KIND_GENERATOR) {
        const char *dot = strrchr(t.name, '.');
        snprintf(task->waits_on, sizeof task->waits_on, "%s", dot != NULL ? dot + 1 : t.name);
        for (char *c = task->waits_on; *c != '\0'; c++)
            if ((unsigned char)*c < ' ' || (unsigned char)*c > '~')
                *c = '?';
    }
    return rc < 0 && n == 0 ? rc : (int)n;
}
