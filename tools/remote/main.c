/* SPDX-License-Identifier: Apache-2.0 */
/*
 * main.c - the client of `probing serve`: runs a command on a process of another machine. `probing -t HOST:PORT WORD ...` starts this
 * program, so that no other command loads an HTTP library.
 *
 *     probing-remote HOST:PORT list [--json]
 *     probing-remote HOST:PORT query PID "SQL"
 *     probing-remote HOST:PORT repl PID             a prompt here (repl.h), whose inputs are evals there
 *     probing-remote HOST:PORT top PID              a screen here (top.h), for which `top --json` is asked again and again
 *
 * HOST:PORT may have https:// in front. The token comes from $PROBING_TOKEN or the file $PROBING_TOKEN_FILE; $PROBING_CONTROL_TOKEN is
 * sent instead if it is set. What the command prints there is printed here, as it comes; its exit code is this program's.
 */
#include <cjson/cJSON.h>
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tools/attached.h"
#include "tools/common.h"
#include "tools/curl_http.h"
#include "tools/repl.h"
#include "tools/screen.h"
#include "tools/target.h"
#include "tools/top.h"
#include "traces/visible.h"

#define CONNECT_S  10L
#define ERROR_MAX  4096
#define REPL_INPUT 65536

static const char help[] =
    "usage: probing -t HOST:PORT list\n"
    "       probing -t HOST:PORT query|backtrace|top|memory|flamegraph|status PID [ARGUMENT...]\n"
    "       probing -t HOST:PORT eval|repl|watch|config|inject|stop PID [ARGUMENT...]\n"
    "\n"
    "The commands on a process, on another machine where `probing serve` runs. The token that it printed\n"
    "is taken from PROBING_TOKEN, or the file PROBING_TOKEN_FILE; the commands of the last line need\n"
    "its control token, PROBING_CONTROL_TOKEN. https://HOST:PORT is a server with TLS\n"
    "(PROBING_CA_FILE: its certificate, where no authority has signed it).\n";

/* The part of an answer that has come so far. */
struct answer {
    CURL *curl;
    FILE *stream[2]; /* where the command's stdout and stderr go */
    long status;     /* HTTP status; 0: not yet known */
    char error[ERROR_MAX];
    size_t nerror;
    char head[32]; /* first line of the frame that begins */
    size_t nhead;
    long left;    /* bytes of the frame that are still to come */
    FILE *out;    /* where these bytes go */
    int code;     /* exit code of the command; -1: it has not ended */
    int fd, told; /* fd: the connection; told: it was told to end */
};

/* Reads the complete first line of a frame. Returns 0 if it is not valid. */
static int begin_frame(struct answer *a) {
    char *end;

    a->head[a->nhead] = 0;
    long n = strtol(a->head + 2, &end, 10);
    if (a->head[1] != ' ' || *end || n < 0)
        return 0;
    a->nhead = 0;
    if (a->head[0] == 'x') {
        a->code = (int)n;
        return 1;
    }
    a->left = n;
    a->out = a->stream[a->head[0] == 'e'];
    return a->head[0] == 'o' || a->head[0] == 'e';
}

static size_t on_data(char *p, size_t size, size_t count, void *arg) {
    struct answer *a = arg;
    size_t n = size * count;

    if (!a->status)
        curl_easy_getinfo(a->curl, CURLINFO_RESPONSE_CODE, &a->status);
    if (a->status != 200) {
        size_t room = sizeof a->error - 1 - a->nerror, take = n < room ? n : room;
        memcpy(a->error + a->nerror, p, take);
        a->error[a->nerror += take] = 0;
        return n;
    }
    for (size_t i = 0; i < n;) {
        if (a->left) {
            size_t take = (size_t)a->left < n - i ? (size_t)a->left : n - i;
            if (fwrite(p + i, 1, take, a->out) != take)
                return 0;
            a->left -= (long)take;
            i += take;
        } else if (p[i] == '\n') {
            if (!begin_frame(a))
                return 0;
            i++;
        } else {
            if (a->nhead == sizeof a->head - 1)
                return 0;
            a->head[a->nhead++] = p[i++];
        }
    }
    return fflush(a->stream[0]) == EOF ? 0 : n;
}

