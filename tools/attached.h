/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attached.h - the servers that `probing cluster attach` was told of: who they are, and the token of each.
 *
 *     struct attached a = {0};
 *     int rc = attached_read(&a);                       // 0; no file: none; -errno, said
 *     attached_add(&a, "node7:8080", 8080, NULL);       // 1: it was there already
 *     rc = attached_write(&a);
 *     attached_free(&a);
 *
 * They are kept in $PROBING_CLUSTER, else $XDG_CONFIG_HOME/probing/cluster, else ~/.config/probing/cluster: a line each, ADDRESS and then
 * token=TOKEN or token-file=FILE or nothing. The file may hold tokens: it is written with mode 0600, and one that others may read
 * is refused. Single-threaded.
 */
#ifndef PROBING_TOOLS_ATTACHED_H
#define PROBING_TOOLS_ATTACHED_H

#include <stddef.h>

#define ATTACHED_TOKEN 256

struct attached_node {
    char *address;            /* HOST:PORT, or with https:// in front */
    char *token, *token_file; /* one of them, or none: the environment's */
};

struct attached {
    struct attached_node *v;
    size_t n, cap;
};

int attached_read(struct attached *a);
int attached_write(const struct attached *a);
void attached_free(struct attached *a);
/* HOST, HOST:PORT, [ADDRESS]:PORT, with http:// or https:// in front and what `probing serve` prints behind (/?token=...). Without a
 * port it gets this one. 0; 1: it is there already, and has the new token; -EINVAL: it is none; -ENOMEM. */
int attached_add(struct attached *a, const char *text, int port, const char *token_file);
/* Whether it was there. */
int attached_remove(struct attached *a, const char *address);
const struct attached_node *attached_find(const struct attached *a, const char *address);

/*
 * The token for a server: the node's own; else $PROBING_TOKEN, else that in the file $PROBING_TOKEN_FILE. A file has one token, or lines
 * "HOST:PORT TOKEN" or "HOST TOKEN". 0; -ENOENT: there is none; another -errno with its reason in `why`.
 */
int attached_token(const struct attached_node *node, char token[ATTACHED_TOKEN], char why[256]);

#endif
