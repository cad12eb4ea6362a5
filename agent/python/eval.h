/* SPDX-License-Identifier: Apache-2.0 */
/*
 * eval.h - runs Python source in the target for the mailbox, each on a thread of its own.
 *
 *     struct eval *e;
 *     eval_start(&e, "eval", source, len);      // copies both; agent_wake() is called at its end
 *     if (eval_done(e)) { reply(e->status, e->reply, e->reply_len); eval_free(e); }
 *     eval_interrupt(e);                        // KeyboardInterrupt in it, soon
 *     eval_free(e);                             // also of one that still runs: it frees itself when it ends
 *
 * The thread has all signals masked and waits for the GIL (gil.h); agent/python/eval.py does the rest. One that is freed before
 * it has the GIL never runs. The service thread alone calls these functions.
 */
#ifndef PROBING_AGENT_EVAL_H
#define PROBING_AGENT_EVAL_H

#include <stddef.h>

struct eval;

/* 0; -ENOMEM, -EAGAIN (no thread to be had); -EBUSY: EVAL_MAX of them have not ended. */
#define EVAL_MAX 8
/* options: "eval", "input", ..., as evaluate() in eval.py says; at most EVAL_OPTIONS - 1 bytes. */
#define EVAL_OPTIONS 128
int eval_start(struct eval **out, const char *options, const char *source, size_t len);
int eval_done(const struct eval *e);
/* Of a finished one: status 0 or -errno, and the reply (JSON; for an error a line of text). */
int eval_status(const struct eval *e, const char **reply, size_t *n);
/* Raises KeyboardInterrupt at the next bytecode of the code that is evaluated. Does not wait; C code is not interrupted. */
void eval_interrupt(struct eval *e);
void eval_free(struct eval *e);
/* In a forked child: no such thread exists there. Async-signal-safe. */
void eval_after_fork(void);

#endif
