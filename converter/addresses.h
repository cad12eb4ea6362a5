/* SPDX-License-Identifier: Apache-2.0 */
/*
 * addresses.h - enumerates the addresses of native code in the stacks of a trace's samples, each with the module that contains it.
 *
 *     err = addresses_each(reader, epochs, modules, fn, ctx);
 *
 * It calls fn(ctx, module, address in its ELF file) for each address; it may report an address more than once. For a return address it
 * reports the byte before, which belongs to the call instruction. These are the same addresses that a conversion looks up (resolve.h).
 */
#ifndef PROBING_CONVERTER_ADDRESSES_H
#define PROBING_CONVERTER_ADDRESSES_H

#include "modules.h"

/* Returns 0, an error that fn returned (which ends the walk), or -ENOMEM. Skips damaged blocks. */
int addresses_each(struct reader *r, struct epochs *es, const struct modules *m,
                   int (*fn)(void *ctx, const struct module *mod, uint64_t address), void *ctx);

#endif
