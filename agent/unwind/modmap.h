/* SPDX-License-Identifier: Apache-2.0 */
/*
 * modmap.h - which loaded module a program counter lies in, and where its unwind table is.
 *
 * The sampler thread follows the dynamic loader's list of modules by reading it from outside (no loader lock is ever taken: the target
 * may hold it, or fork while we would) and publishes an immutable sorted snapshot; signal handlers use the newest.
 *
 *     modmap_refresh(&m);                    // sampler thread, now and then: cheap when nothing changed
 *     struct modmap_view *v = modmap_view(&m);
 *     hdr = modmap_find(v, pc);              // any thread, async-signal-safe
 *
 * A snapshot lives until modmap_reclaim(), which the sampler thread calls when after the refresh it has seen no handler
 * at work (quiesce.h).
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
    struct modmap_view *older; /* superseded, waiting for modmap_reclaim() */
    size_t bytes;              /* of this mapping */
    uint32_t generation;       /* changes when a module went away */
    uint32_t n;
    struct modmap_module module[];
};

#define MODMAP_UNKNOWN 64u
struct modmap {
    struct modmap_view *view;         /* (a) newest, NULL before the first refresh */
    uint64_t fingerprint;             /* of the loader's list when it was read last */
    uint32_t missed;                  /* (a) somebody asked for a pc that no module covers */
    uint64_t unknown[MODMAP_UNKNOWN]; /* (a) 64 KiB regions known not to be in the list, + 1 */
};

/* Reads the loader's list again if it changed. 1 a new snapshot was published, 0 nothing changed,
 * -EAGAIN the list is being changed just now, -ENOMEM. One thread at a time. */
int modmap_refresh(struct modmap *m);
/* Frees superseded snapshots: only while no reader can hold one. */
void modmap_reclaim(struct modmap *m);
static inline const struct modmap_view *modmap_view(const struct modmap *m) {
    return quiesce_read(&m->view);
}
/* The module that pc lies in, or NULL. Async-signal-safe. */
const struct modmap_module *modmap_find(const struct modmap_view *v, uint64_t pc);
/* No module covers pc: sets `missed`, unless the list has been searched for that region already (code that the
 * program generates is in no list). Async-signal-safe. */
void modmap_miss(struct modmap *m, uint64_t pc);

#endif
