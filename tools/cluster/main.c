/* SPDX-License-Identifier: Apache-2.0 */
/* main.c - the command line of `probing cluster`, and its words. */
#include <cjson/cJSON.h>
#include <errno.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/cluster/cluster.h"
#include "tools/options.h"
#include "tools/rows.h"

static const char help[] =
    "usage: probing cluster attach HOST:PORT[,HOST:PORT...]|--slurm|--hostfile FILE|--torchrun\n"
    "       probing cluster detach HOST:PORT[,...]|--all\n"
    "       probing cluster nodes\n"
    "       probing cluster query \"SQL\"\n"
    "       probing cluster stacks\n"
    "       probing cluster report -o FILE\n"
    "       probing cluster fetch DIR\n"
    "\n"
    "One question to the `probing serve` of many machines at once. attach keeps their addresses; the\n"
    "other words ask all of them in parallel. query merges the rows, with the node as a column and times\n"
    "moved to this machine's clock; stacks merges what every rank does now; fetch copies the traces,\n"
    "whose clocks are then aligned by their collectives (probing convert DIR out.db), and report makes a\n"
    "page of them.\n"
    "\n"
    "      --port N          for hosts without a port (8080)\n"
    "      --token-file FILE attach: where the token of these hosts is: a token, or lines HOST:PORT\n"
    "                        TOKEN; else PROBING_TOKEN or PROBING_TOKEN_FILE when they are asked. An\n"
    "                        address as `probing serve` prints it, with ?token=, keeps that token\n"
    "      --nodes LIST      ask these instead of the attached ones\n"
    "      --over SQL        query: ask this of the merged rows, the table `answers`\n"
    "      --format FORMAT, --csv, --json, --jsonl, --markdown, --box   as of probing query; with --json\n"
    "                        who did not answer is in it:\n"
    "                        {\"rows\": [...], \"failed\": [{\"node\", \"error\"}]}\n"
    "      --threads, --native, --flat   stacks: as of probing stacks (--flat: JSON, one list)\n"
    "  -o, --output FILE     report: the page\n"
    "      --timeout S       for each answer (30)\n"
    "      --parallel N      requests at once (128)\n"
    "      --max-bytes N     of an answer (16777216)\n"
    "  -h, --help            this text\n"
    "      --version         print the version\n"
    "\n"
    "Exit code: 0 all answered; 1 some did not: they are named on stderr; 2 usage; 3 none did.\n"
    "\n"
    "  probing cluster attach node1:8080,node2:8080 --token-file ~/.probing-token\n"
    "  probing cluster query \"SELECT rank, max(step) AS step FROM steps GROUP BY rank\"\n";

volatile sig_atomic_t cluster_interrupted;

struct options {
    const char *hostfile, *token_file, *nodes, *over, *output;
    int slurm, torchrun, all, threads, native, port;
    char **words;
    int nwords;
};

static void on_interrupt(int sig) {
    (void)sig;
    cluster_interrupted = 1;
}

/* ---- who ---- */

static int attach(const struct options *o) {
    struct attached a = {0};
    char file[4096];
    int code = TOOL_OK, ways = (o->nwords > 0) + o->slurm + o->torchrun + (o->hostfile != NULL),
        more = TOOL_OK;

    if (ways != 1)
        return tool_usage("which hosts? HOST:PORT,..., --slurm, --hostfile FILE or --torchrun");
    if (o->token_file && tool_absolute(o->token_file, file, sizeof file) < 0)
        return tool_fail("cannot find %s", o->token_file);
    const char *token = o->token_file ? file : NULL;
    if (attached_read(&a) < 0)
        return TOOL_FAILED;
    for (int i = 0; i < o->nwords && code == TOOL_OK; i++)
        code = hosts_list(&a, o->words[i], o->port, token);
    if (o->hostfile)
        code = hosts_file(&a, o->hostfile, o->port, token);
    if (o->slurm)
        code = hosts_slurm(&a, o->port, token);
    if (o->torchrun && (code = hosts_torchrun(&a, o->port, token)) == TOOL_PARTIAL) {
        more = code;
        code = TOOL_OK;
    }
    if (code == TOOL_OK && a.n == 0)
        code = tool_usage("there is no host in the list");
    if (code == TOOL_OK && attached_write(&a) < 0)
        code = TOOL_FAILED;
    if (code == TOOL_OK)
        tool_say("%zu host%s attached (probing cluster nodes asks them)", a.n, a.n == 1 ? "" : "s");
    attached_free(&a);
    return code == TOOL_OK ? more : code;
}

