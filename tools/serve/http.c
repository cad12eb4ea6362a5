/* SPDX-License-Identifier: Apache-2.0 */
/*
 * http.c - limits how much may be asked at once, and finds the handler of each path (access.c checks who may ask).
 *
 * A thread looks at all connections. It shuts down those that have not sent a whole request after SERVE_REQUEST_S, and those that have not
 * taken an answer by the time that serve_until() set.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "tools/common.h"
#include "tools/serve/serve.h"
#include "traces/visible.h"
#include "writer/sys.h"

#define LOOK_MS 200
#define IDLE_S  60 /* seconds without a byte in either direction */

static const char openapi[] = {
#include "tools/serve/openapi.json.inc"
    0};
static const char page_text[] = {
#include "tools/serve/page.html.inc"
    0};
static const char style[] = {
#include "tools/report/style.css.inc"
    0};
static char *page; /* page.html in the style of the report */

static struct MHD_Daemon *daemon_;
static pthread_t reaper;
static int stopping; /* (a) */

/* ---- connections ---- */

static struct connection {
    int used, fd;
    double since; /* when it began to send a request; 0: it is being answered */
    double until; /* when it must have taken the answer; 0: it may take its time */
} connections[SERVE_CONNECTIONS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static int fd_of(struct MHD_Connection *c) {
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD);

    return info ? info->connect_fd : -1;
}

static void on_connection(void *cls, struct MHD_Connection *c, void **ctx,
                          enum MHD_ConnectionNotificationCode what) {
    struct connection *s = *ctx;
    (void)cls;
    pthread_mutex_lock(&lock);
    if (what == MHD_CONNECTION_NOTIFY_CLOSED) {
        if (s)
            s->used = 0;
        *ctx = NULL;
    } else {
        for (s = connections; s < connections + SERVE_CONNECTIONS && s->used; s++)
            ;
        if (s < connections + SERVE_CONNECTIONS) {
            *s = (struct connection){.used = 1, .fd = fd_of(c), .since = tool_seconds()};
            *ctx = s;
        }
    }
    pthread_mutex_unlock(&lock);
}

static struct connection *connection_of(struct MHD_Connection *c) {
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(c, MHD_CONNECTION_INFO_SOCKET_CONTEXT);

    return info ? info->socket_context : NULL;
}

/* Notes whether the connection waits for a request (1), or is being answered (0). */
static void set_waiting(struct MHD_Connection *c, int waiting) {
    struct connection *s = connection_of(c);

    pthread_mutex_lock(&lock);
    if (s) {
        s->since = waiting ? tool_seconds() : 0;
        s->until = 0;
    }
    pthread_mutex_unlock(&lock);
}

void serve_until(const struct request *r, double seconds) {
    struct connection *s = connection_of(r->connection);

    pthread_mutex_lock(&lock);
    if (s)
        s->until = tool_seconds() + seconds;
    pthread_mutex_unlock(&lock);
}

void serve_active(const struct request *r) {
    /* Changing the time-out from "never" to a time starts it again. */
    MHD_set_connection_option(r->connection, MHD_CONNECTION_OPTION_TIMEOUT, 0u);
    MHD_set_connection_option(r->connection, MHD_CONNECTION_OPTION_TIMEOUT, (unsigned)IDLE_S);
}

static void *reap(void *unused) {
    (void)unused;
    while (!__atomic_load_n(&stopping, __ATOMIC_ACQUIRE)) {
        poll(NULL, 0, LOOK_MS);
        double t = tool_seconds();
        pthread_mutex_lock(&lock);
        for (struct connection *s = connections; s < connections + SERVE_CONNECTIONS; s++) {
            if (s->used && ((s->since > 0 && t - s->since > SERVE_REQUEST_S) ||
                            (s->until > 0 && t > s->until)))
                shutdown(s->fd, SHUT_RDWR);
        }
        pthread_mutex_unlock(&lock);
    }
    return NULL;
}

int serve_gone(const struct request *r) {
    struct pollfd p = {fd_of(r->connection), POLLRDHUP, 0};

    return poll(&p, 1, 0) > 0 && p.revents & (POLLRDHUP | POLLHUP | POLLERR);
}

/* ---- answers ---- */

