/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cache.h - databases of traces that were asked before, in the user's cache folder, so that the next question needs no conversion.
 *
 *     struct cache_name name;
 *     if (cache_find(&inputs, 1, &options, sizeof options, &name) == 0 && cache_take(&name)) ... open name.path, read-only ...
 *     else ... convert into name.path, if there is one, then cache_kept(&name) ...
 *
 * $PROBING_CACHE_DIR (empty: no cache), else $XDG_CACHE_HOME/probing/traces, else ~/.cache/probing/traces; made 0700, and used only
 * while it is the caller's own and nobody else may write there. A database is found by what it was made of: names, inodes, sizes,
 * times and the last bytes of all traces, and by this program. At most CACHE_MAX bytes, and a quarter of the free space, stay: those not
 * asked for longest go. Programs that run at the same time do not disturb each other: a database comes and goes by its name alone.
 */
#ifndef PROBING_TOOLS_CACHE_H
#define PROBING_TOOLS_CACHE_H

#include "../converter/inputs.h"

#define CACHE_MAX    (8ull << 30)
#define CACHE_GROWTH 12 /* bytes of database a byte of trace, at most as a rule */

struct cache_name {
    char dir[4096], path[4200];
    char traces[20]; /* the part of the name that says which files, whatever is in them now */
};

/*
 * The name of the database of these traces; how: what else it depends on, its n bytes. whole: all of them become rows, and so it is known before
 * that it would be too large. 0, or -errno: there can be none (no folder, standard input, too large).
 */
int cache_find(const struct inputs *in, int whole, const void *how, size_t n,
               struct cache_name *name);
/* 1 if it is there, whole and ours; it is then the last to go. */
int cache_take(const struct cache_name *name);
/* It was made, and is open: earlier states of the same traces go, and what is too much; this one too, where it alone is. */
void cache_kept(const struct cache_name *name);

/*
 * What `find` says of a text, from a table in the same folder where it was asked before by this program; where there is no folder it is
 * asked each time. Of two texts with one place in the table the last stays.
 */
uint64_t cache_number(const char *text, uint64_t (*find)(const char *text));

/*
 * The database of a recording that goes on: one, whatever is in the traces by now, found by whose they are and how they are named. When it was
 * made anew, or added to (need: what is in it, converter/convert.h), cache_asked() says from when its answers are. cache_fresh(): that was less than CACHE_FRESH ago.
 */
#define CACHE_FRESH 900 /* ms: with what the query itself takes, no answer is older than a second */
int cache_live(char *const *paths, int n, uint64_t need, struct cache_name *name);
int cache_fresh(const struct cache_name *name);
struct timespec;
void cache_asked(const struct cache_name *name, const struct timespec *when);

#endif
