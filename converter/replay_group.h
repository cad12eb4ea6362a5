/* SPDX-License-Identifier: Apache-2.0 */
/*
 * replay_group.h - finds the ranks that are late together: without one of them the others would still be waited for, so that none is the straggler.
 *
 *     replay_group_find(job, is_late);
 *     if (is_late[3] && is_late[4])                 // both, by their index
 *
 * The ranks are ordered by how much longer they work than their peers on average. The widest gap in that order separates the late from the others,
 * if the late are two or more and at most half of all. By chance some ranks are always the later ones: so in nine of ten parts of the run, too, each of
 * the late must work longer than any other rank.
 */
#ifndef PROBING_CONVERTER_REPLAY_GROUP_H
#define PROBING_CONVERTER_REPLAY_GROUP_H

#include "replay_job.h"

/* Sets is_late of each rank to 0 or 1. Returns how many are late, 0 for none; -ENOMEM. */
int replay_group_find(const struct replay_job *j, unsigned char *is_late);

#endif