static int detach(const struct options *o) {
    struct attached a = {0};
    int code = TOOL_OK;

    if (!o->all != (o->nwords > 0))
        return tool_usage("which hosts? HOST:PORT,... or --all");
    if (attached_read(&a) < 0)
        return TOOL_FAILED;
    if (o->all)
        attached_free(&a);
    for (int i = 0; i < o->nwords; i++) {
        for (char *save = NULL, *host = strtok_r(o->words[i], ",", &save); host;
             host = strtok_r(NULL, ",", &save)) {
            if (!attached_remove(&a, host)) {
                tool_say("%s is not attached", host);
                code = TOOL_PARTIAL;
            }
        }
    }
    if (attached_write(&a) < 0)
        code = TOOL_FAILED;
    attached_free(&a);
    return code;
}

static int find_nodes(struct cluster *c, const struct options *o) {
    if (o->nodes) {
        int code = hosts_list(&c->nodes, o->nodes, o->port, o->token_file);
        if (code != TOOL_OK)
            return code;
    } else if (attached_read(&c->nodes) < 0) {
        return TOOL_FAILED;
    }
    return c->nodes.n ? TOOL_OK
                      : tool_usage("no host is attached: probing cluster attach HOST:PORT, or "
                                   "--nodes HOST:PORT");
}

/* ---- nodes ---- */

struct seen {
    struct ask *asks;
    cJSON **info;
};

static int on_info(void *ctx, struct ask *ask) {
    struct seen *s = ctx;
    cJSON *j = cJSON_ParseWithLength(ask->text, ask->n);

    if (cJSON_GetStringValue(cJSON_GetObjectItem(j, "version"))) {
        s->info[ask - s->asks] = j;
        return 0;
    }
    cJSON_Delete(j);
    snprintf(ask->error, sizeof ask->error, "its answer is not what a server of probing's says");
    return -EBADMSG;
}

static struct rows_value text_value(const cJSON *j, const char *name) {
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItem(j, name));

    return text ? rows_text(text) : rows_null();
}

static int nodes(struct cluster *c) {
    struct seen s = {.asks = ask_each(c, "/api/v1/info", NULL),
                     .info = calloc(c->nodes.n, sizeof *s.info)};
    struct rows *r = NULL;
    int rc = s.asks && s.info ? ask_all(c, s.asks, c->nodes.n, on_info, &s) : -ENOMEM;

    if (rc == 0)
        rc = rows_open(&r, c->rows.format, stdout);
    if (rc == 0) {
        ask_twice(s.asks, c->nodes.n);
        rows_begin(r, 8,
                   (const char *const[]){"node", "host", "version", "control", "sources",
                                         "clock_offset", "clock_uncertainty", "error"});
    }
    for (size_t i = 0; rc == 0 && i < c->nodes.n; i++) {
        const struct ask *a = &s.asks[i];
        const cJSON *j = a->ok ? s.info[i] : NULL, *control = cJSON_GetObjectItem(j, "control");
        struct rows_value v[8] = {
            rows_text(a->node->address),
            text_value(j, "host"),
            text_value(j, "version"),
            j ? rows_int(cJSON_IsTrue(control)) : rows_null(),
            j ? rows_int(cJSON_GetArraySize(cJSON_GetObjectItem(j, "sources"))) : rows_null(),
            j && isfinite(a->offset) ? rows_real(a->offset) : rows_null(),
            j && isfinite(a->offset) ? rows_real(a->uncertainty) : rows_null(),
            a->ok ? rows_null() : rows_text(a->error)};
        rc = rows_row(r, v);
    }
    if (rc == 0)
        rows_end(r);
    rows_close(r);
    int code = rc < 0 ? tool_fail("cannot ask: %s", strerror(-rc)) : ask_failed(s.asks, c->nodes.n);
    for (size_t i = 0; s.info && i < c->nodes.n; i++)
        cJSON_Delete(s.info[i]);
    free(s.info);
    free(s.asks);
    return code;
}

/* ---- query ---- */

struct merged {
    struct answers *answers;
    struct ask *asks;
};

static int on_rows(void *ctx, struct ask *ask) {
    struct merged *m = ctx;

    return answers_add(m->answers, ask, (size_t)(ask - m->asks));
}

