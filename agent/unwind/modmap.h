/* SPDX-License-Identifier: Apache-2.0 */
/*
 * modmap.h - finds the loaded module that contains a program counter, and the module's unwind table.
 *
 * The sampler thread reads the dynamic loader's list of modules by system calls, without the loader's lock (the target may hold it, or
 * fork while we would hold it), and publishes an immutable sorted snapshot; signal handlers use the newest.
 *
 *     modmap_refresh(&m);                    // sampler thread, regularly: cheap when nothing has changed
 *     struct modmap_view *v = modmap_view(&m);
 *     hdr = modmap_find(v, pc);              // any thread, async-signal-safe
 *
 * A snapshot lives until modmap_reclaim(), which the sampler thread calls when it has seen, after the refresh, that no handler runs (quiesce.h).
 */
#ifndef PROBING_AGENT_MODMAP_H
#define PROBING_AGENT_MODMAP_H

#include <stddef.h>

#include "agent/base/quiesce.h"

struct modmap_module {
    uint64_t start, end; /* executable range */
    uint64_t hdr;        /* .eh_frame_hdr, 0 = none */
};

struct modmap_view {
    struct modmap_view *older; /* superseded snapshots, waiting for modmap_reclaim() */
    size_t bytes;              /* size of this mapping */
    uint32_t generation;       /* changes when a module was unloaded */
    uint32_t n;
    struct modmap_module module[];
};

#define MODMAP_UNKNOWN 64u
struct modmap {
    struct modmap_view *view;         /* (a) newest, NULL before the first refresh */
    uint64_t fingerprint;             /* fingerprint of the loader's list when it was last read */
    uint32_t missed;                  /* (a) a walk has met a pc that no module covers */
    uint64_t unknown[MODMAP_UNKNOWN]; /* (a) 64 KiB regions known not to be in the list, + 1 */
};

/* Reads the loader's list again if it has changed. Returns 1 when a new snapshot was published; 0 when nothing has changed;
 * -EAGAIN while the list is being changed; -ENOMEM. One thread at a time. */
int modmap_refresh(struct modmap *m);
/* Frees superseded snapshots: only while no reader can hold one. */
void modmap_reclaim(struct modmap *m);
static inline const struct modmap_view *modmap_view(const struct modmap *m) {
    return quiesce_read(&m->view);
}
/* Returns the module that contains pc, or NULL. Async-signal-safe. */
const struct modmap_module *modmap_find(const struct modmap_view *v, uint64_t pc);
/* To be called when no module covers pc: sets `missed`, unless the list has been searched for that region already (code that
 * the program generates is in no list). Async-signal-safe. */
void modmap_miss(struct modmap *m, uint64_t pc);

#endif
