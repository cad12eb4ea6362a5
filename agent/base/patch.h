/* SPDX-License-Identifier: Apache-2.0 */
/*
 * patch.h - a pointer of a loaded library's data, replaced while the program runs: an entry of a virtual table, or of its table of
 * imported functions.
 *
 *     patch_word(&vtable[k], ours);
 *     void **slot = patch_import(handle, "_ZN2at...", original);       // where the library calls `original` through
 *
 * Whoever calls at that moment gets the old or the new one. Any thread; nothing here is async-signal-safe.
 */
#ifndef PROBING_AGENT_PATCH_H
#define PROBING_AGENT_PATCH_H

/* Stores it; where the loader has made the page read-only (RELRO), it becomes so again. 0 or -errno. */
int patch_word(void *place, void *value);

/*
 * handle: dlopen's. The slot through which the library's own code calls `name`; NULL: it has none, or there is neither `original`
 * in it nor the stub of a function that was not called yet (so somebody else has put his own there).
 */
void **patch_import(void *handle, const char *name, const void *original);

#endif
