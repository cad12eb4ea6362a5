/* SPDX-License-Identifier: Apache-2.0 */
/* main.c - `probing serve`: its options, its tokens and its socket. */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "tools/common.h"
#include "tools/options.h"
#include "tools/serve/serve.h"

struct serve serve = {.host = "127.0.0.1", .port = 8080, .names = "", .timeout = 60};

static const char help[] =
    "usage: probing serve [OPTION...] [DB|TRACE...|DIR]\n"
    "\n"
    "Answers over HTTP: a page, SQL on the database or the traces, and what can be asked of this user's\n"
    "live processes. Prints its address with a token that is needed for all; /openapi.json says what\n"
    "there is. Nothing ever listens inside a process. Also the other end of `probing -t HOST:PORT ...`.\n"
    "\n"
    "  -l, --listen HOST:PORT  where (127.0.0.1:8080); port 0: any that is free\n"
    "      --port-range N      if the port is taken, one of the next N\n"
    "      --host-name NAME,...   other names by which it is reached, as those of a proxy in front of it\n"
    "      --socket PATH       a socket in the file system instead, for this user alone; no token\n"
    "      --token-file FILE   the token, instead of a new one at each start (or PROBING_TOKEN)\n"
    "      --allow-control     eval, watch, inject, stop and config too, with a token of their own:\n"
    "                          printed, or PROBING_CONTROL_TOKEN\n"
    "      --tls-cert FILE --tls-key FILE   HTTPS, with these PEM files\n"
    "      --timeout S         for a query or stacks (60); a report has ten times as long\n"
    "      --until PID         end when this process ends\n"
    "  -h, --help              this text\n"
    "      --version           print the version\n"
    "\n"
    "Exit code: 0 ended by Ctrl-C or SIGTERM; 1 a damaged trace was read in part; 2 usage; 3 could not\n"
    "begin.\n"
    "\n"
    "  probing serve out.db\n"
    "  PROBING_TOKEN=... probing -t 127.0.0.1:8080 list\n";

struct options {
    const char *listen, *socket, *token_file, *certificate, *key;
    int control, range, until;
};

/* ---- tokens ---- */

static const char *new_token(void) {
    unsigned char bytes[SERVE_TOKEN / 2];
    char *text = malloc(SERVE_TOKEN + 1);

    if (!text || getrandom(bytes, sizeof bytes, 0) != sizeof bytes)
        return NULL;
    for (size_t i = 0; i < sizeof bytes; i++)
        sprintf(text + 2 * i, "%02x", bytes[i]);
    return text;
}

/* Returns a whole file, up to 64 KiB, to be freed; or reports an error and returns NULL. */
static char *read_file(const char *path) {
    FILE *f = fopen(path, "re");
    char *text = calloc(1, 65537);
    size_t n = f && text ? fread(text, 1, 65536, f) : 0;

    if (f)
        fclose(f);
    if (n)
        return text;
    tool_fail("cannot read %s: %s", path, f ? "it is empty" : strerror(errno));
    free(text);
    return NULL;
}

#define A_TOKEN "16 to 199 letters, digits or -_.~"

static int is_token(const char *text) {
    return strlen(text) >= 16 && strlen(text) < 200 &&
           !text[strspn(text,
                        "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_.~")];
}

static int set_tokens(const struct options *o) {
    const char *env = getenv("PROBING_TOKEN"), *control = getenv("PROBING_CONTROL_TOKEN");

    if (o->token_file) {
        char *text = read_file(o->token_file);
        if (!text)
            return TOOL_FAILED;
        text[strcspn(text, " \r\n")] = 0;
        if (!is_token(text)) /* an empty one would let everybody in */
            return tool_usage("--token-file %s: its first line is not " A_TOKEN, o->token_file);
        serve.token = text;
    } else if (o->socket) {
        serve.token = "";
    } else {
        serve.token = env && *env ? env : new_token();
    }
    if (o->control)
        serve.control = control && *control ? control : new_token();
    if (!serve.token || (o->control && !serve.control))
        return tool_fail("cannot make a token: %s", strerror(errno));
    if ((*serve.token && !is_token(serve.token)) || (serve.control && !is_token(serve.control)))
        return tool_usage("a token is " A_TOKEN);
    if (serve.control && strcmp(serve.control, serve.token) == 0)
        return tool_usage("the control token must be another one");
    return TOOL_OK;
}

/* ---- the socket ---- */

