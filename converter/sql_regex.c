/* SPDX-License-Identifier: Apache-2.0 */
#include "sql_regex.h"

#include <ctype.h>
#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "regex.h"

#define REGEXP_MOST 100000000 /* bytes of a text that is made */

static void regexp_free(void *re) {
    regex_free(re);
}

/* Gets the text and the compiled pattern: of arguments number x and p, with the flags of number `flags` if there are so many. *keep: NULL, or what the caller
 * frees. Returns NULL, with the result set, if there is nothing to do. */
static struct regex *regexp_get(sqlite3_context *ctx, int n, sqlite3_value **v, int x, int p,
                                int flags, const char **text, int *all, struct regex **keep) {
    const char *pattern = (const char *)sqlite3_value_text(v[p]),
               *how = n > flags ? (const char *)sqlite3_value_text(v[flags]) : "";
    char why[REGEX_WHY];
    struct regex *re = sqlite3_get_auxdata(ctx, p);

    *keep = NULL;
    *text = (const char *)sqlite3_value_text(v[x]);
    if (!pattern || !*text || !how)
        return NULL;
    *all = strchr(how, 'g') != NULL;
    if (strspn(how, "igc") != strlen(how)) {
        sqlite3_result_error(
            ctx, "the flags of a regular expression are i (ignore case) and g (all)", -1);
        return NULL;
    }
    if (re)
        return re;
    int err = regex_compile(pattern, strchr(how, 'i') ? REGEX_NO_CASE : 0, &re, why);
    if (err) {
        char *said = sqlite3_mprintf("no regular expression: '%.60s': %s", pattern, why);
        sqlite3_result_error(ctx, said ? said : why, -1);
        sqlite3_free(said);
        return NULL;
    }
    if (n <=
        flags) { /* SQLite keeps it as long as the pattern is the same; flags may differ by row */
        sqlite3_set_auxdata(ctx, p, re, regexp_free);
        re = sqlite3_get_auxdata(ctx, p);
    } else {
        *keep = re;
    }
    if (!re)
        sqlite3_result_error_nomem(ctx);
    return re;
}

/* What each function ends with: a search that was given up makes an error of whatever was found. */
static void regexp_end(sqlite3_context *ctx, struct regex *re, struct regex *keep) {
    if (re && regex_failed(re))
        sqlite3_result_error(ctx, "the regular expression takes too many steps for this text", -1);
    regex_free(keep);
}

enum { REGEXP_LIKE, REGEXP_FULL, REGEXP_SWAPPED };

/* regexp_like(x, p[, FLAGS]), and regexp(p, x), which is the operator REGEXP. */
static void regexp_like(sqlite3_context *ctx, int n, sqlite3_value **v) {
    intptr_t way = (intptr_t)sqlite3_user_data(ctx);
    struct regex *keep, *re;
    const char *text;
    size_t at[REGEX_SLOTS];
    int all, swapped = way == REGEXP_SWAPPED;

    re = regexp_get(ctx, n, v, swapped, !swapped, 2, &text, &all, &keep);
    if (re) {
        int flags = way == REGEXP_FULL ? REGEX_WHOLE : 0;
        sqlite3_result_int(ctx, regex_search(re, text, strlen(text), 0, flags, at) == 1);
    }
    regexp_end(ctx, re, keep);
}

/* Returns where to search on after a match, which may be empty; REGEX_NOWHERE: nowhere. */
static size_t regexp_next(const char *text, size_t n, const size_t at[REGEX_SLOTS]) {
    size_t next = at[1];

    if (at[1] > at[0])
        return next;
    if (next >= n)
        return REGEX_NOWHERE;
    for (next++; next < n && (text[next] & 0xc0) == 0x80; next++)
        ;
    return next;
}

static void regexp_count(sqlite3_context *ctx, int n, sqlite3_value **v) {
    struct regex *keep, *re;
    const char *text;
    size_t at[REGEX_SLOTS], from = 0, len;
    int all, count = 0, flags = 0;

    if ((re = regexp_get(ctx, n, v, 0, 1, 3, &text, &all, &keep))) {
        len = strlen(text);
        for (int64_t skip = n > 2 ? sqlite3_value_int64(v[2]) - 1 : 0; skip > 0 && from < len;
             skip--)
            for (from++; from < len && (text[from] & 0xc0) == 0x80; from++)
                ;
        for (; from != REGEX_NOWHERE && regex_search(re, text, len, from, flags, at) == 1;
             count++) {
            from = regexp_next(text, len, at);
            flags = REGEX_SAME;
        }
        sqlite3_result_int(ctx, count);
    }
    regexp_end(ctx, re, keep);
}

static void regexp_add_json(sqlite3_str *s, const char *p, size_t n) {
    sqlite3_str_appendchar(s, 1, '"');
    for (; n; n--, p++) {
        if (*p == '"' || *p == '\\')
            sqlite3_str_appendchar(s, 1, '\\');
        if ((unsigned char)*p < 0x20)
            sqlite3_str_appendf(s, "\\u%04x", *p);
        else
            sqlite3_str_appendchar(s, 1, *p);
    }
    sqlite3_str_appendchar(s, 1, '"');
}

static void regexp_result(sqlite3_context *ctx, sqlite3_str *s) {
    int err = sqlite3_str_errcode(s);
    char *text = sqlite3_str_finish(s);

    if (err)
        sqlite3_result_error_code(ctx, err);
    else
        sqlite3_result_text(ctx, text ? text : "", -1, SQLITE_TRANSIENT);
    sqlite3_free(text);
}

