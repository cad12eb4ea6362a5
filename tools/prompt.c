/* SPDX-License-Identifier: Apache-2.0 */
#include "prompt.h"

#include <errno.h>
#include <fcntl.h>
#include <histedit.h>
#include <limits.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>
#include <wchar.h>

#include "target.h"

#define HISTORY_LINES 1000
#define LIST_MOST     200 /* names that are shown */
#define AHEAD         4096
#define CTRL_C        3

struct prompt {
    EditLine *el; /* NULL: no terminal */
    History *history;
    HistEvent event;
    char file[PATH_MAX]; /* of the history; "" = none */
    const char *text;    /* of the prompt */
    prompt_complete *complete;
    void *arg;
    char *line; /* malloc */
    size_t cap;
    char ahead[AHEAD]; /* what was typed before it was asked for */
    size_t at, n;      /* bytes of `ahead`: taken so far, and in all */
    int dropped;       /* Ctrl-C ended this line */
};

static struct termios before; /* settings of the terminal, valid once `changed` */
static volatile sig_atomic_t changed;

void prompt_restore(void) {
    if (changed)
        tcsetattr(STDIN_FILENO, TCSANOW, &before);
}

static char *show_prompt(EditLine *el) {
    struct prompt *p;

    el_get(el, EL_CLIENTDATA, &p);
    return (char *)(uintptr_t)p->text;
}

/* The names that complete a word: their common prefix, and the names to list. */
struct found {
    char common[256];
    unsigned n;
    char names[LIST_MOST][64];
};

static int take_name(void *to, const char *name) {
    struct found *f = to;
    size_t i = 0;

    if (!f->n)
        snprintf(f->common, sizeof f->common, "%s", name);
    while (f->common[i] && f->common[i] == name[i])
        i++;
    f->common[i] = 0;
    if (f->n < LIST_MOST) {
        const char *dot = strrchr(name, '.');
        snprintf(f->names[f->n], sizeof f->names[0], "%s", dot ? dot + 1 : name);
    }
    f->n++;
    return 1;
}

static void list_names(const struct found *f) {
    unsigned shown = f->n < LIST_MOST ? f->n : LIST_MOST, width = 0;

    for (unsigned i = 0; i < shown; i++) {
        unsigned n = (unsigned)strlen(f->names[i]);
        width = n > width ? n : width;
    }
    unsigned columns = 78 / (width + 2) ? 78 / (width + 2) : 1;
    putchar('\n');
    for (unsigned i = 0; i < shown; i++)
        printf("%-*s%s", (int)width + 2, f->names[i],
               i % columns == columns - 1 || i == shown - 1 ? "\n" : "");
    if (shown < f->n)
        printf("and %u more\n", f->n - shown);
    fflush(stdout);
}

static int is_word(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '.' || (unsigned char)c >= 0x80;
}

static unsigned char on_tab(EditLine *el, int key) {
    const LineInfo *li = el_line(el);
    size_t n = (size_t)(li->cursor - li->buffer), word = n;
    struct found *f;
    struct prompt *p;
    char text[4096];
    unsigned char result = CC_ERROR;

    (void)key;
    el_get(el, EL_CLIENTDATA, &p);
    memcpy(text, li->buffer, n < sizeof text ? n : sizeof text - 1);
    text[n < sizeof text ? n : sizeof text - 1] = 0;
    if (!text[strspn(text, " \t")]) /* at the beginning of a line, Tab indents */
        return el_insertstr(el, "    ") ? CC_ERROR : CC_REFRESH;
    if (!p->complete || n >= sizeof text || !(f = calloc(1, sizeof *f)))
        return CC_ERROR;
    while (word && is_word(text[word - 1]))
        word--;
    p->complete(p->arg, text, take_name, f);
    if (f->n && strlen(f->common) > n - word) {
        if (el_insertstr(el, f->common + (n - word)) == 0)
            result = CC_REFRESH;
    } else if (f->n > 1) {
        list_names(f);
        result = CC_REDISPLAY;
    }
    free(f);
    return result;
}

