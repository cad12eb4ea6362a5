/* SPDX-License-Identifier: Apache-2.0 */
/*
 * recorded.h - names of native code that the trace itself contains, in its native_file and symbol records.
 *
 *     struct recorded rec;
 *     recorded_load(&rec, reader, epochs);
 *     uint32_t file = recorded_file(&rec, path, n, build_id, len);      // 0: the trace has no symbols of that file
 *     const struct symbol *sym = recorded_at(&rec, file, pc - bias);    // NULL: nor one for that address
 *     recorded_free(&rec);
 *
 * They were looked up when the recording ended, on the machine that has the ELF files, and are valid for exactly that file (path and
 * build-id). Symbols of one trace are not used for another. Not thread-safe.
 */
#ifndef PROBING_CONVERTER_RECORDED_H
#define PROBING_CONVERTER_RECORDED_H

#include "dict.h"
#include "keys.h"
#include "symbols.h"

struct recorded {
    struct keys files;     /* key: path, NUL, build-id */
    struct keys addresses; /* key: {file, address}, for chains[id - 1] */
    struct keys texts;
    struct symbol **chains; /* each an array: a symbol, then those that it was inlined into */
    size_t chains_cap;
};

/* 0 or -ENOMEM; damaged blocks are left out. */
int recorded_load(struct recorded *rec, struct reader *r, struct epochs *es);
void recorded_free(struct recorded *rec);
uint32_t recorded_file(const struct recorded *rec, const char *path, size_t n,
                       const uint8_t *build_id, size_t len);
const struct symbol *recorded_at(const struct recorded *rec, uint32_t file, uint64_t address);

#endif
