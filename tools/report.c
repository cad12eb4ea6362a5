/* SPDX-License-Identifier: Apache-2.0 */
/* report.c - writes the page around the results: head, sections in their order, scripts. */
#include "report.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "../converter/output.h"
#include "../converter/tables.h"
#include "../writer/sys.h"
#include "page_json.h"
#include "question.h"

#define STEPS 100000 /* instructions of SQLite's virtual machine between two looks at the clock */
#define MOST  24     /* most sections */

static char sections_text[] = {
#include "tools/report.sql.inc"
    0};
static const char script[] = {
#include "tools/report.js.inc"
    0};
static const char style[] = {
#include "tools/report/style.css.inc"
    0};

/* Returns this thread's processor time, so that what a page shows does not depend on other programs' load. */
static double seconds(void) {
    return (double)sys_clock(CLOCK_THREAD_CPUTIME_ID) / 1e9;
}

static int is_late(void *ctx) {
    const struct report *r = ctx;
    return r->deadline > 0 && seconds() > r->deadline;
}

void report_deadline(struct report *r) {
    r->deadline = r->timeout > 0 ? seconds() + r->timeout : 0;
}

/* Begins a question: each gets its own time limit, and a transaction that is rolled back, so that no temporary table stays behind. */
static void begin(struct report *r) {
    report_deadline(r);
    sqlite3_exec(r->db, "BEGIN", NULL, NULL, NULL);
}

static void end(struct report *r) {
    r->deadline = 0;
    sqlite3_exec(r->db, "ROLLBACK", NULL, NULL, NULL);
}

/* Returns whether the database has what the question needs. After an error or a time-out it returns 1: the results then report it. */
static int is_there(struct report *r, const struct question *q) {
    sqlite3_stmt *st = NULL;
    int there = 1;

    if (sqlite3_prepare_v2(r->db, q->needs, -1, &st, NULL) == SQLITE_OK &&
        sqlite3_step(st) == SQLITE_ROW)
        there = sqlite3_column_int64(st, 0) > 0;
    sqlite3_finalize(st);
    return there;
}

static void put_question(struct report *r, const struct question *q, int is_evidence) {
    fputs("{\"name\":", r->out);
    page_text(r->out, q->name);
    fputs(",\"title\":", r->out);
    page_text(r->out, q->title);
    begin(r);
    if (!is_there(r, q)) {
        fputs(",\"nothing\":", r->out);
        page_text(r->out, q->nothing);
        fputs(",\"parts\":[]}", r->out);
    } else {
        fputs(",\"parts\":[", r->out);
        /* A part that took too long did not make the tables that the other parts read: leave these out. */
        for (unsigned i = 0, late = 0; i < q->nparts && !late; i++) {
            if (i)
                fputs(",\n", r->out);
            late = report_part(r, &q->part[i], is_evidence) == -ETIMEDOUT && is_evidence;
        }
        fputs("]}", r->out);
    }
    end(r);
}

static void put_questions(struct report *r) {
    const struct question *q;

    fputs("\"questions\":[", r->out);
    for (unsigned i = 0, n = 0; (q = question_at(i)); i++) {
        if (strcmp(q->name, "diff") == 0)
            continue; /* it is about two recordings: see `probing diff` */
        if (n++)
            fputs(",\n", r->out);
        put_question(r, q, 1);
    }
    fputs("],\n", r->out);
}

static void put_sections(struct report *r) {
    static struct question section[MOST];
    static unsigned n;

    if (!n)
        n = question_split(sections_text, section, MOST);
    fputs("\"sections\":[", r->out);
    for (unsigned i = 0; i < n; i++) {
        if (i)
            fputs(",\n", r->out);
        put_question(r, &section[i], 0);
    }
    fputs("],\n", r->out);
}

