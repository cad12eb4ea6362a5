/* SPDX-License-Identifier: Apache-2.0 */
/*
 * many_servers.c - `probing serve` of many machines, simulated in one process: N ports of one address, each a node of its own.
 *
 *     many_servers N TOKEN [BAD]
 *
 * Prints the N ports, one a line, then "up". Node i answers to /api/v1/info and to /api/v1/query with rows that follow from i:
 *
 *     {"rank": i, "square": i*i, "big": 9007199254740993 + i, "timestamp": T}
 *
 * T is the same moment for all, 2026-01-02 00:00:00 UTC, said by a clock that is i % 7 - 3 seconds ahead, as are the times in the heads of
 * its answers. /api/v1/stacks: rank i is in f0 -> f(i % 3). The last BAD nodes do something else: node N-1 sends text that is no JSON, N-2
 * sends without an end, N-3 takes another token, N-4 says that it is node 0, N-5 breaks off, N-6 sends rows that are none, N-7 sends a
 * redirection, N-8 never answers.
 */
#include <arpa/inet.h>
#include <microhttpd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum bad { GOOD, GARBAGE, ENDLESS, OTHER_TOKEN, TWICE, BREAKS, NO_ROWS, MOVED, NEVER, KINDS };

static int n, bad;
static const char *token;
static int *port_of; /* of node i */

static int node_of(struct MHD_Connection *c) {
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD);
    struct sockaddr_in a;
    socklen_t size = sizeof a;

    getsockname(info->connect_fd, (struct sockaddr *)&a, &size);
    for (int i = 0; i < n; i++) {
        if (port_of[i] == ntohs(a.sin_port))
            return i;
    }
    return 0;
}

static enum bad kind_of(int i) {
    return i >= n - bad ? (enum bad)(1 + (n - 1 - i) % (KINDS - 1)) : GOOD;
}

static ssize_t endless(void *arg, uint64_t pos, char *buf, size_t max) {
    (void)arg;
    (void)pos;
    memset(buf, ' ', max);
    return (ssize_t)max;
}

static ssize_t breaks(void *arg, uint64_t pos, char *buf, size_t max) {
    (void)arg;
    (void)max;
    if (pos)
        return MHD_CONTENT_READER_END_WITH_ERROR;
    memcpy(buf, "[{\"rank\": 1", 11);
    return 11;
}

static const char *body_of(const char *url, int i, char *buf, size_t size) {
    if (strcmp(url, "/api/v1/info") == 0)
        snprintf(buf, size,
                 "{\"version\": \"1\", \"host\": \"node%d\", \"control\": false, \"sources\": []}",
                 i);
    else if (strcmp(url, "/api/v1/stacks") == 0)
        snprintf(
            buf, size,
            "{\"by\": \"rank\", \"nodes\": [{\"parent\": 0, \"frame\": \"\", \"count\": 1, \"ranks\": \"%d\"}, "
            "{\"parent\": 0, \"frame\": \"f0\", \"count\": 1, \"ranks\": \"%d\"}, "
            "{\"parent\": 1, \"frame\": \"f%d\", \"count\": 1, \"ranks\": \"%d\", \"waited\": 1.5}]}",
            i, i, i % 3, i);
    else
        snprintf(buf, size, "[{\"rank\": %d, \"square\": %d, \"big\": %lld, \"timestamp\": %d}]\n",
                 i, i * i, 9007199254740993ll + i, 1767312000 + i % 7 - 3);
    return buf;
}