/* Called by libcurl again and again. The first Ctrl-C closes our side of the connection: the server interrupts the command, and we still
 * get what it then prints. The next Ctrl-C ends this program. */
static int on_progress(void *arg, curl_off_t dltotal, curl_off_t dl, curl_off_t ultotal,
                       curl_off_t ul) {
    struct answer *a = arg;

    (void)dltotal, (void)dl, (void)ultotal, (void)ul;
    if (screen_ended())
        return 1;
    int interrupted = target_interrupts();
    if (interrupted <= a->told)
        return 0;
    if (a->told)
        return 1;
    a->told = interrupted;
    return shutdown(a->fd, SHUT_WR) < 0;
}

static int on_socket(void *arg, curl_socket_t fd, curlsocktype purpose) {
    (void)purpose;
    ((struct answer *)arg)->fd = fd;
    return CURL_SOCKOPT_OK;
}

/* Writes "Authorization: Bearer TOKEN" to buf: the environment's control token, else its token, else the one that `cluster attach` keeps for the host. */
static int find_token(const char *where, char *buf, size_t n) {
    const char *token = getenv("PROBING_CONTROL_TOKEN"), *env = getenv("PROBING_TOKEN"),
               *file = getenv("PROBING_TOKEN_FILE");
    struct attached_node node = {.address = (char *)(uintptr_t)where};
    const struct attached_node *kept = NULL;
    struct attached attached = {0};
    char text[ATTACHED_TOKEN], why[256];
    int rc = 0;

    if (!token || !*token) {
        if (!(env && *env) && !(file && *file) && attached_read(&attached) == 0)
            kept = attached_find(&attached, strncmp(where, "http://", 7) == 0 ? where + 7 : where);
        rc = attached_token(kept ? kept : &node, text, why);
        token = text;
    }
    attached_free(&attached);
    if (rc == -ENOENT && !(file && *file))
        return tool_usage(
            "the token of that server is needed: PROBING_TOKEN=... or PROBING_TOKEN_FILE=...");
    if (rc < 0)
        return tool_fail("%s: %s", where, why);
    snprintf(buf, n, "Authorization: Bearer %s", token);
    return TOOL_OK;
}

/* Writes to stream[1] why the answer is not complete. Returns the exit code. */
static int explain(const struct answer *a, CURLcode rc, const char *where, const char *detail) {
    cJSON *j = cJSON_Parse(a->error);
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItem(j, "error"));
    const char *control = getenv("PROBING_CONTROL_TOKEN");
    int code = TOOL_FAILED;

    if (target_interrupts())
        code = 130;
    else if (ferror(a->stream[0]))
        ; /* tool_end() reports it */
    else if (a->status == 401 && control && *control)
        fprintf(
            a->stream[1],
            "%s: %s: it does not know the control token that was sent (PROBING_CONTROL_TOKEN): is it the one that this server "
            "printed, and was it started with --allow-control?\n",
            tool_name, where);
    else if (a->status && a->status != 200) {
        fprintf(a->stream[1], "%s: %s: ", tool_name, where);
        visible_text(a->stream[1], text ? text : "this is not a server of probing's");
        fputc('\n', a->stream[1]);
    } else if (rc != CURLE_OK)
        fprintf(a->stream[1], "%s: cannot ask %s: %s\n", tool_name, where,
                *detail ? detail : curl_easy_strerror(rc));
    else
        fprintf(a->stream[1], "%s: %s: the answer broke off\n", tool_name, where);
    cJSON_Delete(j);
    return code;
}

/* Asks the server to run a command, whose output goes to `out` and `err`. token: from find_token(). Returns the command's exit code with *own 1 (own may be
 * NULL), or an exit code of our own with *own 0. */
