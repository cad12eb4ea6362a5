/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch_setting.h - parses PROBING_TORCH_PROFILING: on, off, a share of the steps, or a list of key=value,...
 *
 *     struct torch_setting t;
 *     if (torch_setting_parse("on,rate=0.1,backward=off,exprs=loss@train,acc@train", &t, why, sizeof why)) error(why);
 *
 * The value of exprs extends to the next key=. Pure; used by the agent and by the tools.
 */
#ifndef PROBING_TRACES_TORCH_SETTING_H
#define PROBING_TRACES_TORCH_SETTING_H

#include <stddef.h>
#include <stdint.h>

#define TORCH_SETTING_RANGE                                                                                                       \
    "on, off, RATE (0.001 to 1: the share of steps whose modules are recorded) or a list of rate=RATE, "                          \
    "layer_rate=RATE (the share of modules), backward=on|off, cuda=auto|all|off and memory=auto|all|off (GPU time and memory of " \
    "calls), exprs=NAME@FUNCTION,..."

/* For which calls the costly parts (microseconds each) are recorded; auto: as many as keep the cost at 0.25 % of the time (agent/base/limit.h). */
enum torch_amount { TORCH_NONE, TORCH_AUTO, TORCH_ALL };

struct torch_setting {
    int on;
    uint32_t rate, layer_rate; /* millionths, 1000 to 1000000 */
    int backward;
    enum torch_amount cuda, memory;
    char exprs[512]; /* "": none given */
};

/* Parses the setting; "" is "on". Returns 0, or -EINVAL with a message for people in `why`. */
int torch_setting_parse(const char *text, struct torch_setting *t, char *why, size_t n);
/* The same check, with the type that settings.def needs. */
int torch_setting_check(const char *text, char *why, size_t n);

#endif
