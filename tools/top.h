/* SPDX-License-Identifier: Apache-2.0 */
/*
 * top.h - `probing top` for a process elsewhere: options, screen and keys are those of cmd_top.c; the caller provides a way to get the data
 * (remote/main.c asks a server) in the form that `probing top --json` prints there.
 *
 *     struct top_way way = {ask, arg};
 *     return top_run(argc, argv, &way);         // argv[1] is the first option
 */
#ifndef PROBING_TOOLS_TOP_H
#define PROBING_TOOLS_TOP_H

struct top_way {
    /* Sets *json (malloc'ed) to what was recorded in the last `window` ("10s"). Otherwise returns the exit code, after printing why. Stops
     * waiting once screen_ended() is true. */
    int (*ask)(void *arg, const char *window, char **json);
    void *arg;
};

/* Returns the exit code. */
int top_run(int argc, char **argv, const struct top_way *way);

#endif
