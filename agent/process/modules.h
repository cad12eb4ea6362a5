/* SPDX-License-Identifier: Apache-2.0 */
/*
 * modules.h - which ELF files are mapped where, and when that changed: module and module_unload records.
 *
 *     struct modules *m;
 *     modules_new(&m);
 *     modules_take(m, writer, 1);       // at the start, and at the end
 *     modules_take(m, writer, 0);       // each second: cheap while nothing was loaded
 *     modules_free(m);
 *
 * Whether something changed is told by the loader's own list, read through process_vm_readv: no loader
 * lock is taken (in a forked child it may be held for ever), and a list in the middle of a change cannot
 * fault. Then /proc/self/maps is read. The writer's thread only.
 */
#ifndef PROBING_AGENT_MODULES_H
#define PROBING_AGENT_MODULES_H

#include "writer/writer.h"

struct modules;

/* 0 or -ENOMEM. */
int modules_new(struct modules **out);
/* Writes a module record for what is new (and for everything when the dictionary epoch changed) and
 * module_unload for what is gone. `force`: read the maps even if the loader's list is as it was. 0 or
 * -errno. */
int modules_take(struct modules *m, struct writer *w, int force);
void modules_free(struct modules *m);

#endif
