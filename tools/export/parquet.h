/* SPDX-License-Identifier: Apache-2.0 */
/*
 * parquet.h - traces as a Parquet data set: Python does it, with pyarrow (agent/python_api/probing/export.py).
 *
 *     return export_parquet(&(struct parquet){.folder = "run1"}, paths, n);    // an exit code, and only where it could not be run
 */
#ifndef PROBING_TOOLS_EXPORT_PARQUET_H
#define PROBING_TOOLS_EXPORT_PARQUET_H

struct parquet {
    const char *folder;
    int alone, json, quiet;
};
/* Becomes that program; comes back with an exit code, said, where it cannot. */
int export_parquet(const struct parquet *p, char *const *paths, int n);

#endif
