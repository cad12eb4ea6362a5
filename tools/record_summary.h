/* SPDX-License-Identifier: Apache-2.0 */
/*
 * record_summary.h - prints the line that probing-record ends with: how long, how much, how complete, where, and what to do next.
 *
 *     output_collect(&o);
 *     record_summary(&o, &r, argv[0], unrecorded);
 */
#ifndef PROBING_TOOLS_RECORD_SUMMARY_H
#define PROBING_TOOLS_RECORD_SUMMARY_H

#include "record_output.h"
#include "record_run.h"

/* program: the command as the user typed it; unrecorded: number of processes that reported why they are not recorded. */
void record_summary(const struct record_output *o, const struct run_result *r, const char *program,
                    unsigned unrecorded);

#endif
