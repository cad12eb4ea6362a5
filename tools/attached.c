/* SPDX-License-Identifier: Apache-2.0 */
#include "attached.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../traces/own_file.h"
#include "common.h"

#define LINE 5000

/* ---- addresses ---- */

/* Writes the HOST:PORT of `text` to buf, without http://; sets *tail to what follows the port. Returns 0 or -EINVAL. */
static int canonical(const char *text, int port, char *buf, size_t n, const char **tail) {
    const char *scheme = "", *p = text;
    char *end;

    if (strncmp(p, "http://", 7) == 0)
        p += 7;
    else if (strncmp(p, "https://", 8) == 0)
        p += 8, scheme = "https://";
    size_t host = *p == '[' ? strcspn(p, "]/ \t") + 1 : strcspn(p, ":/ \t"), i;
    if (host == 0 || host > 300 || (*p == '[' && p[host - 1] != ']'))
        return -EINVAL;
    for (i = 0; i < host;
         i++) { /* refuse user:password@, and what a line of the file could not hold */
        if (!strchr("0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_.[]:%",
                    p[i]) ||
            (p[i] == '-' && i == 0))
            return -EINVAL;
    }
    long number = port;
    *tail = p + host;
    if (p[host] == ':') {
        number = strtol(p + host + 1, &end, 10);
        if (end == p + host + 1 || p[host + 1] == '-' || p[host + 1] == '+')
            return -EINVAL;
        *tail = end;
    }
    if (number < 1 || number > 65535 || (**tail && **tail != '/'))
        return -EINVAL;
    return snprintf(buf, n, "%s%.*s:%ld", scheme, (int)host, p, number) < (int)n ? 0 : -EINVAL;
}

const struct attached_node *attached_find(const struct attached *a, const char *address) {
    for (size_t i = 0; i < a->n; i++) {
        if (strcasecmp(a->v[i].address, address) == 0)
            return &a->v[i];
    }
    return NULL;
}

/* Frees *to and sets it to a copy of the first n bytes of `text`, or to NULL where `text` is NULL. */
static int replace(char **to, const char *text, size_t n) {
    free(*to);
    *to = text ? strndup(text, n) : NULL;
    return text && !*to ? -ENOMEM : 0;
}

int attached_add(struct attached *a, const char *text, int port, const char *token_file) {
    char address[400];
    const char *tail, *token;
    int err = canonical(text, port, address, sizeof address, &tail), was = 0;

    if (err < 0)
        return err;
    struct attached_node *node = (struct attached_node *)(uintptr_t)attached_find(a, address);
    if (node) {
        was = 1;
    } else {
        if (a->n == a->cap) {
            size_t cap = a->cap ? a->cap * 2 : 16;
            struct attached_node *more = realloc(a->v, cap * sizeof *more);
            if (!more)
                return -ENOMEM;
            a->v = more;
            a->cap = cap;
        }
        node = &a->v[a->n];
        *node = (struct attached_node){.address = strdup(address)};
        if (!node->address)
            return -ENOMEM;
        a->n++;
    }
    if ((token = strstr(tail, "?token=")))
        err = replace(&node->token, token + 7, strcspn(token + 7, "&# \t\r\n"));
    else if (token_file)
        err = replace(&node->token_file, token_file, strlen(token_file));
    if (!err && token)
        replace(&node->token_file, NULL, 0);
    else if (!err && token_file)
        replace(&node->token, NULL, 0);
    return err ? err : was;
}

static void free_node(struct attached_node *node) {
    free(node->address);
    free(node->token);
    free(node->token_file);
}

int attached_remove(struct attached *a, const char *address) {
    char wanted[400];
    const char *tail;

    for (size_t i = 0; i < a->n; i++) {
        if (canonical(address, 8080, wanted, sizeof wanted, &tail) < 0 ||
            strcasecmp(a->v[i].address, wanted) != 0)
            continue;
        free_node(&a->v[i]);
        memmove(&a->v[i], &a->v[i + 1], (--a->n - i) * sizeof *a->v);
        return 1;
    }
    return 0;
}

void attached_free(struct attached *a) {
    for (size_t i = 0; i < a->n; i++)
        free_node(&a->v[i]);
    free(a->v);
    *a = (struct attached){0};
}

/* ---- the file ---- */

/* Writes the name of the file of attached hosts to buf. With `make`, creates the folders above it. Returns 0 or -errno. */
static int file_name(char *buf, size_t n, int make) {
    const char *own = getenv("PROBING_CLUSTER"), *config = getenv("XDG_CONFIG_HOME"),
               *home = getenv("HOME");
    int len;

    if (own && *own)
        return snprintf(buf, n, "%s", own) < (int)n ? 0 : -ENAMETOOLONG;
    if (config && *config == '/')
        len = snprintf(buf, n, "%s", config);
    else if (home && *home == '/')
        len = snprintf(buf, n, "%s/.config", home);
    else
        return -ENOENT;
    if (len < 0 || (size_t)len + 20 > n)
        return -ENAMETOOLONG;
    int rc = make ? own_dir_make(buf, 0700) : 0;
    strcat(buf, "/probing");
    if (make && !rc)
        rc = own_dir_make(buf, 0700);
    strcat(buf, "/cluster");
    return rc;
}

