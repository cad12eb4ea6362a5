/* SPDX-License-Identifier: Apache-2.0 */
/*
 * eval.h - runs Python source in the target for the mailbox, each on a thread of its own.
 *
 *     struct eval *e;
 *     eval_start(&e, source, len);              // copies source; agent_wake() is called at its end
 *     if (eval_done(e)) { reply(e->status, e->reply, e->reply_len); eval_free(e); }
 *     eval_abandon(e);                          // nobody waits any more: it frees itself when it ends
 *
 * The thread has all signals masked and takes the GIL as any foreign thread does (PyGILState_Ensure by
 * dlsym); agent/eval.py does the rest. The service thread alone calls these functions.
 */
#ifndef PROBING_AGENT_EVAL_H
#define PROBING_AGENT_EVAL_H

#include <stddef.h>

struct eval;

/* 0; -ENOMEM, -EAGAIN (no thread to be had); -EBUSY: EVAL_MAX of them wait for the GIL already. */
#define EVAL_MAX 4
int eval_start(struct eval **out, const char *source, size_t len);
int eval_done(const struct eval *e);
/* Of a finished one: status 0 or -errno, and the reply (JSON; for an error a line of text). */
int eval_status(const struct eval *e, const char **reply, size_t *n);
void eval_free(struct eval *e);
void eval_abandon(struct eval *e);
/* How many of its threads there are. Any thread. */
int eval_threads(void);
/* In a forked child: no such thread exists there. Async-signal-safe. */
void eval_after_fork(void);

#endif
