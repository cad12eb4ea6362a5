/* SPDX-License-Identifier: Apache-2.0 */
#include "gzip.h"

#include <errno.h>
#include <stdlib.h>
#include <zlib.h>

#define LEVEL        4
#define WINDOW       15 /* log2 of the window's bytes: zlib's largest */
#define GZIP_HEADER  16 /* added to WINDOW, it makes zlib write gzip's header and trailer */
#define MEMORY_LEVEL 8

struct gzip {
    z_stream z;
    FILE *out;
    unsigned char buf[64 << 10];
};

/* Compresses the input in z.next_in. Returns 0 or -1. */
static int compress_input(struct gzip *g, int flush) {
    int rc;

    do {
        g->z.next_out = g->buf;
        g->z.avail_out = sizeof g->buf;
        rc = deflate(&g->z, flush);
        size_t n = sizeof g->buf - g->z.avail_out;
        if (rc == Z_STREAM_ERROR || (n && fwrite(g->buf, 1, n, g->out) != n))
            return -1;
    } while (g->z.avail_out == 0);
    return 0;
}

static ssize_t put(void *cookie, const char *bytes, size_t n) {
    struct gzip *g = cookie;

    g->z.next_in = (unsigned char *)bytes;
    g->z.avail_in = (uInt)n; /* a FILE's buffer, or one fwrite(): far less than 4 GB */
    return compress_input(g, Z_NO_FLUSH) < 0 ? 0 : (ssize_t)n;
}

static int end(void *cookie) {
    struct gzip *g = cookie;

    g->z.avail_in = 0;
    int rc = compress_input(g, Z_FINISH);
    deflateEnd(&g->z);
    free(g);
    return rc < 0 ? EOF : 0;
}

FILE *gzip_open(FILE *out) {
    struct gzip *g = calloc(1, sizeof *g);
    FILE *f = NULL;

    if (!g)
        return NULL;
    g->out = out;
    if (deflateInit2(&g->z, LEVEL, Z_DEFLATED, WINDOW + GZIP_HEADER, MEMORY_LEVEL,
                     Z_DEFAULT_STRATEGY) != Z_OK) {
        errno = ENOMEM;
    } else if (!(f = fopencookie(g, "w", (cookie_io_functions_t){.write = put, .close = end}))) {
        deflateEnd(&g->z);
    }
    if (!f)
        free(g);
    return f;
}
