/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_watch.c - `probing -t PID watch FILE:LINE "EXPRESSIONS"`: shows values each time a line runs, like a breakpoint that does not
 * stop. The part that runs in the process is tools/embed/watch.py, which also documents what the two send each other.
 */
#include <cjson/cJSON.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "../converter/when.h"
#include "../traces/visible.h"
#include "live_target.h"
#include "options.h"
#include "target.h"

static const char help[] =
    "usage: probing -t PID watch [OPTION...] FILE:LINE [\"EXPRESSION, ...\"]\n"
    "\n"
    "Prints values each time a line of a live process runs, before it runs, and stops nobody: a line\n"
    "each on stdout. Where the process is being recorded they go into the trace too (view events,\n"
    "name 'watch FILE:LINE'). The process needs Python 3.12 or later.\n"
    "\n"
    "  -t, --target PID   the process\n"
    "      --for TIME     end after 30s, 5min, 2h (a number is seconds)\n"
    "      --count N      end after N times\n"
    "      --json         a JSON object a line: {\"t\", \"tid\", \"function\", \"values\", \"errors\"}\n"
    "      --no-record    do not write into the trace\n"
    "  -h, --help         this text\n"
    "\n"
    "Reading takes at most a twentieth of the time: of a line that runs more often, only some times\n"
    "are shown, and the rest is counted. Ctrl-C ends it; nothing stays behind in the process.\n"
    "\n"
    "Exit: 0 done; 1 the process ended meanwhile; 2 usage; 3 nothing could be done.\n"
    "\n"
    "  probing -t 4711 watch train.py:42 \"loss.item(), lr\" --for 30s\n";

static const char source[] = {
#include "tools/embed/watch.py.inc"
    0};

#define ASK_S     60.0 /* seconds: the code is short, but may wait for the machine or the GIL */
#define WAIT_MS   500  /* longest wait for a line before we check whether to go on */
#define POLL_MS   100  /* how long the watch of a line that runs too often pauses */
#define TEXT_SIZE 8192

struct watch {
    int pid, json, record;
    const char *where, *expressions;
    double count, seconds;
    char *place;         /* the line's place as the process names it; allocated by malloc() */
    int recorded;        /* values go into the trace as well */
    int id, fd, process; /* fd: the pipe; process: a pidfd */
    int shown, ended;    /* ended: 1 the watch ended, 2 the process did */
};

/* Runs `code` in the process and puts the JSON object that it prints into *out, to be freed. Returns TOOL_OK, or reports an error and returns the exit code. */
static int evaluate(struct watch *w, const char *code, cJSON **out) {
    char *request = NULL, *answer = NULL;
    const char *text;
    int code_out = TOOL_OK;
    cJSON *j = NULL;

    *out = NULL;
    if (asprintf(&request, "eval\n%s", code) < 0)
        return tool_fail("no memory");
    int rc = target_ask(w->pid, MAIL_ASK, request, ASK_S, 1, &answer);
    if (rc < 0) {
        code_out = tool_fail("%s", answer ? answer : strerror(-rc));
    } else if (!(j = cJSON_Parse(answer)) || !cJSON_IsTrue(cJSON_GetObjectItem(j, "ok"))) {
        text = cJSON_GetStringValue(cJSON_GetObjectItem(j, "error"));
        code_out = tool_fail("cannot watch: %s", text ? text : answer);
    } else if (!(*out = cJSON_Parse(cJSON_GetStringValue(cJSON_GetObjectItem(j, "out"))))) {
        code_out = tool_fail("cannot watch: the answer cannot be read: %.200s", answer);
    } else if ((text = cJSON_GetStringValue(cJSON_GetObjectItem(*out, "error")))) {
        code_out = tool_fail("cannot watch: %s", text);
        cJSON_Delete(*out);
        *out = NULL;
    }
    cJSON_Delete(j);
    inspect_free(answer);
    free(request);
    return code_out;
}

