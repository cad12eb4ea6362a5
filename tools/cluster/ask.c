/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ask.c - sends many requests at once, by libcurl's multi interface in one thread.
 *
 * Answers are not trusted: they are limited in bytes and in time, no redirection is followed, and a server's error is cut and shown
 * without control characters. An answer says when the server got the request and when it began to answer. However long the way took, this
 * gives two bounds for the difference of its clock from ours; the middle is taken.
 */
#include <cjson/cJSON.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tools/cluster/cluster.h"
#include "tools/common.h"
#include "tools/curl_http.h"
#include "tools/rows.h"
#include "writer/sys.h"

#define CONNECT_S 10L
#define ERROR_MAX 4096u /* most bytes of a server's error */

struct transfer {
    CURL *curl;
    struct curl_slist *headers;
    struct ask *ask;
    size_t cap;
    long status;
    int64_t sent, begun;        /* ns: when the request goes out, when its answer begins */
    int64_t received, answered; /* the same on the server's clock; 0: not given */
    int too_much, cannot_write;
};

/* ---- one request ---- */

static int on_connected(void *arg, char *ip, char *local, int port, int local_port) {
    struct transfer *s = arg;

    (void)ip, (void)local, (void)port, (void)local_port;
    s->sent = (int64_t)sys_clock(CLOCK_REALTIME);
    return CURL_PREREQFUNC_OK;
}

static size_t on_header(char *p, size_t size, size_t n, void *arg) {
    struct transfer *s = arg;
    char line[200];

    n *= size;
    if (!s->begun)
        s->begun = (int64_t)sys_clock(CLOCK_REALTIME);
    snprintf(line, sizeof line, "%.*s", (int)(n < 190 ? n : 190), p);
    if (strncasecmp(line, "X-Probing-Time:", 15) == 0 &&
        sscanf(line + 15, "%" SCNd64 " %" SCNd64, &s->received, &s->answered) != 2)
        s->received = 0;
    if (strncasecmp(line, "X-Probing-Server:", 17) == 0 &&
        sscanf(line + 17, " %39[0-9a-zA-Z_-]", s->ask->server) == 0)
        s->ask->server[0] = 0;
    return n;
}

static size_t on_data(char *p, size_t size, size_t n, void *arg) {
    struct transfer *s = arg;
    struct ask *a = s->ask;

    n *= size;
    if (!s->status)
        curl_easy_getinfo(s->curl, CURLINFO_RESPONSE_CODE, &s->status);
    if (s->status == 200 && a->out) {
        s->too_much = a->n + n > a->max_bytes;
        s->cannot_write = !s->too_much && fwrite(p, 1, n, a->out) != n;
        a->n += n;
        return s->too_much || s->cannot_write ? 0 : n;
    }
    size_t max = s->status == 200 ? a->max_bytes : ERROR_MAX;
    if (a->n + n > max) {
        s->too_much = s->status == 200;
        return 0;
    }
    if (a->n + n + 1 > s->cap) {
        size_t cap = (a->n + n + 1) * 2;
        char *more = realloc(a->text, cap);
        if (!more)
            return 0;
        a->text = more;
        s->cap = cap;
    }
    memcpy(a->text + a->n, p, n);
    a->text[a->n += n] = 0;
    return n;
}

