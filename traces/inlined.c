/* SPDX-License-Identifier: Apache-2.0 */
#include "inlined.h"

#include <dwarf.h>
#include <stdlib.h>
#include <string.h>

#include "array.h"
#include "hash.h"
#include "merge.h"

#define DEPTH_MAX   256     /* most nesting of functions and blocks; more means a damaged file */
#define ENTRIES_MAX 5000000 /* most entries of a compilation unit; more means damage, too */
#define PLACES_MAX  400000  /* most places of functions that are kept, 48 bytes each */
#define SEVERAL     3       /* look-ups in a unit until its functions are listed */

/* ---- the compilation unit of an address ---- */

struct unit {
    Dwarf_Addr low, high; /* as in the module's address space */
    Dwarf_Die *die;       /* libdwfl's */
};
/* The compilation units of a module, from their own ranges, for modules whose .debug_aranges is incomplete (clang writes none). */
struct units {
    struct units *next;
    Dwfl_Module *mod;
    Dwarf_Addr bias;
    struct unit *v; /* ascending */
    size_t n;
};
/* The address range of a function of a unit, or of a piece of it. */
struct place {
    Dwarf_Addr low, high; /* as in the file */
    Dwarf_Die die;
};
/* The functions of a unit, sorted. Without such a list, each look-up would walk the unit's entries from the first one. */
struct listed {
    struct listed *next;
    const void *unit; /* its key: the address of its entry in libdw */
    unsigned asked;
    struct place *v;  /* sorted by low; NULL: not listed yet */
    Dwarf_Addr *most; /* the highest `high` of the places up to each */
    size_t n;
};
#define LISTS 1024 /* chains */
struct inlined {
    struct units *units;
    struct listed *listed[LISTS]; /* by unit (hash table) */
    size_t places;                /* in all of them */
};

struct inlined *inlined_new(void) {
    return calloc(1, sizeof(struct inlined));
}

static void forget_lists(struct inlined *t) {
    for (size_t i = 0; i < LISTS; i++)
        for (struct listed *l = t->listed[i], *next; l; l = next) {
            next = l->next;
            free(l->v);
            free(l->most);
            free(l);
        }
    memset(t->listed, 0, sizeof t->listed);
    t->places = 0;
}

void inlined_free(struct inlined *t) {
    struct units *u = t ? t->units : NULL, *next;

    if (t)
        forget_lists(t);
    for (; u; u = next) {
        next = u->next;
        free(u->v);
        free(u);
    }
    free(t);
}

static int by_low(const void *x, const void *y) {
    const struct unit *a = x, *b = y;

    return a->low < b->low ? -1 : a->low > b->low;
}

static const struct units *units_of(struct inlined *t, Dwfl_Module *mod) {
    struct units *u = t->units;
    Dwarf_Addr base, low, high;
    Dwarf_Die *die = NULL;

    while (u && u->mod != mod)
        u = u->next;
    if (u || !(u = calloc(1, sizeof *u)))
        return u;
    u->mod = mod;
    u->next = t->units;
    t->units = u;
    while ((die = dwfl_module_nextcu(mod, die, &u->bias)))
        for (ptrdiff_t at = 0; (at = dwarf_ranges(die, at, &base, &low, &high)) > 0;)
            if (array_grow(&u->v, u->n, sizeof *u->v) == 0)
                u->v[u->n++] = (struct unit){low + u->bias, high + u->bias, die};
    if (u->n)
        qsort(u->v, u->n, sizeof *u->v, by_low);
    return u;
}

static Dwarf_Die *unit_at(struct inlined *t, Dwfl_Module *mod, Dwarf_Addr addr, Dwarf_Addr *bias) {
    Dwarf_Die *die = dwfl_module_addrdie(mod, addr, bias);
    const struct units *u = die ? NULL : units_of(t, mod);
    size_t n = ARRAY_BEFORE(i, u ? u->n : 0, u->v[i].low <= addr);

    if (n > 0 && addr < u->v[n - 1].high) {
        die = u->v[n - 1].die;
        *bias = u->bias;
    }
    return die;
}

/* ---- the functions at it ---- */

