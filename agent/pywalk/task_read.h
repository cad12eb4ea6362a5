/* SPDX-License-Identifier: Apache-2.0 */
/*
 * task_read.h - reading one asyncio task. Private to agent/pywalk (tasks.c, task_read.c).
 *
 *     struct task_reader tr;
 *     rc = task_reader_init(&tr, ob, 100000);
 *     rc = task_read(&tr, addr, &task);         // 1: it is one that is not done, 0: something else, or done
 */
#ifndef PROBING_PYWALK_TASK_READ_H
#define PROBING_PYWALK_TASK_READ_H

#include "object_render.h"
#include "task.h"

/* From the headers: task_table.inc. Frame states are those of a generator (gi_frame_state). */
struct task_fields {
    uint32_t modules; /* of the interpreter: sys.modules */
    uint32_t weakref_object, closure, gen_frame, gen_state;
    int32_t state_created, state_executing, state_cleared;
    int32_t state_awaits; /* 3.13+: awaiting is from here to below executing; plain yield is not */
    uint32_t stack_top;   /* up to 3.13: number of stack slots in use */
    uint32_t stack_pointer; /* later versions: address of the next free slot */
    uint32_t thread_tasks;  /* 3.14+: head of the thread's list of tasks */
};

/* Layout of a task of asyncio's C implementation, from the debug information of _asyncio (gdb: ptype /o TaskObj); a future begins likewise. */
struct task_layout {
    uint32_t low, high; /* PY_VERSION_HEX, inclusive */
    uint32_t size, callback, callbacks, state, waiter, coroutine, name;
    uint32_t awaited_by, is_set, node; /* 3.14+ */
};

struct task_reader {
    struct render r;
    struct object_type types[OBJ_KNOWN]; /* a cache: tasks have few types */
    const struct task_fields *f;
    const struct task_layout *layout;
};

/* `reads`: number of reads of the target's memory after which each one fails. */
int task_reader_init(struct task_reader *tr, const struct pywalk_objects *ob, uint32_t reads);

/* What kind of future the object is. */
enum future_kind { FUTURE_NONE, FUTURE_C, FUTURE_TASK_C, FUTURE_TASK_PYTHON };
/* Sets *t to the object's type, whatever its kind. */
enum future_kind task_kind(struct task_reader *tr, uint64_t addr, struct object_type *t);
/* Fills in *out except the awaiters; false: the object is no task, or one that is done or cannot be read. */
bool task_read(struct task_reader *tr, uint64_t addr, struct pywalk_task *out);
/* Calls fn for each element of the set at addr until it returns non-zero. */
void task_each_in_set(struct task_reader *tr, uint64_t addr, int (*fn)(void *ctx, uint64_t element),
                      void *ctx);
/* Gets the frame of a coroutine, a generator or an asynchronous generator, its state, and what it awaits (0: nothing, or not known).
 * Returns 1; 0: the object is none of these, or has ended; -errno. */
int task_coroutine(struct task_reader *tr, uint64_t addr, struct pywalk_frame *frame, int *state,
                   uint64_t *awaits);

#endif
