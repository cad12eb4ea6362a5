/* SPDX-License-Identifier: Apache-2.0 */
/*
 * agent.h - what the stubs (preload, inject) call, and the settings that the agent reads.
 *
 * libprobing-preload.so  (preload.c; LD_PRELOAD; libc only)  in a Python process, and only there, it loads the agent from its own directory
 *                        and calls probing_agent_start(NULL, "preload"). It exports _exit, _Exit, execve, execv and fopen64: see there.
 * libprobing-inject.so   (inject.c; dlopened by the injector from a staging directory; libc only)  a thread of its own reads inject.conf
 *                        beside it (KEY=VALUE lines: the variables below, and PROBING_AGENT=path of libprobing-agent.so), loads the agent
 *                        and starts it with that text.
 * libprobing-agent.so    the agent. Exports the functions below, PyInit__probing (pymodule.c: `import probing` has it loaded as
 *                        an extension module), and nothing else.
 *
 * Settings, from the environment, or from the KEY=VALUE text, which then wins:
 *
 *   PROBING_TRACE         path of the main process's trace (default trace.zst in the working directory), or a directory
 *                         (existing, or ending in '/'). See below.
 *   PROBING_MAIN_PID      pid of the process whose trace is PROBING_TRACE itself (set by probing-record)
 *   PROBING_SESSION       opaque id of one probing-record run, recorded as config probing.session
 *   PROBING_RUN           identity of the run that this process is of (traces/run.h); unset: it is the first of a new one
 *   PROBING_REPORT        where to say that there is no recording (report.h)
 *   PROBING_RUN_DIR       where live files lie (live.h)
 *   PROBING_PASSIVE       1: record nothing, only answer the mailbox (probing eval and repl where nothing
 *                         records). No trace, no sampler, no forked child follows; it ends by itself after a minute
 *                         without a request
 *
 * and every setting of traces/settings.def under the name that setting_env() makes, PROBING_SAMPLE_RATE and so on;
 * PROBE_TORCH_EXPRS is another name of PROBING_TORCH_EXPRS.
 *
 * Trace names: traces/run.h has the rule. Where a process's name in FILE.d is taken (exec, a second recording, pid reuse): -2,
 * -3, ... before .zst.
 *
 * Segments (settings segment_size, retention_days): agent/core/rotation.h.
 *
 * Nothing in the agent ever exits, aborts or prints.
 */
#ifndef PROBING_AGENT_AGENT_H
#define PROBING_AGENT_AGENT_H

#define PROBING_EXPORT __attribute__((visibility("default")))
#define EXIT_WAIT_MS   3000 /* for the trace, when the process ends */

/*
 * Starts recording in this process: live file, trace, service and sampler threads. `conf`: KEY=VALUE
 * lines or NULL; `how`: "preload", "inject", "python" or "fork". Safe before Python is initialised (the sampler
 * waits for it). 0; -EALREADY when it records already; -errno. Not async-signal-safe.
 */
PROBING_EXPORT int probing_agent_start(const char *conf, const char *how);

/*
 * Ends recording: wakes the service thread and waits until it has closed the trace, at most timeout_ms. `status`: what exit()
 * or _exit() was called with, else -1. Async-signal-safe (atomics and futex only); a no-op in a process where the agent does
 * not run (after fork or vfork, or never started).
 */
PROBING_EXPORT void probing_agent_stop(const char *reason, int status, int timeout_ms);

/* The process is about to begin another program: of a forked child that is too young to be recorded, nothing is lost. Async-signal-safe. */
PROBING_EXPORT void probing_agent_exec(void);

/* How many threads of this process are the agent's own. Any thread. */
PROBING_EXPORT int probing_agent_threads(void);

#endif
