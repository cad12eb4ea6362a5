/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch_tables.h - what load_torch.h writes besides the calls, and what it stored of a trace that may grow.
 *
 *     rc = torch_tables_kept(l, &p, &n);      // takes the stored result of torch_state_save() out of the database; free(p); NULL: none
 *     rc = torch_tables_forget(l, &state);    // deletes the rows of what comes after that state, those of calls too
 *     rc = torch_tables_write(l, &state);     // writes torch_module_total and torch_step; corrects the step numbers of evaluation in other tables
 *     rc = torch_tables_keep(l, p, n);
 *
 * Functions return SQLite result codes.
 */
#ifndef PROBING_CONVERTER_TORCH_TABLES_H
#define PROBING_CONVERTER_TORCH_TABLES_H

#include "load_state.h"
#include "torch_state.h"

int torch_tables_kept(struct load *l, uint8_t **p, size_t *n);
int torch_tables_forget(struct load *l, const struct torch_state *t);
/* Where VTAB_LAST_CALLS is asked for and the steps are known: sets t->since, and stores in torch_read, under the negative number of the
 * trace, the highest step number of the calls that have no row; no such row means that all calls have one. What is added later is added
 * completely. */
int torch_tables_last(struct load *l, struct torch_state *t);
/* Returns 1 when the trace has calls. */
int torch_tables_any(const struct reader *r);
int torch_tables_write(struct load *l, const struct torch_state *t);
/* Only corrects those step numbers, for when nothing else of torch's calls is asked for; it reads on only until the first step is known. */
int torch_tables_number(struct load *l);
int torch_tables_keep(struct load *l, const uint8_t *p, size_t n);

#endif
