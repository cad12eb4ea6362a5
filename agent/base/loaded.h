/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loaded.h - finds a shared library that this process has loaded, by the beginning of its file name.
 *
 *     void *torch;
 *     if (!loaded_find("libtorch_cpu.so", &torch)) ... dlsym(torch, ...)
 *
 * Loads nothing. Takes the dynamic loader's lock for a moment: not for signal handlers.
 */
#ifndef PROBING_AGENT_LOADED_H
#define PROBING_AGENT_LOADED_H

/* 0 and, where `handle` is not NULL, one for dlsym(), which keeps the library loaded; or -ENOENT. */
int loaded_find(const char *library, void **handle);

#endif
