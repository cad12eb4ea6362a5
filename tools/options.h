/* SPDX-License-Identifier: Apache-2.0 */
/*
 * options.h - describes the options of a command by a table, which says what each option sets.
 *
 *     const struct tool_option options[] = {OPTION_TEXT("output", 'o', &path),
 *                                           OPTION_FLAG("json", 0, &json),
 *                                           OPTION_TIMEOUT(&timeout),
 *                                           OPTION_CALL("from", 0, option_time, &since),
 *                                           {0}};
 *     if ((rc = tool_options(argc, argv, help, options)) != TOOL_OK)
 *         return rc;                           // wrong usage, after a message, or --help, after its answer
 *     ... argv[optind] is the first argument ...
 *
 * --help and -h are in every table. A value may follow its option or be joined to it, as in getopt_long().
 */
#ifndef PROBING_TOOLS_OPTIONS_H
#define PROBING_TOOLS_OPTIONS_H

#include <getopt.h>

#include "common.h"

/* Reads a value into what the table names. Returns TOOL_OK, or the exit code after printing what is wrong. */
typedef int option_take(const char *name, const char *value, void *into);

/* Exactly one of flag, text, number, whole and take is set, and says what kind of option it is. */
struct tool_option {
    const char *name; /* the long name; NULL ends the table */
    int letter;       /* the short name; 0: none */
    /* an option without a value: adds these bits or, with `bits` 0, sets it to 0 */
    int *flag;
    int bits;
    const char **text;
    const char *word; /* an option without a value: sets `text` to this */
    /* from lo to hi; for other values prints `wrong`, with the value in place of %s */
    double *number;
    int *whole; /* the same for a whole number */
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

/* What several commands have. */
#define OPTION_TIMEOUT(to)   OPTION_NUMBER("timeout", 0, to, 0.001, 86400, OPTION_TIMEOUT_WRONG)
#define OPTION_TIMEOUT_WRONG "the timeout must be from 0.001 to 86400 seconds, not '%s'"
#define OPTION_FRAME         "the frame must be a number from 0 (the innermost), not '%s'"

/* Returns TOOL_OK, TOOL_USAGE or TOOL_HELPED. */
int tool_options(int argc, char **argv, const char *help, const struct tool_option *options);

/* For OPTION_CALL. Their targets are: a struct when (converter/when.h); an int64_t, in ns, more than 0; the id of an existing process, an
 * int; the id of a recorded process, an int64_t; and the name of a file to write, a const char *, NULL for - (standard output). */
option_take option_time, option_last, option_duration, option_pid, option_id, option_output;

#endif
