/* SPDX-License-Identifier: Apache-2.0 */
/* task.h - what is read of an asyncio task (tasks.h). */
#ifndef PROBING_PYWALK_TASK_H
#define PROBING_PYWALK_TASK_H

#include <stdint.h>

#define PYWALK_TASK_AWAITERS 8

enum pywalk_task_state {
    PYWALK_TASK_CREATED, /* not started yet */
    PYWALK_TASK_WAITING,
    PYWALK_TASK_READY,  /* waits for nothing: runs in one of the loop's next iterations */
    PYWALK_TASK_RUNNING /* its coroutine is on a thread's stack just now */
};

struct pywalk_task {
    uint64_t task, coroutine;
    uint64_t waits_for; /* the future or task that it awaits, or 0 */
    uint64_t interp;    /* the interpreter that it belongs to */
    enum pywalk_task_state state;
    char name[128];    /* UTF-8 */
    char waits_on[96]; /* type of what its innermost coroutine awaits: "Future" ...; or "" */
    uint32_t awaiters; /* how many tasks await it; the first of them: */
    uint64_t awaiter[PYWALK_TASK_AWAITERS];
};

#endif