/* Calls a function of the module that begin() loaded into the process: start(id), resume(id) or end(id). */
static int call(struct watch *w, const char *name, cJSON **out) {
    char code[128];

    snprintf(code, sizeof code, "__import__('sys').modules['_probing_watch'].call('%s', %d)", name,
             w->id);
    return evaluate(w, code, out);
}

/* Returns the text as a JSON string, which is a Python literal as well; to be freed. */
static char *literal(const char *text) {
    cJSON *j = cJSON_CreateString(text);
    char *out = j ? cJSON_PrintUnformatted(j) : NULL;

    cJSON_Delete(j);
    return out;
}

/* Loads the Python module into the process, lets it find the line, and opens the pipe that values come through. */
static int begin(struct watch *w) {
    static const char old[] = "print('{\"error\": \"its Python is too old: watching a line needs "
                              "3.12 or later (recorded with "
                              "--exprs NAME@FUNCTION, variables are read at each step)\"}')";
    char *src = literal(source), *where = literal(w->where), *exprs = literal(w->expressions);
    char *code = NULL, path[64];
    cJSON *answer = NULL;
    int rc;

    /* A module that is already loaded is used: several tools may watch one process. */
    if (!src || !where || !exprs ||
        asprintf(&code,
                 "import sys\n"
                 "(%s if not hasattr(sys, 'monitoring') else (sys.modules.get('_probing_watch') or "
                 "(lambda names: (exec(%s, names), names['module'])[1])({'__name__': "
                 "'_probing_watch'})).call('begin', %s, %s, %.0f, %.17g, %s))\n",
                 old, src, where, exprs, w->count, w->seconds, w->record ? "True" : "False") < 0)
        rc = tool_fail("no memory");
    else
        rc = evaluate(w, code, &answer);
    free(code);
    free(src);
    free(where);
    free(exprs);
    if (rc != TOOL_OK)
        return rc;
    w->id = (int)cJSON_GetNumberValue(cJSON_GetObjectItem(answer, "id"));
    snprintf(path, sizeof path, "/proc/%d/fd/%d", w->pid,
             (int)cJSON_GetNumberValue(cJSON_GetObjectItem(answer, "read")));
    w->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (w->fd < 0)
        rc = tool_fail("cannot watch: %s: %s", path, strerror(errno));
    else
        w->recorded = cJSON_IsTrue(cJSON_GetObjectItem(answer, "recorded"));
    const char *found = cJSON_GetStringValue(cJSON_GetObjectItem(answer, "where"));
    w->place = strdup(found ? found : w->where);
    cJSON_Delete(answer);
    return rc;
}

/* Returns what follows the JSON string, number or word that `p` points to. */
static const char *after_value(const char *p) {
    if (*p != '"')
        return p + strcspn(p, ",}");
    for (p++; *p && *p != '"'; p++)
        p += *p == '\\' && p[1];
    return *p ? p + 1 : p;
}

/* Prints a value as Python does. A number is printed as it came through the pipe, as the parsed one is a double: 16.0 there is 16. */
static void put_value(FILE *f, const cJSON *v, const char *token) {
    const char *end = after_value(token);

    if (cJSON_IsString(v))
        visible_text(f, v->valuestring);
    else if (cJSON_IsBool(v) || cJSON_IsNull(v))
        fprintf(f, "%s", cJSON_IsNull(v) ? "None" : cJSON_IsTrue(v) ? "True" : "False");
    else
        fprintf(f, "%.*s", (int)(end - token), token);
}

