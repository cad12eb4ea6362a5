/* SPDX-License-Identifier: Apache-2.0 */
/*
 * protobuf.h - writes messages in the wire format of Protocol Buffers (protobuf.dev, "Encoding"): growing bytes in memory.
 *
 *     struct pb b = {0};
 *     size_t sample = pb_begin(&b, PROFILE_SAMPLE);     // a message within: what follows is in it
 *     pb_uint(&b, SAMPLE_VALUE, 7);
 *     pb_text(&b, SAMPLE_NAME, name);                   // what is no UTF-8, or must not come to a screen, becomes U+FFFD
 *     pb_end(&b, sample);
 *     int rc = pb_write(&b, out);                       // 0 or -errno; then it is empty, and keeps its memory
 *     pb_free(&b);
 *
 * A stream is many calls of pb_write(): fields of the outermost message, in any order. The first error stays in the struct, and
 * pb_write() tells it; until then nothing needs to be checked.
 */
#ifndef PROBING_TOOLS_EXPORT_PROTOBUF_H
#define PROBING_TOOLS_EXPORT_PROTOBUF_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "../../writer/map.h"

struct pb {
    uint8_t *bytes; /* malloc */
    size_t n, cap;
    int err; /* -errno: what was put is not all there */
};

void pb_free(struct pb *b);
/* All that was put, to the stream. */
int pb_write(struct pb *b, FILE *out);

/* Types int32, int64, uint32, uint64, bool and enum. A negative number takes ten bytes. */
void pb_uint(struct pb *b, unsigned field, uint64_t v);
void pb_int(struct pb *b, unsigned field, int64_t v);
/* fixed64 and double */
void pb_fixed64(struct pb *b, unsigned field, uint64_t v);
void pb_double(struct pb *b, unsigned field, double v);
/* Type bytes; type string, NULL is "" */
void pb_bytes(struct pb *b, unsigned field, const void *bytes, size_t n);
void pb_text(struct pb *b, unsigned field, const char *text);

/* A message within, or a packed field, whose numbers are put by pb_packed(). Any depth; the last that began ends first. */
size_t pb_begin(struct pb *b, unsigned field);
void pb_end(struct pb *b, size_t begun);
void pb_packed(struct pb *b, uint64_t v);

/* Texts as numbers, 1, 2, ... as they come, for formats that name each once; 0 is the empty one. */
struct pb_names {
    struct map numbers; /* by hash */
    uint32_t n;
    int err; /* -ENOMEM: no number can be relied on */
};
/* *is_new: it had none before. */
uint32_t pb_name(struct pb_names *s, const char *text, int *is_new);
void pb_names_free(struct pb_names *s);

/* A table of strings: a repeated field whose entries others name by their place, 0 the empty one, as pprof and OTLP have it. */
struct pb_strings {
    struct pb_names names;
    struct pb *b; /* where new ones are put; no message may have begun there meanwhile */
    unsigned field;
};
void pb_strings_begin(struct pb_strings *s, struct pb *b, unsigned field);
uint32_t pb_string(struct pb_strings *s, const char *text);
void pb_strings_free(struct pb_strings *s);

#endif
