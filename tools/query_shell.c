/* SPDX-License-Identifier: Apache-2.0 */
#include "query_shell.h"

#include <ctype.h>
#include <errno.h>
#include <locale.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <wchar.h>

#include "common.h"
#include "live_target.h"
#include "open_db.h"
#include "prompt.h"
#include "rows.h"
#include "sql_guard.h"
#include "target.h"

struct shell {
    struct sql_run *run;
    char *const *paths;
    int npaths;
    time_t opened; /* when a recording that goes on was last read */
    FILE *to;      /* \o FILE; NULL: the screen */
    char *pending; /* the statement so far; malloc */
    int timing, left, restricted;
    char *trace
        [1]; /* of a process: its trace, to be asked when it has ended; NULL: the question is not about one */
};

static struct sql_run *running; /* for the signal handler */

static void on_interrupt(void) {
    if (running)
        sql_run_interrupt(running);
}

/* ---- completion ---- */

/* The names that complete a word: first columns of the tables that the text mentions, then all other names. If none of these fits, columns of
 * all views: a SELECT names columns before FROM names the tables. ?3: what the word has before its last dot and that dot, a table's name or alias. */
static const char names_sql[] =
    "WITH found AS MATERIALIZED (SELECT DISTINCT name FROM ("
    " SELECT ?3 || c.name AS name FROM sqlite_master m JOIN pragma_table_info(m.name) c"
    "  WHERE m.type IN ('table', 'view') AND instr(lower(?1), lower(m.name))"
    "  AND ?3 NOT IN ('information_schema.', 'python.', 'system.', 'cluster.', 'main.', 'temp.')"
    " UNION ALL SELECT name FROM sqlite_master WHERE " QUERY_SHOWN
    " UNION ALL SELECT 'python.' || name FROM sqlite_master WHERE type = 'view' AND " QUERY_SHOWN
    " UNION ALL SELECT column1 FROM (VALUES('information_schema.tables'), ('information_schema.columns'),"
    "  ('information_schema.df_settings'), ('system.process'), ('process.envs'), ('cluster.nodes'),"
    "  ('SELECT'), ('FROM'), ('WHERE'), ('GROUP BY'), ('ORDER BY'), ('LIMIT'), ('HAVING'), ('JOIN'), ('LEFT JOIN'),"
    "  ('DISTINCT'), ('BETWEEN'), ('DESC'), ('INTERVAL'), ('SHOW TABLES'), ('DESCRIBE'))"
    " UNION ALL SELECT name FROM pragma_function_list WHERE name GLOB '[a-z]*')"
    " WHERE substr(name, 1, length(?2)) = ?2 COLLATE NOCASE AND length(?2) > 0)"
    " SELECT name FROM found UNION ALL SELECT DISTINCT ?3 || c.name FROM sqlite_master m JOIN pragma_table_info(m.name) c"
    "  WHERE m.type = 'view' AND length(?2) > 0 AND substr(?3 || c.name, 1, length(?2)) = ?2 COLLATE NOCASE"
    "  AND NOT EXISTS (SELECT 1 FROM found)";

static int complete(void *arg, const char *text, int (*each)(void *to, const char *name),
                    void *to) {
    struct shell *s = arg;
    sqlite3_stmt *st = NULL;
    char *all = NULL;
    size_t n = strlen(text), word = n;
    int found = 0;

    while (word && (strchr("_.", text[word - 1]) || (text[word - 1] | 32) >= 'a' ||
                    (text[word - 1] >= '0' && text[word - 1] <= '9')))
        word--;
    size_t dot = n;
    while (dot > word && text[dot - 1] != '.')
        dot--;
    if (asprintf(&all, "%s %s", s->pending ? s->pending : "", text) < 0)
        return 0;
    if (sqlite3_prepare_v2(s->run->db, names_sql, -1, &st, NULL) == SQLITE_OK) {
        sqlite3_bind_text(st, 1, all, -1, SQLITE_STATIC);
        sqlite3_bind_text(st, 2, text + word, -1, SQLITE_STATIC);
        sqlite3_bind_text(st, 3, text + word, (int)(dot - word), SQLITE_STATIC);
        while (sqlite3_step(st) == SQLITE_ROW)
            found += each(to, (const char *)sqlite3_column_text(st, 0));
    }
    sqlite3_finalize(st);
    free(all);
    return found;
}

