/* SPDX-License-Identifier: Apache-2.0 */
/*
 * question.h - the questions that come with Probing (tools/questions/): each has a name, a title, and the SQL that answers it.
 *
 *     const struct question *q = question_find("straggler");
 *     for (unsigned i = 0; i < q->nparts; i++) ... q->part[i].title, q->part[i].sql ...
 *
 * A file of tools/questions/ is:
 *     --@ NAME: TITLE
 *     --? SELECT ...           how much data there is to answer from; 0 or NULL: none
 *     --! why there may be none
 *     SQL                      the answer: a result of one row with one column `answer`, a sentence
 *     --= TITLE                the evidence: any number of further results
 *     SQL
 * :step, :rank, :a and :b are the options of `probing ask`, NULL when they are not given. The SQL may make temporary tables.
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

/* Returns the i-th question, or NULL. The texts live as long as the program; one thread. */
const struct question *question_at(unsigned i);
const struct question *question_find(const char *name);
/* Splits a text of that form into questions, in place; the text must live as long as they do. Returns how many there are, at most `most`. */
unsigned question_split(char *text, struct question *into, unsigned most);

#endif
