/* SPDX-License-Identifier: Apache-2.0 */
/*
 * regex.h - regular expressions that take time in proportion to the text, whatever the pattern: all ways to match are followed at once.
 *
 *     struct regex *re;
 *     const char *why;
 *     if (regex_compile("^Net\\.(\\w+)", 0, &re, &why) < 0) ...     // why: what is wrong with it
 *     size_t at[REGEX_SLOTS];
 *     if (regex_search(re, text, strlen(text), 0, at) == 1) ...     // [at[0], at[1]) matches; the first group is [at[2], at[3])
 *     regex_free(re);
 *
 * Characters are those of UTF-8: . [a-z] [^a-z] [[:alpha:]] \d \w \s \D \W \S \b \B ^ $ \A \z ( ) (?: ) (?i) | * + ? {2,5} and the shortest ones, *? +? ??.
 * Of several ways the first one counts, as in Perl. References to groups and looking ahead are not known, as in DataFusion and DuckDB. Pure.
 */
#ifndef PROBING_CONVERTER_REGEX_H
#define PROBING_CONVERTER_REGEX_H

#include <stddef.h>

#define REGEX_GROUPS  10 /* with the whole match; further ones match but are not told */
#define REGEX_SLOTS   (2 * REGEX_GROUPS)
#define REGEX_NOWHERE ((size_t)-1)
#define REGEX_NO_CASE 1 /* ASCII letters match in upper and lower case */

struct regex;

/* Returns 0, -ENOMEM or -EINVAL. */
int regex_compile(const char *pattern, int flags, struct regex **out, const char **why);
/* Searches the first match at or after `from`. at: offsets, REGEX_NOWHERE for groups that did not take part. Returns 1, 0 for none, or -ENOMEM. */
int regex_search(struct regex *re, const char *text, size_t n, size_t from, size_t at[REGEX_SLOTS]);
/* Returns how many groups the pattern has, without the whole match; at most REGEX_GROUPS - 1. */
int regex_groups(const struct regex *re);
void regex_free(struct regex *re);

#endif
