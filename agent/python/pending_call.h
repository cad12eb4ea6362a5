/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pending_call.h - moments in which CPython's C API (capi.h) may be used, without a thread of ours that waits for the GIL.
 *
 *     pending_call_ask(work);    // work() runs soon in the main thread, between two bytecodes, with the GIL held and no exception set
 *
 * A moment is Py_AddPendingCall: nobody waits for it, no thread is made and no lock taken; while the main
 * thread is in C code it comes late.
 */
#ifndef PROBING_AGENT_PENDING_CALL_H
#define PROBING_AGENT_PENDING_CALL_H

/* `work` must not block. At most one moment is on its way: it runs all that was asked for meanwhile, each once. 0; -EAGAIN: no
 * Python (yet), or its queue is full; -ENOSPC: more than 8 different works. Any thread, with or without the GIL. */
int pending_call_ask(void (*work)(void));

#endif
