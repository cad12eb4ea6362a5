/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/core/names.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* A host name is the kernel's to give; in a file name only tame characters. */
static void tame(const char *host, char *out, size_t n) {
    size_t i;
    for (i = 0; host[i] && i + 1 < n; i++) {
        char c = host[i];
        int ok = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                 (c == '.' && i) || c == '_' || c == '-';
        out[i] = ok ? c : '_';
    }
    out[i] = 0;
    if (!i)
        snprintf(out, n, "host");
}

void names_process(const char *host, int rank, unsigned pid, char *buf, size_t size) {
    char ranked[24] = "", name[72];
    if (rank >= 0)
        snprintf(ranked, sizeof ranked, "-r%d", rank);
    tame(host, name, sizeof name);
    snprintf(buf, size, "%s%s-%u", name, ranked, pid);
}

int names_trace(const struct agent_config *c, const char *host, int rank, unsigned pid, int is_main,
                unsigned n, char *buf, size_t size) {
    char nth[16] = "", name[128];
    int len;
    if (n < 1 || n > NAMES_TRIES)
        return -ENOSPC;
    if (n > 1)
        snprintf(nth, sizeof nth, "-%u", n);
    if (is_main && !c->trace_is_dir && n == 1) {
        len = snprintf(buf, size, "%s", c->trace);
    } else {
        len = snprintf(buf, size, "%s%s", c->trace, c->trace_is_dir ? "" : ".d");
        if (len >= (int)size)
            return -ENAMETOOLONG;
        if (mkdir(buf, 0777) && errno != EEXIST)
            return -errno;
        names_process(host, rank, pid, name, sizeof name);
        len += snprintf(buf + len, size - (size_t)len, "/%s%s.zst", name, nth);
    }
    return len < (int)size ? 0 : -ENAMETOOLONG;
}
