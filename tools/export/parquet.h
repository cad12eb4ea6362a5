/* SPDX-License-Identifier: Apache-2.0 */
/*
 * parquet.h - writes traces as a Parquet data set, by means of Python and pyarrow (agent/python_api/probing/export.py).
 *
 *     return export_parquet(&(struct parquet){.folder = "run1"}, paths, n);    // returns, with an exit code, only if it could not be run
 */
#ifndef PROBING_TOOLS_EXPORT_PARQUET_H
#define PROBING_TOOLS_EXPORT_PARQUET_H

struct parquet {
    const char *folder;
    int alone, json, quiet;
};
/* Replaces this program by Python; returns an exit code, after printing why, only when it cannot. */
int export_parquet(const struct parquet *p, char *const *paths, int n);

#endif