int inlined_is_worth(const char *path) {
    const char *base = path ? strrchr(path, '/') : NULL;
    enum merge_owner owner = merge_owner(path);

    base = base ? base + 1 : path ? path : "";
    /* libm.so.6, libm-2.31.so, libmvec likewise */
    return owner != MERGE_LIBC && owner != MERGE_AGENT && strncmp(base, "libm.so", 7) != 0 &&
           strncmp(base, "libm-2", 6) != 0 && strncmp(base, "libmvec", 7) != 0;
}

/*
 * Calls `each` for the outermost functions and blocks within an entry, including those in its namespaces, and passes their depth. Stops
 * when a call returns other than 0, and returns that. Returns 1 when it has used up *left, the number of entries that may be looked at.
 */
static int functions_in(Dwarf_Die *die, int depth, size_t *left,
                        int (*each)(void *arg, Dwarf_Die *function, int depth), void *arg) {
    Dwarf_Die child, next;
    int rc = 0;

    if (depth == DEPTH_MAX || dwarf_child(die, &next) != 0)
        return 0;
    do {
        child = next;
        switch (dwarf_tag(&child)) {
        case DW_TAG_namespace:
        case DW_TAG_module:
            rc = functions_in(&child, depth + 1, left, each, arg);
            break;
        case DW_TAG_inlined_subroutine:
        case DW_TAG_subprogram:
        case DW_TAG_lexical_block:
        case DW_TAG_try_block:
        case DW_TAG_catch_block:
            rc = each(arg, &child, depth + 1);
            break;
        default:
            break;
        }
        if (rc == 0 && *left == 0)
            rc = 1;
        /* entries of a damaged file may lead back, or to the same ones again and again */
    } while (rc == 0 && (*left)-- && dwarf_siblingof(&child, &next) == 0 && next.addr > child.addr);
    return rc;
}

struct search {
    Dwarf_Addr addr;
    Dwarf_Die found[DEPTH_MAX]; /* the outermost first */
    int n;
    size_t left; /* entries that may still be looked at */
};

/* Keeps the function if it is inlined and contains the address, and searches within it. Returns 1 when no other function has to be asked. */
static int search_in(void *arg, Dwarf_Die *function, int depth) {
    struct search *s = arg;

    if (dwarf_haspc(function, s->addr) <= 0)
        return 0;
    if (dwarf_tag(function) == DW_TAG_inlined_subroutine)
        s->found[s->n++] = *function;
    functions_in(function, depth, &s->left, search_in, s);
    return 1;
}

/* Finds the inlined functions at the address. libdw's dwarf_getscopes() misses those whose source is in another unit (-flto). */
static void search_unit(struct search *s, Dwarf_Die *unit) {
    functions_in(unit, 0, &s->left, search_in, s);
}

/* ---- the functions of a unit, listed ---- */

static int by_place(const void *x, const void *y) {
    const struct place *a = x, *b = y;

    return a->low != b->low    ? (a->low < b->low ? -1 : 1)
           : a->high < b->high ? -1
                               : a->high > b->high;
}

/* Adds the function to the list. Returns 0, or -1 when the unit cannot be listed (too many functions, no memory). */
static int list_function(void *arg, Dwarf_Die *function, int depth) {
    struct listed *l = arg;
    struct place p = {.die = *function};
    Dwarf_Addr base;

    (void)depth;
    for (ptrdiff_t at = 0; (at = dwarf_ranges(function, at, &base, &p.low, &p.high)) > 0;) {
        if (l->n == PLACES_MAX || array_grow(&l->v, l->n, sizeof *l->v) < 0)
            return -1;
        l->v[l->n++] = p;
    }
    return 0;
}

static int make_list(struct listed *l, Dwarf_Die *unit) {
    size_t left = ENTRIES_MAX;
    int err = functions_in(unit, 0, &left, list_function, l);

    if (!err && l->n)
        err = (l->most = malloc(l->n * sizeof *l->most)) ? 0 : -1;
    if (err || !l->n) {
        free(l->v);
        l->v = NULL;
        l->n = 0;
        return -1;
    }
    qsort(l->v, l->n, sizeof *l->v, by_place);
    for (size_t i = 0; i < l->n; i++)
        l->most[i] = i && l->most[i - 1] > l->v[i].high ? l->most[i - 1] : l->v[i].high;
    return 0;
}

