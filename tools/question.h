/* SPDX-License-Identifier: Apache-2.0 */
/*
 * question.h - the questions that come with Probing (tools/questions/): a name, a title, and the SQL that answers it.
 *
 *     const struct question *q = question_find("straggler");
 *     for (unsigned i = 0; i < q->nparts; i++) ... q->part[i].title, q->part[i].sql ...
 *
 * A file of tools/questions/ is:
 *     --@ NAME: TITLE
 *     --? SELECT ...           how much there is to answer from; 0 or NULL: nothing
 *     --! why there may be nothing
 *     SQL                      the first result: one row, one column `answer`, a sentence
 *     --= TITLE                what it follows from: any number of further results
 *     SQL
 * :step, :rank, :a and :b are the options of `probing ask`, NULL where they are not given. Temporary tables may be made.
 */
#ifndef PROBING_TOOLS_QUESTION_H
#define PROBING_TOOLS_QUESTION_H

#define QUESTION_PARTS 12

struct question {
    const char *name, *title, *needs, *nothing;
    struct question_part {
        const char *title; /* NULL: the answer */
        const char *sql;
    } part[QUESTION_PARTS];
    unsigned nparts;
};

/* The i-th question, or NULL. The texts live as long as the program; one thread. */
const struct question *question_at(unsigned i);
const struct question *question_find(const char *name);
/* The questions of a text in that form, which is cut into pieces and must live as long as they; how many, at most `most`. */
unsigned question_split(char *text, struct question *into, unsigned most);

#endif
