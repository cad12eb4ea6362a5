/* SPDX-License-Identifier: Apache-2.0 */
/*
 * addresses.h - the addresses of native code that the samples of a trace name, each with the module it lies in.
 *
 *     err = addresses_each(reader, epochs, modules, fn, ctx);
 *
 * calls fn(ctx, module, address in its ELF file) for each; some come more than once. A return address comes as the one
 * before it: the call's. They are those that converting looks up (resolve.h).
 */
#ifndef PROBING_CONVERTER_ADDRESSES_H
#define PROBING_CONVERTER_ADDRESSES_H

#include "modules.h"

/* fn returns 0, or an error that ends the walk. 0, what fn returned, or -ENOMEM; damaged blocks are left out. */
int addresses_each(struct reader *r, struct epochs *es, const struct modules *m,
                   int (*fn)(void *ctx, const struct module *mod, uint64_t address), void *ctx);

#endif