static int ask(const char *where, const char *token, const char *body, FILE *out, FILE *err,
               int *own) {
    char url[1024], detail[CURL_ERROR_SIZE] = "";
    const char *ca = getenv("PROBING_CA_FILE");
    struct answer a = {.code = -1, .stream = {out, err}, .fd = -1};
    int code;

    snprintf(url, sizeof url, "%s%s/api/v1/command", strstr(where, "://") ? "" : "http://", where);
    a.curl = curl_easy_init();
    struct curl_slist *headers = curl_slist_append(NULL, token);
    headers = curl_slist_append(headers, "Content-Type: application/json");
    headers = curl_slist_append(headers, "Expect:");
    curl_easy_setopt(a.curl, CURLOPT_URL, url);
    curl_http_only(a.curl);
    curl_easy_setopt(a.curl, CURLOPT_NOPROXY, "*"); /* no proxy may see the token */
    curl_easy_setopt(a.curl, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(a.curl, CURLOPT_POSTFIELDS, body);
    curl_easy_setopt(a.curl, CURLOPT_WRITEFUNCTION, on_data);
    curl_easy_setopt(a.curl, CURLOPT_WRITEDATA, &a);
    curl_easy_setopt(a.curl, CURLOPT_XFERINFOFUNCTION, on_progress);
    curl_easy_setopt(a.curl, CURLOPT_XFERINFODATA, &a);
    curl_easy_setopt(a.curl, CURLOPT_SOCKOPTFUNCTION, on_socket);
    curl_easy_setopt(a.curl, CURLOPT_SOCKOPTDATA, &a);
    curl_easy_setopt(a.curl, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(a.curl, CURLOPT_CONNECTTIMEOUT, CONNECT_S);
    curl_easy_setopt(a.curl, CURLOPT_ERRORBUFFER, detail);
    curl_easy_setopt(a.curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(a.curl, CURLOPT_TCP_KEEPALIVE, 1L);
    if (ca && *ca)
        curl_easy_setopt(a.curl, CURLOPT_CAINFO, ca);
    CURLcode rc = curl_easy_perform(a.curl);
    int whole = rc == CURLE_OK && a.status == 200 && a.code >= 0;
    code = whole ? a.code : explain(&a, rc, where, detail);
    if (own)
        *own = whole;
    curl_slist_free_all(headers);
    curl_easy_cleanup(a.curl);
    return code;
}

/* Returns the body of a request, to be freed by cJSON_free(); NULL: no memory. */
static char *request(const char *word, int pid, const char *input, int argc, char *const *argv) {
    cJSON *j = cJSON_CreateObject();

    cJSON_AddStringToObject(j, "command", word);
    if (pid)
        cJSON_AddNumberToObject(j, "pid", pid);
    if (input)
        cJSON_AddStringToObject(j, "input", input);
    cJSON *args = cJSON_AddArrayToObject(j, "args");
    for (int i = 0; i < argc; i++)
        cJSON_AddItemToArray(args, cJSON_CreateString(argv[i]));
    char *body = cJSON_PrintUnformatted(j);
    cJSON_Delete(j);
    return body;
}

/* ---- repl and top, which ask again and again ---- */

struct there {
    const char *where, *token;
    int pid, frame, seen; /* seen: top has got an answer before */
};

struct got {
    char *out,
        *why; /* what it printed; else the reason, a line without the command's name; allocated by malloc(), or NULL */
    int own;  /* from ask() */
};

/* Runs a command there and keeps its output in *got. Returns its exit code. */
static int ask_for(const struct there *t, const char *word, const char *input, int argc,
                   const char *const *argv, struct got *got) {
    char *said = NULL, *body = request(word, t->pid, input, argc, (char *const *)(uintptr_t)argv);
    size_t nout = 0, nsaid = 0;

    *got = (struct got){0};
    FILE *to = open_memstream(&got->out, &nout), *err = open_memstream(&said, &nsaid);
    int code = body && to && err ? ask(t->where, t->token, body, to, err, &got->own) : TOOL_FAILED;

    if (to)
        fclose(to);
    if (err)
        fclose(err);
    cJSON_free(body);
    if (code > TOOL_PARTIAL || !nout) {
        free(got->out);
        got->out = NULL;
        const char *colon = said ? strstr(said, ": ") : NULL;
        got->why = colon ? strndup(colon + 2, strcspn(colon + 2, "\n")) : NULL;
    }
    free(said);
    return code;
}

/* Runs one `eval --session` on the server. */
static int ask_there(void *arg, const char *word, const char *session, const char *text,
                     double timeout, char **out) {
    struct there *t = arg;
    char seconds[32], frame[16];
    struct got got;
    const char *const args[] = {"--json", "--session", session, "--ask",   word, "--timeout",
                                seconds,  "-f",        "-",     "--frame", frame};

    snprintf(seconds, sizeof seconds, "%.9g", timeout);
    snprintf(frame, sizeof frame, "%d", t->frame);
    int code = ask_for(t, "eval", text, t->frame >= 0 ? 11 : 9, args, &got);
    *out = got.out ? got.out : got.why;
    if (got.out)
        return 0;
    if (code == 130) {
        free(got.why);
        *out = strdup("interrupted; what it was in the middle of may still run there");
        return -EINTR;
    }
    return code == TOOL_PARTIAL ? -EBUSY : -EIO;
}

static int ask_top(void *arg, const char *window, char **json) {
    struct there *t = arg;
    struct got got;
    const char *const args[] = {"--json", "--window", window};
    int code = ask_for(t, "top", NULL, 3, args, &got);

    *json = got.out;
    if (got.out)
        t->seen = 1;
    else if (screen_ended())
        code = TOOL_OK;
    else
        code = tool_fail("%s", got.why ? got.why : "there is no answer");
    if (code == TOOL_FAILED && got.own && t->seen) /* the process has ended */
        code = TOOL_PARTIAL;
    free(got.why);
    return code;
}

static int repl(const char *where, const char *token, int pid, int argc, char **argv) {
    struct there there = {.where = where, .token = token, .pid = pid, .frame = -1};
    char who[400];
    struct repl_way way = {ask_there, &there, who};
    int here = 0, rc = repl_frame(argc, argv, &here, &there.frame);

    if (rc != TOOL_OK)
        return rc == TOOL_HELPED ? TOOL_OK : rc;
    if (optind < argc)
        return tool_usage("repl takes no argument '%s'", argv[optind]);
    snprintf(who, sizeof who, "process %d at %.300s; Ctrl-D ends", pid, where);
    tool_name = "probing-repl";
    return repl_run(&way);
}

static int top(const char *where, const char *token, int pid, int argc, char **argv) {
    struct there there = {.where = where, .token = token, .pid = pid};
    const struct top_way way = {ask_top, &there};

    tool_name = "probing-top";
    return top_run(argc, argv, &way);
}

/* Returns what standard input holds if the command reads it, as eval -f - and query - do; else NULL. */
static char *input_for(int argc, char **argv) {
    int wanted = 0;

    for (int i = 0; i < argc; i++)
        wanted |= strcmp(argv[i], "-") == 0;
    char *text = wanted ? calloc(1, REPL_INPUT + 1) : NULL;
    if (text && fread(text, 1, REPL_INPUT, stdin) == 0)
        text[0] = 0;
    return text;
}

int main(int argc, char **argv) {
    char token[300];
    double pid = 0;

    tool_name = "probing";
    tool_begin();
    if (argc < 3 || strcmp(argv[2], "--help") == 0) {
        fputs(help, argc < 3 ? stderr : stdout);
        return tool_end(argc < 3 ? TOOL_USAGE : TOOL_OK);
    }
    int at = 3, needs = strcmp(argv[2], "list") != 0;
    if (needs && (argc < 4 || tool_number(argv[at++], 1, 1 << 30, &pid) < 0))
        return tool_usage(
            "which process there? probing -t %s %s PID (probing -t %s list shows them)", argv[1],
            argv[2], argv[1]);
    int code = find_token(argv[1], token, sizeof token);
    if (code != TOOL_OK)
        return code;
    signal(SIGPIPE, SIG_IGN);
    curl_global_init(CURL_GLOBAL_DEFAULT);
    if (strcmp(argv[2], "repl") == 0) {
        code = repl(argv[1], token, (int)pid, argc - at + 1, argv + at - 1);
    } else if (strcmp(argv[2], "top") == 0) {
        code = top(argv[1], token, (int)pid, argc - at + 1, argv + at - 1);
    } else {
        char *input = input_for(argc - at, argv + at),
             *body = request(argv[2], (int)pid, input, argc - at, argv + at);
        target_catch_interrupt(NULL);
        code = body ? ask(argv[1], token, body, stdout, stderr, NULL) : tool_fail("no memory");
        cJSON_free(body);
        free(input);
    }
    curl_global_cleanup();
    return tool_end(code);
}
