/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_eval.c - `probing -t PID eval`: runs Python in a live process. Its agent does it, on a thread of its own; where
 * there is no agent, one that records nothing is brought in and goes away again by itself.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "options.h"
#include "target.h"

static const char help[] =
    "usage: probing -t PID eval [--timeout S] [--frame N] [--json] CODE\n"
    "       probing -t PID eval [OPTION...] -f FILE\n"
    "\n"
    "Runs Python in a live process, which runs on meanwhile. Prints what the code prints, then the\n"
    "value of its last expression; an exception's traceback goes to stderr. Names are those of\n"
    "__main__, and what is assigned stays. It runs in a thread of the agent's. Where there is no\n"
    "agent one is brought in that records nothing and goes away after a minute.\n"
    "\n"
    "  -t, --target PID   the process\n"
    "  -f, --file FILE    the code; - reads it from standard input\n"
    "      --frame N      with the names of the main thread's N-th Python frame, 0 the innermost, as\n"
    "                     they are at this moment. What is assigned does not reach the frame; what\n"
    "                     is changed in an object does\n"
    "      --timeout S    how long the answer is waited for (10); then the code is interrupted\n"
    "      --json         {\"ok\", \"out\", \"value\", \"error\"}; \"late\" when the time was over\n"
    "  -h, --help         this text\n"
    "\n"
    "Ctrl-C raises KeyboardInterrupt in the code. Code that is inside a C function ends when that\n"
    "function does: a second Ctrl-C leaves it there. Output and value together are cut after about 64 KiB.\n"
    "\n"
    "Exit: 0 done; 1 the code raised an exception; 2 usage; 3 nothing could be done.\n";

/* The whole file, malloc()ed; NULL (said) when it cannot be read or is longer than a request can be. */
static char *read_code(const char *path) {
    FILE *f = strcmp(path, "-") ? fopen(path, "re") : stdin;
    char *text = f ? malloc(LIVE_MAIL + 2) : NULL;
    size_t n = 0;
    int err = errno;

    if (text) {
        n = fread(text, 1, LIVE_MAIL + 1, f);
        err = ferror(f) ? EIO : n > LIVE_MAIL - 256 ? EFBIG : memchr(text, 0, n) ? EINVAL : 0;
        text[n] = 0;
    }
    if (f && f != stdin)
        fclose(f);
    if (err || !text) {
        tool_fail("cannot read the code from %s: %s", path,
                  err == EFBIG    ? "it is longer than 64 KiB (import the rest from a file)"
                  : err == EINVAL ? "it holds a NUL byte"
                                  : strerror(err));
        free(text);
        return NULL;
    }
    return text;
}

static int evaluate(int pid, const char *code, int frame, double timeout, int json) {
    char *request = NULL, *out = NULL, option[32] = "";
    int rc;

    if (frame >= 0)
        snprintf(option, sizeof option, " frame=%d", frame);
    if (asprintf(&request, "eval%s\n%s", option, code) < 0)
        return tool_fail("no memory");
    target_catch_interrupt(NULL);
    rc = target_ask(pid, MAIL_ASK, request, timeout, 1, &out);
    if (rc == -EINTR)
        rc = tool_fail("interrupted before the code was run");
    else if (rc < 0)
        rc = tool_fail("%s", out ? out : strerror(-rc));
    else if (json) {
        printf("%s\n", out);
        rc = strncmp(out, "{\"ok\":true", 10) == 0 ? TOOL_OK
             : strncmp(out, "{\"late\":", 8) == 0  ? TOOL_FAILED
                                                   : TOOL_PARTIAL;
    } else
        rc = target_show(out);
    inspect_free(out);
    free(request);
    return rc;
}

int cmd_eval(int argc, char **argv) {
    double timeout = 10;
    const char *file = NULL;
    char *code;
    int pid = 0, frame = -1, json = 0, rc;
    const struct tool_option options[] = {
        OPTION_CALL("target", 't', option_pid, &pid),
        OPTION_TEXT("file", 'f', &file),
        OPTION_WHOLE("frame", 0, &frame, 0, 100000, OPTION_FRAME),
        OPTION_NUMBER("timeout", 0, &timeout, 0.001, 86400, OPTION_SECONDS),
        OPTION_FLAG("json", 0, &json),
        {0}};

    if ((rc = tool_options(argc, argv, help, options)) != TOOL_OK)
        return rc;
    argc -= optind + 1; /* the word eval */
    argv += optind + 1;
    if (!pid)
        return tool_usage("which process? -t PID");
    if (file ? argc > 0 : argc != 1)
        return tool_usage(file       ? "the code comes from the file: '%s' is too much"
                          : argc > 1 ? "the code must be one argument: quote it"
                                     : "the code is missing",
                          file ? argv[0] : "");
    code = file ? read_code(file) : strdup(argv[0]);
    if (!code)
        return TOOL_FAILED;
    rc = evaluate(pid, code, frame, timeout, json);
    free(code);
    return rc;
}
