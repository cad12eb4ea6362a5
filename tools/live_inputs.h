/* SPDX-License-Identifier: Apache-2.0 */
/*
 * live_inputs.h - makes the traces that are about to be read as complete as they can be.
 *
 *     int missing = live_inputs_add(&in, argv + optind, argc - optind, INPUTS_SIBLINGS);     // in: converter/inputs.h
 *     live_inputs(&in);
 *     convert(&in, ...);
 *
 * A process that still records one of them is asked to write out what it has (and marked in
 * input.recording); one that was killed gets its trace completed from its live file.
 */
#ifndef PROBING_TOOLS_LIVE_INPUTS_H
#define PROBING_TOOLS_LIVE_INPUTS_H

#include "../converter/inputs.h"

/* The traces that are named on the command line. Those that cannot be used are said on stderr; 1: there were such, else 0. */
int live_inputs_add(struct inputs *in, char *const *paths, int n, unsigned flags);
/* What cannot be done is said on stderr; the traces are then read as they are. */
void live_inputs(struct inputs *in);

#endif
