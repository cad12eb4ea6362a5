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
 * Names are only ever added, so that each batch's dictionary begins with that of the batch before. An exported array
 * shares the bytes (they are counted): a dictionary of a million names costs a batch nothing. It may be read and released by any
 * thread while names are added by another. 2 GiB of names is the most (-EFBIG).
 */
#ifndef PROBING_CONVERTER_ARROW_NAMES_H
#define PROBING_CONVERTER_ARROW_NAMES_H

#include <stddef.h>

#include "arrow_abi.h"

struct arrow_names;

struct arrow_names *arrow_names_new(void);
void arrow_names_free(struct arrow_names *d);
/* n bytes of UTF-8. 0, -ENOMEM, -EFBIG. */
int arrow_names_put(struct arrow_names *d, const char *p, size_t n, int32_t *out);
/* 0 or -ENOMEM. */
int arrow_names_export(const struct arrow_names *d, struct ArrowArray *out);

#endif
