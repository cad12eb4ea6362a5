/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tasks.h - asyncio's tasks from raw memory (3.11+): which there are, where each of them waits, and who awaits whom.
 *
 *     struct pywalk_objects ob;                             // object.h
 *     n = pywalk_tasks(&ob, tasks, max, &more);
 *     d = pywalk_task_frames(&ob, &tasks[i], frames, max);  // then pywalk_code(), pywalk_frame_line()
 *
 * Tasks that are not done are listed: those of C (asyncio.Task), and those of Python that asyncio has in its own set
 * (3.14+ keeps C tasks in a list of each thread). An awaiter is a task that cannot go on before this one does: it awaits
 * it directly, or through gather(), wait(), wait_for(), shield() or as the owner of its TaskGroup. CPython itself keeps
 * that from 3.14 on; before, it is found in the callbacks that wait for the task.
 *
 * As for object.h: reads are guarded and counted; what is half-built or corrupt is left out; for use from outside the
 * target, best while it stands still. Layouts: task_table.inc (gen_tasks.py), and for the task itself, which is in no
 * header, from the debug information of _asyncio; each task's type must have that size, and its coroutine must be one.
 */
#ifndef PROBING_PYWALK_TASKS_H
#define PROBING_PYWALK_TASKS_H

#include "object.h"
#include "task.h"

/* Lists them. How many (at most max; *more set when there were more), or -errno. -ENOTSUP: before 3.11; -ENOENT:
 * asyncio has not been imported; -EAGAIN: Python is not initialised. */
int pywalk_tasks(const struct pywalk_objects *ob, struct pywalk_task *out, size_t max, int *more);

/* The frames of its coroutines, innermost first. How many, or -errno. Of a running one only the outer
 * coroutines are known to wait; the rest is on its thread's stack. Sets waits_on. */
int pywalk_task_frames(const struct pywalk_objects *ob, struct pywalk_task *task,
                       struct pywalk_frame *out, size_t max);

#endif
