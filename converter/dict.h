/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dict.h - the dictionaries of one epoch of a trace: strings, frames, stacks, modules by id.
 *
 *     struct epochs *es = epochs_new(reader);
 *     const struct dict *d = epochs_get(es, block->epoch);    // NULL: no memory
 *     const struct dict_stack *st = dict_stack(d, id);       // NULL: not in the trace
 *     epochs_free(es);
 *
 * An epoch is read when it is first asked for, and only the two used last are kept (one, if it is larger than DICT_LARGE): memory does
 * not grow with the length of the trace. Pointers into a dict are good until the next epochs_get() of another epoch. A dictionary is cut
 * off where it takes DICT_MAX bytes of memory. Not thread-safe.
 */
#ifndef PROBING_CONVERTER_DICT_H
#define PROBING_CONVERTER_DICT_H

#include "reader.h"

#define DICT_MAX     (72u << 20)
#define DICT_LARGE   (8u << 20)
#define DICT_WAITING (4u << 20)
#define DICT_STRING  4096 /* bytes of a name; the rest is cut: each is written again and again */

struct epochs;
struct dict;

struct dict_frame {
    uint64_t name, file; /* string ids */
    uint64_t firstline, line;
};

struct dict_stack {
    uint64_t flags;
    struct trace_value python, native; /* lists: walk copies with trace_list_next() */
};

struct dict_module {
    uint64_t path; /* string id */
    const uint8_t *build_id;
    uint32_t build_id_len;
    uint64_t start, end, bias, ts;
};

struct dict_native_file {
    uint64_t path; /* string id */
    const uint8_t *build_id;
    uint32_t build_id_len;
};

/* r is borrowed until epochs_free(). NULL: no memory. */
struct epochs *epochs_new(struct reader *r);
/*
 * To be called before any dictionary is read: frames, stacks and modules, which are most of one, are not wanted and count as not in the trace, and a
 * dictionary is read only as far as the strings go that are asked for. Where there is no memory for that the string is missing, and the next
 * epochs_get() says so.
 */
void epochs_without_stacks(struct epochs *es);
/* Nobody will ask for modules or files of native code. Before the first epochs_get(). */
void epochs_without_modules(struct epochs *es);
int epochs_have_stacks(const struct epochs *es);
/*
 * Of such, the strings that were asked for, to be given to who reads the same trace again, before the first dictionary: of those that
 * were asked for then none is read again. malloc, *n bytes; NULL: no memory. What is given is borrowed; what makes no sense of it is left out.
 */
void *epochs_save(const struct epochs *es, size_t *n);
void epochs_give(struct epochs *es, const void *saved, size_t n);
/*
 * Of others the dictionary of the last epoch as it was read, likewise, for those who know that the first reader_blocks() blocks are the same
 * (reader_digest()): of them none is decoded again. NULL: it is not worth it, or what was taken is most of it, or no memory.
 * epochs_take(): borrowed; what was not written for these records or is damaged is left out.
 */
void *epochs_keep(const struct epochs *es, size_t *n);
void epochs_take(struct epochs *es, const void *kept, size_t n);
void epochs_free(struct epochs *es);
/* Of `es`; one that the trace does not have is empty. NULL: no memory. */
const struct dict *epochs_get(struct epochs *es, uint32_t epoch);
/* For a trace that nothing will be asked of for a while: dictionaries of more than DICT_WAITING bytes are given up, and read again. */
void epochs_trim(struct epochs *es);
/* The epochs that have dictionaries, ascending: i = 0 ...; 0 after the last. */
int epochs_at(const struct epochs *es, size_t i, uint32_t *epoch);

/* The bytes of a string, "" and 0 for id 0 or one that is missing. */
const char *dict_string(const struct dict *d, uint64_t id, size_t *n);
const struct dict_frame *dict_frame(const struct dict *d, uint64_t id);
const struct dict_stack *dict_stack(const struct dict *d, uint64_t id);
const struct dict_module *dict_module(const struct dict *d, uint64_t id);
const struct dict_native_file *dict_native_file(const struct dict *d, uint64_t id);
/* Modules in the order they were written: i = 0 ... ; NULL after the last. */
const struct dict_module *dict_module_at(const struct dict *d, size_t i, uint64_t *id);

#endif
