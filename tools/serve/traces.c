/* SPDX-License-Identifier: Apache-2.0 */
/*
 * traces.c - serves the traces behind the server: those that it was started with, else those that are being recorded now.
 *
 * A client names a trace by the number that it has in the list (device and inode), never by a file name. Processes that record are first
 * asked to write out their records, as `probing query` does. One thread at a time goes through the recordings.
 */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/common.h"
#include "tools/live_inputs.h"
#include "tools/live_scan.h"
#include "tools/open_db.h"
#include "tools/serve/serve.h"
#include "traces/hash.h"
#include "traces/plain_file.h"
#include "traces/proc.h"
#include "traces/visible.h"

#define LAST_S 5.0 /* seconds over its limit after which a command itself gives up */

struct paths {
    char **p;
    size_t n, cap;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- which ---- */

static int add_path(struct paths *l, const char *path) {
    if (l->n == l->cap) {
        size_t cap = l->cap ? 2 * l->cap : 64;
        char **more = realloc(l->p, cap * sizeof *more);
        if (!more)
            return -ENOMEM;
        l->p = more;
        l->cap = cap;
    }
    return (l->p[l->n] = strdup(path)) ? (l->n++, 0) : -ENOMEM;
}

static int each(const struct live_seen *seen, void *arg) {
    if (seen->l && *seen->l->trace_path && live_seen_alive(seen) &&
        access(seen->l->trace_path, R_OK) == 0)
        return add_path(arg, seen->l->trace_path);
    return 0;
}

static void free_paths(struct paths *l) {
    for (size_t i = 0; i < l->n; i++)
        free(l->p[i]);
    free(l->p);
    memset(l, 0, sizeof *l);
}

/* Finds the traces or the database to ask. live: only what is being recorded now, whatever was opened. Returns 0, or -ENOMEM: none, as an
 * answer about some of them would look like one about all. */
static int find_paths(struct paths *l, int live) {
    int err = 0;

    memset(l, 0, sizeof *l);
    if (!live && serve.nsources) {
        for (int i = 0; !err && i < serve.nsources; i++)
            err = add_path(l, serve.sources[i]);
    } else {
        pthread_mutex_lock(&lock);
        err = live_scan(each, l) == -ENOMEM ? -ENOMEM : 0;
        pthread_mutex_unlock(&lock);
    }
    if (err)
        free_paths(l);
    return err;
}

/* Finds the files of the traces; none if a database was opened. With `complete`, processes write out their records first. */
static void find_traces(struct inputs *in, int complete) {
    struct paths l;

    find_paths(&l, 0);
    for (size_t i = 0; i < l.n; i++) {
        if (!db_is_database(l.p[i]))
            inputs_add(in, l.p[i], INPUTS_SIBLINGS); /* files that are gone are not listed */
    }
    free_paths(&l);
    if (!complete || !in->n)
        return;
    pthread_mutex_lock(&lock);
    live_inputs(in);
    pthread_mutex_unlock(&lock);
}

/* Sets the server's id. Two servers on one machine that opened nothing and see the same processes give the same answers: they get the same id. */
void serve_set_id(void) {
    unsigned char bytes[16] = {0};
    char text[600] = "";
    const char *dir = getenv("PROBING_RUN_DIR");

    if (serve.nsources && getrandom(bytes, sizeof bytes, 0) == sizeof bytes) {
        for (size_t i = 0; i < sizeof bytes; i++)
            sprintf(serve.id + 2 * i, "%02x", bytes[i]);
        return;
    }
    proc_read_file("/proc/sys/kernel/random/boot_id", text, 64);
    snprintf(text + strlen(text), sizeof text - strlen(text), "%ju %u %.400s",
             (uintmax_t)proc_namespace(0, "pid"), geteuid(), dir ? dir : "");
    snprintf(serve.id, sizeof serve.id, "%016" PRIx64, hash_text(HASH_START, text));
}

/* ---- the list, and one of them ---- */

static void id_of(const struct input *t, char id[40]) {
    snprintf(id, 40, "%" PRIx64 "-%" PRIx64, t->dev, t->ino);
}

enum MHD_Result serve_traces(const struct request *r) {
    struct inputs in = {0};
    cJSON *list = cJSON_CreateArray();

