/* SPDX-License-Identifier: Apache-2.0 */
/*
 * command.c - runs commands of `probing` on a process of this machine, as children of the server, and streams their output.
 *
 * A table says which commands may be run, with which options: those that only read, and those that change a process, which need the
 * control token. Of the former no option names a file, so that without that token no client reads or writes files by name.
 *
 * The answer of /api/v1/command is a sequence of frames: "o LENGTH\n" and so many bytes of standard output, "e LENGTH\n" of standard
 * error, and "x CODE\n" at the end. A client that goes away ends the command as Ctrl-C would; one that has only closed its side for
 * writing still gets what the command then prints.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/common.h"
#include "tools/serve/serve.h"

#define ARGS_MAX   32
#define OUTPUT_MAX (64u << 20)
#define LOOK_MS                                                                                    \
    200 /* time between two checks whether the client of a command without output is still there */
#define GRACE_LOOKS 25 /* number of such checks between SIGINT and SIGKILL */
#define LAST_LOOKS  75 /* number of such checks while an interrupted command may still print */

static const struct allowed {
    const char *word;
    int process, control; /* control: needs its token; all options may be used */
    const char *
        options; /* " --flag --with= ", each between blanks; with both, the value follows an = sign; NULL: any */
    int words; /* most arguments that are no options */
} allowed[] = {
    {"list", 0, 0, " --json ", 0},
    {"status", 1, 0, " --json ", 0},
    {"backtrace", 1, 0,
     " --json --folded --native --python --main --locals --tasks --color --color= --thread= ", 0},
    {"top", 1, 0, " --json --window= --view= ", 0},
    {"memory", 1, 0, " --json --csv --markdown --box --format= ", 0},
    {"query", 1, 0, " --json --csv --markdown --box --format= --timeout= --tables ", 1},
    {"flamegraph", 1, 0,
     " --folded --cpu --python --all-frames --thread= --icicle --idle --lines --title= ", 0},
    {"eval", 1, 1, NULL, 1},
    {"watch", 1, 1, NULL, 2},
    {"config", 1, 1, NULL, 1},
    {"inject", 1, 1, " --output= -o= --rate= -r= --no-native --dry-run --force --method= ", 0},
    {"stop", 1, 1, "", 0},
};

struct child {
    pid_t pid;
    int fd[2];          /* its stdout and stderr; -1: ended */
    struct rusage used; /* set when it has ended; includes its children */
};

/* ---- which ---- */

static const struct allowed *find(const char *word) {
    for (size_t i = 0; i < sizeof allowed / sizeof *allowed; i++) {
        if (word && strcmp(allowed[i].word, word) == 0)
            return &allowed[i];
    }
    return NULL;
}

/* Returns whether the commands take this for an option. SQL that begins with a comment, "-- why", is none (cmd_query.c). */
static int is_option(const char *text) {
    size_t n = strcspn(text, "= \t\r\n");
    int is_comment = strncmp(text, "--", 2) == 0 && text[2] && text[n] && text[n] != '=';

    return text[0] == '-' && text[1] && !is_comment;
}

/* Returns whether the option may be used. *value: whether its value is the next argument. */
static int may_use(const struct allowed *a, const char *arg, int *value) {
    char flag[64], with[64];
    size_t n = strcspn(arg, "=");
    int may_stand, may_have; /* it may stand alone; it may have a value */

    if (!a->options || n > 40) {
        *value = 0;
        return !a->options;
    }
    snprintf(flag, sizeof flag, " %.*s ", (int)n, arg);
    snprintf(with, sizeof with, " %.*s= ", (int)n, arg);
    may_stand = strstr(a->options, flag) != NULL;
    may_have = strstr(a->options, with) != NULL;
    *value = !arg[n] && may_have && !may_stand;
    return may_have || (!arg[n] && may_stand);
}

