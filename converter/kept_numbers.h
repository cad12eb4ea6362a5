/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kept_numbers.h - stores the hashes of the functions, frames and stacks of a live process's database in the database itself (table
 * trace_read, trace 0 and below), so that each is recognized and keeps its number: to compute the hashes of all rows again would take a
 * third of the time of the next question.
 *
 *     struct kept_numbers k = {0};
 *     rc = kept_numbers_load(&k, db, &sites, &stacks);   // k.rows 0: none are stored that fit; then use callsites_read(), stackset_read()
 *     ... sites and stacks get new entries, whose rows are inserted ...
 *     rc = kept_numbers_save(&k, db, &sites, &stacks);   // stores the new ones
 *
 * Functions return SQLite result codes. Call both in the transaction that inserts the rows.
 */
#ifndef PROBING_CONVERTER_KEPT_NUMBERS_H
#define PROBING_CONVERTER_KEPT_NUMBERS_H

#include "stackset.h"

enum { KEPT_FUNCTIONS, KEPT_FRAMES, KEPT_PARTS, KEPT_STACKS, KEPT_SORTS };

struct kept_numbers {
    unsigned rows;
    uint32_t last[KEPT_SORTS]; /* the highest number of each kind in these rows */
};

int kept_numbers_load(struct kept_numbers *k, sqlite3 *db, struct callsites *cs,
                      struct stackset *s);
int kept_numbers_save(struct kept_numbers *k, sqlite3 *db, const struct callsites *cs,
                      const struct stackset *s);

#endif