/* Returns the list of a unit that has been asked about several times, or NULL. */
static const struct listed *list_of(struct inlined *t, Dwarf_Die *unit) {
    struct listed **chain =
        &t->listed[hash_bytes(HASH_START, &unit->addr, sizeof unit->addr) % LISTS];
    struct listed *l = *chain;

    while (l && l->unit != unit->addr)
        l = l->next;
    if (!l) {
        if (!(l = calloc(1, sizeof *l)))
            return NULL;
        l->unit = unit->addr;
        l->next = *chain;
        *chain = l;
    }
    if (l->asked < SEVERAL && ++l->asked == SEVERAL && make_list(l, unit) == 0)
        t->places += l->n;
    return l->v ? l : NULL;
}

/* Does what search_unit() does. Of several functions at the address it takes the first in the file. */
static void search_listed(struct search *s, const struct listed *l) {
    size_t lo = ARRAY_BEFORE(i, l->n, l->v[i].low <= s->addr); /* first place beginning after it */
    const struct place *found = NULL;

    for (; lo > 0 && l->most[lo - 1] > s->addr; lo--)
        if (l->v[lo - 1].high > s->addr && (!found || l->v[lo - 1].die.addr < found->die.addr))
            found = &l->v[lo - 1];
    if (!found)
        return;
    Dwarf_Die die = found->die;
    search_in(s, &die, 1);
}

static const char *name_of(Dwarf_Die *die) {
    Dwarf_Attribute a;
    const char *name = dwarf_formstring(dwarf_attr_integrate(die, DW_AT_linkage_name, &a));

    return name ? name : dwarf_diename(die);
}

/* Stores where the function that this entry was inlined into calls it; what the entry does not tell is left unchanged. */
static void call_place(Dwarf_Die *die, struct inlined_frame *out) {
    Dwarf_Attribute a;
    Dwarf_Word file = 0, line = 0;
    Dwarf_Files *files;
    Dwarf_Die cu;
    size_t n;

    if (dwarf_formudata(dwarf_attr(die, DW_AT_call_file, &a), &file) == 0 &&
        dwarf_formudata(dwarf_attr(die, DW_AT_call_line, &a), &line) == 0 &&
        dwarf_diecu(die, &cu, NULL, NULL) && dwarf_getsrcfiles(&cu, &files, &n) == 0 && file < n) {
        out->file = dwarf_filesrc(files, file, NULL, NULL);
        out->line = out->file ? (uint32_t)line : 0;
    }
}

size_t inlined_frames(struct inlined *t, Dwfl_Module *mod, Dwarf_Addr addr, int inlined,
                      struct inlined_frame **out) {
    struct inlined_frame now = {0}, *v;
    struct search s = {.left = ENTRIES_MAX};
    Dwarf_Addr bias = 0;
    Dwarf_Die *unit = unit_at(t, mod, addr, &bias);
    Dwarf_Line *line = unit ? dwarf_getsrc_die(unit, addr - bias) : NULL;
    int lineno = 0;
    size_t n = 0;

    *out = NULL;
    now.file = line ? dwarf_linesrc(line, NULL, NULL) : NULL;
    if (!now.file || dwarf_lineno(line, &lineno) != 0 || lineno <= 0)
        return 0;
    now.line = (uint32_t)lineno;
    s.addr = addr - bias;
    if (inlined && t->places > PLACES_MAX)
        forget_lists(t);
    const struct listed *l = inlined ? list_of(t, unit) : NULL;
    if (l)
        search_listed(&s, l);
    else if (inlined)
        search_unit(&s, unit);
    v = *out = calloc((size_t)s.n + 1, sizeof *v);
    while (v && s.n-- > 0) {
        if (!(now.name = name_of(&s.found[s.n])))
            continue;
        v[n++] = now;
        call_place(&s.found[s.n], &now);
    }
    now.name = NULL;
    if (v)
        v[n++] = now;
    return n;
}