static unsigned char on_ctrl_c(EditLine *el, int key) {
    struct prompt *p;

    (void)key;
    el_get(el, EL_CLIENTDATA, &p);
    p->dropped = 1;
    return CC_NEWLINE;
}

int prompt_interrupted(struct prompt *p) {
    int was = target_interrupted() != 0;

    if (was)
        p->at = p->n = 0; /* drop what was typed ahead, as the terminal did with its own input */
    return was;
}

/* Reads one byte: of what was typed ahead, else from the terminal. Returns 1, 0 at the end, or -1; -1 with p->dropped after a SIGINT.
 * SIGINT is blocked except while ppoll() waits: otherwise one that came between the check and the wait would not end the wait. */
static ssize_t next_byte(struct prompt *p, char *c) {
    struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};
    sigset_t interrupt, others;
    ssize_t n = -1;

    sigemptyset(&interrupt);
    sigaddset(&interrupt, SIGINT);
    sigprocmask(SIG_BLOCK, &interrupt, &others);
    do {
        p->dropped = prompt_interrupted(p);
        if (p->dropped)
            break;
        if (p->at < p->n) {
            *c = p->ahead[p->at++];
            n = 1;
        } else if (ppoll(&in, 1, NULL, &others) >= 0) {
            n = read(STDIN_FILENO, c, 1);
        }
    } while (n < 0 && errno == EINTR);
    sigprocmask(SIG_SETMASK, &others, NULL);
    return n;
}

/* The function by which libedit reads a character. Returns 1, 0 at the end, or -1. */
static int next_char(EditLine *el, wchar_t *to) {
    struct prompt *p;
    mbstate_t state = {0};
    char c;

    el_get(el, EL_CLIENTDATA, &p);
    for (;;) {
        ssize_t n = next_byte(p, &c);
        if (n <= 0)
            return (int)n;
        size_t used = mbrtowc(to, &c, 1, &state);
        if (used == (size_t)-1) {
            memset(&state, 0, sizeof state);
            *to = (unsigned char)c;
            return 1;
        }
        if (used != (size_t)-2)
            return 1;
    }
}

/* Takes what was typed while the terminal still was in editing mode, where Ctrl-C is a byte and no signal. Returns whether it has
 * a Ctrl-C; all up to the last one is dropped. */
static int take_ahead(struct prompt *p) {
    int waiting = 0, dropped = 0;

    memmove(p->ahead, p->ahead + p->at, p->n - p->at);
    p->n -= p->at;
    p->at = 0;
    if (ioctl(STDIN_FILENO, FIONREAD, &waiting) == 0 && waiting > 0 && p->n < AHEAD) {
        size_t most = AHEAD - p->n;
        ssize_t n =
            read(STDIN_FILENO, p->ahead + p->n, (size_t)waiting < most ? (size_t)waiting : most);
        p->n += n > 0 ? (size_t)n : 0;
    }
    for (size_t i = 0; i < p->n; i++)
        if (p->ahead[i] == CTRL_C) {
            p->at = i + 1;
            dropped = 1;
        }
    return dropped;
}

static void open_history(struct prompt *p, const char *name) {
    const char *file = getenv("PROBING_HISTORY"), *home = getenv("HOME");

    p->history = history_init();
    if (!p->history)
        return;
    history(p->history, &p->event, H_SETSIZE, HISTORY_LINES);
    history(p->history, &p->event, H_SETUNIQUE, 1);
    if (file)
        snprintf(p->file, sizeof p->file, "%s", file);
    else if (home && *home)
        snprintf(p->file, sizeof p->file, "%s/%s", home, name);
    if (p->file[0])
        history(p->history, &p->event, H_LOAD, p->file);
    el_set(p->el, EL_HIST, history, p->history);
}

