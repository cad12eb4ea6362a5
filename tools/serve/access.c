/* SPDX-License-Identifier: Apache-2.0 */
/*
 * access.c - checks who may ask.
 *
 * A browser that shows another site's page may send requests here. So the name in Host must be one of this server's (another site's name
 * that resolves to this machine is not), Origin, if there is one, must be the same, and every request needs a token. The token comes as
 * "Authorization: Bearer", or in a cookie that `/?token=` sets. Changing a process takes another token, which must come in the header.
 */
#include <arpa/inet.h>
#include <netdb.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tools/serve/serve.h"

int serve_is_same(const char *a, const char *b) {
    size_t n = strlen(a), m = strlen(b);
    unsigned differs = n != m;

    for (size_t i = 0; i < n; i++)
        differs |= (unsigned char)a[i] ^ (unsigned char)b[m ? i % m : 0];
    return n && !differs;
}

/* The names of this machine, as it calls itself and as its resolver does: node7, node7.cluster.example. */
static char machine[3][256];
static pthread_once_t machine_once = PTHREAD_ONCE_INIT;

static void find_machine(void) {
    struct addrinfo want = {.ai_flags = AI_CANONNAME, .ai_socktype = SOCK_STREAM}, *found = NULL;

    gethostname(machine[0], sizeof machine[0] - 1);
    snprintf(machine[1], sizeof machine[1], "%.*s", (int)strcspn(machine[0], "."), machine[0]);
    if (getaddrinfo(machine[0], NULL, &want, &found) != 0)
        return;
    if (found->ai_canonname)
        snprintf(machine[2], sizeof machine[2], "%s", found->ai_canonname);
    freeaddrinfo(found);
}

/* Returns whether the list "a,b" has the name. */
static int is_listed(const char *names, const char *name) {
    size_t n = strlen(name);

    for (const char *p = names; *p; p += strcspn(p, ","), p += *p == ',') {
        if (strcspn(p, ",") == n && strncasecmp(p, name, n) == 0)
            return 1;
    }
    return 0;
}

/* Returns whether the name in Host, without its port, is one of this server's. */
static int is_our_name(const char *host) {
    char name[256];
    struct in6_addr address;
    int v6 = host[0] == '[';
    size_t n = strcspn(host + v6, v6 ? "]" : ":");

    if (!n || n >= sizeof name)
        return 0;
    memcpy(name, host + v6, n);
    name[n] = 0;
    if (strcasecmp(name, "localhost") == 0 || strcmp(name, v6 ? "::1" : "127.0.0.1") == 0 ||
        strcasecmp(name, serve.host) == 0 || is_listed(serve.names, name))
        return 1;
    if (serve.any_host && inet_pton(v6 ? AF_INET6 : AF_INET, name, &address) == 1)
        return 1; /* nobody can make an address point elsewhere (DNS rebinding) */
    if (serve.loopback)
        return 0;
    pthread_once(&machine_once, find_machine);
    return strcasecmp(name, machine[0]) == 0 || strcasecmp(name, machine[1]) == 0 ||
           strcasecmp(name, machine[2]) == 0;
}

static const char *header(struct MHD_Connection *c, const char *name) {
    return MHD_lookup_connection_value(c, MHD_HEADER_KIND, name);
}

unsigned serve_check_origin(struct MHD_Connection *c, const char **why) {
    const char *host = header(c, "Host"), *origin = header(c, "Origin");

    if (!*serve.host) /* a socket file, which only its owner opens */
        return 0;
    *why = "the name in Host is not one of this server's: use the address that it printed";
    if (!host || !is_our_name(host))
        return MHD_HTTP_FORBIDDEN;
    *why = "a page of another site cannot ask";
    if (origin && (strncmp(origin, serve.tls ? "https://" : "http://", serve.tls ? 8 : 7) != 0 ||
                   strcasecmp(origin + (serve.tls ? 8 : 7), host) != 0))
        return MHD_HTTP_FORBIDDEN;
    return 0;
}

int serve_has_token(struct MHD_Connection *c, const char *token, int header_only) {
    const char *sent = header(c, "Authorization");

    if (sent && strncasecmp(sent, "Bearer ", 7) == 0 && serve_is_same(token, sent + 7))
        return 1;
    sent = MHD_lookup_connection_value(c, MHD_COOKIE_KIND, "probing_token");
    return !header_only && sent && serve_is_same(token, sent);
}
