/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mailbox LIVEFILE eval|stop|start|flush|config [TEXT [TIMEOUT_MS]] - one request to a live process. Prints the
 * status on the first line and the reply after it; exits with 1 when the call itself failed.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "writer/live.h"

int main(int argc, char **argv) {
    static const char *const kinds[] = {"", "eval", "stop", "start", "flush", "config"};
    static char reply[LIVE_MAIL + 1];
    struct live *l;
    size_t n = 0;
    int kind = 1, status = 0, rc;
    if (argc < 3)
        return 2;
    while (kind < 6 && strcmp(argv[2], kinds[kind]))
        kind++;
    const char *text = argc > 3 ? argv[3] : "";
    rc = live_open(&l, argv[1], 1);
    if (!rc)
        rc = live_mail_call(l, (enum mail_kind)kind, text, strlen(text),
                            argc > 4 ? atoi(argv[4]) : 10000, &status, reply, sizeof reply, &n);
    if (rc) {
        printf("call %d %s\n", rc, strerror(-rc));
        return 1;
    }
    printf("%d\n%s\n", status, reply);
    return 0;
}