int prompt_open(struct prompt **out, const char *greeting, const char *history,
                prompt_complete *complete, void *arg) {
    struct prompt *p = calloc(1, sizeof *p);

    *out = p;
    if (!p)
        return -ENOMEM;
    p->complete = complete;
    p->arg = arg;
    p->text = "";
    if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO))
        return 0;
    setlocale(LC_CTYPE, "");
    changed = tcgetattr(STDIN_FILENO, &before) == 0;
    p->el = el_init("probing", stdin, stdout, stderr);
    if (!p->el) {
        free(p);
        return -ENOTTY;
    }
    el_set(p->el, EL_CLIENTDATA, p);
    el_set(p->el, EL_PROMPT, show_prompt);
    el_set(p->el, EL_EDITOR, "emacs");
    el_set(p->el, EL_SIGNAL, 0);
    el_set(p->el, EL_GETCFN, next_char);
    /* While a line is edited Ctrl-C is a key. Between lines it is the signal, and what is typed ahead stays in the terminal unchanged. */
    el_set(p->el, EL_SETTY, "-d", "intr=", NULL);
    el_set(p->el, EL_SETTY, "-x", "-icanon", "-echo", NULL);
    el_set(p->el, EL_ADDFN, "probing-drop", "drop the line", on_ctrl_c);
    el_set(p->el, EL_BIND, "^C", "probing-drop", NULL);
    open_history(p, history);
    el_set(p->el, EL_ADDFN, "probing-complete", "complete a name", on_tab);
    el_set(p->el, EL_BIND, "^I", "probing-complete", NULL);
    el_set(p->el, EL_BIND, "^R", "em-inc-search-prev", NULL);
    el_source(p->el, NULL); /* ~/.editrc */
    fprintf(stderr, "%s\n", greeting);
    return 0;
}

void prompt_close(struct prompt *p) {
    if (p->el && p->history && p->file[0]) {
        mode_t mask = umask(077); /* code typed at a prompt is nobody else's business */
        history(p->history, &p->event, H_SAVE, p->file);
        umask(mask);
    }
    if (p->history)
        history_end(p->history);
    if (p->el)
        el_end(p->el);
    prompt_restore();
    changed = 0;
    free(p->line);
    free(p);
}

int prompt_interactive(const struct prompt *p) {
    return p->el != NULL;
}

static int keep(struct prompt *p, const char *line, size_t n) {
    if (n + 1 > p->cap) {
        char *q = realloc(p->line, n + 1);
        if (!q)
            return -ENOMEM;
        p->line = q;
        p->cap = n + 1;
    }
    memcpy(p->line, line, n);
    p->line[n] = 0;
    return 0;
}

static int from_terminal(struct prompt *p, int further) {
    const char *line;
    int n = 0;

    p->dropped = prompt_interrupted(p); /* Ctrl-C since the last line */
    line = p->dropped ? NULL : el_gets(p->el, &n);
    if (p->dropped || (line && n > 0 && take_ahead(p))) {
        el_reset(p->el);
        printf("^C\n");
        return -EINTR;
    }
    if (!line || n <= 0) {
        printf("\n");
        return -ENODATA;
    }
    if (p->history && line[strspn(line, " \t\n")])
        history(p->history, &p->event, further ? H_ADD : H_ENTER, line);
    return keep(p, line, (size_t)n - (line[n - 1] == '\n'));
}

static int from_pipe(struct prompt *p) {
    ssize_t n;

    if (prompt_interrupted(p))
        return -EINTR;
    errno = 0;
    n = getline(&p->line, &p->cap, stdin);
    if (n < 0 && errno == EINTR) {
        clearerr(stdin);
        return -EINTR;
    }
    if (n < 0)
        return -ENODATA;
    if (n && p->line[n - 1] == '\n')
        p->line[n - 1] = 0;
    return 0;
}

int prompt_line(struct prompt *p, const char *prompt, int further, const char **line) {
    p->text = prompt;
    int rc = p->el ? from_terminal(p, further) : from_pipe(p);

    *line = p->line;
    return rc;
}
