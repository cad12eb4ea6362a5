/* SPDX-License-Identifier: Apache-2.0 */
/*
 * snapshot.h - the threads of a stop with a copy of the inner part of their stacks, to be unwound when the process
 * runs again.
 *
 *     rc = snapshot_take(&copy, &stop, &maps);
 *     stop_release(&stop);
 *     native_stack(native, &copy, i, ...);
 *     snapshot_free(&copy);
 *
 * The copy is a struct stop whose memory (stop_read) is the copied stacks, and for all else the running
 * process. 0 or -ENOMEM; snapshot_free() after both.
 */
#ifndef PROBING_INSPECT_SNAPSHOT_H
#define PROBING_INSPECT_SNAPSHOT_H

#include "proc.h"
#include "stop.h"

int snapshot_take(struct stop *copy, const struct stop *s, const struct proc_maps *maps);
void snapshot_free(struct stop *copy);

#endif
