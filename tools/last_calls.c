/* SPDX-License-Identifier: Apache-2.0 */
#include "last_calls.h"

#include <stdlib.h>
#include <strings.h>

#include "../converter/sql_tokens.h"

#define MOST 1000 /* largest LIMIT: the last steps will hardly have more calls */

/* Returns whether the token is this word, and if so moves *t past it. */
static int take(struct token *t, const char *word) {
    if (!sql_is(*t, word))
        return 0;
    *t = sql_after(*t);
    return 1;
}

static int take_sign(struct token *t, const char *sign) {
    if (!sql_is_sign(*t, sign))
        return 0;
    *t = sql_after(*t);
    return 1;
}

/* Moves past plain column names, or *. Returns 0 at anything else, such as a sum, or a name given by AS. */
static int take_columns(struct token *t) {
    if (take_sign(t, "*"))
        return 1;
    do {
        if (t->kind != WORD || sql_is_one_of(*t, " distinct all from case cast not null exists "))
            return 0;
        *t = sql_after(*t);
    } while (take_sign(t, ","));
    return 1;
}

/* Moves past ORDER BY step DESC, and the columns after it that order the calls of one step. */
static int take_order(struct token *t) {
    if (!take(t, "order") || !take(t, "by") || !take(t, "step") || !take(t, "desc"))
        return 0;
    while (take_sign(t, ",")) {
        if (t->kind != WORD || sql_is_one_of(*t, " case cast not null exists "))
            return 0;
        *t = sql_after(*t);
        if (sql_is_one_of(*t, " asc desc "))
            *t = sql_after(*t);
    }
    return 1;
}

int last_calls_most(const char *sql) {
    struct token t = sql_token(sql);

    if (t.kind == SPACE)
        t = sql_after(t);
    if (!take(&t, "select") || !take_columns(&t) || !take(&t, "from"))
        return 0;
    if ((take(&t, "python") || take(&t, "main")) && !take_sign(&t, "."))
        return 0;
    if (!take(&t, "torch_trace") || !take_order(&t) || !take(&t, "limit") || t.kind != NUMBER ||
        t.n > 4)
        return 0;
    char *end;
    long n = strtol(t.p, &end, 10);
    if (end != t.p + t.n || n < 1 || n > MOST)
        return 0;
    t = sql_after(t);
    take_sign(&t, ";");
    return t.kind == END ? (int)n : 0;
}

int last_calls_suffice(sqlite3 *db, const char *sql) {
    sqlite3_stmt *st = NULL;
    int n = sql ? last_calls_most(sql) : 0, suffice = 1;

    if (!n || sqlite3_prepare_v2(
                  db,
                  "WITH missing(step) AS (SELECT max(state) FROM main.torch_read WHERE trace < 0)"
                  " SELECT step IS NULL OR (SELECT count(*) FROM (SELECT 1 FROM main.torch_trace c"
                  " WHERE c.step > missing.step LIMIT ?)) = ? FROM missing",
                  -1, &st, NULL) != SQLITE_OK)
        return !n;
    sqlite3_bind_int(st, 1, n);
    sqlite3_bind_int(st, 2, n);
    suffice = sqlite3_step(st) == SQLITE_ROW && sqlite3_column_int(st, 0);
    sqlite3_finalize(st);
    return suffice;
}