/* Writes what the page is about, and the time that it spans. */
static int put_head(struct report *r) {
    static const char sql[] =
        "SELECT (SELECT command FROM trace_file ORDER BY rank IS NULL, rank, id LIMIT 1), count(*), count(DISTINCT rank),"
        " count(DISTINCT host), min(start_ts) / 1e9, max(end_ts) / 1e9, count(DISTINCT coalesce(run, '')),"
        " max(clock = 'none'), count(DISTINCT clock_group) FROM trace_file";
    sqlite3_stmt *st = NULL;
    int rc = sqlite3_prepare_v2(r->db, sql, -1, &st, NULL);

    if (rc == SQLITE_OK && sqlite3_step(st) == SQLITE_ROW) {
        const char *command = (const char *)sqlite3_column_text(st, 0);
        r->traces = sqlite3_column_int64(st, 1);
        r->t0 = sqlite3_column_double(st, 4);
        r->t1 = sqlite3_column_double(st, 5);
        if (!(r->t1 > r->t0))
            r->t1 = r->t0 + 1;
        fputs("\"title\":", r->out);
        page_text(r->out, r->title ? r->title : command ? command : "Probing");
        fprintf(r->out,
                ",\"version\":\"%s\",\"made\":%lld,\"traces\":%lld,\"ranks\":%d,\"hosts\":%d,"
                "\"t0\":%.9f,\"t1\":%.9f,\"runs\":%d,\"unclocked\":%d,\"clocks\":%d,\n",
                PROBING_VERSION, (long long)time(NULL), (long long)r->traces,
                sqlite3_column_int(st, 2), sqlite3_column_int(st, 3), r->t0, r->t1,
                sqlite3_column_int(st, 6), sqlite3_column_int(st, 7), sqlite3_column_int(st, 8));
        rc = SQLITE_OK;
    } else {
        fputs("\"title\":\"Probing\",\"traces\":0,\n\"wrong\":", r->out);
        page_text(r->out, sqlite3_errmsg(r->db));
        fputs(",\n", r->out);
        rc = sqlite3_errcode(r->db);
        r->damaged = rc == SQLITE_CORRUPT || rc == SQLITE_NOTADB;
        rc = SQLITE_ERROR;
    }
    sqlite3_finalize(st);
    return rc;
}

/* A number that nobody could know when the recorded names were chosen: the browser only runs scripts that have it. */
static int make_nonce(char *text, size_t n) {
    unsigned char bytes[16];

    if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes)
        return -EIO;
    for (size_t i = 0; i < sizeof bytes && 2 * i + 2 < n; i++)
        snprintf(text + 2 * i, 3, "%02x", bytes[i]);
    return 0;
}

int report_write(struct report *r, FILE *out) {
    char nonce[33];
    int rc = make_nonce(nonce, sizeof nonce);

    if (rc < 0)
        return rc;
    r->out = out;
    /* Allows temporary tables; the file itself is open read-only. */
    sqlite3_exec(r->db, "PRAGMA query_only = OFF; PRAGMA cache_size = -65536", NULL, NULL, NULL);
    sqlite3_progress_handler(r->db, STEPS, is_late, r);
    report_deadline(r);
    tables_hold_hangs(r->db); /* if this takes too long, the questions that need it report so */
    r->deadline = 0;
    fprintf(
        out,
        "<!DOCTYPE html>\n" OUTPUT_REPORT_MARK
        "\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src 'nonce-%s'; "
        "style-src 'nonce-%s'; img-src data:; base-uri 'none'; form-action 'none'\">\n"
        "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
        "<meta name=\"color-scheme\" content=\"light dark\">\n<link rel=\"icon\" href=\"data:,\">\n"
        "<title>Probing report</title>\n<style nonce=\"%s\">\n%s</style></head>\n"
        "<body><noscript>This page draws itself: it needs JavaScript.</noscript>\n"
        "<script type=\"application/json\" id=\"data\">{\n",
        nonce, nonce, nonce, style);
    if (put_head(r) == SQLITE_OK && r->traces > 0) {
        put_questions(r);
        put_sections(r);
        fputs("\"flame\":", out);
        begin(r);
        rc = report_flame(r);
        end(r);
    } else {
        fputs("\"questions\":[],\"sections\":[],\"flame\":null", out);
    }
    fprintf(out, "}\n</script>\n<script nonce=\"%s\">\n%s</script></body></html>\n", nonce, script);
    sqlite3_progress_handler(r->db, 0, NULL, NULL);
    return rc < 0 ? rc : ferror(out) ? -EIO : 0;
}
