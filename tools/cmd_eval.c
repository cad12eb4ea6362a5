/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_eval.c - `probing -t PID eval`: runs Python in a live process. The process's agent runs it, on a thread of its own.
 * A process without an agent gets one that records nothing and later goes away by itself.
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
    "       probing -t PID eval --session ID [--ask WORD] [OPTION...] CODE\n"
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
    "      --session ID   as an input at a prompt, which keeps its names: code that is not complete is not\n"
    "                     run, and --json says \"more\". For programs that have a prompt of their own\n"
    "      --ask WORD     what of the prompt: input (default), eval (it is complete as it is), complete (how\n"
    "                     its end can go on), end (the prompt is closed)\n"
    "  -h, --help         this text\n"
    "\n"
    "Ctrl-C raises KeyboardInterrupt in the code. Code that is inside a C function ends when that\n"
    "function does: a second Ctrl-C leaves it there. Output and value together are cut after about 64 KiB.\n"
    "\n"
    "Exit: 0 done; 1 the code raised an exception (--session: or was not run now); 2 usage; 3 nothing could be\n"
    "done.\n";

/* Returns the whole file, to be freed; or reports an error and returns NULL when it cannot be read or is too long for a request. */
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

struct eval {
    int pid, frame, json;
    double timeout;
    const char *file, *session, *word;
};

/* Writes the first line of the request. Returns 0, or -EINVAL for a session name that is not allowed. */
static int request_line(const struct eval *e, char *line, size_t n) {
    char frame[32] = "", session[80] = "";

    if (e->session && (!*e->session || strlen(e->session) > 48 || strpbrk(e->session, " \n")))
        return -EINVAL;
    if (e->frame >= 0)
        snprintf(frame, sizeof frame, " frame=%d", e->frame);
    if (e->session)
        snprintf(session, sizeof session, " session=%s", e->session);
    snprintf(line, n, "%s%s%s", e->word ? e->word : e->session ? "input" : "eval", session, frame);
    return 0;
}

static int evaluate(const struct eval *e, const char *code) {
    char *request = NULL, *out = NULL, line[160];
    int rc = request_line(e, line, sizeof line);

    if (rc < 0)
        return tool_usage("the session's name is a word, not '%s'", e->session);
    if (asprintf(&request, "%s\n%s", line, code) < 0)
        return tool_fail("no memory");
    target_catch_interrupt(NULL);
    rc = target_ask(e->pid, MAIL_ASK, request, e->timeout, 1, &out);
    if (e->session && (rc == -EBUSY || rc == -EMSGSIZE || rc == -EINTR || rc == -ECANCELED)) {
        tool_say("%s", out ? out : strerror(-rc)); /* this input failed, the session goes on */
        rc = TOOL_PARTIAL;
    } else if (rc < 0)
        rc = tool_fail("%s", out ? out : strerror(-rc));
    else if (e->json) {
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

static int find_word(const char *option, const char *name, void *word) {
    static const char *const words[] = {"input", "eval", "complete", "end"};

    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (strcmp(name, words[i]) == 0) {
            *(const char **)word = words[i];
            return TOOL_OK;
        }
    }
    return tool_usage("--%s is input, eval, complete or end, not '%s'", option, name);
}

int cmd_eval(int argc, char **argv) {
    struct eval e = {.frame = -1, .timeout = 10};
    char *code;
    int rc;
    const struct tool_option options[] = {
        OPTION_CALL("target", 't', option_pid, &e.pid),
        OPTION_TEXT("file", 'f', &e.file),
        OPTION_WHOLE("frame", 0, &e.frame, 0, 100000, OPTION_FRAME),
        OPTION_TIMEOUT(&e.timeout),
        OPTION_FLAG("json", 0, &e.json),
        OPTION_TEXT("session", 0, &e.session),
        OPTION_CALL("ask", 0, find_word, &e.word),
        {0}};

    if ((rc = tool_options(argc, argv, help, options)) != TOOL_OK)
        return rc;
    argc -= optind + 1; /* skip the word eval */
    argv += optind + 1;
    if (!e.pid)
        return tool_usage("which process? -t PID");
    if (e.word && !e.session)
        return tool_usage("--ask is for --session");
    if (e.file ? argc > 0 : argc != 1)
        return tool_usage(e.file     ? "the code comes from the file: '%s' is too much"
                          : argc > 1 ? "the code must be one argument: quote it"
                                     : "the code is missing",
                          e.file ? argv[0] : "");
    code = e.file ? read_code(e.file) : strdup(argv[0]);
    if (!code)
        return TOOL_FAILED;
    rc = evaluate(&e, code);
    free(code);
    return rc;
}
