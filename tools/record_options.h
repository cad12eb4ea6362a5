/* SPDX-License-Identifier: Apache-2.0 */
/*
 * record_options.h - the options of probing-record, and the settings that they and the environment give.
 *
 *     struct record_options opt = {.output = "trace.zst", .native = 1, .symbols = 1};
 *     if ((rc = record_options_parse(argc, argv, &opt)) <= 0 || record_options_check(&opt) < 0) ... exit ...
 */
#ifndef PROBING_TOOLS_RECORD_OPTIONS_H
#define PROBING_TOOLS_RECORD_OPTIONS_H

#include "../traces/settings.h"

struct record_options {
    const char *output;
    const char *rate;             /* text given to -r */
    const char *other[SETTING_N]; /* given to --metrics, --torch, --exprs, --set, or NULL */
    int native, symbols, quiet, output_given;
    int pid;         /* the running process to record; 0: a command is run instead */
    double duration; /* with pid: seconds; 0: until a signal, or the process's end */
    char period[32]; /* value for PROBING_SAMPLE_RATE; "" when -r was not given */
};

/* Returns 1; 0: the help was printed; -1: a wrong option, which was reported. The command begins at argv[optind]. */
int record_options_parse(int argc, char **argv, struct record_options *s);
/* Checks all settings, from the options or the environment. A wrong option is refused. A wrong variable, which may have been set
 * for something else long ago, is only reported, and the default is used: the agent does the same. Returns 0 or -1. */
int record_options_check(struct record_options *s);
/* Returns a setting's value from the environment, or NULL; puts the variable's name into `name`. */
const char *record_options_env(enum setting_id id, char name[SETTING_ENV]);

#endif