static enum MHD_Result on_request(void *cls, struct MHD_Connection *c, const char *url,
                                  const char *method, const char *version, const char *data,
                                  size_t *size, void **state) {
    static int seen;
    char text[1000];
    struct MHD_Response *r = NULL;
    unsigned status = MHD_HTTP_OK;

    (void)cls, (void)method, (void)version, (void)data;
    if (!*state || *size) {
        *state = &seen;
        *size = 0;
        return MHD_YES;
    }
    int i = node_of(c);
    enum bad kind = kind_of(i);
    const char *sent = MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Authorization");
    int may = kind != OTHER_TOKEN && sent && strncmp(sent, "Bearer ", 7) == 0 &&
              strcmp(sent + 7, token) == 0;
    if (kind == NEVER) {
        MHD_suspend_connection(c);
        return MHD_YES;
    }
    if (!may) {
        status = MHD_HTTP_UNAUTHORIZED;
        strcpy(text, "{\"error\": \"this needs the token\"}");
    } else if (kind == GARBAGE) {
        strcpy(text, "<html>\x1b[2J hello</html>");
    } else if (kind == NO_ROWS) {
        strcpy(text, "[1, [2], \"x\"]");
    } else if (kind == MOVED) {
        status = MHD_HTTP_FOUND;
        strcpy(text, "x");
    } else {
        body_of(url, kind == TWICE ? 0 : i, text, sizeof text);
    }
    if (may && (kind == ENDLESS || kind == BREAKS))
        r = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 65536,
                                              kind == ENDLESS ? endless : breaks, NULL, NULL);
    else
        r = MHD_create_response_from_buffer(strlen(text), text, MHD_RESPMEM_MUST_COPY);
    if (kind == MOVED) {
        snprintf(text, sizeof text, "http://127.0.0.1:%d%s", port_of[0], url);
        MHD_add_response_header(r, "Location", text);
    }
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    long long now = (t.tv_sec + i % 7 - 3) * 1000000000ll + t.tv_nsec;
    snprintf(text, sizeof text, "%lld %lld", now, now);
    MHD_add_response_header(r, "X-Probing-Time", text);
    snprintf(text, sizeof text, "server-%d", kind == TWICE ? 0 : i);
    MHD_add_response_header(r, "X-Probing-Server", text);
    enum MHD_Result done = MHD_queue_response(c, status, r);
    MHD_destroy_response(r);
    return done;
}

int main(int argc, char **argv) {
    struct rlimit files;
    int poll = epoll_create1(EPOLL_CLOEXEC);

    if (argc < 3 || (n = atoi(argv[1])) < 1)
        return 2;
    token = argv[2];
    bad = argc > 3 ? atoi(argv[3]) : 0;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    struct MHD_Daemon *d = MHD_start_daemon(MHD_USE_POLL_INTERNAL_THREAD | MHD_USE_ITC |
                                                MHD_USE_NO_LISTEN_SOCKET | MHD_ALLOW_SUSPEND_RESUME,
                                            0, NULL, NULL, on_request, NULL,
                                            MHD_OPTION_CONNECTION_LIMIT, 2000u, MHD_OPTION_END);
    port_of = calloc((size_t)n, sizeof *port_of);
    if (!d || !port_of)
        return 3;
    for (int i = 0; i < n; i++) {
        struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        socklen_t size = sizeof a;
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        struct epoll_event e = {.events = EPOLLIN, .data.fd = fd};
        if (fd < 0 || bind(fd, (struct sockaddr *)&a, size) < 0 || listen(fd, 16) < 0 ||
            getsockname(fd, (struct sockaddr *)&a, &size) < 0 ||
            epoll_ctl(poll, EPOLL_CTL_ADD, fd, &e) < 0) {
            perror("many_servers");
            return 3;
        }
        port_of[i] = ntohs(a.sin_port);
        printf("%d\n", port_of[i]);
    }
    printf("up\n");
    fflush(stdout);
    for (;;) {
        struct epoll_event e[64];
        int ready = epoll_wait(poll, e, 64, -1);
        for (int i = 0; i < ready; i++) {
            struct sockaddr_in a;
            socklen_t size = sizeof a;
            int fd =
                accept4(e[i].data.fd, (struct sockaddr *)&a, &size, SOCK_CLOEXEC | SOCK_NONBLOCK);
            if (fd >= 0)
                MHD_add_connection(d, fd, (struct sockaddr *)&a, size);
        }
    }
}