    find_traces(&in, 1);
    for (size_t i = 0; i < in.n; i++) {
        const char *slash = strrchr(in.file[i].path, '/');
        struct stat st;
        char id[40];
        if (stat(in.file[i].path, &st) < 0)
            continue;
        cJSON *j = cJSON_CreateObject();
        id_of(&in.file[i], id);
        cJSON_AddStringToObject(j, "id", id);
        cJSON_AddStringToObject(j, "name", slash ? slash + 1 : in.file[i].path);
        cJSON_AddNumberToObject(j, "bytes", (double)st.st_size);
        cJSON_AddBoolToObject(j, "recording", in.file[i].recording);
        cJSON_AddItemToArray(list, j);
    }
    inputs_free(&in);
    char *body = visible_json(cJSON_PrintUnformatted(list));
    enum MHD_Result done = body ? serve_reply(r, MHD_HTTP_OK, "application/json", body) : MHD_NO;
    free(body);
    cJSON_Delete(list);
    return done;
}

enum MHD_Result serve_trace(const struct request *r) {
    const char *wanted = r->path + strlen("/api/v1/traces/");
    struct MHD_Response *response = NULL;
    struct inputs in = {0};
    struct stat st = {0};
    int fd = -ENOENT;

    find_traces(&in, 0);
    for (size_t i = 0; i < in.n && fd == -ENOENT; i++) {
        char id[40];
        id_of(&in.file[i], id);
        char *path = strcmp(id, wanted) == 0 ? realpath(in.file[i].path, NULL) : NULL;
        if (path)
            fd = plain_file_open(path);
        free(path);
    }
    inputs_free(&in);
    if (fd < 0 || fstat(fd, &st) < 0) {
        if (fd >= 0)
            close(fd);
        return serve_error(r, MHD_HTTP_NOT_FOUND,
                           "there is no such trace (any more): /api/v1/traces lists them");
    }
    if (!(response = MHD_create_response_from_fd64((uint64_t)st.st_size, fd)))
        close(fd);
    return serve_queue(r, MHD_HTTP_OK, "application/zstd", response);
}

/* ---- requests about all traces that are served ---- */

/* Answers with the output of `probing WORD OPTIONS -- PATHS [LAST]`. */
static enum MHD_Result ask_all(const struct request *r, const char *type,
                               const char *const *options, const char *last, int live,
                               double seconds) {
    enum { MOST_OPTIONS = 16 };
    const char **args;
    struct paths l;
    size_t n = 0;

    if (find_paths(&l, live) < 0 || !(args = calloc(l.n + MOST_OPTIONS, sizeof *args))) {
        free_paths(&l);
        return serve_error(r, MHD_HTTP_SERVICE_UNAVAILABLE, "no memory");
    }
    if (!l.n) {
        free(args);
        return serve_error(r, MHD_HTTP_NOT_FOUND,
                           live ? "nothing is being recorded by this user"
                                : "nothing is being recorded by this user, and nothing was opened "
                                  "(probing serve DB)");
    }
    for (; options[n]; n++)
        args[n] = options[n];
    args[n++] = "--";
    for (size_t i = 0; i < l.n; i++)
        args[n++] = l.p[i];
    if (last)
        args[n++] = last;
    args[n] = NULL;
    enum MHD_Result done = serve_output(r, type, args, seconds);
    free(args);
    free_paths(&l);
    return done;
}

enum MHD_Result serve_live_query(const struct request *r, const char *sql, const char *format,
                                 double timeout) {
    char seconds[32];

    /* The server ends the command when its time is over, which includes reading the traces. The command's own limit is only for the case that the server
     * does not. */
    snprintf(seconds, sizeof seconds, "%.3f", timeout + LAST_S);
    return ask_all(r, serve_format(format),
                   (const char *const[]){"query", "--restricted", "--timeout", seconds, "--format",
                                         format, NULL},
                   sql, serve.nsources > 0, timeout);
}

/* Returns 0 or 1 as the parameter says, 0 if it is missing, -1 if it is anything else. */
static int is_set(const struct request *r, const char *name) {
    const char *value = MHD_lookup_connection_value(r->connection, MHD_GET_ARGUMENT_KIND, name);

    return !value || strcmp(value, "0") == 0 ? 0 : strcmp(value, "1") == 0 ? 1 : -1;
}

enum MHD_Result serve_stacks(const struct request *r) {
    const char *options[6] = {"stacks", "--json"};
    int n = 2, threads = is_set(r, "threads"), native = is_set(r, "native"),
        flat = is_set(r, "flat"), live = is_set(r, "live");

    if (threads < 0 || native < 0 || flat < 0 || live < 0)
        return serve_error(r, MHD_HTTP_BAD_REQUEST, "threads, native, flat and live are 0 or 1");
    if (threads)
        options[n++] = "--threads";
    if (native)
        options[n++] = "--native";
    if (flat)
        options[n++] = "--flat";
    return ask_all(r, "application/json", options, NULL, live, serve.timeout);
}

enum MHD_Result serve_report(const struct request *r) {
    int live = is_set(r, "live");

    if (live < 0)
        return serve_error(r, MHD_HTTP_BAD_REQUEST, "live is 0 or 1");
    return ask_all(r, "text/html; charset=utf-8", (const char *const[]){"report", NULL}, NULL, live,
                   SERVE_REPORT * serve.timeout);
}