/* ---- results on the screen ---- */

/* A line of text, cut to `width` columns with an ellipsis. */
static void put_cut(const char *line, size_t n, unsigned width) {
    mbstate_t state = {0};
    size_t at = 0, fits = 0; /* bytes: read so far; those that leave a column for the ellipsis */
    unsigned columns = 0;

    while (at < n) {
        wchar_t w;
        size_t k = mbrtowc(&w, line + at, n - at, &state);
        if (k == 0 || k > n - at) {
            k = 1;
            memset(&state, 0, sizeof state);
            w = L'?';
        }
        int wide = wcwidth(w) > 0 ? wcwidth(w) : 0;
        if (columns + (unsigned)wide > width) {
            fwrite(line, 1, fits, stdout);
            fputs("\u2026\n", stdout);
            return;
        }
        columns += (unsigned)wide;
        at += k;
        if (columns < width)
            fits = at;
    }
    fwrite(line, 1, n, stdout);
    fputc('\n', stdout);
}

/* Shows a result on the screen: through a pager if it has more lines than the screen. */
static void show(char *text, size_t n) {
    struct winsize size = {0};
    size_t lines = 0;
    const char *pager = getenv("PAGER");

    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || !size.ws_row || !size.ws_col) {
        fwrite(text, 1, n, stdout);
        return;
    }
    for (size_t i = 0; i < n; i++)
        lines += text[i] == '\n';
    if (lines >= size.ws_row && (!pager || *pager)) {
        setenv("LESS", "-FRSX", 0); /* long lines are not folded: the arrow keys show the rest */
        FILE *f = popen(pager ? pager : "less 2>/dev/null || more", "we");
        if (f) {
            struct sigaction ignore = {.sa_handler = SIG_IGN}, before;
            sigaction(SIGPIPE, &ignore, &before); /* the user may quit the pager early */
            fwrite(text, 1, n, f);
            int rc = pclose(f);
            sigaction(SIGPIPE, &before, NULL);
            int code = WIFEXITED(rc) ? WEXITSTATUS(rc) : 128;
            if (code == 0 || code >= 128) /* Ctrl-C in the pager: seen enough */
                return;
        }
    }
    setlocale(LC_CTYPE, "C.UTF-8");
    for (char *line = text, *end; line < text + n; line = end + 1) {
        end = memchr(line, '\n', (size_t)(text + n - line));
        end = end ? end : text + n;
        put_cut(line, (size_t)(end - line), size.ws_col);
    }
}

/* Reads what was recorded meanwhile. Returns TOOL_OK, or reports an error and returns the exit code; then the old database stays. */
static int read_again(struct shell *s) {
    time_t now = time(NULL);
    sqlite3 *db;

    if (!live_pid() || now == s->opened)
        return TOOL_OK;
    if (s->trace[0] && s->paths != s->trace && !live_is_recorded(live_pid(), s->trace[0])) {
        tool_say("process %d is no longer recorded: its trace is asked from now on", live_pid());
        s->paths = s->trace;
    }
    int code = db_open(&db, s->paths, s->npaths, 0);
    if (!db)
        return code;
    sqlite3_close(s->run->db);
    query_allow(s->run->db = db, s->restricted);
    s->opened = now;
    return TOOL_OK;
}

static void answer(struct shell *s, const char *sql) {
    double from = tool_seconds();
    char *text = NULL;
    size_t n = 0;
    FILE *screen = s->to ? NULL : open_memstream(&text, &n);

    if (!s->to && !screen) {
        tool_fail("cannot answer: no memory");
        return;
    }
    s->run->out = s->to ? s->to : screen;
    int code = read_again(s);
    running = s->run;
    if (code == TOOL_OK)
        code = live_backtrace(s->run->db, sql);
    if (code == TOOL_OK)
        code = sql_run(s->run, sql);
    running = NULL;
    double took = tool_seconds() - from;
    if (screen && fclose(screen) == 0)
        show(text, n);
    free(text);
    if (s->to)
        fflush(s->to);
    if (code == TOOL_OK && s->run->results)
        fprintf(stderr, "(%llu row%s)\n", (unsigned long long)s->run->rows,
                s->run->rows == 1 ? "" : "s");
    if (s->timing)
        fprintf(stderr, "%.3f s\n", took);
    fflush(stdout);
}

