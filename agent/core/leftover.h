/* SPDX-License-Identifier: Apache-2.0 */
/*
 * leftover.h - after exec: completes the trace of the program that this process ran before.
 *
 * exec replaces the program at once: its trace is as complete as a killed process's, and its live
 * file says this very process still runs, so that nobody else may finish it until it ends.
 */
#ifndef PROBING_AGENT_LEFTOVER_H
#define PROBING_AGENT_LEFTOVER_H

/* Finishes the live files of this very process in the directory of our own one, `own` at `own_path`,
 * which is passed over. Only where no other agent can be in this process: at its start. Returns how many. */
struct live;
/* Before a new run begins: finishes the traces FILE and FILE.d/... of dead processes, from live files in `run_dir`, or where
 * this process's own will be. */
void leftover_of_trace(const char *trace, const char *run_dir);
int leftover_finish(const struct live *own, const char *own_path);

#endif
