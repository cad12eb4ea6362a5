/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cache.h - keeps databases of traces that were queried before in the user's cache folder, so that the next question needs no conversion.
 *
 *     struct cache_name name;
 *     if (cache_find(&inputs, 1, &options, sizeof options, &name) == 0 && cache_take(&name)) ... open name.path, read-only ...
 *     else ... convert into name.path, if there is one, then call cache_kept(&name) ...
 *
 * The folder is $PROBING_CACHE_DIR (empty: no cache), else $XDG_CACHE_HOME/probing/traces, else ~/.cache/probing/traces. It is created with
 * mode 0700, and used only while the caller owns it and nobody else may write there. A database is found by what it was made from: the
 * names, inodes, sizes, times and last bytes of all traces, and this program. The cache is limited to CACHE_MAX bytes and to a quarter of
 * the free space; the least recently used databases are deleted first. Programs that run at the same time do not disturb each other,
 * because a database appears and disappears by its name alone.
 */
#ifndef PROBING_TOOLS_CACHE_H
#define PROBING_TOOLS_CACHE_H

#include "../converter/inputs.h"

#define CACHE_MAX    (8ull << 30)
#define CACHE_GROWTH 12 /* bytes of database for each byte of trace, at most as a rule */

struct cache_name {
    char dir[4096], path[4200];
    char traces[20]; /* the part of the name that identifies the files, whatever they contain now */
};

/*
 * Makes the name of the database of these traces. how: the n bytes of whatever else the database depends on. whole: all records become
 * rows, so that it can be told in advance that the database would be too large. Returns 0, or -errno when it cannot be cached (no folder,
 * standard input, too large).
 */
int cache_find(const struct inputs *in, int whole, const void *how, size_t n,
               struct cache_name *name);
/* Returns 1 when the database exists, is complete and is ours; marks it as the most recently used. */
int cache_take(const struct cache_name *name);
/* Call after the database was made, while it is open: deletes databases of earlier states of the same traces, and whatever exceeds the
 * limit, even this database when it alone exceeds it. */
void cache_kept(const struct cache_name *name);

/*
 * Returns find(text), looked up in a table in the same folder when this program has computed it before; without a folder, `find` is called
 * each time. Of two texts with the same place in the table, the later one stays.
 */
uint64_t cache_number(const char *text, uint64_t (*find)(const char *text));

/*
 * Finds the database of a recording that is still going on: a single one, whatever its traces contain by now, identified by the processes
 * and names of the traces. need: the record types in it (converter/convert.h). After it was made or extended, cache_asked() stores the time
 * that its answers are from; cache_fresh() returns 1 when that was less than CACHE_FRESH ago.
 */
/* ms; together with the time of the query itself, no answer is older than a second */
#define CACHE_FRESH 900
int cache_live(char *const *paths, int n, uint64_t need, struct cache_name *name);
int cache_fresh(const struct cache_name *name);
struct timespec;
void cache_asked(const struct cache_name *name, const struct timespec *when);

#endif