/* j: the line, parsed */
static void put_line(FILE *f, const cJSON *j, const char *line) {
    static const char begin[] = "\"values\": {"; /* a string in the line would have \" there */
    double t = cJSON_GetNumberValue(cJSON_GetObjectItem(j, "t"));
    time_t whole = (time_t)t;
    struct tm tm;
    char clock[32];
    const cJSON *v;
    const char *p = strstr(line, begin);

    p = p ? p + strlen(begin) : "";
    localtime_r(&whole, &tm);
    strftime(clock, sizeof clock, "%H:%M:%S", &tm);
    fprintf(f, "%s.%03d", clock, (int)((t - (double)whole) * 1000));
    cJSON_ArrayForEach(v, cJSON_GetObjectItem(j, "values")) {
        p = after_value(p); /* its name */
        p += strspn(p, ": ");
        fprintf(f, "  ");
        visible_text(f, v->string);
        fprintf(f, "=");
        put_value(f, v, p);
        p = after_value(p);
        p += strspn(p, ", ");
    }
    cJSON_ArrayForEach(v, cJSON_GetObjectItem(j, "errors")) {
        fprintf(f, "  ");
        visible_text(f, v->string);
        fprintf(f, ": ");
        visible_text(f, v->valuestring ? v->valuestring : "");
    }
    fprintf(f, "\n");
}

/* Writes to standard output in pieces that a pipe with room takes at once. A reader may take nothing for long; Ctrl-C ends the wait for it,
 * also if it came just before the wait. Returns 0, -EINTR after Ctrl-C, or -errno. */
static int put_out(const char *text, size_t n) {
    while (n) {
        struct pollfd p = {STDOUT_FILENO, POLLOUT, 0};
        int rc = target_wait(&p, 1, -1);
        ssize_t done = rc < 0 ? -1 : write(STDOUT_FILENO, text, n < PIPE_BUF ? n : PIPE_BUF);
        if (rc < 0 || (done < 0 && errno != EINTR))
            return rc < 0 ? rc : -errno;
        text += done > 0 ? done : 0;
        n -= done > 0 ? (size_t)done : 0;
    }
    return 0;
}

static int show(const struct watch *w, const cJSON *j, const char *line) {
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);

    if (!f)
        return -ENOMEM;
    if (w->json) {
        char *json = visible_json(strdup(line));
        fprintf(f, "%s\n", json ? json : "{}");
        free(json);
    } else {
        put_line(f, j, line);
    }
    int rc = fclose(f) == 0 ? put_out(text, n) : -ENOMEM;
    free(text);
    return rc;
}

/* Handles one line from the pipe. Returns TOOL_OK, or the exit code. */
static int take(struct watch *w, const char *line) {
    cJSON *j = cJSON_Parse(line), *answer;
    int code = TOOL_OK;

    if (cJSON_GetObjectItem(j, "end")) {
        w->ended = 1;
    } else if (cJSON_GetObjectItem(j, "pause")) {
        /* Ctrl-C is blocked until the call is over: it ends the watch, while a call that it interrupted would count as a failure. */
        sigset_t interrupt, before;
        sigemptyset(&interrupt);
        sigaddset(&interrupt, SIGINT);
        sigprocmask(SIG_BLOCK, &interrupt, &before);
        w->ended = target_interrupted() != 0;
        if (!w->ended) {
            poll(NULL, 0, POLL_MS);
            code = call(w, "resume", &answer);
            cJSON_Delete(answer);
        }
        sigprocmask(SIG_SETMASK, &before, NULL);
    } else if (cJSON_IsObject(cJSON_GetObjectItem(j, "values"))) {
        w->shown++;
        int rc = show(w, j, line);
        w->ended = rc < 0;
        if (rc < 0 && rc != -EINTR && rc != -EPIPE)
            code = tool_fail("cannot write: %s", strerror(-rc));
    }
    cJSON_Delete(j);
    return code;
}

