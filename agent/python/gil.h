/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gil.h - work for a thread of ours that takes the GIL as any foreign thread does (PyGILState_Ensure).
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
/* In a forked child: nobody waits. Async-signal-safe. */
void gil_after_fork(void);

#endif
