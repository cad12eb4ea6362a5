/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arrow_names.h - the dictionary of a dictionary-encoded column: names, each once, numbered 0, 1, 2 ...
 *
 *     struct arrow_names *d = arrow_names_new();
 *     int32_t i;
 *     int err = arrow_names_put(d, "train.py", 8, &i);
 *     err = arrow_names_export(d, &array);    // as it is now
 *     arrow_names_put(d, ...);                // what was exported does not change
 *     arrow_names_free(d);
 *
 * Names are only ever added, so the dictionary of each batch begins with that of the previous one. An exported array shares the
 * reference-counted bytes: even a dictionary of a million names costs a batch nothing. Any thread may read and release an exported array
 * while another thread adds names. The limit is 2 GiB of names (-EFBIG).
 */
#ifndef PROBING_CONVERTER_ARROW_NAMES_H
#define PROBING_CONVERTER_ARROW_NAMES_H

#include <stddef.h>

#include "arrow_abi.h"

struct arrow_names;

struct arrow_names *arrow_names_new(void);
void arrow_names_free(struct arrow_names *d);
/* Finds or adds the name, n bytes of UTF-8, and sets *out to its index. Returns 0, -ENOMEM or -EFBIG. */
int arrow_names_put(struct arrow_names *d, const char *p, size_t n, int32_t *out);
/* Exports the dictionary as it is now. Returns 0 or -ENOMEM. */
int arrow_names_export(const struct arrow_names *d, struct ArrowArray *out);

#endif
