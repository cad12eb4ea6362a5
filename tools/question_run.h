/* SPDX-License-Identifier: Apache-2.0 */
/*
 * question_run.h - a question (question.h) asked of a database, its answer on stdout.
 *
 *     struct question_run r = {.run = {.db = db, .format = "table"}};
 *     int code = question_run(&r, question_find("hang"), 0);     // any number of them
 *     question_run_end(&r);
 *
 * Results without rows are left out, with their titles. The database must allow temporary tables (PRAGMA query_only = OFF).
 * Single-threaded.
 */
#ifndef PROBING_TOOLS_QUESTION_RUN_H
#define PROBING_TOOLS_QUESTION_RUN_H

#include "question.h"
#include "sql_run.h"

struct question_run {
    struct sql_run run;
    int answer_only; /* the sentence, and not what it rests on */
    int pieces;      /* of the answer so far */
};

/* TOOL_OK; TOOL_PARTIAL: there is nothing to answer from, said unless `quiet`; or another exit code, said. */
int question_run(struct question_run *r, const struct question *q, int quiet);
/* After the last one. */
void question_run_end(const struct question_run *r);

#endif
