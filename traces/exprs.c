/* SPDX-License-Identifier: Apache-2.0 */
#include "exprs.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Bytes of UTF-8 beyond ASCII are letters, as in Python. */
static int is_letter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (unsigned char)c >= 0x80;
}

/* A name, or several with dots in between; the name of a function (`func`) may contain "<locals>". */
static int is_dotted(const char *s, size_t n, int func) {
    static const char locals[] = "<locals>";
    size_t i = 0;
    for (;;) {
        if (func && n - i >= sizeof locals - 1 && !memcmp(s + i, locals, sizeof locals - 1)) {
            i += sizeof locals - 1;
        } else {
            if (i >= n || !is_letter(s[i]))
                return 0;
            while (i < n && (is_letter(s[i]) || (s[i] >= '0' && s[i] <= '9')))
                i++;
        }
        if (i == n)
            return 1;
        if (s[i++] != '.')
            return 0;
    }
}

static int is_func(const char *s, size_t n) {
    static const char *const special[] = {"<module>", "<lambda>", "<genexpr>"};
    for (size_t i = 0; i < sizeof special / sizeof *special; i++)
        if (n == strlen(special[i]) && !memcmp(s, special[i], n))
            return 1;
    return is_dotted(s, n, 1);
}

static int add(struct exprs *x, const char *name, size_t nname, const char *func, size_t nfunc) {
    for (unsigned i = 0; i < x->n; i++)
        if (strlen(x->expr[i].name) == nname && !memcmp(x->expr[i].name, name, nname) &&
            strlen(x->expr[i].func) == nfunc && !memcmp(x->expr[i].func, func, nfunc))
            return 0;
    if (x->n == EXPRS_MAX)
        return -ENOSPC;
    memcpy(x->expr[x->n].name, name, nname);
    x->expr[x->n].name[nname] = 0;
    memcpy(x->expr[x->n].func, func, nfunc);
    x->expr[x->n].func[nfunc] = 0;
    x->n++;
    return 0;
}

int exprs_parse(const char *text, struct exprs *x, char *why, size_t n) {
    struct exprs y = *x;
    for (const char *p = text; *p;) {
        size_t skip = strspn(p, " \t"), len = strcspn(p + skip, ",");
        const char *word = p + skip;
        p = word + len + (word[len] == ',');
        while (len && (word[len - 1] == ' ' || word[len - 1] == '\t'))
            len--;
        if (!len && !*p) /* a comma at the end does no harm */
            break;
        const char *at = memchr(word, '@', len);
        size_t nname = at ? (size_t)(at - word) : 0, nfunc = at ? len - nname - 1 : 0;
        if (!at || nname >= EXPRS_TEXT || nfunc >= EXPRS_TEXT || !is_dotted(word, nname, 0) ||
            !is_func(at + 1, nfunc)) {
            snprintf(why, n, "'%.*s' is no NAME@FUNCTION", len > 100 ? 100 : (int)len, word);
            return -EINVAL;
        }
        if (add(&y, word, nname, at + 1, nfunc)) {
            snprintf(why, n, "these are more than %d", EXPRS_MAX);
            return -EINVAL;
        }
    }
    *x = y;
    return 0;
}

int exprs_check(const char *text, char *why, size_t n) {
    struct exprs x = {.n = 0};
    return exprs_parse(text, &x, why, n);
}