enum MHD_Result serve_queue(const struct request *r, unsigned status, const char *type,
                            struct MHD_Response *response) {
    static const char *const headers[][2] = {
        {"Cache-Control", "no-store"},
        {"X-Content-Type-Options", "nosniff"},
        {"Referrer-Policy", "no-referrer"},
        {"X-Frame-Options", "DENY"},
        {"Content-Security-Policy",
         "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; "
         "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"}};
    if (!response)
        return MHD_NO;
    serve_active(r);
    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++)
        MHD_add_response_header(response, headers[i][0], headers[i][1]);
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    if (status ==
        MHD_HTTP_OK) { /* for clients of many servers: who answers, and what its clock says */
        char times[64];
        snprintf(times, sizeof times, "%lld %lld", (long long)r->received,
                 (long long)sys_clock(CLOCK_REALTIME));
        MHD_add_response_header(response, "X-Probing-Time", times);
        MHD_add_response_header(response, "X-Probing-Server", serve.id);
    }
    if (r->cpu > 0) {
        char seconds[32];
        snprintf(seconds, sizeof seconds, "%.6f", r->cpu);
        MHD_add_response_header(response, "X-Probing-CPU", seconds);
    }
    enum MHD_Result done = MHD_queue_response(r->connection, status, response);
    MHD_destroy_response(response);
    return done;
}

enum MHD_Result serve_reply(const struct request *r, unsigned status, const char *type,
                            const char *body) {
    return serve_queue(r, status, type,
                       MHD_create_response_from_buffer(strlen(body), (void *)(uintptr_t)body,
                                                       MHD_RESPMEM_MUST_COPY));
}

static struct MHD_Response *error_response(const char *fmt, va_list ap) {
    char text[2048];
    vsnprintf(text, sizeof text, fmt, ap);
    cJSON *j = cJSON_CreateObject();
    cJSON_AddStringToObject(j, "error", text);
    char *body = visible_json(cJSON_PrintUnformatted(j));
    cJSON_Delete(j);
    return body ? MHD_create_response_from_buffer(strlen(body), body, MHD_RESPMEM_MUST_FREE) : NULL;
}

enum MHD_Result serve_error(const struct request *r, unsigned status, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    struct MHD_Response *response = error_response(fmt, ap);
    va_end(ap);
    if (response && status == MHD_HTTP_UNAUTHORIZED)
        MHD_add_response_header(response, MHD_HTTP_HEADER_WWW_AUTHENTICATE, "Bearer");
    return serve_queue(r, status, "application/json", response);
}

static enum MHD_Result not_allowed(const struct request *r, const char *allowed) {
    static const char body[] = "{\"error\": \"this path does not take that method\"}";
    struct MHD_Response *response = MHD_create_response_from_buffer(
        sizeof body - 1, (void *)(uintptr_t)body, MHD_RESPMEM_PERSISTENT);
    if (response)
        MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, allowed);
    return serve_queue(r, MHD_HTTP_METHOD_NOT_ALLOWED, "application/json", response);
}

const char *serve_text(const struct request *r, const char *name) {
    if (r->body)
        return cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(r->body, name));
    return MHD_lookup_connection_value(r->connection, MHD_GET_ARGUMENT_KIND, name);
}

/* ---- paths ---- */

static enum MHD_Result get_page(const struct request *r) {
    const char *token = MHD_lookup_connection_value(r->connection, MHD_GET_ARGUMENT_KIND, "token");

    if (!token)
        return serve_reply(r, MHD_HTTP_OK, "text/html; charset=utf-8", page);
    /* Takes the token out of the browser's address line and puts it into a cookie that no script can read. */
    struct MHD_Response *response =
        MHD_create_response_from_buffer(0, (void *)(uintptr_t) "", MHD_RESPMEM_PERSISTENT);
    char cookie[256];
    snprintf(cookie, sizeof cookie, "probing_token=%s; HttpOnly; SameSite=Strict; Path=/%s",
             serve.token, serve.tls ? "; Secure" : "");
    if (response) {
        MHD_add_response_header(response, MHD_HTTP_HEADER_SET_COOKIE, cookie);
        MHD_add_response_header(response, MHD_HTTP_HEADER_LOCATION, "/");
    }
    return serve_queue(r, MHD_HTTP_SEE_OTHER, "text/plain", response);
}

static enum MHD_Result get_openapi(const struct request *r) {
    return serve_reply(r, MHD_HTTP_OK, "application/json", openapi);
}

static enum MHD_Result get_info(const struct request *r) {
    cJSON *j = cJSON_CreateObject();

    char host[256] = "";

