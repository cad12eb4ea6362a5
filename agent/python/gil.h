/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gil.h - runs work that needs the GIL, either in a thread of ours that takes the GIL as any foreign thread does (PyGILState_Ensure), or
 * in the main thread while it holds the GIL.
 *
 *     gil_ask(tell_package, NULL, NULL);      // soon tell_package(NULL) runs, with the GIL
 *
 * A thread may hold the GIL for ever. So at most one thread of ours waits for it, however much work is queued meanwhile; it does the
 * oldest piece of work and leaves the next one to another thread, since some take long (evaluations). Any thread may call these functions
 * once capi_load() has succeeded. Not async-signal-safe.
 */
#ifndef PROBING_AGENT_GIL_H
#define PROBING_AGENT_GIL_H

/* Runs fn(arg) soon, with the GIL. Then, or instead if Python ends before, calls end(arg) without the GIL; `end` may be NULL. Returns 0; -EALREADY:
 * the same fn and arg are queued already, and `end` is not called a second time for them; -EBUSY: too much is queued; or -errno. */
int gil_ask(void (*fn)(void *), void *arg, void (*end)(void *));
/* Removes queued work. Returns 1 if it had not begun: then neither fn nor `end` is called. */
int gil_take_back(void (*fn)(void *), void *arg);
/*
 * The same without a thread of ours, for work that must not block: work() runs soon in the main thread, between two bytecodes, with no
 * exception set (Py_AddPendingCall). A main thread that does not get to it within a second is waiting in C, perhaps for a thread that
 * trains: then the work runs in a thread of ours after all. At most one call is pending; it runs all work that was asked for meanwhile, each
 * function once. Returns 0; -EAGAIN: no Python (yet), or its queue is full; -ENOSPC: more than 8 functions. Any thread, with or without the GIL.
 */
int gil_pending(void (*work)(void));

/* Called when a recording begins; in a process without one, gil_ask() calls it. */
void gil_open(void);
/* In a forked child: empties the queues, since no thread waits there and no call is pending. Async-signal-safe. */
void gil_after_fork(void);

#endif
