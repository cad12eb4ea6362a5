/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attached.h - the servers registered with `probing cluster attach`, each with its token.
 *
 *     struct attached a = {0};
 *     int rc = attached_read(&a);                       // 0, also when there is no file; -errno after saying why
 *     attached_add(&a, "node7:8080", 8080, NULL);       // 1: it was in the list already
 *     rc = attached_write(&a);
 *     attached_free(&a);
 *
 * The list is stored in $PROBING_CLUSTER, else $XDG_CONFIG_HOME/probing/cluster, else ~/.config/probing/cluster, with a line for each
 * server: ADDRESS, then token=TOKEN, token-file=FILE or nothing. Because the file may hold tokens, it is written with mode 0600, and a file
 * that others may read is refused. Single-threaded.
 */
#ifndef PROBING_TOOLS_ATTACHED_H
#define PROBING_TOOLS_ATTACHED_H

#include <stddef.h>

#define ATTACHED_TOKEN 256

struct attached_node {
    char *address; /* HOST:PORT, or with https:// in front */
    /* at most one of them is set; if none, the environment's token is used */
    char *token, *token_file;
};

struct attached {
    struct attached_node *v;
    size_t n, cap;
};

int attached_read(struct attached *a);
int attached_write(const struct attached *a);
void attached_free(struct attached *a);
/* Adds HOST, HOST:PORT or [ADDRESS]:PORT, with an optional http:// or https:// in front and what `probing serve` prints behind it
 * (/?token=...). `port` is used when the text has no port. Returns 0; 1: it is in the list already, and gets the new token; -EINVAL: it is
 * no address; -ENOMEM. */
int attached_add(struct attached *a, const char *text, int port, const char *token_file);
/* Returns 1 when it was in the list, else 0. */
int attached_remove(struct attached *a, const char *address);
const struct attached_node *attached_find(const struct attached *a, const char *address);

/*
 * Finds the token for a server: the node's own; else $PROBING_TOKEN, else the one in the file $PROBING_TOKEN_FILE. A file holds one token,
 * or lines "HOST:PORT TOKEN" or "HOST TOKEN". Returns 0; -ENOENT: there is no token; or another -errno, with the reason in `why`.
 */
int attached_token(const struct attached_node *node, char token[ATTACHED_TOKEN], char why[256]);

#endif
