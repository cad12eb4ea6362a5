/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_repl.c - `probing -t PID repl`: a Python prompt inside a live process (repl.h). repl_run() is the prompt itself; the command
 * uses it with a process on this machine, which it asks through the mailbox.
 */
#include <cjson/cJSON.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "options.h"
#include "prompt.h"
#include "repl.h"
#include "target.h"

#define ANSWER_S   86400.0 /* seconds: practically no limit, as Ctrl-C ends an input */
#define COMPLETE_S 2.0

static const char help[] =
    "usage: probing -t PID repl [--frame N]\n"
    "       probing -t HOST:PORT repl PID [--frame N]\n"
    "\n"
    "A Python prompt inside a live process, which runs on meanwhile. Names are those of __main__, and\n"
    "what is assigned stays. Tab completes names, the arrow keys bring back earlier inputs, Ctrl-C\n"
    "interrupts what is being evaluated (or drops the line); a second one leaves what is inside C code\n"
    "there. _ is the last value. Ctrl-D, exit() and SystemExit end the prompt, never the process.\n"
    "Without a terminal the inputs are read as they come.\n"
    "\n"
    "  -t, --target PID   the process\n"
    "      --frame N      with the names of the main thread's N-th Python frame, 0 the innermost, as\n"
    "                     they are at the first input. What is assigned does not reach the frame;\n"
    "                     what is changed in an object does\n"
    "  -h, --help         this text\n"
    "\n"
    "Earlier inputs are kept in ~/.probing_history (PROBING_HISTORY names another file; empty: none).\n"
    "\n"
    "Exit: 0 done; 1 without a terminal: an input raised an exception; 2 usage; 3 nothing could be done.\n";

struct repl {
    const struct repl_way *way;
    char session[48];
    char *text; /* the input so far; allocated by malloc() */
    size_t n;
    int raised, left; /* raised: an input raised an exception; left: one raised SystemExit */
};

static int ask(struct repl *r, const char *word, const char *text, double timeout, char **out) {
    *out = NULL;
    return r->way->ask(r->way->arg, word, r->session, text, timeout, out);
}

/* For Tab: calls `each` with every completion of the text before the cursor. */
static int complete(void *arg, const char *text, int (*each)(void *to, const char *name),
                    void *to) {
    struct repl *r = arg;
    cJSON *j = NULL;
    const cJSON *name;
    char *out;
    int n = 0;

    if (ask(r, "complete", text, COMPLETE_S, &out) == 0)
        j = cJSON_Parse(out);
    cJSON_ArrayForEach(name, cJSON_GetObjectItem(j, "names")) {
        if (cJSON_IsString(name))
            n += each(to, name->valuestring);
    }
    cJSON_Delete(j);
    inspect_free(out);
    return n;
}

/* Runs the input so far. Returns 1 if it needs more lines, 0 if it was run and its result shown, negative if the target cannot be asked any more. */
static int evaluate(struct repl *r, const char *word) {
    char *out;
    int rc = ask(r, word, r->text, ANSWER_S, &out), more = 0;

    if (rc == 0) {
        cJSON *j = cJSON_Parse(out);
        more = cJSON_IsTrue(cJSON_GetObjectItem(j, "more"));
        r->left |= cJSON_IsTrue(cJSON_GetObjectItem(j, "exit"));
        cJSON_Delete(j);
        if (!more)
            r->raised |= target_show(out) != TOOL_OK;
        fflush(stdout);
    } else if (rc == -EBUSY || rc == -EMSGSIZE || rc == -EINTR || rc == -ECANCELED) {
        tool_say("%s", out ? out : strerror(-rc));
        r->raised = 1;
        rc = 0;
    } else
        tool_fail("%s", out ? out : strerror(-rc));
    inspect_free(out);
    return rc < 0 ? rc : more;
}

static int add_line(struct repl *r, const char *line) {
    size_t n = strlen(line);
    char *text = realloc(r->text, r->n + n + 2);

    if (!text)
        return -ENOMEM;
    r->text = text;
    if (r->n)
        text[r->n++] = '\n';
    memcpy(text + r->n, line, n + 1);
    r->n += n;
    return 0;
}

static int is_exit(const char *line) {
    static const char *const words[] = {"exit", "exit()", "quit", "quit()"};
    size_t from = strspn(line, " \t"), n = strcspn(line + from, " \t");

    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strlen(words[i]) == n && strncmp(line + from, words[i], n) == 0 &&
            !line[from + n + strspn(line + from + n, " \t")])
            return 1;
    return 0;
}

