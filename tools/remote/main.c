/* SPDX-License-Identifier: Apache-2.0 */
/*
 * main.c - the other end of `probing serve`: a command on a process of another machine. `probing -t HOST:PORT WORD ...` runs this
 * program, so that no other command loads an HTTP library.
 *
 *     probing-remote HOST:PORT list [--json]
 *     probing-remote HOST:PORT query PID "SQL"
 *
 * HOST:PORT may have https:// in front. The token comes from $PROBING_TOKEN or the file $PROBING_TOKEN_FILE; $PROBING_CONTROL_TOKEN is
 * sent in its place where it is set. What the command prints there is printed here, as it comes; its exit code is ours.
 */
#include <cjson/cJSON.h>
#include <curl/curl.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/attached.h"
#include "tools/common.h"

#define CONNECT_S  10L
#define ERROR_MAX  4096
#define REPL_INPUT 65536

static const char help[] =
    "usage: probing -t HOST:PORT list|query|backtrace|memory|flamegraph|status ... PID [ARGUMENT...]\n"
    "       probing -t HOST:PORT eval|watch|config|inject|stop PID [ARGUMENT...]\n"
    "\n"
    "The commands on a process, on another machine where `probing serve` runs. The token that it printed\n"
    "is taken from PROBING_TOKEN, or the file PROBING_TOKEN_FILE; the commands of the second line need\n"
    "its control token, PROBING_CONTROL_TOKEN. https://HOST:PORT is a server with TLS\n"
    "(PROBING_CA_FILE: its certificate, where no authority has signed it).\n";

static volatile sig_atomic_t interrupted;

/* What has come of the answer. */
struct answer {
    CURL *curl;
    long status; /* HTTP's; 0: not yet */
    char error[ERROR_MAX];
    size_t nerror;
    char head[32]; /* of the frame that begins */
    size_t nhead;
    long left; /* bytes of the frame that are to come */
    FILE *out; /* where they go */
    int code;  /* of the command; -1: it has not ended */
};

/* A whole line of a frame's head. 0 when it is none. */
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
    a->out = a->head[0] == 'e' ? stderr : stdout;
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
    return fflush(stdout) == EOF ? 0 : n;
}

/* Ctrl-C closes the connection, which ends the command there. */
static int on_progress(void *arg, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d) {
    (void)arg, (void)a, (void)b, (void)c, (void)d;
    return interrupted;
}

static void on_interrupt(int sig) {
    (void)sig;
    interrupted = 1;
}

/* "Authorization: Bearer TOKEN" in buf: the control token of the environment, its token, or what `cluster attach` keeps for that host. */
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

static int explain(const struct answer *a, CURLcode rc, const char *where, const char *detail) {
    cJSON *j = cJSON_Parse(a->error);
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItem(j, "error"));
    int code;

    if (interrupted)
        code = 130;
    else if (a->status && a->status != 200)
        code = tool_fail("%s: %s", where, text ? text : "this is not a server of probing's");
    else if (rc != CURLE_OK)
        code = tool_fail("cannot ask %s: %s", where, *detail ? detail : curl_easy_strerror(rc));
    else
        code = tool_fail("%s: the answer broke off", where);
    cJSON_Delete(j);
    return code;
}

static int ask(const char *where, const char *body) {
    char url[1024], token[300], detail[CURL_ERROR_SIZE] = "";
    const char *ca = getenv("PROBING_CA_FILE");
    struct answer a = {.code = -1};
    int code;

    if ((code = find_token(where, token, sizeof token)) != TOOL_OK)
        return code;
    snprintf(url, sizeof url, "%s%s/api/v1/command", strstr(where, "://") ? "" : "http://", where);
    curl_global_init(CURL_GLOBAL_DEFAULT);
    a.curl = curl_easy_init();
    struct curl_slist *headers = curl_slist_append(NULL, token);
    headers = curl_slist_append(headers, "Content-Type: application/json");
    headers = curl_slist_append(headers, "Expect:");
    curl_easy_setopt(a.curl, CURLOPT_URL, url);
    curl_easy_setopt(a.curl, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(a.curl, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(a.curl, CURLOPT_POSTFIELDS, body);
    curl_easy_setopt(a.curl, CURLOPT_WRITEFUNCTION, on_data);
    curl_easy_setopt(a.curl, CURLOPT_WRITEDATA, &a);
    curl_easy_setopt(a.curl, CURLOPT_XFERINFOFUNCTION, on_progress);
    curl_easy_setopt(a.curl, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(a.curl, CURLOPT_CONNECTTIMEOUT, CONNECT_S);
    curl_easy_setopt(a.curl, CURLOPT_ERRORBUFFER, detail);
    curl_easy_setopt(a.curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(a.curl, CURLOPT_TCP_KEEPALIVE, 1L);
    if (ca && *ca)
        curl_easy_setopt(a.curl, CURLOPT_CAINFO, ca);
    CURLcode rc = curl_easy_perform(a.curl);
    code =
        rc == CURLE_OK && a.status == 200 && a.code >= 0 ? a.code : explain(&a, rc, where, detail);
    curl_slist_free_all(headers);
    curl_easy_cleanup(a.curl);
    curl_global_cleanup();
    return code;
}

/* Standard input, when it is no terminal and the command reads it: eval -f -, query -. */
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
    struct sigaction sa = {.sa_handler = on_interrupt};
    double pid = 0;

    tool_name = "probing";
    if (argc < 3 || strcmp(argv[2], "--help") == 0) {
        fputs(help, argc < 3 ? stderr : stdout);
        return argc < 3 ? TOOL_USAGE : TOOL_OK;
    }
    int at = 3, needs = strcmp(argv[2], "list") != 0;
    if (needs && (argc < 4 || tool_number(argv[at++], 1, 1 << 30, &pid) < 0))
        return tool_usage(
            "which process there? probing -t %s %s PID (probing -t %s list shows them)", argv[1],
            argv[2], argv[1]);
    char *input = input_for(argc - at, argv + at);
    cJSON *j = cJSON_CreateObject();
    cJSON_AddStringToObject(j, "command", argv[2]);
    if (needs)
        cJSON_AddNumberToObject(j, "pid", pid);
    if (input)
        cJSON_AddStringToObject(j, "input", input);
    cJSON *args = cJSON_AddArrayToObject(j, "args");
    for (; at < argc; at++)
        cJSON_AddItemToArray(args, cJSON_CreateString(argv[at]));
    char *body = cJSON_PrintUnformatted(j);
    sigaction(SIGINT, &sa, NULL);
    signal(SIGPIPE, SIG_IGN);
    int code = body ? ask(argv[1], body) : tool_fail("no memory");
    cJSON_free(body);
    cJSON_Delete(j);
    free(input);
    return code;
}
