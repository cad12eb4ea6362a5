/* SPDX-License-Identifier: Apache-2.0 */
/*
 * options.h - the options of a command, as a table: which there are, and what each of them sets.
 *
 *     const struct tool_option options[] = {OPTION_TEXT("output", 'o', &path),
 *                                           OPTION_FLAG("json", 0, &json),
 *                                           OPTION_NUMBER("timeout", 0, &timeout, 0.001, 86400, OPTION_SECONDS),
 *                                           OPTION_CALL("from", 0, option_time, &since),
 *                                           {0}};
 *     if ((rc = tool_options(argc, argv, help, options)) != TOOL_OK)
 *         return rc;                           // wrong usage, which was said, or --help, which was answered
 *     ... argv[optind] is the first argument ...
 *
 * --help and -h are in every table. A value may stand behind its option or be joined to it, as getopt_long() has it.
 */
#ifndef PROBING_TOOLS_OPTIONS_H
#define PROBING_TOOLS_OPTIONS_H

#include <getopt.h>

#include "common.h"

/* Reads a value into what the table names. TOOL_OK, or the exit code after saying what is wrong. */
typedef int option_take(const char *name, const char *value, void *into);

/* Exactly one of flag, text, number, whole and take says what the option is for. */
struct tool_option {
    const char *name; /* the long one; NULL ends the table */
    int letter;       /* the short one; 0: none */
    int *flag;        /* takes no value: these bits are added, or with `bits` 0 it becomes 0 */
    int bits;
    const char **text;
    const char *word; /* takes no value: this one goes into `text` */
    double *number;   /* from lo to hi; `wrong` is what is said of another, with %s for it */
    int *whole;       /* the same, and a whole number */
    double lo, hi;
    const char *wrong;
    option_take *take;
    void *into;
};

#define OPTION_FLAG(name, letter, to) OPTION_BITS(name, letter, to, 1)
#define OPTION_BITS(option, short_, to, value)                                                     \
    { .name = (option), .letter = (short_), .flag = (to), .bits = (value) }
#define OPTION_TEXT(option, short_, to)                                                            \
    { .name = (option), .letter = (short_), .text = (to) }
#define OPTION_WORD(option, short_, to, value)                                                     \
    { .name = (option), .letter = (short_), .text = (to), .word = (value) }
#define OPTION_NUMBER(option, short_, to, least, most, said)                                       \
    {                                                                                              \
        .name = (option), .letter = (short_), .number = (to), .lo = (least), .hi = (most),         \
        .wrong = (said)                                                                            \
    }
#define OPTION_WHOLE(option, short_, to, least, most, said)                                        \
    {                                                                                              \
        .name = (option), .letter = (short_), .whole = (to), .lo = (least), .hi = (most),          \
        .wrong = (said)                                                                            \
    }
#define OPTION_CALL(option, short_, call, to)                                                      \
    { .name = (option), .letter = (short_), .take = (call), .into = (to) }

/* What is said of a number that does not fit, where several commands have the option. */
#define OPTION_SECONDS "the timeout must be seconds, not '%s'"
#define OPTION_FRAME   "the frame must be a number from 0 (the innermost), not '%s'"

/* TOOL_OK; TOOL_USAGE; TOOL_HELPED. */
int tool_options(int argc, char **argv, const char *help, const struct tool_option *options);

/* For OPTION_CALL. Into a struct when (converter/when.h); an int64_t, ns, more than 0; the id of a process, an int, that is there;
 * and a number of one that is recorded, an int64_t. */
option_take option_time, option_last, option_duration, option_pid, option_id;

#endif
