/* SPDX-License-Identifier: Apache-2.0 */
/* hosts.c - finds the hosts that a job runs on: from the command line, Slurm, a file or torchrun. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tools/cluster/cluster.h"
#include "tools/common.h"

#define HOSTS_MAX 100000
#define NAME_MAX_ 256

struct where {
    struct attached *a;
    int port;
    const char *token_file;
};

static int add(const struct where *w, const char *text) {
    int rc = attached_add(w->a, text, w->port, w->token_file);

    if (rc == 1)
        tool_say("%s is there twice, and counts once", text);
    if (rc == -ENOMEM)
        return tool_fail("cannot attach: no memory");
    return rc < 0 ? tool_usage("'%s' is no host: write HOST:PORT", text) : TOOL_OK;
}

int hosts_list(struct attached *a, const char *list, int port, const char *token_file) {
    const struct where w = {a, port, token_file};
    char *copy = strdup(list), *save = NULL;
    int code = copy ? TOOL_OK : tool_fail("cannot attach: no memory");

    for (char *host = copy ? strtok_r(copy, ", \t\r\n", &save) : NULL; host && code == TOOL_OK;
         host = strtok_r(NULL, ", \t\r\n", &save))
        code = add(&w, host);
    free(copy);
    return code;
}

int hosts_file(struct attached *a, const char *path, int port, const char *token_file) {
    const struct where w = {a, port, token_file};
    FILE *f = strcmp(path, "-") == 0 ? stdin : fopen(path, "re");
    char line[1000];
    int code = TOOL_OK;

    if (!f)
        return tool_fail("cannot read the hosts from %s: %s", path, strerror(errno));
    while (code == TOOL_OK && fgets(line, sizeof line, f)) {
        char *host = strtok(line, " \t\r\n"); /* what follows (slots=8) is not for us */
        if (host && *host != '#')
            code = add(&w, host);
    }
    if (f != stdin)
        fclose(f);
    return code;
}

/* ---- Slurm's lists: node[01-03,7],rack[1-2]n[3-4] ---- */

static int expand(const struct where *w, const char *rest, size_t n, const char *before);

/* Expands each number in one pair of brackets, with what follows the brackets. */
static int expand_brackets(const struct where *w, const char *open, const char *close, size_t rest,
                           const char *before) {
    int code = TOOL_OK;

    for (const char *p = open + 1; p < close && code == TOOL_OK; p++) {
        char *end, name[NAME_MAX_];
        long a = strtol(p, &end, 10), b = a;
        int width = (int)(end - p);
        if (end == p || *p == '-' || *p == '+')
            return -EINVAL;
        if (*end == '-') {
            p = end + 1;
            b = strtol(p, &end, 10);
        }
        if (end == p || end > close || b < a || b - a > HOSTS_MAX || (*end != ',' && end != close))
            return -EINVAL;
        for (; a <= b && code == TOOL_OK; a++) {
            if (snprintf(name, sizeof name, "%s%0*ld", before, width, a) >= (int)sizeof name ||
                w->a->n > HOSTS_MAX)
                return -EINVAL;
            code = expand(w, close + 1, rest, name);
        }
        p = end;
    }
    return code;
}

/* Adds the hosts of one name with brackets: `before`, then n bytes of `rest`. Returns TOOL_OK, the exit code, or -EINVAL. */
static int expand(const struct where *w, const char *rest, size_t n, const char *before) {
    const char *open = memchr(rest, '[', n), *close;
    char name[NAME_MAX_];
    size_t plain = open ? (size_t)(open - rest) : n;

    if (snprintf(name, sizeof name, "%s%.*s", before, (int)plain, rest) >= (int)sizeof name)
        return -EINVAL;
    if (!open)
        return *name ? add(w, name) : -EINVAL;
    if (!(close = memchr(open, ']', n - plain)))
        return -EINVAL;
    return expand_brackets(w, open, close, n - (size_t)(close + 1 - rest), name);
}

int hosts_slurm(struct attached *a, int port, const char *token_file) {
    const struct where w = {a, port, token_file};
    const char *list = getenv("SLURM_JOB_NODELIST");
    int code = TOOL_OK;

    if (!list || !*list)
        list = getenv("SLURM_NODELIST");
    if (!list || !*list)
        return tool_usage("--slurm is for a job of Slurm's: SLURM_JOB_NODELIST is not set here");
    for (const char *p = list; *p && code == TOOL_OK;) {
        size_t n = 0;
        int depth = 0;
        for (; p[n] && (depth || p[n] != ','); n++)
            depth += (p[n] == '[') - (p[n] == ']');
        code = expand(&w, p, n, "");
        p += n + (p[n] == ',');
    }
    return code == -EINVAL ? tool_usage("SLURM_JOB_NODELIST=%.200s is no list of Slurm's", list)
                           : code;
}

/* ---- torchrun ---- */

/* Adds the one machine that torchrun's variables name to its workers, that of rank 0. */
int hosts_torchrun(struct attached *a, int port, const char *token_file) {
    const struct where w = {a, port, token_file};
    const char *host = getenv("MASTER_ADDR"), *nodes = getenv("GROUP_WORLD_SIZE");
    double n = 1;

    if (!host || !*host)
        return tool_usage("--torchrun is for a worker of torchrun's: MASTER_ADDR is not set here");
    if (nodes)
        tool_number(nodes, 1, HOSTS_MAX, &n);
    int code = add(&w, host);
    if (code != TOOL_OK || n < 2)
        return code;
    tool_say("torchrun names the first of %.0f machines alone, %s: the others by --hostfile", n,
             host);
    return TOOL_PARTIAL;
}
