/* SPDX-License-Identifier: Apache-2.0 */
/*
 * serve.h - `probing serve`: a database, or the live processes of one user, over HTTP. It is a separate program
 * (lib/probing/probing-serve), so that no other command loads an HTTP library.
 *
 *     main.c      options, tokens, the socket; runs until a signal
 *     http.c      libmicrohttpd: limits of requests, and the meaning of paths
 *     access.c    who may ask: names, origins, tokens
 *     sql.c       SQL on the opened database, streamed row by row
 *     command.c   commands of `probing` on a process: run as child processes, their output streamed
 *     traces.c    the traces behind it: their list, their bytes, and queries of everything that is being recorded
 *
 * There is a thread for each connection, at most SERVE_CONNECTIONS. A handler answers through serve_reply(), or queues a streamed response
 * of its own; it owns nothing of the request. openapi.json describes what each path takes and returns.
 */
#ifndef PROBING_TOOLS_SERVE_H
#define PROBING_TOOLS_SERVE_H

#include <cjson/cJSON.h>
#include <microhttpd.h>
#include <stdint.h>

#define SERVE_CONNECTIONS 100
/* A request must have arrived by then, and a client without a token must have taken its answer; otherwise the connection is closed. */
#define SERVE_REQUEST_S 10
#define SERVE_REPORT    10
#define SERVE_BODY_MAX  (1u << 20)
#define SERVE_TOKEN     64 /* hexadecimal digits of a token made here */

struct serve {
    const char *token,
        *control; /* control NULL: nothing may be changed; token "": a socket that only its owner can open */
    const char *host; /* the name of the listening address, "" for a socket in the file system */
    int port, tls, any_host,
        loopback;         /* any_host: listens on all addresses; loopback: on a loopback address */
    const char *names;    /* other names of this server, separated by commas; "": none */
    char *const *sources; /* what to open: a database or traces; NULL-terminated */
    int nsources;
    double
        timeout; /* limit for a query or for stacks, in seconds; a report gets SERVE_REPORT times that, as it is many questions */
    char program[4096]; /* `probing` */
    /* identifies this server, so that a client that reaches it under two names notices */
    char id[33];
};
extern struct serve serve;

struct request {
    struct MHD_Connection *connection;
    const char *method, *path;
    const cJSON *body; /* of a POST, an object; else NULL */
    int control;       /* the control token was sent */
    int64_t received;  /* when, ns since the epoch */
    /* CPU seconds of the command that answered; clients that ask repeatedly pace themselves by it */
    double cpu;
};

/* ---- http.c ---- */
int serve_http_start(int listener, const char *certificate, const char *key);
void serve_http_stop(void);
/* Queues an answer with a copy of the body. For handlers. */
enum MHD_Result serve_reply(const struct request *r, unsigned status, const char *type,
                            const char *body);
/* Answers {"error": TEXT}, with a sentence like those of the tools. */
enum MHD_Result serve_error(const struct request *r, unsigned status, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Adds the headers that every answer has, queues the response and destroys it. */
enum MHD_Result serve_queue(const struct request *r, unsigned status, const char *type,
                            struct MHD_Response *response);
/* Returns 1 when the client has gone away. Any thread that handles the connection. */
int serve_gone(const struct request *r);
/* Shuts the connection down if its client has not taken the answer within so many seconds from now. */
void serve_until(const struct request *r, double seconds);
/* Marks the answer as still in progress: time that the server needed is not held against the client. */
void serve_active(const struct request *r);
/* Returns a text of the query string or of the body; NULL: it is missing, or is no text. */
const char *serve_text(const struct request *r, const char *name);

/* ---- access.c ---- */
/* Checks that the request comes from a page of ours, or from no page at all. Returns 0, or the HTTP status with *why. */
unsigned serve_check_origin(struct MHD_Connection *c, const char **why);
/* Compares two texts, in a time that does not depend on where they differ. */
int serve_is_same(const char *a, const char *b);
/* Returns 1 when the token was sent, in a header or (unless header_only) in a cookie. */
int serve_has_token(struct MHD_Connection *c, const char *token, int header_only);

/* ---- sql.c ---- */
/* Opens the database. Returns TOOL_OK, TOOL_PARTIAL, or the exit code after printing why. */
int serve_sql_open(void);
void serve_sql_close(void);
enum MHD_Result serve_sql(const struct request *r);
/* The media type of answers in a format; NULL: there is no such format. */
const char *serve_format(const char *name);

/* ---- command.c ---- */
enum MHD_Result serve_command(const struct request *r);
/* Answers with the output of one command, as media type `type`; args without the program's name, NULL-terminated. A command that takes
 * longer than `seconds` (0: no limit) is ended. */
enum MHD_Result serve_output(const struct request *r, const char *type, const char *const *args,
                             double seconds);

/* ---- traces.c ---- */
void serve_set_id(void);
enum MHD_Result serve_traces(const struct request *r); /* the list of traces */
enum MHD_Result serve_trace(const struct request *r);  /* the bytes of one trace */
/* Runs one text of SQL on everything that is being recorded now, when no database was opened. */
enum MHD_Result serve_live_query(const struct request *r, const char *sql, const char *format,
                                 double timeout);
enum MHD_Result serve_stacks(const struct request *r);
enum MHD_Result serve_report(const struct request *r);

#endif
