/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch_tables.h - what load_torch.h writes besides the calls, and what it kept of a trace that may grow.
 *
 *     rc = torch_tables_kept(l, &p, &n);      // torch_state_save() of the last time, to be freed; NULL: none. It is taken out
 *     rc = torch_tables_forget(l, &state);    // rows of what is behind that state, the calls too
 *     rc = torch_tables_write(l, &state);     // torch_module_total and torch_step; numbers of evaluation in other tables
 *     rc = torch_tables_keep(l, p, n);
 *
 * SQLite result codes.
 */
#ifndef PROBING_CONVERTER_TORCH_TABLES_H
#define PROBING_CONVERTER_TORCH_TABLES_H

#include "load_state.h"
#include "torch_state.h"

int torch_tables_kept(struct load *l, uint8_t **p, size_t *n);
int torch_tables_forget(struct load *l, const struct torch_state *t);
/* Where VTAB_LAST_CALLS is asked for, and the steps are known: t->since, and in torch_read, for the trace's number less than 0, the highest number of a step that
 * calls without a row have; none: all have one. What is added later is added whole. */
int torch_tables_last(struct load *l, struct torch_state *t);
/* Whether the trace has calls. */
int torch_tables_any(const struct reader *r);
int torch_tables_write(struct load *l, const struct torch_state *t);
/* Those numbers alone, where nothing else of torch's calls is asked for: it reads on until the first step is known. */
int torch_tables_number(struct load *l);
int torch_tables_keep(struct load *l, const uint8_t *p, size_t n);

#endif