static int read_line(struct attached *a, char *line) {
    char *address = strtok(line, " \t\r\n"), *rest = address ? strtok(NULL, "\r\n") : NULL;

    if (!address || *address == '#')
        return 0;
    char with_token[LINE + 10];
    if (rest && strncmp(rest, "token=", 6) == 0) {
        snprintf(with_token, sizeof with_token, "%s/?%s", address, rest);
        address = with_token;
    }
    return attached_add(a, address, 8080,
                        rest && strncmp(rest, "token-file=", 11) == 0 ? rest + 11 : NULL);
}

int attached_read(struct attached *a) {
    char path[4096], line[LINE];
    struct stat st;
    int rc = file_name(path, sizeof path, 0), number = 0;
    FILE *f = rc < 0 ? NULL : fopen(path, "re");

    if (!f) {
        if (rc == -ENOENT || (rc == 0 && errno == ENOENT))
            return 0;
        rc = rc < 0 ? rc : -errno;
        tool_fail("cannot read the attached hosts from %s: %s", path, strerror(-rc));
        return rc;
    }
    if (fstat(fileno(f), &st) < 0 || st.st_uid != geteuid() || st.st_mode & 077) {
        tool_fail("%s may be read by others, and it can hold tokens: chmod 600 %s", path, path);
        rc = -EPERM;
    }
    while (rc >= 0 && fgets(line, sizeof line, f)) {
        number++;
        if ((rc = read_line(a, line)) < 0)
            tool_fail("%s, line %d is no host: write HOST:PORT, or remove it", path, number);
    }
    fclose(f);
    return rc < 0 ? rc : 0;
}

int attached_write(const struct attached *a) {
    char name[4096] = "?/.config/probing/cluster", path[PATH_MAX], temporary[PATH_MAX + 10];
    int rc = file_name(name, sizeof name, 1), fd = -1; /* without HOME the name stays */
    FILE *f = NULL;

    /* Where it is a symlink (to a folder of dotfiles, say), the file that it leads to is replaced. */
    if (rc < 0 || !realpath(name, path))
        strcpy(path, name);
    if (rc == 0) {
        snprintf(temporary, sizeof temporary, "%s.XXXXXX", path);
        if ((fd = mkostemp(temporary, O_CLOEXEC)) < 0) /* creates it with mode 0600 */
            rc = -errno;
        else if (!(f = fdopen(fd, "w")))
            rc = -errno;
    }
    if (f) {
        fputs("# Written by `probing cluster attach`: ADDRESS [token=TOKEN | token-file=FILE]\n",
              f);
        for (size_t i = 0; i < a->n; i++) {
            const struct attached_node *node = &a->v[i];
            fputs(node->address, f);
            if (node->token)
                fprintf(f, " token=%s", node->token);
            else if (node->token_file)
                fprintf(f, " token-file=%s", node->token_file);
            fputc('\n', f);
        }
        if (fflush(f) == EOF || fsync(fd) < 0)
            rc = -errno;
        fclose(f);
        if (rc == 0 && rename(temporary, path) < 0)
            rc = -errno;
        if (rc < 0)
            unlink(temporary);
    }
    if (rc < 0)
        tool_fail("cannot keep the attached hosts in %s: %s (PROBING_CLUSTER names another file)",
                  path, strerror(-rc));
    return rc;
}

/* ---- tokens ---- */

/* Returns whether `text` has only characters that a token in an HTTP header may have. */
static int is_token(const char *text) {
    return *text && strlen(text) < 200 &&
           !text[strspn(text,
                        "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_.~+/=")];
}

/* Returns whether `name`, from a line of a token file, means this address: it may leave out https:// and the port. */
static int means(const char *name, const char *address) {
    const char *p = strncmp(address, "https://", 8) == 0 ? address + 8 : address,
               *colon = strrchr(p, ':');
    size_t n = strlen(name);

    return strcasecmp(name, address) == 0 || strcasecmp(name, p) == 0 ||
           (colon && n == (size_t)(colon - p) && strncasecmp(name, p, n) == 0);
}

static int from_file(const char *path, const char *address, char token[ATTACHED_TOKEN],
                     char why[256]) {
    char line[LINE];
    FILE *f = fopen(path, "re");

    token[0] = 0;
    if (!f) {
        int err = -errno;
        snprintf(why, 256, "cannot read the token from %.150s: %s", path, strerror(-err));
        return err;
    }
    while (fgets(line, sizeof line, f)) {
        char *first = strtok(line, " \t\r\n"), *second = first ? strtok(NULL, " \t\r\n") : NULL;
        if (!first || *first == '#')
            continue;
        if (!second && !*token)
            snprintf(token, ATTACHED_TOKEN, "%s", first);
        else if (second && means(first, address)) {
            snprintf(token, ATTACHED_TOKEN, "%s", second);
            break;
        }
    }
    fclose(f);
    return 0;
}

int attached_token(const struct attached_node *node, char token[ATTACHED_TOKEN], char why[256]) {
    const char *text = getenv("PROBING_TOKEN"), *file = getenv("PROBING_TOKEN_FILE");
    int rc = 0;

    snprintf(why, 256, "there is no token for it: PROBING_TOKEN, or attach it with one");
    token[0] = 0;
    if (node->token)
        snprintf(token, ATTACHED_TOKEN, "%s", node->token);
    else if (node->token_file)
        rc = from_file(node->token_file, node->address, token, why);
    else if (text && *text)
        snprintf(token, ATTACHED_TOKEN, "%s", text);
    else if (file && *file)
        rc = from_file(file, node->address, token, why);
    if (rc < 0 || !*token)
        return rc < 0 ? rc : -ENOENT;
    if (is_token(token))
        return 0;
    snprintf(why, 256, "its token is none: letters, digits and -_.~ only");
    return -EINVAL;
}
