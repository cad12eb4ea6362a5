/* SPDX-License-Identifier: Apache-2.0 */
#include "regex.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#define STEPS 2000000 /* of one search, well under a second: Ctrl-C is only seen between searches */

struct regex {
    pcre2_code *code;
    pcre2_match_data *found;
    pcre2_match_context *limits;
    uint32_t groups;
    int failed;
};

int regex_compile(const char *pattern, int flags, struct regex **out, char why[REGEX_WHY]) {
    uint32_t options =
        PCRE2_UTF | PCRE2_MATCH_INVALID_UTF | PCRE2_DOLLAR_ENDONLY | PCRE2_NEVER_BACKSLASH_C;
    struct regex *re = *out = calloc(1, sizeof *re);
    PCRE2_SIZE at;
    int code, err = -ENOMEM;

    snprintf(why, REGEX_WHY, "there is no memory");
    if (!re)
        return err;
    re->code =
        pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED,
                      options | (flags & REGEX_NO_CASE ? PCRE2_CASELESS : 0), &code, &at, NULL);
    if (!re->code && code != PCRE2_ERROR_NOMEMORY) {
        PCRE2_UCHAR text[REGEX_WHY - 30];
        pcre2_get_error_message(code, text, sizeof text / sizeof *text);
        snprintf(why, REGEX_WHY, "%s (at byte %zu)", (const char *)text, (size_t)at);
        err = -EINVAL;
    }
    re->found = re->code ? pcre2_match_data_create(REGEX_GROUPS, NULL) : NULL;
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

int regex_search(struct regex *re, const char *text, size_t n, size_t from, int flags,
                 size_t at[REGEX_SLOTS]) {
    uint32_t options = flags & REGEX_WHOLE ? PCRE2_ANCHORED | PCRE2_ENDANCHORED : 0;
    int rc = pcre2_match(re->code, (PCRE2_SPTR)text, n, from, options, re->found, re->limits);
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
    free(re);
}
