/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loaded.h - the shared libraries that this process has loaded: by name, by their functions, and as the dynamic loader's list.
 *
 *     void *torch;
 *     if (!loaded_find("libtorch_cpu.so", &torch)) ... dlsym(torch, ...)
 *     missing = loaded_functions(torch, list, n);             // looks up all functions that a part needs from a library
 *
 * Nothing here loads a library. Functions that return or take a handle take the loader's lock: not for signal handlers. The list is read by
 * system calls (memory.h), so that it may change meanwhile, and without that lock, which may be held for ever in a forked child.
 */
#ifndef PROBING_AGENT_LOADED_H
#define PROBING_AGENT_LOADED_H

#include <link.h>

/* Finds the first library whose file name begins with `library`. 0 or -ENOENT. *handle: for dlsym(), keeps the library loaded; may be NULL. */
int loaded_find(const char *library, void **handle);

struct loaded_function {
    const char *name, *older; /* `older`: name to try when `name` is missing; may be NULL */
    void *to;                 /* address of the function pointer to fill in */
    int optional;             /* whether it may be missing; the pointer is then NULL */
};
/* Returns the name of the last function that is missing and not optional, or NULL. */
const char *loaded_functions(void *handle, const struct loaded_function *list, size_t n);

/* Calls fn with each entry's address and a copy of the entry, the program's entry first, until fn returns a value other than 0; returns
 * that value. Returns -EAGAIN when the list cannot be read to its end. */
int loaded_each(int (*fn)(void *ctx, uint64_t at, const struct link_map *entry), void *ctx);
/* Returns a number that changes when a library is loaded or unloaded, or 0 when the list cannot be read. *n: number of entries; n may be NULL. */
uint64_t loaded_fingerprint(uint32_t *n);

/* ---- Replacing a pointer in a loaded library's data while the program runs: an entry of a virtual table or of the GOT. A thread that
 * calls through it meanwhile gets the old or the new function. ---- */

/* Stores `value` at `place`. A page that the loader has made read-only (RELRO) is made read-only again. Returns 0 or -errno. */
int loaded_patch(void *place, void *value);
/* Returns the GOT entry through which the library of `handle` (from dlopen()) calls `name`; or NULL when it has none, or when the entry holds
 * neither `original` nor the stub of a function that was not called yet (so somebody else has replaced it). */
void **loaded_import(void *handle, const char *name, const void *original);

#endif
