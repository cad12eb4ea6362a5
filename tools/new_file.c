/* SPDX-License-Identifier: Apache-2.0 */
#include "new_file.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
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

/* Opens a file without a name in the folder of `path`: nothing of it stays when the program is killed. Returns -1 where the file system has none, or it could not be named later. */
static int open_unnamed(const char *path) {
    char *copy = access("/proc/self/fd", X_OK) == 0 ? strdup(path) : NULL;
    int fd = copy ? open(dirname(copy), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600) : -1;

    free(copy);
    return fd;
}

/* Gives the unnamed file the temporary name, with other last characters than any file has: only rename() replaces a file. */
static int name_it(int fd, char *temporary) {
    char proc[40], *last = temporary + strlen(temporary) - 6;
    struct timespec now;
    int rc = -EEXIST;

    snprintf(proc, sizeof proc, "/proc/self/fd/%d", fd);
    for (int i = 0; i < 100 && rc == -EEXIST; i++) {
        clock_gettime(CLOCK_MONOTONIC, &now);
        snprintf(last, 7, "%06x", ((unsigned)now.tv_nsec ^ (unsigned)getpid() << 8) & 0xffffff);
        rc = linkat(AT_FDCWD, proc, AT_FDCWD, temporary, AT_SYMLINK_FOLLOW) < 0 ? -errno : 0;
        unfinished = rc == 0 ? temporary : NULL;
    }
    return rc;
}

/* Creates the file, which is removed when a signal ends the program. Signals that have a handler or are ignored keep their action. */
static int begin(const char *path, char *temporary, int *unnamed, struct sigaction before[DEADLY]) {
    struct sigaction sa = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND};
    sigset_t held, mask;

    sigemptyset(&held);
    for (unsigned i = 0; i < DEADLY; i++)
        sigaddset(&held, deadly[i]);
    pthread_sigmask(SIG_BLOCK, &held, &mask); /* until `unfinished` is set */
    int fd = open_unnamed(path);
    if (!(*unnamed = fd >= 0))
        fd = mkostemp(temporary, O_CLOEXEC);
    int saved = errno;
    unfinished = fd < 0 || *unnamed ? NULL : temporary;
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
    int rc = 0, fd, unnamed = 0;

    if (asprintf(&temporary, "%s.tmp-XXXXXX", path) < 0)
        return -ENOMEM;
    void (*xfsz)(int) =
        signal(SIGXFSZ, SIG_IGN); /* a file size limit then gives an error, which is reported */
    if ((fd = begin(path, temporary, &unnamed, before)) < 0 || !(out = fdopen(fd, "w"))) {
        rc = -errno;
        if (fd >= 0) {
            close(fd);
            if (!unnamed)
                unlink(temporary);
        }
    } else {
        fchmod(fd, mode);
        rc = write(ctx, out);
        if (ferror(out)) /* stdio does not keep the error: another write gets it */
            rc = dprintf(fileno(out), "\n") < 0 ? -errno : -EIO;
        if (rc == 0 && unnamed) {
            rc = fflush(out) == 0 ? name_it(fd, temporary) : -errno;
            unnamed = rc < 0;
        }
        if (fclose(out) != 0 && rc == 0)
            rc = -errno;
        if (rc == 0 && rename(temporary, path) < 0)
            rc = -errno;
        if (rc < 0 && !unnamed)
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