static int begin(const struct cluster *c, struct transfer *s, struct ask *a) {
    char token[ATTACHED_TOKEN], header[ATTACHED_TOKEN + 30], url[600];
    const char *ca = getenv("PROBING_CA_FILE");
    int rc = attached_token(a->node, token, a->error);

    if (rc < 0)
        return rc;
    a->max_bytes = a->max_bytes ? a->max_bytes : (size_t)c->max_bytes;
    *s = (struct transfer){.curl = s->curl, .ask = a};
    curl_easy_reset(s->curl);
    snprintf(url, sizeof url, "%s%s%.150s", strstr(a->node->address, "://") ? "" : "http://",
             a->node->address, a->path);
    snprintf(header, sizeof header, "Authorization: Bearer %s", token);
    s->headers = curl_slist_append(NULL, header);
    curl_easy_setopt(s->curl, CURLOPT_URL, url);
    curl_http_only(s->curl);
    curl_easy_setopt(s->curl, CURLOPT_NOPROXY, "*");
    if (a->body) {
        s->headers = curl_slist_append(s->headers, "Content-Type: application/json");
        s->headers = curl_slist_append(s->headers, "Expect:");
        curl_easy_setopt(s->curl, CURLOPT_POSTFIELDS, a->body);
    }
    curl_easy_setopt(s->curl, CURLOPT_HTTPHEADER, s->headers);
    curl_easy_setopt(s->curl, CURLOPT_PREREQFUNCTION, on_connected);
    curl_easy_setopt(s->curl, CURLOPT_PREREQDATA, s);
    curl_easy_setopt(s->curl, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(s->curl, CURLOPT_HEADERDATA, s);
    curl_easy_setopt(s->curl, CURLOPT_WRITEFUNCTION, on_data);
    curl_easy_setopt(s->curl, CURLOPT_WRITEDATA, s);
    curl_easy_setopt(s->curl, CURLOPT_PRIVATE, s);
    curl_easy_setopt(s->curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(s->curl, CURLOPT_CONNECTTIMEOUT, CONNECT_S);
    if (a->out) { /* a file may take any time, as long as bytes come */
        curl_easy_setopt(s->curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
        curl_easy_setopt(s->curl, CURLOPT_LOW_SPEED_TIME, (long)ceil(c->timeout));
    } else {
        curl_easy_setopt(s->curl, CURLOPT_TIMEOUT_MS, (long)ceil(c->timeout * 1000));
    }
    if (ca && *ca)
        curl_easy_setopt(s->curl, CURLOPT_CAINFO, ca);
    return s->headers ? 0 : -ENOMEM;
}

/* Keeps an error text, cut and without control characters. */
static void take_error(struct ask *a, const char *text) {
    size_t n = 0;

    for (; *text && n < sizeof a->error - 1; text++) {
        if ((unsigned char)*text >= 32 && *text != 127)
            a->error[n++] = *text;
    }
    a->error[n] = 0;
}

static void explain(const struct cluster *c, struct transfer *s, CURLcode rc) {
    struct ask *a = s->ask;
    char text[64];

    if (s->too_much) {
        snprintf(a->error, sizeof a->error, "its answer is larger than %s (--max-bytes)",
                 tool_size(a->max_bytes, text));
    } else if (s->cannot_write) {
        snprintf(a->error, sizeof a->error, "cannot write its answer: %s", strerror(errno));
    } else if (s->status && s->status != 200) {
        cJSON *j = cJSON_Parse(a->text ? a->text : "");
        const char *said = cJSON_GetStringValue(cJSON_GetObjectItem(j, "error"));
        if (said)
            take_error(a, said);
        else
            snprintf(a->error, sizeof a->error, "it is no server of probing's (HTTP status %ld)",
                     s->status);
        cJSON_Delete(j);
    } else if (rc == CURLE_OPERATION_TIMEDOUT) {
        snprintf(a->error, sizeof a->error, "no answer within %g s (--timeout)", c->timeout);
    } else if (rc != CURLE_OK) {
        take_error(a, curl_easy_strerror(rc));
    } else { /* status 200, but no byte */
        snprintf(a->error, sizeof a->error, "its answer is empty");
    }
}

static void finish(const struct cluster *c, struct transfer *s, CURLcode rc,
                   int (*done)(void *ctx, struct ask *ask), void *ctx) {
    struct ask *a = s->ask;

    curl_slist_free_all(s->headers);
    s->headers = NULL;
    curl_easy_getinfo(s->curl, CURLINFO_RESPONSE_CODE, &s->status);
    a->offset = a->uncertainty = NAN;
    a->ok = rc == CURLE_OK && s->status == 200 && (a->text || a->out);
    if (!a->ok)
        explain(c, s, rc);
    /* The server received the request after it was sent, and began to answer before we saw the answer. */
    double most = (double)(s->received - s->sent) / 1e9,
           least = (double)(s->answered - s->begun) / 1e9;
    if (a->ok && s->received > 0 && s->answered >= s->received && s->sent && most >= least) {
        a->offset = (most + least) / 2;
        a->uncertainty = (most - least) / 2;
    }
    if (a->ok && done(ctx, a) != 0)
        a->ok = 0;
    free(a->text);
    a->text = NULL;
    s->ask = NULL;
}

/* ---- all of them ---- */

int ask_all(const struct cluster *c, struct ask *asks, size_t n,
            int (*done)(void *ctx, struct ask *ask), void *ctx) {
    size_t ntransfers = n < (size_t)c->parallel ? n : (size_t)c->parallel, next = 0, running = 0, i;
    struct transfer *transfers = calloc(ntransfers ? ntransfers : 1, sizeof *transfers);
    int alive, left, err = 0;

    curl_global_init(CURL_GLOBAL_DEFAULT);
    CURLM *multi = curl_multi_init();
    if (!transfers || !multi) {
        err = -ENOMEM;
        goto out;
    }
    curl_multi_setopt(multi, CURLMOPT_MAXCONNECTS, (long)ntransfers);
    for (i = 0; i < ntransfers; i++) {
        if (!(transfers[i].curl = curl_easy_init())) {
            err = -ENOMEM;
            goto out;
        }
    }
    do {
        for (i = 0; i < ntransfers && next < n && !cluster_interrupted; i++) {
            while (!transfers[i].ask && next < n) {
                struct ask *a = &asks[next++];
                if (begin(c, &transfers[i], a) < 0) {
                    transfers[i].ask = NULL; /* no token: begin() has set its error */
                    continue;
                }
                curl_multi_add_handle(multi, transfers[i].curl);
                running++;
            }
        }
        if (running && curl_multi_perform(multi, &alive) != CURLM_OK)
            err = -EIO;
        for (CURLMsg *m; (m = curl_multi_info_read(multi, &left));) {
            struct transfer *s;
            if (m->msg != CURLMSG_DONE)
                continue;
            CURLcode rc = m->data.result;
            CURL *easy = m->easy_handle;
            curl_easy_getinfo(easy, CURLINFO_PRIVATE, (char **)&s);
            curl_multi_remove_handle(multi, easy);
            finish(c, s, rc, done, ctx);
            running--;
        }
        if (running && (next == n || running == ntransfers))
            curl_multi_poll(multi, NULL, 0, 1000, NULL);
    } while (!err && !cluster_interrupted && (running || next < n));
out:
    for (i = 0; transfers && i < ntransfers; i++) {
        if (transfers[i].ask) {
            curl_multi_remove_handle(multi, transfers[i].curl);
            curl_slist_free_all(transfers[i].headers);
            free(transfers[i].ask->text);
            transfers[i].ask->text = NULL;
        }
        curl_easy_cleanup(transfers[i].curl);
    }
    for (i = 0; i < n; i++) {
        if (!asks[i].ok && !*asks[i].error)
            snprintf(asks[i].error, sizeof asks[i].error, "it was not asked to the end");
    }
    curl_multi_cleanup(multi);
    curl_global_cleanup();
    free(transfers);
    return err;
}

struct ask *ask_each(const struct cluster *c, const char *path, const char *body) {
    struct ask *asks = calloc(c->nodes.n, sizeof *asks);

    if (!asks)
        tool_fail("cannot ask: no memory");
    for (size_t i = 0; asks && i < c->nodes.n; i++)
        asks[i] = (struct ask){.node = &c->nodes.v[i], .path = path, .body = body};
    return asks;
}

void ask_twice(struct ask *asks, size_t n) {
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; asks[i].ok && *asks[i].server && k < i; k++) {
            if (!asks[k].ok || strcmp(asks[i].server, asks[k].server) != 0)
                continue;
            asks[i].ok = 0;
            snprintf(asks[i].error, sizeof asks[i].error,
                     "it is the server of %.180s under another name, whose answer counts once",
                     asks[k].node->address);
        }
    }
}

/* ---- who did not answer ---- */

int ask_failed(const struct ask *asks, size_t n) {
    size_t failed = 0;

    for (size_t i = 0; i < n; i++) {
        size_t same = 0;
        failed += !asks[i].ok;
        for (size_t k = 0; k < i && !asks[i].ok && !same; k++)
            same = !asks[k].ok && strcmp(asks[i].error, asks[k].error) == 0;
        if (asks[i].ok || same) /* its reason has been printed */
            continue;
        fprintf(stderr, "%s: no answer from ", tool_name);
        for (size_t k = i; k < n; k++) {
            if (!asks[k].ok && strcmp(asks[i].error, asks[k].error) == 0)
                fprintf(stderr, "%s%s", k > i ? ", " : "", asks[k].node->address);
        }
        fprintf(stderr, ": %s\n", asks[i].error);
    }
    return cluster_interrupted ? 130 : !failed ? TOOL_OK : failed < n ? TOOL_PARTIAL : TOOL_FAILED;
}

void ask_failed_json(FILE *f, const struct ask *asks, size_t n) {
    int count = 0;

    fputc('[', f);
    for (size_t i = 0; i < n; i++) {
        if (asks[i].ok)
            continue;
        fputs(count++ ? ", {\"node\": " : "{\"node\": ", f);
        rows_json_text(f, asks[i].node->address);
        fputs(", \"error\": ", f);
        rows_json_text(f, asks[i].error);
        fputc('}', f);
    }
    fputc(']', f);
}
