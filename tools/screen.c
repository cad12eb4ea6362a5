/* SPDX-License-Identifier: Apache-2.0 */
#include "screen.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>
#include <wchar.h>

#include "../traces/visible.h"

#define SAID_MAX 4096

struct screen {
    struct termios before;
    struct sigaction old[4];
    int rows, columns, row;
    int err, said; /* err: the original stderr; said: the file that takes its place */
    FILE *f;       /* writes into text */
    char *text;
    size_t n;
};
static volatile sig_atomic_t ended, resized;
static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGWINCH};

static void on_signal(int sig) {
    if (sig == SIGWINCH)
        resized = 1;
    else
        ended = 1;
}

static void measure(struct screen *s) {
    struct winsize w;

    resized = 0;
    s->rows = 24;
    s->columns = 80;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_row && w.ws_col) {
        s->rows = w.ws_row;
        s->columns = w.ws_col;
    }
}

static void put(const char *text, size_t n) {
    while (n) {
        ssize_t done = write(STDOUT_FILENO, text, n);
        if (done < 0 && errno != EINTR)
            return;
        text += done > 0 ? done : 0;
        n -= done > 0 ? (size_t)done : 0;
    }
}

int screen_open(struct screen **out) {
    struct screen *s = calloc(1, sizeof *s);
    struct sigaction sa = {.sa_handler = on_signal};

    *out = NULL;
    if (!s)
        return -ENOMEM;
    if (!isatty(STDOUT_FILENO) || tcgetattr(STDIN_FILENO, &s->before) < 0) {
        free(s);
        return -ENOTTY;
    }
    if (!(s->f = open_memstream(&s->text, &s->n))) {
        free(s);
        return -ENOMEM;
    }
    struct termios raw = s->before;
    raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
    raw.c_cc[VMIN] = 0;
    raw.c_cc[VTIME] = 0;
    ended = 0;
    for (int i = 0; i < 4; i++)
        sigaction(signals[i], &sa, &s->old[i]);
    tcsetattr(STDIN_FILENO, TCSADRAIN, &raw);
    s->err = dup(STDERR_FILENO);
    s->said = memfd_create("said", MFD_CLOEXEC);
    if (s->err >= 0 && s->said >= 0)
        dup2(s->said, STDERR_FILENO);
    measure(s);
    put("\033[?1049h\033[?25l", 14);
    *out = s;
    return 0;
}

void screen_close(struct screen *s) {
    char text[SAID_MAX];

    if (!s)
        return;
    put("\033[?25h\033[?1049l", 14);
    tcsetattr(STDIN_FILENO, TCSADRAIN, &s->before);
    for (int i = 0; i < 4; i++)
        sigaction(signals[i], &s->old[i], NULL);
    if (s->err >= 0 && s->said >= 0) {
        dup2(s->err, STDERR_FILENO);
        ssize_t n = pread(s->said, text, sizeof text, 0);
        if (n > 0)
            fwrite(text, 1, (size_t)n, stderr);
    }
    close(s->err);
    close(s->said);
    fclose(s->f);
    free(s->text);
    free(s);
}

void screen_forget(const struct screen *s) {
    if (s->said >= 0 && ftruncate(s->said, 0) != 0)
        return; /* then the text is printed when the screen closes */
}

int screen_rows(const struct screen *s) {
    return s->rows;
}

int screen_columns(const struct screen *s) {
    return s->columns;
}

void screen_text(FILE *f, const char *text, int columns) {
    mbstate_t state = {0};
    size_t n = strlen(text);
    int at = 0;

    while (n) {
        wchar_t c;
        size_t len = mbrtowc(&c, text, n, &state);
        int width = len == 0 || len > n || !visible_char((uint32_t)c) ? -1 : wcwidth(c);
        if (len == 0 || len > n) {
            len = 1;
            memset(&state, 0, sizeof state);
        }
        if (columns && at + (width < 0 ? 1 : width) > columns)
            break;
        if (width < 0) /* a control character, or invalid bytes */
            fputc('?', f);
        else
            fwrite(text, 1, len, f);
        at += width < 0 ? 1 : width;
        text += len;
        n -= len;
    }
}

void screen_line(struct screen *s, int style, const char *fmt, ...) {
    static const char *const styles[] = {"", "\033[1m", "\033[7m", "\033[2m"};
    char *text = NULL;
    va_list ap;

    if (s->row >= s->rows)
        return;
    va_start(ap, fmt);
    int n = vasprintf(&text, fmt, ap);
    va_end(ap);
    if (n < 0)
        return;
    fprintf(s->f, "\033[%d;1H%s", ++s->row, styles[style]);
    screen_text(s->f, text, s->columns);
    fputs("\033[0m\033[K", s->f);
    free(text);
}

void screen_show(struct screen *s) {
    fputs("\033[J", s->f);
    fflush(s->f);
    put(s->text, s->n);
    rewind(s->f);
    s->row = 0;
}

int screen_ended(void) {
    return ended;
}

int screen_key(struct screen *s, int ms) {
    const struct timespec most = {ms / 1000, ms % 1000 * 1000000l};
    struct pollfd p = {STDIN_FILENO, POLLIN, 0};
    sigset_t ours, before;
    char c = 0;

    /* Signals are blocked except in ppoll(): one that comes after the check of `ended` and `resized` still ends the wait. */
    sigemptyset(&ours);
    for (int i = 0; i < 4; i++)
        sigaddset(&ours, signals[i]);
    sigprocmask(SIG_BLOCK, &ours, &before);
    int ready = ended || resized ? 0 : ppoll(&p, 1, &most, &before);
    sigprocmask(SIG_SETMASK, &before, NULL);
    if (ended || (ready > 0 && p.revents & (POLLHUP | POLLERR)))
        return -EINTR;
    if (resized) {
        measure(s);
        return SCREEN_REDRAW;
    }
    return ready > 0 && read(STDIN_FILENO, &c, 1) == 1 ? (unsigned char)c : 0;
}
