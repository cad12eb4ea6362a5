/* SPDX-License-Identifier: Apache-2.0 */
/*
 * regex.h - regular expressions of PCRE2, with what SQL needs of them.
 *
 *     struct regex *re;
 *     char why[REGEX_WHY];
 *     if (regex_compile("^Net\\.(\\w+)", 0, &re, why) < 0) ...     // why: what is wrong with it
 *     size_t at[REGEX_SLOTS];
 *     if (regex_search(re, text, strlen(text), 0, 0, at) == 1) ... // [at[0], at[1]) matches; the first group is [at[2], at[3])
 *     regex_free(re);
 *
 * To find all matches, search on behind each with REGEX_SAME: otherwise each search goes through the whole text, to see whether it is UTF-8.
 *
 * Characters are those of UTF-8; bytes that are no UTF-8 match nothing. `$` is the end of the text only, as in DataFusion and DuckDB. A search that takes
 * too many steps, as backtracking can, is given up: see regex_failed(). One thread at a time for each struct regex.
 */
#ifndef PROBING_CONVERTER_REGEX_H
#define PROBING_CONVERTER_REGEX_H

#include <stddef.h>

#define REGEX_GROUPS  10 /* with the whole match; further groups are not returned */
#define REGEX_SLOTS   (2 * REGEX_GROUPS)
#define REGEX_NOWHERE ((size_t)-1)
#define REGEX_WHY     160
#define REGEX_NO_CASE 1 /* for regex_compile(): upper and lower case match each other */
#define REGEX_WHOLE   2 /* for regex_search(): the match has to be the whole text */
#define REGEX_SAME    4 /* for regex_search(): the text is that of the search before */

struct regex;

/* Returns 0, -ENOMEM or -EINVAL; then `why` says what is wrong, and *out is NULL. The caller frees *out with regex_free(). */
int regex_compile(const char *pattern, int flags, struct regex **out, char why[REGEX_WHY]);
/* Searches the first match at or after `from`. at: offsets, REGEX_NOWHERE for groups that did not take part. Returns 1, 0 for none, or a negative number
 * when the search was given up. */
int regex_search(struct regex *re, const char *text, size_t n, size_t from, int flags,
                 size_t at[REGEX_SLOTS]);
/* Returns whether a search was given up since this was asked the last time. */
int regex_failed(struct regex *re);
/* Returns how many groups the pattern has, without the whole match; at most REGEX_GROUPS - 1. */
int regex_groups(const struct regex *re);
void regex_free(struct regex *re); /* NULL is allowed */

#endif