    gethostname(host, sizeof host - 1);
    cJSON_AddStringToObject(j, "version", PROBING_VERSION);
    cJSON_AddStringToObject(j, "host", host);
    cJSON_AddStringToObject(j, "id", serve.id);
    cJSON_AddBoolToObject(j, "control", serve.control != NULL);
    cJSON *sources = cJSON_AddArrayToObject(j, "sources");
    for (int i = 0; i < serve.nsources; i++)
        cJSON_AddItemToArray(sources, cJSON_CreateString(serve.sources[i]));
    char *body = visible_json(cJSON_PrintUnformatted(j));
    enum MHD_Result done = body ? serve_reply(r, MHD_HTTP_OK, "application/json", body) : MHD_NO;
    free(body);
    cJSON_Delete(j);
    return done;
}

static enum MHD_Result get_recordings(const struct request *r) {
    return serve_output(r, "application/json", (const char *const[]){"list", "--json", NULL}, 0);
}

/* Answers /api/v1/processes/PID/WORD with what `probing -t PID WORD --json` prints. */
static enum MHD_Result get_process(const struct request *r) {
    static const char *const words[] = {"backtrace", "status", "memory", "config"};
    const char *rest = r->path + strlen("/api/v1/processes/");
    size_t digits = strspn(rest, "0123456789");
    char pid[16];

    if (!digits || digits > 9 || rest[digits] != '/')
        return serve_error(r, MHD_HTTP_NOT_FOUND,
                           "a path of a process is /api/v1/processes/PID/WORD");
    snprintf(pid, sizeof pid, "%.*s", (int)digits, rest);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (strcmp(rest + digits + 1, words[i]) == 0)
            return serve_output(r, "application/json",
                                (const char *const[]){"-t", pid, words[i], "--json", NULL}, 0);
    }
    return serve_error(r, MHD_HTTP_NOT_FOUND,
                       "of a process there is backtrace, status, memory and config");
}

static const struct path {
    const char *path, *method;
    int open; /* needs no token, as it reveals nothing about this user */
    enum MHD_Result (*run)(const struct request *r);
} paths[] = {
    {"/", "GET", 0, get_page},
    {"/openapi.json", "GET", 1, get_openapi},
    {"/api/v1/info", "GET", 0, get_info},
    {"/api/v1/recordings", "GET", 0, get_recordings},
    {"/api/v1/stacks", "GET", 0, serve_stacks},
    {"/api/v1/report", "GET", 0, serve_report},
    {"/api/v1/traces", "GET", 0, serve_traces},
    {"/api/v1/traces/", "GET", 0, serve_trace}, /* and all below it */
    {"/api/v1/query", "GET", 0, serve_sql},
    {"/api/v1/query", "POST", 0, serve_sql},
    {"/api/v1/command", "POST", 0, serve_command},
    {"/api/v1/processes/", "GET", 0, get_process}, /* and all below it */
};
#define NPATHS (sizeof paths / sizeof *paths)

static enum MHD_Result route(struct request *r, const char *body, size_t size) {
    const struct path *found = NULL;
    char allowed[64] = "";
    const char *why = "";
    unsigned status = serve_check_origin(r->connection, &why);

    if (status)
        return serve_error(r, status, "%s", why);
    for (size_t i = 0; i < NPATHS; i++) {
        size_t n = strlen(paths[i].path);
        if (strcmp(paths[i].path, r->path) != 0 &&
            (n < 2 || paths[i].path[n - 1] != '/' || strncmp(paths[i].path, r->path, n) != 0))
            continue;
        snprintf(allowed + strlen(allowed), sizeof allowed - strlen(allowed), "%s%s",
                 *allowed ? ", " : "", paths[i].method);
        if (strcmp(paths[i].method, r->method) == 0 ||
            (strcmp(r->method, "HEAD") == 0 && strcmp(paths[i].method, "GET") == 0))
            found = &paths[i];
    }
    r->control = serve.control && serve_has_token(r->connection, serve.control, 1);
    int known = !*serve.token || r->control || serve_has_token(r->connection, serve.token, 0);
    if (!known && found && found->run == get_page) {
        const char *token =
            MHD_lookup_connection_value(r->connection, MHD_GET_ARGUMENT_KIND, "token");
        known = token && serve_is_same(serve.token, token);
    }
    if (known)
        set_waiting(r->connection, 0);
    else if (!found || !found->open)
        return serve_error(r, MHD_HTTP_UNAUTHORIZED,
                           "this needs the token that the server printed when it began (open its "
                           "address with ?token=, or send Authorization: Bearer)");
    if (!*allowed)
        return serve_error(r, MHD_HTTP_NOT_FOUND,
                           "there is no %.200s (/openapi.json lists what there is)", r->path);
    if (!found)
        return not_allowed(r, allowed);
    if (strcmp(r->method, "POST") != 0)
        return found->run(r);
    cJSON *j = cJSON_ParseWithLength(body, size);
    r->body = j;
    enum MHD_Result done =
        cJSON_IsObject(j) ? found->run(r)
                          : serve_error(r, MHD_HTTP_BAD_REQUEST, "the body must be a JSON object");
    cJSON_Delete(j);
    return done;
}

