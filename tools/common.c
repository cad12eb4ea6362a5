/* SPDX-License-Identifier: Apache-2.0 */
#include "common.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <time.h>
#include <unistd.h>

#include "../traces/visible.h"
#include "../writer/sys.h"

const char *tool_name = "probing";

static void say(const char *fmt, va_list ap, const char *tail) {
    char text[8192], *line = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&line, &n);

    /* The text may contain names that are not trusted: visible_text() keeps them from controlling the terminal and from adding lines. */
    vsnprintf(text, sizeof text, fmt, ap);
    if (f) {
        fprintf(f, "%s: ", tool_name);
        visible_text(f, text);
        fprintf(f, "%s\n", tail);
        fclose(f);
    }
    /* One write per line: several ranks may talk to the same terminal. */
    fflush(stdout);
    fwrite(line ? line : "", 1, line ? n : 0, stderr);
    fflush(stderr);
    free(line);
}

void tool_say(const char *fmt, ...) {
    va_list ap;

    va_start(ap, fmt);
    say(fmt, ap, "");
    va_end(ap);
}

int tool_fail(const char *fmt, ...) {
    va_list ap;

    va_start(ap, fmt);
    say(fmt, ap, "");
    va_end(ap);
    return TOOL_FAILED;
}

int tool_usage(const char *fmt, ...) {
    const char *command = strchr(tool_name, '-'); /* not all are programs: `probing pack` is none */
    char tail[100];
    va_list ap;

    snprintf(tail, sizeof tail, " (see probing%s%s --help)", command ? " " : "",
             command ? command + 1 : "");
    va_start(ap, fmt);
    say(fmt, ap, tail);
    va_end(ap);
    return TOOL_USAGE;
}

int tool_bad_option(char **argv) {
    const char *word = argv[optind - 1];

    /* optopt is 0 for an unknown long option; else it is an unknown letter, or the letter (or number of
     * a long option) of a known option that was used wrongly. */
    if (!optopt)
        return tool_usage("unknown option '%s'", word);
    if (strncmp(word, "--", 2) == 0)
        return tool_usage(
            strchr(word, '=') ? "option '%s' takes no value" : "option '%s' needs a value", word);
    return tool_usage("option '-%c' is unknown, or its value is missing", optopt);
}

int tool_prefix(char *buf, size_t n) {
    char exe[PATH_MAX];
    ssize_t len = readlink("/proc/self/exe", exe, sizeof exe - 1);

    if (len >= 0)
        exe[len] = '\0';
    else if (!realpath((const char *)getauxval(AT_EXECFN), exe)) /* /proc is not mounted */
        return -errno;
    for (int up = 0, ups = 2; up < ups; up++) { /* drop "/probing", then "/bin" or "/lib/probing" */
        char *slash = strrchr(exe, '/');
        if (!slash)
            return -ENOENT;
        *slash = '\0';
        ups += up == 0 && slash - exe > 12 && strcmp(slash - 12, "/lib/probing") == 0;
    }
    return snprintf(buf, n, "%s", exe) < (int)n ? 0 : -ENAMETOOLONG;
}

int tool_lib(const char *name, char *buf, size_t n) {
    char prefix[PATH_MAX];
    int rc = tool_prefix(prefix, sizeof prefix);

    if (rc < 0)
        return rc;
    if (snprintf(buf, n, "%s/lib/probing/%s", prefix, name) >= (int)n)
        return -ENAMETOOLONG;
    return access(buf, R_OK) == 0 ? 0 : -errno;
}

int tool_absolute(const char *path, char *buf, size_t n) {
    char dir[PATH_MAX], real[PATH_MAX];
    const char *slash = strrchr(path, '/');
    const char *base = slash ? slash + 1 : path;

    if (!*base || strcmp(base, ".") == 0 || strcmp(base, "..") == 0) {
        if (!realpath(path, real))
            return -errno;
        return snprintf(buf, n, "%s", real) < (int)n ? 0 : -ENAMETOOLONG;
    }
    if (!slash)
        snprintf(dir, sizeof dir, ".");
    else if (slash == path)
        snprintf(dir, sizeof dir, "/");
    else if (snprintf(dir, sizeof dir, "%.*s", (int)(slash - path), path) >= (int)sizeof dir)
        return -ENAMETOOLONG;
    if (!realpath(dir, real))
        return -errno;
    return snprintf(buf, n, "%s/%s", strcmp(real, "/") ? real : "", base) < (int)n ? 0
                                                                                   : -ENAMETOOLONG;
}

void tool_begin(void) {
    int fd;

    while ((fd = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0 && fd <= STDERR_FILENO)
        ;
    if (fd >= 0)
        close(fd);
}

int tool_end(int code) {
    /* A full disk under `> out.csv` must not pass for success. */
    if (fflush(stdout) || ferror(stdout))
        return tool_fail("cannot write to standard output: the disk is full, or it was closed");
    return code == TOOL_HELPED ? TOOL_OK : code;
}

double tool_seconds(void) {
    return (double)sys_now() / 1e9;
}

const char *tool_size(uint64_t bytes, char buf[TOOL_TEXT]) {
    static const char *const unit[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double v = (double)bytes;
    unsigned i = 0;

    /* 1023.95 would be printed as "1024.0": step over to the next unit before that. */
    for (; v >= (i ? 1023.95 : 1024) && i < 6; i++)
        v /= 1024;
    snprintf(buf, TOOL_TEXT, i ? "%.1f %s" : "%.0f %s", v, unit[i]);
    return buf;
}

const char *tool_duration(double s, char buf[TOOL_TEXT]) {
    if (!(s > 0))
        s = 0;
    if (s < 99.95) {
        snprintf(buf, TOOL_TEXT, "%.1f s", s);
    } else {
        uint64_t t = (uint64_t)llround(s);
        if (t < 3600)
            snprintf(buf, TOOL_TEXT, "%u min %02u s", (unsigned)(t / 60), (unsigned)(t % 60));
        else if (t < 48 * 3600)
            snprintf(buf, TOOL_TEXT, "%u h %02u min", (unsigned)(t / 3600),
                     (unsigned)(t % 3600 / 60));
        else
            snprintf(buf, TOOL_TEXT, "%u d %02u h", (unsigned)(t / 86400),
                     (unsigned)(t % 86400 / 3600));
    }
    return buf;
}

const char *tool_count(uint64_t n, char buf[TOOL_TEXT]) {
    char digits[24];
    int len = snprintf(digits, sizeof digits, "%llu", (unsigned long long)n);
    char *p = buf;

    for (int i = 0; i < len; i++) {
        if (i && (len - i) % 3 == 0)
            *p++ = ',';
        *p++ = digits[i];
    }
    *p = '\0';
    return buf;
}

int tool_number(const char *text, double lo, double hi, double *out) {
    char *end;

    errno = 0;
    double v = strtod(text, &end);
    if (end == text || *end || isspace((unsigned char)*text) || isnan(v))
        return -EINVAL;
    if (v < lo || v > hi)
        return -ERANGE;
    *out = v;
    return 0;
}
