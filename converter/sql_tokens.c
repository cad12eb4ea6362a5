/* SPDX-License-Identifier: Apache-2.0 */
#include "sql_tokens.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

struct token sql_token(const char *p) {
    struct token t = {SIGN, p, 1};
    const char *end;

    if (!*p)
        return (struct token){END, p, 0};
    if (isspace((unsigned char)*p)) {
        t.kind = SPACE;
        while (isspace((unsigned char)p[t.n]))
            t.n++;
    } else if (p[0] == '-' && p[1] == '-') {
        t.kind = SPACE;
        t.n = strcspn(p, "\n");
    } else if (p[0] == '/' && p[1] == '*') {
        t.kind = SPACE;
        end = strstr(p + 2, "*/");
        t.n = end ? (size_t)(end + 2 - p) : strlen(p);
    } else if (*p == '\'' || *p == '"' || *p == '`') {
        t.kind = *p == '\'' ? STRING : QUOTED;
        while (p[t.n] && (p[t.n] != *p || p[t.n + 1] == *p))
            t.n += p[t.n] == *p ? 2 : 1; /* a doubled quote stands for one quote */
        t.n += p[t.n] != 0;
    } else if (*p == '[') {
        t.kind = QUOTED;
        t.n = strcspn(p, "]");
        t.n += p[t.n] != 0;
    } else if (isdigit((unsigned char)*p)) {
        t.kind = NUMBER;
        while (isalnum((unsigned char)p[t.n]) || p[t.n] == '.' ||
               (p[t.n] == '_' && isdigit((unsigned char)p[t.n + 1])))
            t.n++;
    } else if (isalpha((unsigned char)*p) || *p == '_' || (unsigned char)*p >= 0x80) {
        t.kind = WORD;
        while (isalnum((unsigned char)p[t.n]) || p[t.n] == '_' || p[t.n] == '$' ||
               (unsigned char)p[t.n] >= 0x80)
            t.n++;
    }
    return t;
}

struct token sql_after(struct token t) {
    if (t.kind == END) /* of the text; or none, whose p is NULL */
        return t;
    do
        t = sql_token(t.p + t.n);
    while (t.kind == SPACE);
    return t;
}

int sql_is(struct token t, const char *word) {
    return t.kind == WORD && strlen(word) == t.n && strncasecmp(t.p, word, t.n) == 0;
}

int sql_is_one_of(struct token t, const char *words) {
    for (const char *w = words + 1; *w; w += strcspn(w, " ") + 1)
        if (t.kind == WORD && strcspn(w, " ") == t.n && strncasecmp(t.p, w, t.n) == 0)
            return 1;
    return 0;
}

int sql_is_sign(struct token t, const char *signs) {
    return t.kind == SIGN && strchr(signs, *t.p) != NULL;
}

int sql_same_name(struct token a, struct token b) {
    int qa = a.kind == QUOTED, qb = b.kind == QUOTED;

    return a.n - 2 * (size_t)qa == b.n - 2 * (size_t)qb &&
           strncasecmp(a.p + qa, b.p + qb, a.n - 2 * (size_t)qa) == 0;
}

struct token sql_closing(struct token t) {
    for (int depth = 0; t.kind != END; t = sql_after(t)) {
        depth += sql_is_sign(t, "(") - sql_is_sign(t, ")");
        if (depth == 0)
            break;
    }
    return t;
}
