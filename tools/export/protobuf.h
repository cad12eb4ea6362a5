/* SPDX-License-Identifier: Apache-2.0 */
/*
 * protobuf.h - writes messages in the wire format of Protocol Buffers (protobuf.dev, "Encoding"): growing bytes in memory.
 *
 *     struct pb b = {0};
 *     size_t sample = pb_begin(&b, PROFILE_SAMPLE);     // begins an embedded message, which contains what follows
 *     pb_uint(&b, SAMPLE_VALUE, 7);
 *     pb_text(&b, SAMPLE_NAME, name);                   // invalid UTF-8, and what must not reach a screen, becomes U+FFFD
 *     pb_end(&b, sample);
 *     int rc = pb_write(&b, out);                       // 0 or -errno; b is empty then, but keeps its memory
 *     pb_free(&b);
 *
 * A stream is written by many calls of pb_write(): fields of the outermost message, in any order. The first error stays in the struct, and
 * pb_write() returns it; nothing needs to be checked before.
 */
#ifndef PROBING_TOOLS_EXPORT_PROTOBUF_H
#define PROBING_TOOLS_EXPORT_PROTOBUF_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "../../traces/map.h"

struct pb {
    uint8_t *bytes; /* malloc */
    size_t n, cap;
    int err; /* -errno: something that was put is missing */
};

void pb_free(struct pb *b);
/* Writes everything that was put to the stream. */
int pb_write(struct pb *b, FILE *out);

/* For fields of types int32, int64, uint32, uint64, bool and enum. A negative number takes ten bytes. */
void pb_uint(struct pb *b, unsigned field, uint64_t v);
void pb_int(struct pb *b, unsigned field, int64_t v);
/* fixed64 and double */
void pb_fixed64(struct pb *b, unsigned field, uint64_t v);
void pb_double(struct pb *b, unsigned field, double v);
/* For fields of type bytes, and of type string; NULL is "". */
void pb_bytes(struct pb *b, unsigned field, const void *bytes, size_t n);
void pb_text(struct pb *b, unsigned field, const char *text);

/* Begin and end an embedded message, or a packed field, whose numbers pb_packed() puts. They may be nested: the last that began ends first. */
size_t pb_begin(struct pb *b, unsigned field);
void pb_end(struct pb *b, size_t begun);
void pb_packed(struct pb *b, uint64_t v);

/* Numbers texts 1, 2, ... as they come, for formats that write each text once; 0 is the empty text. */
struct pb_names {
    struct map numbers; /* by hash */
    uint32_t n;
    int err; /* -ENOMEM: the numbers are not reliable */
};
/* Returns the number of a text; *is_new: it had none before. */
uint32_t pb_name(struct pb_names *s, const char *text, int *is_new);
void pb_names_free(struct pb_names *s);

/* A table of strings: a repeated field whose entries are referred to by their position, 0 being the empty one, as in pprof and OTLP. */
struct pb_strings {
    struct pb_names names;
    struct pb *b; /* where new ones are put; no message may be open in it meanwhile */
    unsigned field;
};
void pb_strings_begin(struct pb_strings *s, struct pb *b, unsigned field);
uint32_t pb_string(struct pb_strings *s, const char *text);
void pb_strings_free(struct pb_strings *s);

#endif
