/* SPDX-License-Identifier: Apache-2.0 */
/*
 * process.h - records what the kernel and the environment tell about this process, for process_part.c. The writer's thread only.
 *
 * modules.c: which ELF files are mapped where, and when that changes: module and module_unload records.
 *
 *     modules_take(writer);             // each second (cheap while nothing is loaded), and at the end
 *     modules_free();
 *
 * /proc/thread-self/maps is read only when the dynamic loader's list (agent/base/loaded.h) has changed.
 *
 * facts.c: the software and the machine that the process uses: fact records. They are the environment variables that the setting `environment`
 * lists (none that looks like a secret), the versions of Python packages whose libraries are mapped, kernel, CPU, driver and cgroup limits.
 *
 *     facts_take(writer, now);                 // each second (now: ns of CLOCK_MONOTONIC): writes what is new or has changed
 *     facts_reset();                           // at the start of another recording
 *
 * All this is read from files and from the environment's memory; no code of the program runs.
 */
#ifndef PROBING_AGENT_PROCESS_H
#define PROBING_AGENT_PROCESS_H

#include "writer/writer.h"

/* Writes a module record for each new module (for all modules when the dictionary epoch has changed), and module_unload for each that is gone. */
void modules_take(struct writer *w);
/* Returns the path of the i-th mapped module, valid until the next modules_take(); NULL after the last one. */
const char *modules_path(size_t i);
/* Frees the list of modules: another recording begins with an empty one. */
void modules_free(void);
/* Empties the list in a forked child, without freeing its memory. Async-signal-safe. */
void modules_forget(void);

void facts_take(struct writer *w, uint64_t now);
void facts_reset(void);

#endif
