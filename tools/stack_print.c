/* SPDX-License-Identifier: Apache-2.0 */
#include "stack_print.h"

#include <limits.h>
#include <stdlib.h>

#include "../traces/visible.h"
#include "common.h"
#include "rows.h"

#define NAMES_SHOWN  8
#define RANGES_SHOWN 20 /* of thousands of ranks, one line would fill the screen */

static void put_who(FILE *f, const struct stack_who *w, const struct stack_node *n) {
    fprintf(f, "%u %s%s: ", n->nwho, w->by_pid ? "process" : "rank",
            n->nwho == 1 ? ""
            : w->by_pid  ? "es"
                         : "s");
    if (!w->names) {
        stack_print_ranges(f, n, RANGES_SHOWN);
        return;
    }
    for (unsigned i = 0; i < n->nwho && i < NAMES_SHOWN; i++) {
        fputs(i ? ", " : "", f);
        visible_text(f, w->names[n->who[i]]);
    }
    if (n->nwho > NAMES_SHOWN)
        fprintf(f, " and %u more", n->nwho - NAMES_SHOWN);
}

static void put_frame(FILE *f, const struct stack_node *n, const char *indent) {
    char waited[TOOL_TEXT];

    fputs(indent, f);
    visible_text(f, n->text);
    if (n->waited >= 1)
        fprintf(f, "   [here for %s]", tool_duration(n->waited, waited));
    fputc('\n', f);
}

/* Prints what is below `n`: frames as long as all its ranks share them, then the branches. */
static void print_node(FILE *f, const struct stack_who *w, const struct stack_node *n,
                       const char *indent) {
    for (; n->child && !n->child->next && n->child->nwho == n->nwho; n = n->child)
        put_frame(f, n->child, indent);
    unsigned below = 0;
    for (const struct stack_node *c = n->child; c; c = c->next)
        below += c->nwho;
    for (const struct stack_node *c = n->child; c; c = c->next) {
        char *deeper;
        fprintf(f, "%s%s ", indent, c->next ? "├─" : "└─");
        put_who(f, w, c);
        fputc('\n', f);
        if (asprintf(&deeper, "%s%s   ", indent, c->next ? "│" : " ") < 0)
            return;
        put_frame(f, c, deeper);
        print_node(f, w, c, deeper);
        free(deeper);
    }
    if (n->child && below < n->nwho)
        fprintf(f, "%s(the others are here)\n", indent);
}

void stack_print(FILE *f, const struct stack_node *root, const struct stack_who *who) {
    put_who(f, who, root);
    fputc('\n', f);
    print_node(f, who, root, "");
}

static void put_fields(FILE *f, const struct stack_who *w, const struct stack_node *n) {
    fputs("\"frame\": ", f);
    rows_json_text(f, n->text);
    fprintf(f, ", \"count\": %u, \"ranks\": ", n->nwho);
    if (w->names) {
        for (unsigned i = 0; i < n->nwho; i++) {
            fputs(i ? ", " : "[", f);
            rows_json_text(f, w->names[n->who[i]]);
        }
        fputc(']', f);
    } else {
        fputc('"', f);
        stack_print_ranges(f, n, UINT_MAX);
        fputc('"', f);
    }
    if (n->waited >= 0)
        fprintf(f, ", \"waited\": %.3f", n->waited);
}

static void print_json(FILE *f, const struct stack_who *w, const struct stack_node *n, int outer) {
    fputc('{', f);
    if (outer)
        fprintf(f, "\"by\": \"%s\", ", w->by_pid ? "process" : "rank");
    put_fields(f, w, n);
    fputs(", \"children\": [", f);
    for (const struct stack_node *c = n->child; c; c = c->next) {
        print_json(f, w, c, 0);
        fputs(c->next ? ",\n" : "", f);
    }
    fputs("]}", f);
}

void stack_print_json(FILE *f, const struct stack_node *root, const struct stack_who *who) {
    print_json(f, who, root, 1);
    fputc('\n', f);
}

/* Prints n, as number `at`, and all below it. Returns the next free number. */
static unsigned print_flat(FILE *f, const struct stack_who *w, const struct stack_node *n,
                           unsigned parent, unsigned at) {
    unsigned next = at + 1;

    fprintf(f, "%s{\"parent\": %u, ", at ? ",\n" : "", parent);
    put_fields(f, w, n);
    fputc('}', f);
    for (const struct stack_node *c = n->child; c; c = c->next)
        next = print_flat(f, w, c, at, next);
    return next;
}

void stack_print_flat(FILE *f, const struct stack_node *root, const struct stack_who *who) {
    fprintf(f, "{\"by\": \"%s\", \"nodes\": [", who->by_pid ? "process" : "rank");
    print_flat(f, who, root, 0, 0);
    fputs("]}\n", f);
}
