/* SPDX-License-Identifier: Apache-2.0 */
#include "new_file.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common.h"

static const int deadly[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
#define DEADLY (sizeof deadly / sizeof *deadly)

static const char *volatile unfinished; /* removed when a signal ends the program */
static mode_t mode = 0600; /* of new files: new_file_allowed() sets it by the inputs' modes */

static void on_signal(int sig) {
    const char *name = unfinished;

    if (name)
        unlink(name);
    raise(sig); /* SA_RESETHAND has set the default action, which follows when this returns */
}

/* Creates the temporary file, which is removed when a signal ends the program. Signals that have a handler or are ignored keep their action. */
static int begin(char *temporary, struct sigaction before[DEADLY]) {
    struct sigaction sa = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND};
    sigset_t held, mask;

    sigemptyset(&held);
    for (unsigned i = 0; i < DEADLY; i++)
        sigaddset(&held, deadly[i]);
    pthread_sigmask(SIG_BLOCK, &held, &mask); /* until `unfinished` is set */
    int fd = mkostemp(temporary, O_CLOEXEC);
    int saved = errno;
    unfinished = fd < 0 ? NULL : temporary;
    for (unsigned i = 0; i < DEADLY; i++) {
        sigaction(deadly[i], NULL, &before[i]);
        if (before[i].sa_handler == SIG_DFL)
            sigaction(deadly[i], &sa, NULL);
    }
    pthread_sigmask(SIG_SETMASK, &mask, NULL);
    errno = saved;
    return fd;
}

int new_file(const char *path, int (*write)(void *ctx, FILE *out), void *ctx) {
    struct sigaction before[DEADLY];
    char *temporary = NULL;
    FILE *out = NULL;
    int rc = 0, fd;

    if (asprintf(&temporary, "%s.tmp-XXXXXX", path) < 0)
        return -ENOMEM;
    void (*xfsz)(int) =
        signal(SIGXFSZ, SIG_IGN); /* a file size limit then gives an error, which is reported */
    if ((fd = begin(temporary, before)) < 0 || !(out = fdopen(fd, "w"))) {
        rc = -errno;
        if (fd >= 0) {
            close(fd);
            unlink(temporary);
        }
    } else {
        fchmod(fd, mode);
        rc = write(ctx, out);
        if (ferror(out)) /* stdio does not keep the error: another write gets it */
            rc = dprintf(fileno(out), "\n") < 0 ? -errno : -EIO;
        if (fclose(out) != 0 && rc == 0)
            rc = -errno;
        if (rc == 0 && rename(temporary, path) < 0)
            rc = -errno;
        if (rc < 0)
            unlink(temporary);
    }
    unfinished = NULL;
    for (unsigned i = 0; i < DEADLY; i++)
        sigaction(deadly[i], &before[i], NULL);
    signal(SIGXFSZ, xfsz);
    free(temporary);
    return rc;
}

int new_file_allowed(const char *path, enum output_kind kind, char *const *inputs, int n) {
    struct inputs in = {0};
    char why[OUTPUT_WHY];
    int rc = TOOL_OK, missing = 0;

    for (int i = 0; i < n; i++) /* missing inputs are reported later */
        missing += inputs_add(&in, inputs[i], INPUTS_SIBLINGS) != 0;
    mode = output_mode(&in) & (missing || !in.n ? 0600 : 0666);
    if (output_check(path, kind, &in, why) < 0)
        rc = tool_fail("cannot write %s: %s", path, why);
    inputs_free(&in);
    return rc;
}
