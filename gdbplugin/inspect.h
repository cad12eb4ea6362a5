/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inspect.h - libprobing-inspect: looks into a live process from outside, and brings the agent into it. Used by
 * the GDB plugin through ctypes, and by `probing -t PID`.
 *
 *     char *out;
 *     int rc = inspect_backtrace(pid, INSPECT_JSON, &out);
 *     if (rc == 0) puts(out); else fprintf(stderr, "cannot ...: %s\n", out);
 *     inspect_free(out);
 *
 * Each function returns 0 or -errno and sets *out: the answer, or one line that says what is wrong and what to do
 * (NULL only without memory). Not thread-safe; nothing here prints or exits.
 *
 * The process is stopped by PTRACE_SEIZE and PTRACE_INTERRUPT for as short as possible (milliseconds), or,
 * with INSPECT_BORROW, is standing still already because the calling thread traces it (GDB's main
 * thread). inspect_inject() must not be called while GDB is attached: detach first.
 */
#ifndef PROBING_INSPECT_H
#define PROBING_INSPECT_H

#include <stdint.h>

#define INSPECT_EXPORT __attribute__((visibility("default")))

#define INSPECT_BORROW 1u /* do not stop it: it is traced by this thread and stands still */
#define INSPECT_JSON   2u
#define INSPECT_PYTHON 4u /* Python frames only */
#define INSPECT_FORCE  8u /* inject in spite of a seccomp filter */

#define INSPECT_STOOD UINT64_MAX

/* The stacks of all threads, Python and native frames merged, as text or JSON. */
INSPECT_EXPORT int inspect_backtrace(int pid, unsigned flags, char **out);

/*
 * Loads the agent. lib_dir: where libprobing-inject.so and libprobing-agent.so lie. conf: KEY=VALUE lines for it
 * (agent.h), may be empty; a relative PROBING_TRACE is relative to the target's working directory. stood_ns: how long
 * the target has stood still already (GDB's attach), added to what is reported; INSPECT_STOOD: it did, nobody knows
 * how long, and the report says so.
 * *out: one line for people, "recording PID into PATH ...". Idempotent: a process that records
 * already is left alone, and the line says so.
 */
INSPECT_EXPORT int inspect_inject(int pid, const char *lib_dir, const char *conf, unsigned flags,
                                  uint64_t stood_ns, char **out);

/* What the agent in the process says of itself, as text or JSON. -ENOENT: there is no agent. */
INSPECT_EXPORT int inspect_status(int pid, unsigned flags, char **out);

/* A request to the agent (kind: enum mail_kind of live.h); *out is the reply. -ENOENT: no agent. */
INSPECT_EXPORT int inspect_mail(int pid, int kind, const char *request, int timeout_ms, char **out);

INSPECT_EXPORT void inspect_free(char *text);

#endif