/* ---- commands ---- */

static const char commands_help[] =
    "  \\d            the names that can be asked        \\d NAME   its columns\n"
    "  \\i FILE       run the SQL in FILE                \\o [FILE] results into FILE, or back to the screen\n"
    "  \\f [FORMAT]   table, box, markdown, csv, json, jsonl  \\timing  say how long an answer took\n"
    "  \\q            leave (also Ctrl-D, exit)          \\?        this list\n"
    "A statement ends with a semicolon; -- begins a comment. Ctrl-C ends a query, or drops the line.\n";

static void run_file(struct shell *s, const char *path) {
    FILE *f = fopen(path, "re");
    char *sql = NULL;
    size_t n = 0;

    if (!f) {
        tool_fail("cannot read %s: %s", path, strerror(errno));
        return;
    }
    ssize_t got = getdelim(&sql, &n, 0, f);
    if (got > 0 && !sql[got - 1]) /* what follows the NUL would not be asked, silently */
        tool_fail("cannot read %s: it has a NUL byte (SQL is a text in UTF-8)", path);
    else if (got > 0)
        answer(s, sql);
    else if (got < 0 && ferror(f))
        tool_fail("cannot read %s: %s", path, strerror(errno));
    free(sql);
    fclose(f);
}

static void set_output(struct shell *s, const char *path) {
    FILE *f = *path ? fopen(path, "we") : NULL;

    if (*path && !f) {
        tool_fail("cannot write %s: %s", path, strerror(errno));
        return;
    }
    if (s->to && fclose(s->to) != 0)
        tool_fail("cannot write the file of \\o: %s", strerror(errno));
    s->to = f;
}

static int has_columns(sqlite3 *db, const char *table) {
    sqlite3_stmt *st = NULL;
    int there = 0;

    if (sqlite3_prepare_v2(db, "SELECT 1 FROM pragma_table_info(?)", -1, &st, NULL) == SQLITE_OK) {
        sqlite3_bind_text(st, 1, table, -1, SQLITE_STATIC);
        there = sqlite3_step(st) == SQLITE_ROW;
    }
    sqlite3_finalize(st);
    return there;
}

/* Lists a table's columns; the name may have a schema or quotes, as in python.torch_trace and "steps". With the name '', lists all names. */
static void describe(struct shell *s, char *name) {
    char *table = strrchr(name, '.') ? strrchr(name, '.') + 1 : name, *sql;

    if (*table == '"') {
        table++;
        table[strcspn(table, "\"")] = 0;
    }
    if (*name && !has_columns(s->run->db, table)) {
        printf("no table or view '%s': \\d lists them\n", name);
        return;
    }
    if (*name)
        sql = sqlite3_mprintf("SELECT name AS \"column\", type FROM pragma_table_info(%Q)", table);
    else
        sql = sqlite3_mprintf(
            "SELECT name, type FROM sqlite_master WHERE %s ORDER BY type = 'table', name",
            QUERY_SHOWN);
    if (sql)
        answer(s, sql);
    sqlite3_free(sql);
}

