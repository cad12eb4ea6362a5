/* SPDX-License-Identifier: Apache-2.0 */
#include "options.h"

#include <stdio.h>
#include <string.h>

#include "../converter/when.h"
#include "target.h"

enum { MOST = 40, FIRST = 256 }; /* FIRST: value of the first long option, above all letters */

static int take(const struct tool_option *o, const char *value) {
    double v;

    if (o->take)
        return o->take(o->name, value, o->into);
    if (o->flag)
        *o->flag = o->bits ? *o->flag | o->bits : 0;
    if (o->text)
        *o->text = o->word ? o->word : value;
    if (o->number || o->whole) {
        if (tool_number(value, o->lo, o->hi, &v) < 0 || (o->whole && v != (double)(int)v))
            return tool_usage(o->wrong, value);
        if (o->number)
            *o->number = v;
        else
            *o->whole = (int)v;
    }
    return TOOL_OK;
}

int tool_options(int argc, char **argv, const char *help, const struct tool_option *options) {
    struct option known[MOST + 2] = {{0}};
    char letters[2 * MOST + 4] = ":h";
    int n = 0, c, rc = TOOL_OK;

    for (; n < MOST && options[n].name; n++) {
        const struct tool_option *o = &options[n];
        int value = !o->flag && !o->word;
        known[n] = (struct option){o->name, value ? required_argument : no_argument, NULL,
                                   o->letter ? o->letter : FIRST + n};
        if (o->letter)
            snprintf(letters + strlen(letters), 3, "%c%s", o->letter, value ? ":" : "");
    }
    known[n] = (struct option){"help", no_argument, NULL, 'h'};
    opterr = 0;
    while (rc == TOOL_OK && (c = getopt_long(argc, argv, letters, known, NULL)) != -1) {
        int i = 0;
        while (i < n && known[i].val != c)
            i++;
        if (c == 'h') {
            fputs(help, stdout);
            rc = TOOL_HELPED;
        } else {
            rc = i < n ? take(&options[i], optarg) : tool_bad_option(argv);
        }
    }
    return rc;
}

int option_time(const char *name, const char *value, void *into) {
    if (when_parse(value, into) == 0)
        return TOOL_OK;
    return tool_usage(
        "--%s %s: write a time as 2026-11-22T13:05:00, as seconds since the epoch, as +90s after the first "
        "record or as -5min before the last",
        name, value);
}

int option_duration(const char *name, const char *value, void *into) {
    int64_t *ns = into;

    if (when_duration(value, ns) == 0 && *ns > 0)
        return TOOL_OK;
    return tool_usage("--%s %s: write a length of time as 90s, 5min or 2h", name, value);
}

int option_last(const char *name, const char *value, void *into) {
    struct when *since = into;

    since->from = WHEN_BEFORE_LAST;
    return option_duration(name, value, &since->ns);
}

int option_pid(const char *name, const char *value, void *into) {
    (void)name;
    return target_pid(value, into);
}

int option_id(const char *name, const char *value, void *into) {
    double number;

    if (tool_number(value, 0, INT32_MAX, &number) < 0 || number != (double)(int64_t)number)
        return tool_usage("--%s %s: a number is needed", name, value);
    *(int64_t *)into = (int64_t)number;
    return TOOL_OK;
}

int option_output(const char *name, const char *value, void *into) {
    (void)name;
    *(const char **)into = strcmp(value, "-") == 0 ? NULL : value;
    return TOOL_OK;
}
