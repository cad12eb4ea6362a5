/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gil.h - work that needs the GIL: for a thread of ours that takes it as any foreign thread does (PyGILState_Ensure), or for the
 * main thread, which has it.
 *
 *     gil_ask(tell_package, NULL, NULL);      // soon tell_package(NULL) runs, with the GIL
 *
 * Whoever has the GIL may keep it for ever. So at most one thread of ours waits for it, however much is asked for meanwhile;
 * it does the oldest work, and leaves the next one to another thread: some take long (evaluations). Any thread may ask; capi_load()
 * has gone well. Not async-signal-safe.
 */
#ifndef PROBING_AGENT_GIL_H
#define PROBING_AGENT_GIL_H

/* Afterwards, or instead when Python goes down before, `end` is called (may be NULL; without the GIL). 0; -EALREADY: that
 * waits already, and `end` is not called for it twice; -EBUSY: too much waits; or -errno. */
int gil_ask(void (*fn)(void *), void *arg, void (*end)(void *));
/* 1: it had not begun, and neither fn nor `end` will be called. */
int gil_take_back(void (*fn)(void *), void *arg);
/*
 * The same without a thread of ours, for what must not block: work() runs soon in the main thread, between two bytecodes, with no
 * exception set (Py_AddPendingCall). A main thread that does not come to it for a second waits in C, perhaps for one that
 * trains: then it runs on a thread of ours after all. At most one call is pending: it runs all that was asked for meanwhile, each
 * once. 0; -EAGAIN: no Python (yet), or its queue is full; -ENOSPC: more than 8 different works. Any thread, with or without the GIL.
 */
int gil_pending(void (*work)(void));

/* A recording begins; where none does, gil_ask() calls it. */
void gil_open(void);
/* In a forked child: nobody waits, and nothing is pending. Async-signal-safe. */
void gil_after_fork(void);

#endif