static void command(struct shell *s, const char *line) {
    size_t n = strcspn(line, " \t;");
    const char *arg = line + n + strspn(line + n, " \t");
    char name[256];

    snprintf(name, sizeof name, "%.*s", (int)strcspn(arg, " \t;"), arg);
    if ((n == 2 || (n == 3 && strchr("tv+", line[2]))) && line[1] == 'd') {
        describe(s, name);
    } else if (n == 2 && line[1] == 'q') {
        s->left = 1;
    } else if (n == 2 && (line[1] == '?' || line[1] == 'h')) {
        fputs(commands_help, stdout);
    } else if (n == 2 && line[1] == 'i') {
        run_file(s, arg);
    } else if (n == 2 && line[1] == 'o') {
        set_output(s, arg);
    } else if (n == 7 && strncmp(line, "\\timing", 7) == 0) {
        s->timing = !s->timing;
        printf("timing is %s\n", s->timing ? "on" : "off");
    } else if (n == 2 && line[1] == 'f') {
        static const char *const formats[] = {"table", "box", "markdown", "csv", "json", "jsonl"};
        for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
            if (strcmp(name, formats[i]) == 0) {
                s->run->format = formats[i];
                return;
            }
        }
        printf("format is %s: choose %s\n", s->run->format, ROWS_FORMATS);
    } else {
        printf("no command '%.*s': \\? lists them\n", (int)n, line);
    }
}

/* Whether the line is nothing but that word, in upper or lower case, with or without a semicolon. */
static int is_word(const char *line, const char *word) {
    size_t n = strlen(word);

    return strncasecmp(line, word, n) == 0 && !line[n + strspn(line + n, " \t;")];
}

/* Takes one more line and runs the statement if it is complete now. Returns 0 or -ENOMEM. */
static int take_line(struct shell *s, const char *line) {
    const char *text = line + strspn(line, " \t");
    char *more;

    if (!s->pending) {
        if (*text == '\\') {
            command(s, text);
            return 0;
        }
        if (*text == '.' && isalpha((unsigned char)text[1])) {
            printf("commands begin with a backslash here: \\? lists them\n");
            return 0;
        }
        if (is_word(text, "exit") || is_word(text, "quit")) {
            s->left = 1;
            return 0;
        }
        if (!*text)
            return 0;
        if (is_word(text, "help")) {
            fputs(commands_help, stdout);
            return 0;
        }
    }
    if (asprintf(&more, "%s%s%s", s->pending ? s->pending : "", s->pending ? "\n" : "", line) < 0)
        return -ENOMEM;
    free(s->pending);
    s->pending = more;
    if (sqlite3_complete(s->pending)) {
        answer(s, s->pending);
        free(s->pending);
        s->pending = NULL;
    }
    return 0;
}

void query_allow(sqlite3 *db, int restricted) {
    if (restricted)
        sql_guard(db);
    else
        sqlite3_exec(db, "PRAGMA query_only = OFF", NULL, NULL, NULL);
}

int query_shell(struct sql_run *run, char *const *paths, int n, int restricted) {
    struct shell s = {
        .run = run, .paths = paths, .npaths = n, .opened = time(NULL), .restricted = restricted};
    struct prompt *p;
    const char *line;
    char greeting[1200], trace[LIVE_PATH] = "";

    if (n == 1 && live_pid() && live_is_recorded(live_pid(), trace))
        s.trace[0] = trace;

    snprintf(greeting, sizeof greeting,
             "%.1000s%s. Statements end with a semicolon; \\d lists the names, \\? the commands.",
             paths[0], n > 1 ? " and others" : "");
    target_catch_interrupt(prompt_restore);
    target_on_interrupt(on_interrupt);
    run->stopped = target_interrupts;
    int rc = prompt_open(&p, greeting, ".probing_sql_history", complete, &s);
    if (rc < 0)
        return tool_fail("cannot read from the terminal: %s", strerror(-rc));
    while (rc >= 0 && !s.left) {
        rc = prompt_line(p, s.pending ? "    ...> " : "probing> ", s.pending != NULL, &line);
        if (rc == -EINTR) { /* Ctrl-C: drop what was typed */
            free(s.pending);
            s.pending = NULL;
            rc = 0;
        } else if (rc == 0) {
            rc = take_line(&s, line);
            if (!s.pending)
                prompt_interrupted(p); /* forget a Ctrl-C that the query has reported */
        }
    }
    if (s.pending && rc == -ENODATA)
        answer(&s, s.pending);
    set_output(&s, "");
    free(s.pending);
    prompt_close(p);
    return rc < 0 && rc != -ENODATA ? tool_fail("cannot go on: %s", strerror(-rc)) : TOOL_OK;
}