/* Makes argv for the request; argv[0] is the program, and the strings belong to the request. Returns 0, or the HTTP status and *why. */
static unsigned take_args(const struct request *r, const char *argv[ARGS_MAX + 8], char pid[16],
                          const char **why) {
    const cJSON *args = cJSON_GetObjectItemCaseSensitive(r->body, "args"),
                *process = cJSON_GetObjectItemCaseSensitive(r->body, "pid"), *arg;
    const struct allowed *a = find(serve_text(r, "command"));
    int n = 0, words = 0, value = 0, count = 0;

    *why = "no such command: one of list, status, backtrace, top, memory, query, flamegraph, eval, "
           "watch, config, inject, stop";
    if (!a)
        return MHD_HTTP_BAD_REQUEST;
    *why = "pid, the number of a process, is missing or wrong";
    if (process ? !cJSON_IsNumber(process) || process->valuedouble < 1 ||
                      process->valuedouble > 999999999 || /* as openapi.json has it */
                      process->valuedouble != (double)(int)process->valuedouble
                : a->process)
        return MHD_HTTP_BAD_REQUEST;
    *why = "args must be a list of at most 32 texts";
    if (args && !cJSON_IsArray(args))
        return MHD_HTTP_BAD_REQUEST;
    *why = "input must be a text";
    if (cJSON_HasObjectItem(r->body, "input") && !serve_text(r, "input"))
        return MHD_HTTP_BAD_REQUEST;
    *why = serve.control
               ? "this changes the process: it needs the control token, as Authorization: Bearer"
               : "this changes the process: the server was not started with --allow-control";
    if (a->control && !r->control)
        return MHD_HTTP_FORBIDDEN;
    argv[n++] = serve.program;
    if (a->process) {
        snprintf(pid, 16, "%d", (int)process->valuedouble);
        argv[n++] = "-t";
        argv[n++] = pid;
    }
    argv[n++] = a->word;
    if (strcmp(a->word, "query") == 0 || strcmp(a->word, "memory") == 0)
        argv[n++] = "--restricted";
    cJSON_ArrayForEach(arg, args) {
        *why = "args must be a list of at most 32 texts";
        if (!cJSON_IsString(arg) || ++count > ARGS_MAX)
            return MHD_HTTP_BAD_REQUEST;
        const char *text = arg->valuestring;
        *why = "an option of args may not be used from elsewhere, or there are too many arguments";
        if (value)
            value = 0;
        else if (is_option(text) ? !may_use(a, text, &value) : a->options && ++words > a->words)
            return MHD_HTTP_FORBIDDEN;
        argv[n++] = text;
    }
    argv[n] = NULL;
    return 0;
}

/* ---- running ---- */

static int start(struct child *c, const char *const *argv, const char *input) {
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attr;
    int out[2] = {-1, -1}, err[2] = {-1, -1}, in = -1, rc;
    sigset_t defaults;

    if (pipe2(out, O_CLOEXEC) < 0 || pipe2(err, O_CLOEXEC) < 0 ||
        (in = memfd_create("input", MFD_CLOEXEC)) < 0 ||
        (input && write(in, input, strlen(input)) != (ssize_t)strlen(input)) ||
        lseek(in, 0, SEEK_SET) < 0) {
        rc = -errno;
        goto out;
    }
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in, 0);
    posix_spawn_file_actions_adddup2(&actions, out[1], 1);
    posix_spawn_file_actions_adddup2(&actions, err[1], 2);
    posix_spawnattr_init(&attr);
    sigemptyset(&defaults);
    sigaddset(&defaults, SIGPIPE);
    sigaddset(&defaults, SIGINT);
    sigaddset(&defaults, SIGTERM);
    posix_spawnattr_setsigdefault(&attr, &defaults);
    sigemptyset(&defaults);
    posix_spawnattr_setsigmask(&attr, &defaults);
    posix_spawnattr_setpgroup(&attr, 0); /* Ctrl-C at the server does not reach it */
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK |
                                        POSIX_SPAWN_SETPGROUP);
    rc = -posix_spawn(&c->pid, argv[0], &actions, &attr, (char *const *)(uintptr_t)argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attr);
