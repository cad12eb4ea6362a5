/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zstd.h>

#include "fleet.h"

#define LARGE (64u << 10) /* as the agent's blocks */
#define LONG  (10 * SECOND)

int out_open(struct out *o, const char *path) {
    memset(o, 0, sizeof *o);
    unlink(path);
    int err = tracefile_create(&o->file, path);

    if (err)
        return err;
    encoder_init(&o->enc);
    o->zstd = ZSTD_createCCtx();
    if (!o->zstd)
        o->err = -ENOMEM;
    else {
        ZSTD_CCtx_setParameter(o->zstd, ZSTD_c_compressionLevel, 2);
        ZSTD_CCtx_setParameter(o->zstd, ZSTD_c_windowLog, 17);
        ZSTD_CCtx_setParameter(o->zstd, ZSTD_c_checksumFlag, 1);
    }
    struct writer_value schema[TRACE_schema_NFIELDS] = {
        {.p = trace_schema_text(), .n = strlen(trace_schema_text())}};
    out_put(o, TRACE_schema, 0, schema);
    return o->err;
}

void out_flush(struct out *o) {
    static const uint64_t none[TRACE_NLOST];
    size_t len = 0;

    for (unsigned k = 0; k < NKINDS && !o->err; k++) {
        struct builder *b = &o->enc.block[k];
        struct trace_hint hint;
        if (b->count == 0)
            continue;
        size_t raw = builder_finish(b, o->seq, 0, none, &hint), bound = ZSTD_compressBound(raw);
        if (o->cap < len + TRACE_HINT_SIZE + bound) {
            uint8_t *p = realloc(o->buf, len + TRACE_HINT_SIZE + bound);
            if (!p) {
                o->err = -ENOMEM;
                break;
            }
            o->buf = p;
            o->cap = len + TRACE_HINT_SIZE + bound;
        }
        hint.compressed =
            (uint32_t)ZSTD_compress2(o->zstd, o->buf + len + TRACE_HINT_SIZE, bound, b->buf, raw);
        trace_hint_put(o->buf + len, &hint);
        len += TRACE_HINT_SIZE + hint.compressed;
        o->seq++;
        builder_reset(b);
    }
    if (!o->err && len)
        o->err = tracefile_append(&o->file, o->buf, len);
    o->began = 0;
}

void out_put(struct out *o, unsigned type, uint64_t ts, struct writer_value *v) {
    if (o->err)
        return;
    int err = encode_record(&o->enc, &o->dicts, trace_record_by_id(type), v);
    if (err == -ENOENT) {
        fprintf(stderr, "probing-fleet: a record of type %u names a key that is not defined\n",
                type);
        o->err = -EINVAL;
        return;
    }
    if (err) {
        o->err = err;
        return;
    }
    if (!o->began)
        o->began = ts;
    for (unsigned k = 0; k < NKINDS; k++)
        if (o->enc.block[k].len >= LARGE) {
            out_flush(o);
            return;
        }
    if (o->began && ts > o->began + LONG)
        out_flush(o);
}

int out_close(struct out *o, int cut) {
    out_flush(o);
    if (!o->err && !cut)
        o->err = tracefile_seek_table(&o->file);
    tracefile_close(&o->file);
    encoder_free(&o->enc);
    dicts_free(&o->dicts);
    ZSTD_freeCCtx(o->zstd);
    free(o->buf);
    return o->err;
}
