/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Values of pyarrow's chunked arrays, which pandas' Arrow-backed columns hold: booleans, numbers and text.
 *
 * The version of these C++ objects cannot be read; their layout has been the same since Arrow 1. A chunked array begins with its vector of
 * chunks; an array has a pointer to its data behind its virtual table pointer, and that data is read as the struct below. It is trusted
 * only when the lengths of the chunks make sense, and each element only within its buffers.
 */
#include "object_render.h"

#define MAX_CHUNKS 64

struct arrow_data { /* arrow::ArrayData */
    uint64_t type, type_count;
    int64_t length, nulls, offset;
    uint64_t buffers, buffers_end;
};
enum {
    TYPE_ID = 40,
    BUFFER_DATA = 16,
    BUFFER_SIZE = 24,
    SHARED = 16 /* size of a shared_ptr, whose pointer comes first */
};

/* Indexed by arrow::Type: kinds of struct array_view; s and l: text with offsets of 4 and of 8 bytes, t: bits. */
static const struct {
    char kind, size;
} types[] = {[1] = {'t', 1},  [2] = {'u', 1},  [3] = {'i', 1},  [4] = {'u', 2}, [5] = {'i', 2},
             [6] = {'u', 4},  [7] = {'i', 4},  [8] = {'u', 8},  [9] = {'i', 8}, [10] = {'f', 2},
             [11] = {'f', 4}, [12] = {'f', 8}, [13] = {'s', 4}, [34] = {'l', 8}};

/* Reads the chunk to which the shared_ptr at `at` points. */
static bool read_chunk(struct render *r, uint64_t at, struct arrow_data *d) {
    return obj_get(r, obj_pointer(r, obj_pointer(r, at) + 8), d, sizeof *d) &&
           obj_ok(r, d->length >= 0 && d->length < 1ll << 40 && d->offset >= 0 &&
                         d->offset < 1ll << 40);
}

/* Reads n bytes at `at` in one of the chunk's buffers; an error if they are not within it. */
static void read_buffer(struct render *r, const struct arrow_data *d, unsigned i, uint64_t at,
                        void *buf, size_t n) {
    uint64_t buffer = obj_pointer(r, d->buffers + i * SHARED);

    obj_ok(r, d->buffers + i * SHARED < d->buffers_end && buffer != 0 &&
                  at + n <= obj_count(r, buffer + BUFFER_SIZE));
    obj_get(r, obj_u64(r, buffer + BUFFER_DATA) + at, buf, n);
}

static bool bit(struct render *r, const struct arrow_data *d, unsigned buffer, uint64_t i) {
    uint8_t byte;

    read_buffer(r, d, buffer, i / 8, &byte, 1);
    return (byte >> i % 8 & 1) != 0;
}

static void put_text(struct render *r, const struct arrow_data *d, uint64_t i, unsigned width) {
    uint64_t from = 0, to = 0;
    char text[256] = "";

    read_buffer(r, d, 1, i * width, &from, width);
    read_buffer(r, d, 1, (i + 1) * width, &to, width);
    if (!obj_ok(r, from <= to))
        return;
    to = to - from < sizeof text - 1 ? to - from : sizeof text - 1;
    read_buffer(r, d, 2, from, text, to);
    obj_put(r, "'");
    obj_put_clean(r, text);
    obj_put(r, to == sizeof text - 1 ? "'..." : "'");
}

static void put_element(struct render *r, const struct arrow_data *d, uint64_t i) {
    uint32_t id = obj_u32(r, d->type + TYPE_ID);
    struct array_view v = {.kind = id < sizeof types / sizeof *types ? types[id].kind : 0};

    v.size = v.kind != 0 ? (uint32_t)types[id].size : 0;
    i += d->offset;
    if (obj_u64(r, d->buffers) != 0 && !bit(r, d, 0, i)) {
        obj_put(r, "<NA>");
    } else if (v.kind == 't') {
        obj_put(r, bit(r, d, 1, i) ? "True" : "False");
    } else if (v.kind == 's' || v.kind == 'l') {
        put_text(r, d, i, v.size);
    } else if (v.size != 0) {
        uint8_t unused[8];
        read_buffer(r, d, 1, i * v.size, unused, v.size);
        if (r->rc == 0)
            obj_put_element(
                r, obj_u64(r, obj_u64(r, d->buffers + SHARED) + BUFFER_DATA) + i * v.size, &v);
    } else {
        obj_put(r, "?");
    }
}

bool obj_arrow_open(struct render *r, uint64_t addr, struct array_view *v) {
    uint64_t at = addr + r->f->ob_head, array = 0, chunk, end;
    struct object_type t;
    struct arrow_data d;

    if (!obj_type_of(r, addr, &t) || !obj_ok(r, strcmp(t.name, "pyarrow.lib.ChunkedArray") == 0))
        return false;
    /* searches for a shared_ptr that is followed by the same pointer once more */
    for (; array == 0 && at + 24 <= addr + t.basicsize && r->rc == 0; at += 8)
        if (pywalk_plausible(obj_u64(r, at)) && obj_u64(r, at) == obj_u64(r, at + SHARED))
            array = obj_u64(r, at);
    chunk = obj_u64(r, array);
    end = obj_u64(r, array + 8);
    *v = (struct array_view){.data = array, .ndim = 1, .kind = 'A'};
    obj_ok(r, array != 0 && chunk <= end && (end - chunk) / SHARED <= MAX_CHUNKS);
    for (; r->rc == 0 && chunk < end && read_chunk(r, chunk, &d); chunk += SHARED)
        v->shape[0] += d.length;
    return r->rc == 0;
}

void obj_put_arrow(struct render *r, const struct array_view *v, uint64_t i) {
    uint64_t chunk = obj_u64(r, v->data), end = obj_u64(r, v->data + 8);
    struct arrow_data d;

    for (; chunk < end && read_chunk(r, chunk, &d); chunk += SHARED) {
        if (i < (uint64_t)d.length) {
            put_element(r, &d, i);
            break;
        }
        i -= d.length;
    }
    obj_put_error(r, v->data);
}
