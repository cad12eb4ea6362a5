/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loaded.h - the shared libraries that this process has loaded: by name, by their functions, and as the dynamic loader's list.
 *
 *     void *torch;
 *     if (!loaded_find("libtorch_cpu.so", &torch)) ... dlsym(torch, ...)
 *     missing = loaded_functions(torch, list, n);             // all that a part needs of a library, at once
 *
 * Loads nothing. What gives or takes a handle takes the loader's lock: not for signal handlers. The list is read from outside
 * (memory.h): no lock is taken, which in a forked child may be held for ever, and a list in the middle of a change cannot fault.
 */
#ifndef PROBING_AGENT_LOADED_H
#define PROBING_AGENT_LOADED_H

#include <link.h>

/* The first library whose file name begins so. 0 and, where `handle` is not NULL, one for dlsym(), which keeps the library loaded; or -ENOENT. */
int loaded_find(const char *library, void **handle);

struct loaded_function {
    const char *name, *older; /* older: taken where there is no `name`; may be NULL */
    void *to;                 /* address of the function pointer that is filled in */
    int optional;             /* it may be missing: then NULL */
};
/* Returns the name of the last one that is missing and not optional, or NULL. */
const char *loaded_functions(void *handle, const struct loaded_function *list, size_t n);

/* Calls fn with each entry's address and a copy of it, the program first, until it returns another number than 0, which is
 * returned; -EAGAIN: the list cannot be read to its end. */
int loaded_each(int (*fn)(void *ctx, uint64_t at, const struct link_map *entry), void *ctx);
/* A number that changes when a library is loaded or unloaded; 0: the list cannot be read. *n: how many there are; may be NULL. */
uint64_t loaded_fingerprint(uint32_t *n);

/* ---- a pointer of a loaded library's data, replaced while the program runs: an entry of a virtual table, or of its table of
 * imported functions. Who calls meanwhile gets the old or the new one. ---- */

/* Stores it; where the loader has made the page read-only (RELRO), it becomes so again. 0 or -errno. */
int loaded_patch(void *place, void *value);
/* The entry of the GOT through which the code of the library behind `handle` (dlopen's) calls `name`; NULL: it has none, or there is neither
 * `original` in it nor the stub of a function that was not called yet (so somebody else has put his own there). */
void **loaded_import(void *handle, const char *name, const void *original);

#endif