static int loop(struct repl *r, struct prompt *p) {
    const char *line;
    int rc = 0;

    while (rc >= 0 && !r->left) {
        int got = prompt_line(p, rc ? "... " : ">>> ", 0, &line);
        if (got >= 0 && rc == 0 &&
            is_exit(line)) /* not sent: in the process, exit() would close its sys.stdin */
            break;
        if (got == -EINTR) { /* Ctrl-C at the prompt drops the input */
            if (prompt_interactive(p))
                printf("KeyboardInterrupt\n"); /* as Python's own prompt does */
            r->n = 0;
            rc = 0;
            continue;
        }
        if (got < 0)
            break;
        if (!rc && !line[strspn(line, " \t")])
            continue;
        rc = add_line(r, line);
        if (rc == 0)
            rc = evaluate(r, "input");
        if (prompt_interrupted(p) && rc == 1) { /* Ctrl-C in an incomplete input drops it */
            fprintf(stderr, "KeyboardInterrupt\n");
            rc = 0;
        }
        if (rc <= 0)
            r->n = 0;
    }
    if (rc == 1) /* the inputs ended in the middle of a block: run what there is */
        rc = evaluate(r, "eval");
    return rc < 0 ? rc : 0;
}

int repl_run(const struct repl_way *way) {
    struct repl r = {.way = way};
    struct prompt *p;
    char *out;
    int rc;

    /* A first request shows whether the process answers; if not, there is no prompt. */
    snprintf(r.session, sizeof r.session, "%d-%lx", (int)getpid(), (unsigned long)time(NULL));
    target_catch_interrupt(prompt_restore);
    rc = ask(&r, "input", "None", 10, &out);
    if (rc < 0)
        rc = tool_fail("%s", out ? out : strerror(-rc));
    else if (strncmp(out, "{\"ok\":true", 10))
        rc = target_show(out); /* no such frame */
    inspect_free(out);
    if (rc)
        return rc == TOOL_PARTIAL ? TOOL_FAILED : rc;
    rc = prompt_open(&p, way->who, ".probing_history", complete, &r);
    if (rc < 0)
        return tool_fail("cannot read from the terminal: %s", strerror(-rc));
    rc = loop(&r, p);
    int interactive = prompt_interactive(p);
    prompt_close(p);
    free(r.text);
    if (rc < 0)
        return TOOL_FAILED;
    if (ask(&r, "end", "", COMPLETE_S, &out) < 0)
        tool_say("%s", out ? out : "the process is gone");
    inspect_free(out);
    return r.raised && !interactive ? TOOL_PARTIAL : TOOL_OK;
}

/* A process on this machine, asked through its mailbox. A request is "WORD session=ID [frame=N]", a newline and the text. */
struct here {
    int pid, frame;
};

static int ask_here(void *arg, const char *word, const char *session, const char *text,
                    double timeout, char **out) {
    struct here *h = arg;
    char *request = NULL, frame[32] = "";
    int rc;

    if (h->frame >= 0)
        snprintf(frame, sizeof frame, " frame=%d", h->frame);
    if (asprintf(&request, "%s session=%s%s\n%s", word, session, frame, text) < 0)
        return -ENOMEM;
    rc = target_ask(h->pid, MAIL_ASK, request, timeout, 1, out);
    free(request);
    return rc;
}

int repl_frame(int argc, char **argv, int *pid, int *frame) {
    const struct tool_option options[] = {OPTION_CALL("target", 't', option_pid, pid),
                                          OPTION_WHOLE("frame", 0, frame, 0, 100000, OPTION_FRAME),
                                          {0}};

    return tool_options(argc, argv, help, options);
}

int cmd_repl(int argc, char **argv) {
    struct here here = {.frame = -1};
    char who[80];
    struct repl_way way = {ask_here, &here, who};
    int rc = repl_frame(argc, argv, &here.pid, &here.frame);

    if (rc != TOOL_OK)
        return rc;
    if (!here.pid)
        return tool_usage("which process? -t PID");
    if (argc - optind > 1)
        return tool_usage("repl takes no argument '%s'", argv[optind + 1]);
    snprintf(who, sizeof who, "process %d; Ctrl-D ends", here.pid);
    return repl_run(&way);
}
