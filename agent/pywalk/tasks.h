/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tasks.h - reads asyncio's tasks from raw memory (3.11+): which tasks there are, where each of them waits, and which task awaits which.
 *
 *     struct pywalk_objects ob;                             // object.h
 *     n = pywalk_tasks(&ob, tasks, max, &more);
 *     d = pywalk_task_frames(&ob, &tasks[i], frames, max);  // then pywalk_code(), pywalk_frame_line()
 *
 * All tasks that are not done are listed: those of the C implementation (asyncio.Task), and those of Python classes that asyncio has in its own set
 * (3.14+ keeps C tasks in a list of each thread). An awaiter of a task is another task that cannot go on before it does: one that awaits
 * it directly, through gather(), wait(), wait_for() or shield(), or as the owner of its TaskGroup. CPython itself records
 * awaiters from 3.14 on; before, they are found in the callbacks that wait for the task.
 *
 * As for object.h: reads are guarded and counted; what is half-built or corrupt is left out; for use from outside the
 * target, best while it stands still. Layouts: task_table.inc (gen_tasks.py), and for the task itself, which is in no
 * header, from the debug information of _asyncio; each task's type must have the size given there, and its coroutine must be a coroutine.
 */
#ifndef PROBING_PYWALK_TASKS_H
#define PROBING_PYWALK_TASKS_H

#include "object.h"
#include "task.h"

/* Lists the tasks. Returns how many (at most max; *more set when there were more), or -errno. -ENOTSUP: before 3.11; -ENOENT:
 * asyncio has not been imported; -EAGAIN: Python is not initialised. */
int pywalk_tasks(const struct pywalk_objects *ob, struct pywalk_task *out, size_t max, int *more);

/* Lists the frames of the task's coroutines, innermost first. Returns how many, or -errno. For a running task these are only
 * the outer coroutines, which wait; the rest is on its thread's stack. Sets waits_on. */
int pywalk_task_frames(const struct pywalk_objects *ob, struct pywalk_task *task,
                       struct pywalk_frame *out, size_t max);

#endif
