/* SPDX-License-Identifier: Apache-2.0 */
/*
 * blank.h - makes the tables of a new database at once. SQLite takes as long for one CREATE TABLE as for inserting fifty rows, and the fifty tables of
 * a live question's database took longer than the question. Here the pages of empty tables are made as SQLite's file format has them
 * (https://www.sqlite.org/fileformat2.html: the header, and for each table or index one leaf without cells), and SQLite's own list of tables is
 * filled in.
 *
 *     void *image = blank_image(&part, 8192, &n);        // what `part` (schema_part.h) wants; NULL: no memory. To be freed by sqlite3_free()
 *     ... write it to a new file, and open that as db ...
 *     rc = blank_list(&part, db);                         // an SQLite result code
 *
 * What is not simple (a UNIQUE column has an index of its own) is made by SQLite itself, and so is all in a database that is no such image.
 */
#ifndef PROBING_CONVERTER_BLANK_H
#define PROBING_CONVERTER_BLANK_H

#include "schema_part.h"

void *blank_image(struct schema_part *p, unsigned page_size, size_t *n);
int blank_list(struct schema_part *p, sqlite3 *db);

#endif