out:
    close(out[1]);
    close(err[1]);
    close(in);
    if (rc < 0) {
        close(out[0]);
        close(err[0]);
    }
    c->fd[0] = out[0];
    c->fd[1] = err[0];
    return rc;
}

/* Waits for the command to end and returns its exit code. If its client has gone, it is interrupted, then killed. */
static int finish(struct child *c, int gone) {
    int status = 0;

    for (int i = 0; i < 2; i++) {
        if (c->fd[i] >= 0)
            close(c->fd[i]);
        c->fd[i] = -1;
    }
    if (!c->pid)
        return 0;
    if (gone)
        kill(c->pid, SIGINT);
    for (int i = 0; gone && i < GRACE_LOOKS; i++) {
        if (wait4(c->pid, &status, WNOHANG, &c->used) != 0)
            goto done;
        poll(NULL, 0, LOOK_MS);
    }
    if (gone)
        kill(c->pid, SIGKILL);
    while (wait4(c->pid, &status, 0, &c->used) < 0 && errno == EINTR)
        ;
done:
    c->pid = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Reads some output, *n bytes. Returns 0 for stdout, 1 for stderr; -1: both are closed; -2: the client has gone;
 * -3: the time `end` has come (as of tool_seconds(); 0: no limit). */
static int next(struct child *c, const struct request *r, double end, char *buf, size_t max,
                ssize_t *n) {
    for (;;) {
        struct pollfd p[2] = {{c->fd[0], POLLIN, 0}, {c->fd[1], POLLIN, 0}};
        if (c->fd[0] < 0 && c->fd[1] < 0)
            return -1;
        double left = end > 0 ? 1000 * (end - tool_seconds()) : LOOK_MS;
        if (left <= 0)
            return -3;
        if (poll(p, 2, left < LOOK_MS ? (int)left + 1 : LOOK_MS) <= 0) {
            if (serve_gone(r))
                return -2;
            continue;
        }
        for (int i = 0; i < 2; i++) {
            if (!p[i].revents)
                continue;
            *n = read(c->fd[i], buf, max);
            if (*n > 0)
                return i;
            close(c->fd[i]);
            c->fd[i] = -1;
        }
    }
}

/* ---- as frames ---- */

struct frames {
    struct request request;
    struct child child;
    int ended, gone; /* gone: number of looks since the client closed its side */
};

static ssize_t more(void *arg, uint64_t pos, char *buf, size_t max) {
    struct frames *f = arg;
    char head[32];
    ssize_t n = 0;
    (void)pos;
    if (f->ended)
        return f->ended > 0 ? MHD_CONTENT_READER_END_OF_STREAM : MHD_CONTENT_READER_END_WITH_ERROR;
    if (max < 2 * sizeof head)
        return MHD_CONTENT_READER_END_WITH_ERROR;
    int which;
    do {
        if (serve_gone(&f->request) && f->gone++ == 0)
            kill(f->child.pid, SIGINT);
        which = next(&f->child, &f->request, 0, buf + sizeof head, max - sizeof head, &n);
    } while (which == -2 && f->gone < LAST_LOOKS);
    serve_active(&f->request);
    if (which == -2) {
        finish(&f->child, 1);
        f->ended = -1;
        return MHD_CONTENT_READER_END_WITH_ERROR;
    }
    int len = snprintf(head, sizeof head, "%c %zd\n", which < 0 ? 'x' : "oe"[which],
                       which < 0 ? (ssize_t)finish(&f->child, 0) : n);
    f->ended = which < 0;
    memmove(buf + len, buf + sizeof head, (size_t)n);
    memcpy(buf, head, (size_t)len);
    return len + n;
}

static void end(void *arg) {
    struct frames *f = arg;

    finish(&f->child, 1);
    free(f);
}

enum MHD_Result serve_command(const struct request *r) {
    const char *argv[ARGS_MAX + 8], *why = "";
    char pid[16];
    unsigned status = take_args(r, argv, pid, &why);

    if (status)
        return serve_error(r, status, "%s", why);
    struct frames *f = calloc(1, sizeof *f);
    if (!f)
        return MHD_NO;
    f->request = *r;
    f->request.body = NULL;
    int rc = start(&f->child, argv, serve_text(r, "input"));
    if (rc < 0) {
        free(f);
        return serve_error(r, MHD_HTTP_SERVICE_UNAVAILABLE, "cannot run %s: %s", serve.program,
                           strerror(-rc));
    }
    struct MHD_Response *response =
        MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 65536, more, f, end);
    if (!response)
        end(f);
    return serve_queue(r, MHD_HTTP_OK, "application/x-probing-command", response);
}

