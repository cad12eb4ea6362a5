/* SPDX-License-Identifier: Apache-2.0 */
#include "regex.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../traces/utf8.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#define STEPS 2000000 /* of one search, well under a second: Ctrl-C is only seen between searches */
/* Bytes of a text that is no UTF-8: PCRE2 then examines the rest of it in each search. About a second. */
#define EXAMINED_MOST ((size_t)1 << 30)

struct regex {
    pcre2_code *code, *any; /* any: for texts that are no UTF-8; NULL: there was none yet */
    char *pattern;
    uint32_t options;
    pcre2_match_data *found;
    pcre2_match_context *limits;
    uint32_t groups;
    int failed;
    /* Of the present text: */
    int is_utf8;
    size_t examined;
};

static int is_utf8(const char *text, size_t n) {
    uint32_t c;

    for (size_t i = 0, len; i < n; i += len) {
        len = (unsigned char)text[i] < 0x80 ? 1 : utf8_char(text + i, n - i, &c);
        if (!len)
            return 0;
    }
    return 1;
}

int regex_compile(const char *pattern, int flags, struct regex **out, char why[REGEX_WHY]) {
    uint32_t options = PCRE2_UTF | PCRE2_DOLLAR_ENDONLY | PCRE2_NEVER_BACKSLASH_C |
                       (flags & REGEX_NO_CASE ? PCRE2_CASELESS : 0);
    struct regex *re = *out = calloc(1, sizeof *re);
    PCRE2_SIZE at;
    int code, err = -ENOMEM;

    snprintf(why, REGEX_WHY, "there is no memory");
    if (!re)
        return err;
    re->options = options;
    re->pattern = strdup(pattern);
    re->code = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, options, &code, &at, NULL);
    if (!re->code && code != PCRE2_ERROR_NOMEMORY) {
        PCRE2_UCHAR text[REGEX_WHY - 30];
        pcre2_get_error_message(code, text, sizeof text / sizeof *text);
        snprintf(why, REGEX_WHY, "%s (at byte %zu)", (const char *)text, (size_t)at);
        err = -EINVAL;
    }
    re->found = re->code && re->pattern ? pcre2_match_data_create(REGEX_GROUPS, NULL) : NULL;
    re->limits = re->found ? pcre2_match_context_create(NULL) : NULL;
    if (!re->limits) {
        regex_free(re);
        *out = NULL;
        return err;
    }
    pcre2_set_match_limit(re->limits, STEPS);
    pcre2_pattern_info(re->code, PCRE2_INFO_CAPTURECOUNT, &re->groups);
    return 0;
}

/* Returns the code for the present text; NULL: it has been examined too often, or there is no memory. */
static const pcre2_code *code_of(struct regex *re, size_t bytes) {
    PCRE2_SIZE at;
    int code;

    if (re->is_utf8)
        return re->code;
    if (bytes > EXAMINED_MOST - re->examined)
        return NULL;
    re->examined += bytes;
    if (!re->any)
        re->any = pcre2_compile((PCRE2_SPTR)re->pattern, PCRE2_ZERO_TERMINATED,
                                re->options | PCRE2_MATCH_INVALID_UTF, &code, &at, NULL);
    return re->any;
}

int regex_search(struct regex *re, const char *text, size_t n, size_t from, int flags,
                 size_t at[REGEX_SLOTS]) {
    uint32_t options = flags & REGEX_WHOLE ? PCRE2_ANCHORED | PCRE2_ENDANCHORED : 0;

    if (!(flags & REGEX_SAME)) {
        re->is_utf8 = is_utf8(text, n);
        re->examined = 0;
    }
    if (re->is_utf8)
        options |= PCRE2_NO_UTF_CHECK;
    const pcre2_code *code = code_of(re, n - from);
    int rc = code ? pcre2_match(code, (PCRE2_SPTR)text, n, from, options, re->found, re->limits)
                  : PCRE2_ERROR_MATCHLIMIT;
    const PCRE2_SIZE *where = pcre2_get_ovector_pointer(re->found);

    if (rc == PCRE2_ERROR_NOMATCH)
        return 0;
    if (rc < 0) {
        re->failed = 1;
        return rc;
    }
    /* rc 0: the pattern has more groups than there are slots, and all slots are filled */
    for (size_t i = 0; i < REGEX_SLOTS; i++)
        at[i] = rc == 0 || i < 2 * (size_t)rc ? where[i] : REGEX_NOWHERE;
    if (at[0] > at[1]) /* \K within a lookahead: PCRE2 can put the beginning behind the end */
        at[0] = at[1];
    return 1;
}

int regex_failed(struct regex *re) {
    int failed = re->failed;

    re->failed = 0;
    return failed;
}

int regex_groups(const struct regex *re) {
    return re->groups < REGEX_GROUPS ? (int)re->groups : REGEX_GROUPS - 1;
}

void regex_free(struct regex *re) {
    if (!re)
        return;
    pcre2_match_context_free(re->limits);
    pcre2_match_data_free(re->found);
    pcre2_code_free(re->code);
    pcre2_code_free(re->any);
    free(re->pattern);
    free(re);
}
