/* SPDX-License-Identifier: Apache-2.0 */
/*
 * recorded.h - the names of native code that a trace brings along: its native_file and symbol records.
 *
 *     struct recorded rec;
 *     recorded_load(&rec, reader, epochs);
 *     uint32_t file = recorded_file(&rec, path, n, build_id, len);      // 0: the trace says nothing of that file
 *     const struct symbol *sym = recorded_at(&rec, file, pc - bias);    // NULL: nor of that address
 *     recorded_free(&rec);
 *
 * They were looked up where the ELF files are, when the recording ended, and hold for that very file alone (path
 * and build-id). One trace's are no other's. Not thread-safe.
 */
#ifndef PROBING_CONVERTER_RECORDED_H
#define PROBING_CONVERTER_RECORDED_H

#include "dict.h"
#include "keys.h"
#include "symbols.h"

struct recorded {
    struct keys files;     /* path, NUL, build-id */
    struct keys addresses; /* {file, address} -> chains[id - 1] */
    struct keys texts;
    struct symbol **chains; /* a symbol and those that it was inlined into, an array each */
    size_t chains_cap;
};

/* 0 or -ENOMEM; damaged blocks are left out. */
int recorded_load(struct recorded *rec, struct reader *r, struct epochs *es);
void recorded_free(struct recorded *rec);
uint32_t recorded_file(const struct recorded *rec, const char *path, size_t n,
                       const uint8_t *build_id, size_t len);
const struct symbol *recorded_at(const struct recorded *rec, uint32_t file, uint64_t address);

#endif
