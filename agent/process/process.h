/* SPDX-License-Identifier: Apache-2.0 */
/*
 * process.h - what the kernel and the environment say of this process, for process_part.c. The writer's thread only.
 *
 * modules.c: which ELF files are mapped where, and when that changed: module and module_unload records.
 *
 *     modules_take(writer);             // each second: cheap while nothing was loaded; and at the end
 *     modules_free();
 *
 * Whether something changed is seen in the loader's own list (agent/base/loaded.h). Then /proc/thread-self/maps is read.
 *
 * facts.c: what the process runs with and on: fact records. Environment variables that the setting `environment` lists (none
 * that looks like a secret), versions of Python packages whose libraries are mapped, kernel, CPU, driver, limits of the cgroup.
 *
 *     facts_take(writer, now);                 // each second (now: ns of CLOCK_MONOTONIC): writes what is new or has changed
 *     facts_reset();                           // another recording
 *
 * All of it is read from files and the environment's memory; no code of the program runs.
 */
#ifndef PROBING_AGENT_PROCESS_H
#define PROBING_AGENT_PROCESS_H

#include "writer/writer.h"

/* Writes a module record for what is new (and for everything when the dictionary epoch changed) and module_unload for what is gone. */
void modules_take(struct writer *w);
/* Path of the i-th that is mapped, valid until the next modules_take(); NULL behind the last. */
const char *modules_path(size_t i);
/* Another recording begins with none. */
void modules_free(void);
/* The same in a forked child, async-signal-safe: their memory stays. */
void modules_forget(void);

void facts_take(struct writer *w, uint64_t now);
void facts_reset(void);

#endif
