/* SPDX-License-Identifier: Apache-2.0 */
/*
 * serve.h - `probing serve`: a database or the live processes of one user, over HTTP. A program of its own (lib/probing/probing-serve),
 * so that no other command loads an HTTP library.
 *
 *     main.c      options, tokens, the socket, until a signal
 *     http.c      libmicrohttpd: how much may be asked at once, which path means what
 *     access.c    who may ask: names, origins, tokens
 *     sql.c       SQL over the database that was opened, streamed row by row
 *     command.c   commands of `probing` on a process, run beside it, their output streamed
 *     traces.c    the traces behind it: their list, their bytes, and what is asked of all that is recorded now
 *
 * A thread for each connection, at most SERVE_CONNECTIONS. A handler answers through serve_reply() or queues a streamed response
 * of its own; it owns nothing of the request. openapi.json says what each path takes and gives.
 */
#ifndef PROBING_TOOLS_SERVE_H
#define PROBING_TOOLS_SERVE_H

#include <cjson/cJSON.h>
#include <microhttpd.h>
#include <stdint.h>

#define SERVE_CONNECTIONS 100
#define SERVE_REQUEST_S   10 /* a request has arrived by then, or its connection is closed */
#define SERVE_REPORT      10
#define SERVE_BODY_MAX    (1u << 20)
#define SERVE_TOKEN       64 /* hexadecimal digits of a token made here */

struct serve {
    const char *token,
        *control; /* control NULL: nothing may be changed; token "": a socket that only its owner opens */
    const char *host; /* the name that is listened on, "" for a socket in the file system */
    int port, tls, any_host,
        loopback;         /* any_host: listens on all addresses; loopback: on one of these */
    const char *names;    /* by which it is reached too, with commas between them; "": none */
    char *const *sources; /* what to open: a database or traces; NULL-terminated */
    int nsources;
    double
        timeout; /* of a query or of stacks, seconds; a report has SERVE_REPORT times as long: it is many questions */
    char program[4096]; /* `probing` */
    char id[33]; /* tells this server from others: who reaches it under two names sees that */
};
extern struct serve serve;

struct request {
    struct MHD_Connection *connection;
    const char *method, *path;
    const cJSON *body; /* of a POST, an object; else NULL */
    int control;       /* the control token came along */
    int64_t received;  /* when, ns since the epoch */
    double cpu; /* seconds of the command that answered; who asks again and again goes by it */
};

/* ---- http.c ---- */
int serve_http_start(int listener, const char *certificate, const char *key);
void serve_http_stop(void);
/* Queues an answer; the body is copied. For handlers. */
enum MHD_Result serve_reply(const struct request *r, unsigned status, const char *type,
                            const char *body);
/* {"error": TEXT}; a sentence, as the tools say it. */
enum MHD_Result serve_error(const struct request *r, unsigned status, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Adds what every answer has, queues and destroys it. */
enum MHD_Result serve_queue(const struct request *r, unsigned status, const char *type,
                            struct MHD_Response *response);
/* Whether the client has gone away. Any thread that handles the connection. */
int serve_gone(const struct request *r);
/* The connection is shut down if its client has not taken the answer within so many seconds from now. */
void serve_until(const struct request *r, double seconds);
/* The answer goes on: what took its time to come is no silence of the client's. */
void serve_active(const struct request *r);
/* A text of the query string or of the body; NULL: it is not there, or is no text. */
const char *serve_text(const struct request *r, const char *name);

/* ---- access.c ---- */
/* Whether it comes from a page of ours, or from no page at all: 0, or the status with *why. */
unsigned serve_check_origin(struct MHD_Connection *c, const char **why);
/* Whether the texts are the same: in a time that does not say where they differ. */
int serve_is_same(const char *a, const char *b);
/* Whether the token came along; in a cookie, too, unless header_only. */
int serve_has_token(struct MHD_Connection *c, const char *token, int header_only);

/* ---- sql.c ---- */
/* Opens the database: TOOL_OK, TOOL_PARTIAL, or the exit code, said. */
int serve_sql_open(void);
void serve_sql_close(void);
enum MHD_Result serve_sql(const struct request *r);
/* The media type of answers in a format; NULL: there is no such format. */
const char *serve_format(const char *name);

/* ---- command.c ---- */
enum MHD_Result serve_command(const struct request *r);
/* The output of one command as the whole answer, of media type `type`; args without the program's name, NULL-terminated.
 * A command that takes longer than `seconds` (0: no limit) is ended. */
enum MHD_Result serve_output(const struct request *r, const char *type, const char *const *args,
                             double seconds);

/* ---- traces.c ---- */
void serve_set_id(void);
enum MHD_Result serve_traces(const struct request *r); /* their list */
enum MHD_Result serve_trace(const struct request *r);  /* the bytes of one */
/* One text of SQL over all that is being recorded now, where no database was opened. */
enum MHD_Result serve_live_query(const struct request *r, const char *sql, const char *format,
                                 double timeout);
enum MHD_Result serve_stacks(const struct request *r);
enum MHD_Result serve_report(const struct request *r);

#endif
