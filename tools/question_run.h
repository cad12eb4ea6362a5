/* SPDX-License-Identifier: Apache-2.0 */
/*
 * question_run.h - asks a database a question (question.h), and prints the answer on stdout.
 *
 *     struct question_run r = {.run = {.db = db, .format = "table"}};
 *     int code = question_run(&r, question_find("hang"), 0);     // may be called for any number of questions
 *     question_run_end(&r);
 *
 * Results without rows are left out, and so are their titles. The database must allow temporary tables (PRAGMA query_only = OFF).
 * Single-threaded.
 */
#ifndef PROBING_TOOLS_QUESTION_RUN_H
#define PROBING_TOOLS_QUESTION_RUN_H

#include "question.h"
#include "sql_run.h"

struct question_run {
    struct sql_run run;
    int answer_only; /* print the sentence only, and not the evidence */
    int pieces;      /* number of results of the answer so far */
};

/* Returns TOOL_OK; TOOL_PARTIAL: there is no data to answer from (printed unless `quiet`); or another exit code after printing why. */
int question_run(struct question_run *r, const struct question *q, int quiet);
/* Call after the last question. */
void question_run_end(const struct question_run *r);

#endif