static int print_rows(struct cluster *c, struct merged *m, const char *over) {
    char *sql = over ? sqlite3_mprintf("%s", over) : answers_select(m->answers);
    int code = TOOL_OK;

    c->rows.db = answers_db(m->answers);
    if (c->json)
        fputs("{\"rows\": ", stdout);
    if (sql)
        code = sql_run(&c->rows, sql);
    else if (c->json)
        fputs("[]\n", stdout);
    else
        tool_say("no rows");
    if (c->json) {
        fputs(code == TOOL_OK ? ", \"failed\": " : "null, \"failed\": ", stdout);
        ask_failed_json(stdout, m->asks, c->nodes.n);
        fputs("}\n", stdout);
    }
    sqlite3_free(sql);
    return code;
}

static int query(struct cluster *c, const struct options *o) {
    struct merged m = {.answers = answers_new()};
    cJSON *j = cJSON_CreateObject();
    int code;

    cJSON_AddStringToObject(j, "sql", o->words[0]);
    cJSON_AddNumberToObject(j, "timeout", c->timeout);
    char *body = cJSON_PrintUnformatted(j);
    cJSON_Delete(j);
    m.asks = body && m.answers ? ask_each(c, "/api/v1/query", body) : NULL;
    int rc = m.asks ? ask_all(c, m.asks, c->nodes.n, on_rows, &m) : -ENOMEM;
    if (rc < 0) {
        code = tool_fail("cannot ask: %s", strerror(-rc));
        goto out;
    }
    ask_twice(m.asks, c->nodes.n);
    for (size_t i = 0; i < c->nodes.n; i++) {
        char sql[80];
        snprintf(sql, sizeof sql, "DELETE FROM answers WHERE place = %zu", i);
        if (!m.asks[i].ok)
            sqlite3_exec(answers_db(m.answers), sql, NULL, NULL, NULL);
    }
    code = print_rows(c, &m, o->over);
    rc = ask_failed(m.asks, c->nodes.n);
    code = rc > code ? rc : code;
out:
    cJSON_free(body);
    free(m.asks);
    answers_free(m.answers);
    return code;
}

/* ---- report: the traces, and `probing report` over them ---- */

/* Runs a program and waits for it. The caller has blocked SIGINT, so that none comes between the check and the wait; `open` is the signal mask from
 * before. A SIGINT to this process alone (kill -INT) is passed on to the program. */
