/* SPDX-License-Identifier: Apache-2.0 */
#include "new_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common.h"

int new_file(const char *path, int (*write)(void *ctx, FILE *out), void *ctx) {
    mode_t mask = umask(0);
    char *temporary = NULL;
    FILE *out = NULL;
    int rc = 0, fd;

    umask(mask);
    if (asprintf(&temporary, "%s.tmp-XXXXXX", path) < 0)
        return -ENOMEM;
    if ((fd = mkostemp(temporary, O_CLOEXEC)) < 0 || !(out = fdopen(fd, "w"))) {
        rc = -errno;
        if (fd >= 0) {
            close(fd);
            unlink(temporary);
        }
    } else {
        fchmod(fd, 0666 & ~mask);
        rc = write(ctx, out);
        if (ferror(out) && rc == 0)
            rc = -EIO;
        if (fclose(out) != 0 && rc == 0)
            rc = -errno;
        if (rc == 0 && rename(temporary, path) < 0)
            rc = -errno;
        if (rc < 0)
            unlink(temporary);
    }
    free(temporary);
    return rc;
}

int new_file_allowed(const char *path, enum output_kind kind, char *const *inputs, int n) {
    struct inputs in = {0};
    char why[OUTPUT_WHY];
    int rc = TOOL_OK;

    for (int i = 0; i < n; i++)
        inputs_add(&in, inputs[i], INPUTS_SIBLINGS); /* what is not there is said later */
    if (output_check(path, kind, &in, why) < 0)
        rc = tool_fail("cannot write %s: %s", path, why);
    inputs_free(&in);
    return rc;
}
