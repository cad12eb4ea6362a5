/* SPDX-License-Identifier: Apache-2.0 */
#include "question_run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../converter/tables.h"
#include "common.h"
#include "rows.h"

/* Returns whether the database has what the question needs; -1 after an error, which was reported. */
static int is_there(struct question_run *a, const struct question *q) {
    sqlite3_stmt *st = NULL;
    int n = -1;

    if (sqlite3_prepare_v2(a->run.db, q->needs, -1, &st, NULL) == SQLITE_OK &&
        sqlite3_step(st) == SQLITE_ROW)
        n = sqlite3_column_int(st, 0) > 0;
    else
        tool_fail("cannot ask '%s': %s (was the database made by this version of probing-convert?)",
                  q->name, sqlite3_errmsg(a->run.db));
    sqlite3_finalize(st);
    return n;
}

static int is_about_hangs(const struct question *q) {
    int is = strstr(q->needs, "hangs") != NULL;

    for (unsigned i = 0; i < q->nparts; i++)
        is |= strstr(q->part[i].sql, "hangs") != NULL;
    return is;
}

/* Drops the tables and views that a question left in the temporary schema, so that another question can be asked. */
static void drop_temporary(sqlite3 *db) {
    sqlite3_stmt *st = NULL;
    char *sql;

    for (int rc = SQLITE_ROW; rc == SQLITE_ROW;) {
        sql = NULL;
        if (sqlite3_prepare_v2(db,
                               "SELECT type, name FROM temp.sqlite_master "
                               "WHERE type IN ('table', 'view') LIMIT 1",
                               -1, &st, NULL) == SQLITE_OK &&
            (rc = sqlite3_step(st)) == SQLITE_ROW)
            sql = sqlite3_mprintf("DROP %s temp.%Q", sqlite3_column_text(st, 0),
                                  sqlite3_column_text(st, 1));
        sqlite3_finalize(st);
        st = NULL;
        if (!sql || sqlite3_exec(db, sql, NULL, NULL, NULL) != SQLITE_OK)
            rc = SQLITE_DONE;
        sqlite3_free(sql);
    }
}

static int is_json(const struct question_run *a) {
    return strcmp(a->run.format, "json") == 0;
}

/* Asks one part of a question. Its result is kept in memory first, as one without rows is left out together with its title. headed: the question's
 * own title comes before the answer. */
static int ask_part(struct question_run *a, const struct question *q, const struct question_part *p,
                    int headed) {
    char *text = NULL;
    size_t n = 0;

    if (!(a->run.out = open_memstream(&text, &n)))
        return tool_fail("cannot ask: no memory");
    int code = sql_run(&a->run, p->sql);
    if (fclose(a->run.out) != 0 && code == TOOL_OK)
        code = tool_fail("cannot ask: no memory");
    if (code == TOOL_OK && is_json(a) && (p->title ? a->run.results : a->run.rows)) {
        while (n && text[n - 1] == '\n')
            text[--n] = '\0';
        printf("%s{\"question\": \"%s\", \"title\": ", a->pieces++ ? ",\n" : "[", q->name);
        rows_json_text(stdout, p->title ? p->title : "answer");
        printf(", \"rows\": %s}", text);
    } else if (code == TOOL_OK && a->run.rows && !p->title) {
        if (headed)
            printf("%s== %s\n", a->pieces++ ? "\n" : "", q->title);
        /* The sentence is printed without its header. */
        char *line = strchr(text, '\n');
        line = line ? strchr(line + 1, '\n') : NULL;
        int is_table = strcmp(a->run.format, "table") == 0;
        fputs(is_table && line ? line + 1 : text, stdout);
    } else if (code == TOOL_OK && a->run.rows) {
        printf("\n%s:\n%s", p->title, text);
    }
    free(text);
    return code;
}

/* Returns whether the question says that it could not answer: it leaves a row in a temporary table of this name, and its sentence says why. */
static int is_unanswered(sqlite3 *db) {
    sqlite3_stmt *st = NULL;
    int is = sqlite3_prepare_v2(db, "SELECT 1 FROM temp.unanswered", -1, &st, NULL) == SQLITE_OK &&
             sqlite3_step(st) == SQLITE_ROW;

    sqlite3_finalize(st);
    return is;
}

int question_run(struct question_run *a, const struct question *q, int quiet) {
    if (is_about_hangs(q))
        tables_hold_hangs(a->run.db); /* if this fails, the question reports why */
    int there = is_there(a, q), code = TOOL_OK;

    if (there < 0)
        return TOOL_FAILED;
    if (!there) {
        if (!quiet)
            tool_say("%s", q->nothing);
        drop_temporary(a->run.db);
        return TOOL_PARTIAL;
    }
    for (unsigned i = 0; code == TOOL_OK && i < (a->answer_only ? 1 : q->nparts); i++) {
        code = ask_part(a, q, &q->part[i], quiet);
        if (code == TOOL_OK && i == 0 && !a->run.rows) {
            if (!quiet)
                tool_say("%s", q->nothing);
            code = TOOL_PARTIAL;
        }
    }
    if (code == TOOL_OK && is_unanswered(a->run.db))
        code = TOOL_PARTIAL;
    drop_temporary(a->run.db);
    return code;
}

void question_run_end(const struct question_run *a) {
    if (is_json(a))
        fputs(a->pieces ? "]\n" : "[]\n", stdout);
}
