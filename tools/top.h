/* SPDX-License-Identifier: Apache-2.0 */
/*
 * top.h - `probing top` of a process that is elsewhere: the options, the screen and its keys are those of cmd_top.c; what is shown comes
 * by a way that the caller knows (remote/main.c asks a server), as `probing top --json` prints it there.
 *
 *     struct top_way way = {ask, arg};
 *     return top_run(argc, argv, &way);         // argv[1] is the first option
 */
#ifndef PROBING_TOOLS_TOP_H
#define PROBING_TOOLS_TOP_H

struct top_way {
    /* What was recorded in the last `window` ("10s"), in *json (malloc). Without: the exit code, said. Waits no longer once
     * screen_ended(). */
    int (*ask)(void *arg, const char *window, char **json);
    void *arg;
};

/* The exit code. */
int top_run(int argc, char **argv, const struct top_way *way);

#endif
