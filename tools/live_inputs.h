/* SPDX-License-Identifier: Apache-2.0 */
/*
 * live_inputs.h - makes traces as complete as possible before they are read.
 *
 *     int missing = live_inputs_add(&in, argv + optind, argc - optind, INPUTS_SIBLINGS);     // in: converter/inputs.h
 *     live_inputs(&in);
 *     convert(&in, ...);
 *
 * A process that is still recording one of them is asked to write out what it has (and is marked in input.recording); a trace whose process
 * was killed is completed from its live file.
 */
#ifndef PROBING_TOOLS_LIVE_INPUTS_H
#define PROBING_TOOLS_LIVE_INPUTS_H

#include "../converter/inputs.h"

/* Adds the traces that are named on the command line. Prints on stderr which cannot be used; returns 1 when there are such, else 0. */
int live_inputs_add(struct inputs *in, char *const *paths, int n, unsigned flags);
/* Prints on stderr what cannot be done; these traces are then read as they are. */
void live_inputs(struct inputs *in);

#endif