/* ---- as a whole ---- */

static double seconds_of(const struct timeval *t) {
    return (double)t->tv_sec + (double)t->tv_usec / 1e6;
}

enum MHD_Result serve_output(const struct request *r, const char *type, const char *const *args,
                             double seconds) {
    double end = seconds > 0 ? tool_seconds() + seconds : 0;
    struct child c = {0};
    char *text = NULL, why[1024] = "";
    size_t size = 0, nargs = 0;
    ssize_t n;
    int which = -2, rc, too_much = 0;

    while (args[nargs])
        nargs++;
    const char **argv = calloc(nargs + 2, sizeof *argv);
    char *buf = malloc(65536);
    if (argv) {
        argv[0] = serve.program;
        memcpy(argv + 1, args, nargs * sizeof *argv);
    }
    rc = argv && buf ? start(&c, argv, NULL) : -ENOMEM;
    free(argv);
    if (rc < 0) {
        free(buf);
        return serve_error(r, MHD_HTTP_SERVICE_UNAVAILABLE, "cannot run %s: %s", serve.program,
                           strerror(-rc));
    }
    while (!too_much && (which = next(&c, r, end, buf, 65535, &n)) >= 0) {
        buf[n] = 0;
        char *all =
            which == 0 && size + (size_t)n < OUTPUT_MAX ? realloc(text, size + (size_t)n) : NULL;
        too_much = which == 0 && !all;
        if (all) {
            memcpy(all + size, buf, (size_t)n);
            text = all;
            size += (size_t)n;
        } else if (which == 1 && !*why) {
            snprintf(why, sizeof why, "%.*s", (int)strcspn(buf, "\n"), buf);
        }
    }
    free(buf);
    int code = finish(&c, too_much || which < -1);
    struct request with = *r;
    with.cpu = seconds_of(&c.used.ru_utime) + seconds_of(&c.used.ru_stime);
    r = &with;
    enum MHD_Result done;
    if (too_much) /* send an error: a part of the output would look like the whole output */
        done = serve_error(r, MHD_HTTP_CONTENT_TOO_LARGE, "the answer is larger than %u MiB",
                           OUTPUT_MAX >> 20);
    else if (which == -3)
        done = serve_error(r, MHD_HTTP_REQUEST_TIMEOUT, "%s took longer than its timeout",
                           strcmp(args[0], "query") == 0 ? "the query" : args[0]);
    else if (code <= TOOL_PARTIAL && text) { /* all of its bytes: Arrow's have NULs among them */
        done = serve_queue(r, MHD_HTTP_OK, type,
                           MHD_create_response_from_buffer(size, text, MHD_RESPMEM_MUST_COPY));
    } else
        done = serve_error(r, code == TOOL_USAGE ? MHD_HTTP_BAD_REQUEST : MHD_HTTP_CONFLICT, "%s",
                           *why ? why : "the command gave no answer");
    free(text);
    return done;
}