/* Prints values until Ctrl-C, the time or count that was asked for, or the end of the process. */
static int follow(struct watch *w) {
    char buf[TEXT_SIZE + 1];
    size_t n = 0;
    int code = TOOL_OK;
    double end = tool_seconds() + w->seconds, left = WAIT_MS;

    while (code == TOOL_OK && !w->ended && left > 0) {
        struct pollfd fds[] = {{w->fd, POLLIN, 0}, {w->process, POLLIN, 0}};
        int rc =
            target_wait(fds, w->process >= 0 ? 2 : 1, left < WAIT_MS ? (int)left + 1 : WAIT_MS);
        if (rc == -EINTR && target_interrupts())
            return code;
        if (rc < 0 && rc != -EINTR)
            return tool_fail("cannot wait: %s", strerror(-rc));
        ssize_t got = read(w->fd, buf + n, TEXT_SIZE - n);
        if (got == 0 || (got < 0 && errno == EAGAIN && fds[1].revents)) {
            tool_say("process %d has ended", w->pid);
            w->ended = 2;
            return TOOL_PARTIAL;
        }
        n += got > 0 ? (size_t)got : 0;
        buf[n] = '\0';
        char *line = buf, *next;
        for (; code == TOOL_OK && !w->ended && (next = strchr(line, '\n')); line = next + 1) {
            *next = '\0';
            code = take(w, line);
        }
        n -= (size_t)(line - buf);
        memmove(buf, line, n);
        n = n == TEXT_SIZE ? 0 : n; /* drop it: the module writes no line that long */
        left = w->seconds > 0 ? (end - tool_seconds()) * 1e3 : WAIT_MS;
    }
    return code;
}

static int watch(struct watch *w) {
    char trace[LIVE_PATH], hits[TOOL_TEXT], lost[TOOL_TEXT];
    cJSON *answer = NULL;

    w->record = w->record && live_is_recorded(w->pid, trace);
    w->process = (int)syscall(SYS_pidfd_open, w->pid, 0);
    target_catch_interrupt(NULL);
    int code = begin(w);
    if (code == TOOL_OK && (code = call(w, "start", &answer)) == TOOL_OK) {
        cJSON_Delete(answer);
        /* Printed only now: before this, Ctrl-C interrupts a request, which is a failure. */
        tool_say("watching %s%s; Ctrl-C ends it", w->place ? w->place : w->where,
                 w->recorded ? ", recorded as well" : "");
        code = follow(w);
    }
    target_interrupted();
    if (w->id && w->ended < 2) {
        int rc = call(w, "end", &answer);
        if (rc == TOOL_OK) {
            uint64_t n = (uint64_t)cJSON_GetNumberValue(cJSON_GetObjectItem(answer, "lost"));
            tool_count((uint64_t)cJSON_GetNumberValue(cJSON_GetObjectItem(answer, "hits")), hits);
            const char *more =
                cJSON_GetNumberValue(cJSON_GetObjectItem(answer, "pauses")) > 0 ? "more than " : "";
            if (n)
                tool_say("ran %s%s times; %s are not shown: it runs too often to show each", more,
                         hits, tool_count(n, lost));
            else
                tool_say("ran %s time%s", hits, strcmp(hits, "1") == 0 ? "" : "s");
        }
        code = code != TOOL_OK ? code : rc;
        cJSON_Delete(answer);
    }
    free(w->place);
    close(w->fd);
    close(w->process);
    return code;
}

int cmd_watch(int argc, char **argv) {
    struct watch w = {.record = 1, .fd = -1, .process = -1, .expressions = ""};
    int64_t ns = 0;
    const struct tool_option options[] = {
        OPTION_CALL("target", 't', option_pid, &w.pid),
        OPTION_CALL("for", 0, option_duration, &ns),
        OPTION_NUMBER("count", 0, &w.count, 1, 1e15,
                      "--count must be a whole number from 1, not '%s'"),
        OPTION_FLAG("json", 0, &w.json),
        OPTION_BITS("no-record", 0, &w.record, 0),
        {0}};
    int rc = tool_options(argc, argv, help, options);

    if (rc != TOOL_OK)
        return rc;
    if (w.count != (double)(int64_t)w.count)
        return tool_usage("--count must be a whole number from 1, not '%g'", w.count);
    w.seconds = (double)ns / 1e9;
    argc -= optind + 1; /* skip the word watch */
    argv += optind + 1;
    if (!w.pid)
        return tool_usage("which process? -t PID");
    if (argc < 1 || argc > 2)
        return tool_usage(argc < 1 ? "which line? FILE:LINE, as in train.py:42"
                                   : "the expressions must be one argument: quote them");
    w.where = argv[0];
    if (argc > 1)
        w.expressions = argv[1];
    return watch(&w);
}