static int listen_file(const char *path, int *fd) {
    struct sockaddr_un a = {.sun_family = AF_UNIX};

    if (strlen(path) >= sizeof a.sun_path)
        return tool_usage("--socket %s: the name is too long", path);
    strcpy(a.sun_path, path);
    serve.host = "";
    mode_t mask = umask(0177);
    *fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int rc = *fd < 0 ? -1 : bind(*fd, (struct sockaddr *)&a, sizeof a);
    if (rc < 0 && errno == EADDRINUSE && connect(*fd, (struct sockaddr *)&a, sizeof a) < 0 &&
        errno == ECONNREFUSED) {
        struct stat st; /* left by a server that was killed */
        if (lstat(path, &st) == 0 && S_ISSOCK(st.st_mode) && unlink(path) == 0) {
            close(*fd);
            *fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
            rc = bind(*fd, (struct sockaddr *)&a, sizeof a);
        }
    }
    umask(mask);
    if (rc < 0 || listen(*fd, 64) < 0)
        return tool_fail("cannot listen at %s: %s", path, strerror(errno));
    return TOOL_OK;
}

static int listen_port(const char *where, int range, int *fd) {
    static char name_of_host[256]; /* static, as serve.host points to it */
    char *host = name_of_host, text[16];
    const char *colon = strrchr(where, ':');
    struct addrinfo want = {.ai_family = AF_UNSPEC,
                            .ai_socktype = SOCK_STREAM,
                            .ai_flags = AI_PASSIVE},
                    *found = NULL;
    double port;
    int one = 1, rc = -1;

    if (!colon || colon - where >= (int)sizeof name_of_host ||
        tool_number(colon + 1, 0, 65535, &port) < 0)
        return tool_usage("--listen %s: write HOST:PORT", where);
    memcpy(host, where, (size_t)(colon - where));
    size_t n = strlen(host);
    if (n > 1 && host[0] == '[' && host[n - 1] == ']') {
        host[n - 1] = 0;
        host++;
    }
    if (*host)
        serve.host = host;
    for (int i = 0; i <= range && rc < 0; i++) {
        snprintf(text, sizeof text, "%d", (int)port + i);
        int err = getaddrinfo(serve.host, text, &want, &found);
        if (err)
            return tool_fail("cannot listen at %s: %s", where, gai_strerror(err));
        *fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (*fd >= 0 && setsockopt(*fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) == 0)
            rc = bind(*fd, found->ai_addr, found->ai_addrlen);
        if (rc == 0)
            rc = listen(*fd, 64);
        if (rc < 0) {
            err = errno;
            close(*fd);
            errno = err;
        }
        freeaddrinfo(found);
        if (rc < 0 && errno != EADDRINUSE)
            break;
    }
    if (rc < 0)
        return tool_fail("cannot listen at %s: %s%s", where, strerror(errno),
                         errno == EADDRINUSE ? " (another port: --listen HOST:PORT, 0 for any)"
                                             : "");
    struct sockaddr_storage a;
    socklen_t size = sizeof a;
    char name[16];
    getsockname(*fd, (struct sockaddr *)&a, &size);
    getnameinfo((struct sockaddr *)&a, size, NULL, 0, name, sizeof name, NI_NUMERICSERV);
    serve.port = atoi(name);
    serve.loopback = a.ss_family == AF_INET
                         ? ntohl(((struct sockaddr_in *)&a)->sin_addr.s_addr) >> 24 == 127
                         : IN6_IS_ADDR_LOOPBACK(&((struct sockaddr_in6 *)&a)->sin6_addr);
    serve.any_host = strcmp(serve.host, "0.0.0.0") == 0 || strcmp(serve.host, "::") == 0;
    return TOOL_OK;
}

/* Prints the server's address, for people and for programs that read this line. */
static void say_where(const struct options *o) {
    int v6 = strchr(serve.host, ':') != NULL;

    if (o->socket)
        printf("%s\n", o->socket);
    else
        printf("http%s://%s%s%s:%d/?token=%s\n", serve.tls ? "s" : "", v6 ? "[" : "", serve.host,
               v6 ? "]" : "", serve.port, serve.token);
    if (serve.control)
        printf("control token: %s\n", serve.control);
    fflush(stdout);
}

static int wait_for_end(int until) {
    sigset_t set;
    struct pollfd p[2] = {{.fd = -1}, {.fd = -1}};

    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGHUP);
    p[0] = (struct pollfd){signalfd(-1, &set, SFD_CLOEXEC), POLLIN, 0};
    if (until)
        p[1] = (struct pollfd){(int)syscall(SYS_pidfd_open, until, 0), POLLIN, 0};
    if (until && p[1].fd < 0)
        return tool_fail("cannot wait for process %d: %s", until, strerror(errno));
    while (poll(p, 2, -1) < 0 && errno == EINTR)
        ;
    return TOOL_OK;
}

