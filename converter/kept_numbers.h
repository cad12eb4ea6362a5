/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kept_numbers.h - which functions, frames and stacks the numbers of a live process's database stand for, by their hashes, in the database
 * itself (table trace_read, trace 0 and below): to make the hashes anew of all its rows took a third of the next question.
 *
 *     struct kept_numbers k = {0};
 *     rc = kept_numbers_load(&k, db, &sites, &stacks);   // k.rows 0: it has none that fit; then callsites_read(), stackset_read()
 *     ... sites and stacks get new ones, whose rows are inserted ...
 *     rc = kept_numbers_save(&k, db, &sites, &stacks);   // those that are new
 *
 * All are SQLite result codes. Both in the transaction that inserts the rows.
 */
#ifndef PROBING_CONVERTER_KEPT_NUMBERS_H
#define PROBING_CONVERTER_KEPT_NUMBERS_H

#include "stackset.h"

enum { KEPT_FUNCTIONS, KEPT_FRAMES, KEPT_PARTS, KEPT_STACKS, KEPT_SORTS };

struct kept_numbers {
    unsigned rows;
    uint32_t last[KEPT_SORTS]; /* the highest number of each in them */
};

int kept_numbers_load(struct kept_numbers *k, sqlite3 *db, struct callsites *cs,
                      struct stackset *s);
int kept_numbers_save(struct kept_numbers *k, sqlite3 *db, const struct callsites *cs,
                      const struct stackset *s);

#endif
