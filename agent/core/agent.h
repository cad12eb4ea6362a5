/* SPDX-License-Identifier: Apache-2.0 */
/*
 * agent.h - what the stubs (preload, inject) call, and the settings that the agent reads.
 *
 * libprobing-preload.so  (preload.c; LD_PRELOAD; libc only)  in a Python process, and only there, it loads the agent from its own directory
 *                        and calls probing_agent_start(NULL, "preload"). It exports some functions of libc: see there.
 * libprobing-inject.so   (inject.c; dlopened by the injector from a staging directory; libc only)  a thread of its own reads inject.conf
 *                        beside it (KEY=VALUE lines: the variables below, and PROBING_AGENT=path of libprobing-agent.so), loads the agent
 *                        and starts it with that text.
 * libprobing-agent.so    the agent. Exports the functions below, PyInit__probing (pymodule.c: `import probing` has it loaded as
 *                        an extension module), and nothing else.
 *
 * Settings come from the environment, or from the KEY=VALUE text, which takes precedence:
 *
 *   PROBING_TRACE         path of the main process's trace (default trace.zst in the working directory), or a directory
 *                         (existing, or ending in '/'). See below.
 *   PROBING_MAIN_PID      pid of the process whose trace is PROBING_TRACE itself (set by probing-record)
 *   PROBING_SESSION       opaque id of one probing-record run, recorded as config probing.session
 *   PROBING_RUN           identity of the run that this process belongs to (traces/run.h); unset: it is the first process of a new run
 *   PROBING_REPORT        where to report that a process is not recorded (report.h)
 *   PROBING_RUN_DIR       directory of the live files (live.h)
 *   PROBING_PASSIVE       1: record nothing, only answer the mailbox (for probing eval and repl in a process that is
 *                         not recorded). There is no trace and no sampler, and forked children are not recorded; the
 *                         agent ends by itself after a minute without a request
 *
 * and every setting of traces/settings.def, under the name that setting_env() makes (PROBING_SAMPLE_RATE and so on);
 * PROBE_TORCH_EXPRS is another name of PROBING_TORCH_EXPRS.
 *
 * Trace names: traces/run.h has the rule. When a process's name in FILE.d is taken (after exec, a second recording or pid reuse), -2,
 * -3, ... is inserted before .zst.
 *
 * Segments (settings segment_size, retention_days): agent/core/rotation.h.
 *
 * Nothing in the agent ever exits, aborts or prints.
 */
#ifndef PROBING_AGENT_AGENT_H
#define PROBING_AGENT_AGENT_H

#define PROBING_EXPORT __attribute__((visibility("default")))
#define EXIT_WAIT_MS   3000 /* how long a process that ends waits for its trace to be closed */

/*
 * Starts recording in this process: creates the live file, the trace, and the service and sampler threads. `conf`: KEY=VALUE
 * lines or NULL; `how`: "preload", "inject", "python" or "fork". May be called before Python is initialised (the sampler
 * waits for that). Returns 0; -EALREADY when the process is recorded already; or -errno. Not async-signal-safe.
 */
PROBING_EXPORT int probing_agent_start(const char *conf, const char *how);
/* Why that was refused, for the user; "": it was not, or it failed. */
PROBING_EXPORT const char *probing_agent_refusal(void);

/*
 * Ends recording: wakes the service thread and waits until it has closed the trace, for at most timeout_ms. `status`: the argument
 * of exit() or _exit(), else -1. Async-signal-safe (uses atomics and futexes only). Does nothing in a process where the agent does
 * not run (after fork or vfork, or when it was never started).
 */
PROBING_EXPORT void probing_agent_stop(const char *reason, int status, int timeout_ms);

/* Tells the agent that the process is about to exec: a forked child that is too young to be recorded is then not counted as lost. Async-signal-safe. */
PROBING_EXPORT void probing_agent_exec(void);

/* Returns the number of this process's threads that belong to the agent. Callable from any thread. */
PROBING_EXPORT int probing_agent_threads(void);

#endif