/* ---- libmicrohttpd ---- */

struct upload {
    char *p;
    size_t n;
    int too_much;
    int64_t received;
};

static void on_completed(void *cls, struct MHD_Connection *c, void **state,
                         enum MHD_RequestTerminationCode why) {
    struct upload *u = *state;
    (void)cls;
    (void)why;
    if (u)
        free(u->p);
    free(u);
    *state = NULL;
    set_waiting(c, 1);
}

static enum MHD_Result on_request(void *cls, struct MHD_Connection *c, const char *url,
                                  const char *method, const char *version, const char *data,
                                  size_t *size, void **state) {
    struct upload *u = *state;
    struct request r = {.connection = c, .method = method, .path = url};
    (void)cls;
    (void)version;
    if (!u) { /* the header is complete; a body may follow */
        if ((*state = u = calloc(1, sizeof *u)))
            u->received = (int64_t)sys_clock(CLOCK_REALTIME);
        return u ? MHD_YES : MHD_NO;
    }
    if (*size) {
        char *more = u->n + *size <= SERVE_BODY_MAX ? realloc(u->p, u->n + *size) : NULL;
        u->too_much |= !more;
        if (more) {
            memcpy(more + u->n, data, *size);
            u->p = more;
            u->n += *size;
        }
        *size = 0;
        return MHD_YES;
    }
    r.received = u->received;
    set_waiting(c, 0);
    serve_until(
        &r,
        SERVE_REQUEST_S); /* until it is known who asks: a stranger holds no connection for longer */
    if (u->too_much)
        return serve_error(&r, MHD_HTTP_CONTENT_TOO_LARGE, "a request has at most %u bytes",
                           SERVE_BODY_MAX);
    return route(&r, u->p ? u->p : "", u->n);
}

static void say_nothing(void *cls, const char *fmt, va_list ap) {
    (void)cls;
    (void)fmt;
    (void)ap;
}

int serve_http_start(int listener, const char *certificate, const char *key) {
    struct MHD_OptionItem tls[] = {{MHD_OPTION_HTTPS_MEM_CERT, 0, (void *)(uintptr_t)certificate},
                                   {MHD_OPTION_HTTPS_MEM_KEY, 0, (void *)(uintptr_t)key},
                                   {MHD_OPTION_END, 0, NULL}};
    struct MHD_OptionItem none[] = {{MHD_OPTION_END, 0, NULL}};
    const char *mark = strstr(page_text, "/* STYLE */");

    if (asprintf(&page, "%.*s%s%s", (int)(mark - page_text), page_text, style,
                 mark + strlen("/* STYLE */")) < 0)
        return -ENOMEM;
    unsigned flags = MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_THREAD_PER_CONNECTION |
                     MHD_USE_POLL | MHD_USE_ERROR_LOG | (certificate ? MHD_USE_TLS : 0);

    daemon_ = MHD_start_daemon(
        flags, 0, NULL, NULL, on_request, NULL, MHD_OPTION_EXTERNAL_LOGGER, say_nothing, NULL,
        MHD_OPTION_LISTEN_SOCKET, listener, MHD_OPTION_CONNECTION_LIMIT,
        (unsigned)SERVE_CONNECTIONS, MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)IDLE_S,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)65536, MHD_OPTION_THREAD_STACK_SIZE,
        (size_t)(4 << 20), MHD_OPTION_NOTIFY_CONNECTION, on_connection, NULL,
        MHD_OPTION_NOTIFY_COMPLETED, on_completed, NULL, MHD_OPTION_ARRAY, certificate ? tls : none,
        MHD_OPTION_END);
    if (!daemon_)
        return -EINVAL;
    return -pthread_create(&reaper, NULL, reap, NULL);
}

void serve_http_stop(void) {
    __atomic_store_n(&stopping, 1, __ATOMIC_RELEASE);
    MHD_stop_daemon(daemon_);
    pthread_join(reaper, NULL);
}