static void regexp_match(sqlite3_context *ctx, int n, sqlite3_value **v) {
    struct regex *keep, *re;
    const char *text;
    size_t at[REGEX_SLOTS];
    int all;

    re = regexp_get(ctx, n, v, 0, 1, 2, &text, &all, &keep);
    if (re && regex_search(re, text, strlen(text), 0, 0, at) == 1) {
        sqlite3_str *s = sqlite3_str_new(sqlite3_context_db_handle(ctx));
        int last = regex_groups(re), first = last > 0;
        sqlite3_str_appendchar(s, 1, '[');
        for (int i = first; i <= last; i++) {
            sqlite3_str_appendall(s, i > first ? "," : "");
            if (at[2 * i + 1] == REGEX_NOWHERE || at[2 * i] == REGEX_NOWHERE)
                sqlite3_str_appendall(s, "null");
            else
                regexp_add_json(s, text + at[2 * i], at[2 * i + 1] - at[2 * i]);
        }
        sqlite3_str_appendchar(s, 1, ']');
        regexp_result(ctx, s);
    }
    regexp_end(ctx, re, keep);
}

static void regexp_extract(sqlite3_context *ctx, int n, sqlite3_value **v) {
    struct regex *keep, *re;
    const char *text;
    size_t at[REGEX_SLOTS];
    int all, group = n > 2 ? sqlite3_value_int(v[2]) : 0;

    if ((re = regexp_get(ctx, n, v, 0, 1, 3, &text, &all, &keep))) {
        if (group < 0 || group > regex_groups(re))
            sqlite3_result_error(ctx, "regexp_extract: the pattern has no group of that number",
                                 -1);
        else if (regex_search(re, text, strlen(text), 0, 0, at) != 1 ||
                 at[2 * group + 1] == REGEX_NOWHERE)
            sqlite3_result_text(ctx, "", 0, SQLITE_STATIC);
        else
            sqlite3_result_text(ctx, text + at[2 * group], (int)(at[2 * group + 1] - at[2 * group]),
                                SQLITE_TRANSIENT);
    }
    regexp_end(ctx, re, keep);
}

/* Adds what replaces a match: the text `by` with its groups. */
static void regexp_add(sqlite3_str *s, const char *by, const char *text,
                       const size_t at[REGEX_SLOTS]) {
    for (; *by; by++) {
        int brace = by[0] == '$' && by[1] == '{' && isdigit((unsigned char)by[2]) && by[3] == '}';
        const char *digit = brace ? by + 2 : by + 1;
        if ((*by != '\\' && *by != '$') || !isdigit((unsigned char)*digit)) {
            by += *by == '\\' && by[1] == '\\';
            sqlite3_str_appendchar(s, 1, *by);
            continue;
        }
        const size_t *group = at + 2 * (*digit - '0');
        if (group[0] != REGEX_NOWHERE && group[1] != REGEX_NOWHERE)
            sqlite3_str_append(s, text + group[0], (int)(group[1] - group[0]));
        by = digit + brace;
    }
}

static void regexp_replace(sqlite3_context *ctx, int n, sqlite3_value **v) {
    const char *by = (const char *)sqlite3_value_text(v[2]), *text;
    struct regex *keep, *re;
    size_t at[REGEX_SLOTS], from = 0, copied = 0, len;
    int all, flags = 0;

    re = regexp_get(ctx, n, v, 0, 1, 3, &text, &all, &keep);
    if (re && by) {
        sqlite3_str *s = sqlite3_str_new(sqlite3_context_db_handle(ctx));
        len = strlen(text);
        while (from != REGEX_NOWHERE && regex_search(re, text, len, from, flags, at) == 1 &&
               !sqlite3_str_errcode(s)) {
            sqlite3_str_append(s, text + copied, (int)(at[0] - copied));
            regexp_add(s, by, text, at);
            copied = at[1];
            from = all ? regexp_next(text, len, at) : REGEX_NOWHERE;
            flags = REGEX_SAME;
            if (sqlite3_str_length(s) > REGEXP_MOST)
                sqlite3_str_appendchar(s, 0x7fffffff, ' '); /* sets SQLITE_TOOBIG */
        }
        sqlite3_str_appendall(s, text + copied);
        regexp_result(ctx, s);
    }
    regexp_end(ctx, re, keep);
}

int sql_regex_register(sqlite3 *db) {
    static const struct {
        const char *name;
        int least, most;
        void (*run)(sqlite3_context *, int, sqlite3_value **);
        intptr_t arg;
    } all[] = {{"regexp", 2, 2, regexp_like, REGEXP_SWAPPED},
               {"regexp_like", 2, 3, regexp_like, REGEXP_LIKE},
               {"regexp_matches", 2, 3, regexp_like, REGEXP_LIKE},
               {"regexp_full_match", 2, 3, regexp_like, REGEXP_FULL},
               {"regexp_count", 2, 4, regexp_count, 0},
               {"regexp_match", 2, 3, regexp_match, 0},
               {"regexp_extract", 2, 4, regexp_extract, 0},
               {"regexp_replace", 3, 4, regexp_replace, 0}};
    int rc = SQLITE_OK;

    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        for (int n = all[i].least; rc == SQLITE_OK && n <= all[i].most; n++)
            rc = sqlite3_create_function_v2(db, all[i].name, n,
                                            SQLITE_UTF8 | SQLITE_DETERMINISTIC | SQLITE_INNOCUOUS,
                                            (void *)all[i].arg, all[i].run, NULL, NULL, NULL);
    return rc;
}