static int run(const struct options *o) {
    char *certificate = NULL, *key = NULL;
    int fd = -1, code;

    if (!o->certificate != !o->key)
        return tool_usage("--tls-cert and --tls-key belong together");
    if ((code = set_tokens(o)) != TOOL_OK)
        return code;
    if (o->certificate &&
        (!(certificate = read_file(o->certificate)) || !(key = read_file(o->key))))
        return TOOL_FAILED;
    serve.tls = certificate != NULL;
    serve_set_id();
    int sql = serve_sql_open();
    if (sql > TOOL_PARTIAL)
        return sql;
    if ((code = o->socket ? listen_file(o->socket, &fd) : listen_port(o->listen, o->range, &fd)) !=
        TOOL_OK)
        return code;
    if (serve_http_start(fd, certificate, key) < 0)
        return tool_fail("cannot begin: %s", certificate
                                                 ? "the certificate or its key cannot be used"
                                                 : "no threads or no memory");
    say_where(o);
    code = wait_for_end(o->until);
    serve_http_stop();
    serve_sql_close();
    if (o->socket)
        unlink(o->socket);
    return code != TOOL_OK ? code : sql;
}

int main(int argc, char **argv) {
    enum { SOCKET = 256, TOKEN_FILE, CONTROL, CERT, KEY, TIMEOUT, UNTIL, RANGE, NAMES, VERSION };
    static const struct option options[] = {{"listen", required_argument, NULL, 'l'},
                                            {"port-range", required_argument, NULL, RANGE},
                                            {"host-name", required_argument, NULL, NAMES},
                                            {"socket", required_argument, NULL, SOCKET},
                                            {"token-file", required_argument, NULL, TOKEN_FILE},
                                            {"allow-control", no_argument, NULL, CONTROL},
                                            {"tls-cert", required_argument, NULL, CERT},
                                            {"tls-key", required_argument, NULL, KEY},
                                            {"timeout", required_argument, NULL, TIMEOUT},
                                            {"until", required_argument, NULL, UNTIL},
                                            {"help", no_argument, NULL, 'h'},
                                            {"version", no_argument, NULL, VERSION},
                                            {NULL, 0, NULL, 0}};
    struct options o = {.listen = "127.0.0.1:8080"};
    sigset_t set;
    double n;
    int c;

    tool_name = argv[0] = (char *)(uintptr_t) "probing-serve";
    opterr = 0;
    tool_begin();
    while ((c = getopt_long(argc, argv, ":l:h", options, NULL)) != -1) {
        switch (c) {
        case 'l':
            o.listen = optarg;
            break;
        case RANGE:
            if (tool_number(optarg, 0, 1000, &n) < 0)
                return tool_usage("--port-range is a number up to 1000, not '%s'", optarg);
            o.range = (int)n;
            break;
        case NAMES:
            serve.names = optarg;
            break;
        case SOCKET:
            o.socket = optarg;
            break;
        case TOKEN_FILE:
            o.token_file = optarg;
            break;
        case CONTROL:
            o.control = 1;
            break;
        case CERT:
            o.certificate = optarg;
            break;
        case KEY:
            o.key = optarg;
            break;
        case TIMEOUT:
            if (tool_number(optarg, 0.001, 86400, &serve.timeout) < 0)
                return tool_usage(OPTION_TIMEOUT_WRONG, optarg);
            break;
        case UNTIL:
            if (tool_number(optarg, 1, 1 << 30, &n) < 0)
                return tool_usage("'%s' is no process id", optarg);
            o.until = (int)n;
            break;
        case VERSION:
            printf("probing-serve %s\n", PROBING_VERSION);
            return tool_end(TOOL_OK);
        case 'h':
            fputs(help, stdout);
            return tool_end(TOOL_OK);
        default:
            return tool_bad_option(argv);
        }
    }
    serve.sources = argv + optind;
    serve.nsources = argc - optind;
    /* These signals are blocked in all threads; wait_for_end() takes them. SIGPIPE is ignored, as a client that goes away must not end the server. */
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGHUP);
    sigprocmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
    char prefix[3900];
    if (tool_prefix(prefix, sizeof prefix) < 0)
        return tool_fail("cannot find the installation");
    snprintf(serve.program, sizeof serve.program, "%s/bin/probing", prefix);
    return run(&o);
}
