/* SPDX-License-Identifier: Apache-2.0 */
#include "spool.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

FILE *export_column(struct export_spool *s, unsigned i) {
    if (!s->column[i])
        s->column[i] = tmpfile();
    return s->column[i];
}

const char *export_comma(struct export_spool *s, unsigned i) {
    return s->begun[i]++ ? "," : "";
}

/* Copies a column to the stream, and empties the column. */
static int copy(FILE *from, FILE *out) {
    char bytes[65536];
    size_t n;

    if (fflush(from) != 0 || fseek(from, 0, SEEK_SET) != 0)
        return -errno;
    while ((n = fread(bytes, 1, sizeof bytes, from)) > 0)
        fwrite(bytes, 1, n, out);
    if (ferror(from))
        return -EIO;
    rewind(from);
    return ftruncate(fileno(from), 0) == 0 ? 0 : -errno;
}

int export_columns(struct export_spool *s, FILE *out, unsigned first, const char *const *names,
                   unsigned n) {
    int rc = 0;

    for (unsigned i = 0; rc == 0 && i < n; i++) {
        fprintf(out, "%s\"%s\":[", i ? "," : "", names[i]);
        if (s->column[first + i])
            rc = copy(s->column[first + i], out);
        fputc(']', out);
        s->begun[first + i] = 0;
    }
    return rc;
}

void export_spool_free(struct export_spool *s) {
    for (unsigned i = 0; i < EXPORT_COLUMNS; i++) {
        if (s->column[i])
            fclose(s->column[i]);
    }
    memset(s, 0, sizeof *s);
}