static int run(char *const *argv, const sigset_t *open) {
    posix_spawnattr_t attr;
    pid_t pid;
    int status = 0;

    posix_spawnattr_init(&attr);
    posix_spawnattr_setsigmask(&attr, open);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK);
    int rc = posix_spawn(&pid, argv[0], NULL, &attr, argv, environ);
    posix_spawnattr_destroy(&attr);
    if (rc)
        return tool_fail("cannot run %s: %s", argv[0], strerror(rc));
    struct pollfd p = {(int)syscall(SYS_pidfd_open, pid, 0), POLLIN, 0};
    while (p.fd >= 0 && ppoll(&p, 1, NULL, open) < 0 && errno == EINTR)
        if (cluster_interrupted)
            kill(pid, SIGINT);
    close(p.fd);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static int report(struct cluster *c, const struct options *o) {
    const char *tmp = getenv("TMPDIR");
    char prefix[3900], program[4096], dir[3000];
    size_t n = 0;

    if (tool_prefix(prefix, sizeof prefix) < 0)
        return tool_fail("cannot find the installation");
    snprintf(program, sizeof program, "%s/bin/probing", prefix);
    snprintf(dir, sizeof dir, "%.2900s/probing-cluster-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    if (!mkdtemp(dir))
        return tool_fail("cannot make a folder for the traces: %s (TMPDIR names another place)",
                         strerror(errno));
    int code = cluster_fetch(c, dir, &n), rc = TOOL_OK;
    sigset_t interrupt, before;
    sigemptyset(&interrupt);
    sigaddset(&interrupt, SIGINT);
    sigprocmask(SIG_BLOCK, &interrupt, &before);
    if (cluster_interrupted)
        code = 130;
    if (n && code != 130)
        rc = run((char *[]){program, (char *)(uintptr_t) "report", (char *)(uintptr_t) "--no-cache",
                            (char *)(uintptr_t) "-o", (char *)(uintptr_t)o->output, dir, NULL},
                 &before);
    run((char *[]){(char *)(uintptr_t) "/bin/rm", (char *)(uintptr_t) "-rf",
                   (char *)(uintptr_t) "--", dir, NULL},
        &interrupt);
    sigprocmask(SIG_SETMASK, &before, NULL);
    return rc > code ? rc : code;
}

/* ---- the command line ---- */

static int dispatch(const char *word, struct cluster *c, struct options *o) {
    int needs = strcmp(word, "query") == 0 || strcmp(word, "fetch") == 0, code;
    size_t n;

    if (strcmp(word, "attach") == 0)
        return attach(o);
    if (strcmp(word, "detach") == 0)
        return detach(o);
    if (o->nwords != needs)
        return needs ? tool_usage("%s takes one argument, %s", word,
                                  *word == 'q' ? "the SQL" : "a folder")
                     : tool_usage("%s takes no argument, but there is '%s'", word, o->words[0]);
    if (strcmp(word, "report") == 0 && !o->output)
        return tool_usage("where to? -o FILE.html");
    if ((code = find_nodes(c, o)) != TOOL_OK)
        return code;
    if (strcmp(word, "nodes") == 0)
        return nodes(c);
    if (strcmp(word, "query") == 0)
        return query(c, o);
    if (strcmp(word, "stacks") == 0)
        return cluster_stacks(c, o->threads, o->native);
    if (strcmp(word, "report") == 0)
        return report(c, o);
    return cluster_fetch(c, o->words[0], &n);
}

static int parse(int argc, char **argv, struct cluster *c, struct options *o) {
    const struct tool_option options[] = {
        OPTION_FLAG("slurm", 0, &o->slurm),
        OPTION_TEXT("hostfile", 0, &o->hostfile),
        OPTION_FLAG("torchrun", 0, &o->torchrun),
        OPTION_FLAG("all", 0, &o->all),
        OPTION_WHOLE("port", 0, &o->port, 1, 65535, "--port is a number up to 65535, not '%s'"),
        OPTION_TEXT("token-file", 0, &o->token_file),
        OPTION_TEXT("nodes", 0, &o->nodes),
        OPTION_TEXT("over", 0, &o->over),
        OPTION_TEXT("output", 'o', &o->output),
        OPTION_FLAG("threads", 0, &o->threads),
        OPTION_FLAG("native", 0, &o->native),
        OPTION_FLAG("flat", 0, &c->flat),
        OPTION_WHOLE("parallel", 0, &c->parallel, 1, 1000,
                     "--parallel is a number up to 1000, not '%s'"),
        OPTION_NUMBER("max-bytes", 0, &c->max_bytes, 1, 1e12,
                      "--max-bytes is a number of bytes, not '%s'"),
        SQL_RUN_OPTIONS(&c->rows),
        {0}};

    return tool_options(argc, argv, help, options);
}

int main(int argc, char **argv) {
    static const char *const words[] = {"attach", "detach", "nodes", "query",
                                        "stacks", "report", "fetch"};
    struct cluster c = {.timeout = 30,
                        .parallel = 128,
                        .max_bytes = 16u << 20,
                        .rows = {.format = "table", .out = stdout}};
    struct options o = {.port = 8080};
    struct sigaction sa = {.sa_handler = on_interrupt};
    const char *word = NULL;
    int code;

    tool_name = argv[0] = (char *)(uintptr_t) "probing-cluster";
    tool_begin();
    if (argc == 2 && strcmp(argv[1], "--version") == 0) {
        printf("probing-cluster %s\n", PROBING_VERSION);
        return tool_end(TOOL_OK);
    }
    if ((code = parse(argc, argv, &c, &o)) != TOOL_OK)
        return tool_end(code);
    for (size_t i = 0; optind < argc && i < sizeof words / sizeof *words; i++) {
        if (strcmp(argv[optind], words[i]) == 0)
            word = words[i];
    }
    if (!word)
        return tool_usage(optind < argc ? "there is no '%s': attach, detach, nodes, query, stacks, "
                                          "report or fetch"
                                        : "what? attach, detach, nodes, query, stacks, report or "
                                          "fetch",
                          optind < argc ? argv[optind] : "");
    o.words = argv + optind + 1;
    o.nwords = argc - optind - 1;
    if (c.rows.timeout > 0)
        c.timeout = c.rows.timeout;
    c.rows.timeout = 0;
    c.json = strcmp(c.rows.format, "json") == 0;
    sigaction(SIGINT, &sa, NULL);
    signal(SIGPIPE, SIG_IGN);
    code = dispatch(word, &c, &o);
    attached_free(&c.nodes);
    return tool_end(code);
}
