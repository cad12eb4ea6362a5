/* SPDX-License-Identifier: Apache-2.0 */
/* traces/run.h: which run a file belongs to, and which files are moved away. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utime.h>

#include "traces/own_file.h"
#include "traces/run.h"
#include "writer/writer.h"

static char dir[] = "/tmp/test_run_XXXXXX";

static const char *in_dir(const char *name) {
    static char path[4][256];
    static unsigned at;
    char *p = path[at++ % 4];
    snprintf(p, sizeof path[0], "%s/%s", dir, name);
    return p;
}

static struct writer_value text(const char *s) {
    return (struct writer_value){.p = s, .n = strlen(s)};
}

/* Starts a trace of that run, which is then being written. */
static struct writer *begin(const char *name, const char *run, const char *job, const char *host) {
    char own[65];
    struct writer *w;
    gethostname(own, sizeof own);
    struct writer_options o = {.trace_path = in_dir(name), .run_dir = dir, .nrings = 1};
    assert_int_equal(writer_open(&w, &o), 0);
    struct writer_value v[TRACE_process_NFIELDS] = {[TRACE_process_ts] = {.u = 5},
                                                    [TRACE_process_pid] = {.u = 7},
                                                    [TRACE_process_host] = text(host ? host : own),
                                                    [TRACE_process_boot_id] = text("b"),
                                                    [TRACE_process_run] = text(run),
                                                    [TRACE_process_job] = text(job)};
    assert_int_equal(writer_emit(w, TRACE_process, v), 0);
    assert_int_equal(writer_drain(w, WRITER_FLUSH), 0);
    return w;
}

static void written(const char *name, const char *run, const char *job) {
    assert_int_equal(writer_close(begin(name, run, job, NULL), "exit"), 0);
}

/* What a process of run `run` gets when it asks for t.zst: returns the result and the name. */
static int take(const char *run, const char *job, const char **name) {
    static char file[4096];
    struct run_id me;
    snprintf(me.run, sizeof me.run, "%s", run);
    snprintf(me.job, sizeof me.job, "%s", job);
    snprintf(file, sizeof file, "%s", in_dir("t.zst"));
    int rc = run_take(file, sizeof file, &me, NULL, NULL);
    *name = strrchr(file, '/') + 1;
    return rc;
}

static int there(const char *name) {
    return access(in_dir(name), F_OK) == 0;
}

static int setup(void **state) {
    (void)state;
    strcpy(dir + strlen(dir) - 6, "XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **state) {
    char cmd[128];
    (void)state;
    snprintf(cmd, sizeof cmd, "rm -rf %s", dir);
    return system(cmd);
}

static void makes_way(void **state) {
    const char *name;
    (void)state;
    assert_int_equal(take("a", "", &name), RUN_FIRST); /* nothing is there */
    assert_string_equal(name, "t.zst");
    for (int i = 0; i < 2; i++) {
        written("t.zst", "a", "");
        mkdir(in_dir("t.zst.d"), 0700);
        written("t.zst.d/x.zst", "a", "");
        assert_int_equal(take("b", "", &name), RUN_FIRST);
        assert_string_equal(name, "t.zst");
        assert_false(there("t.zst") || there("t.zst.d"));
        assert_true(there(i ? "t.zst.old.2" : "t.zst.old"));
        assert_true(there(i ? "t.zst.old.2.d/x.zst" : "t.zst.old.d/x.zst"));
    }
}

static void joins(void **state) {
    const char *name;
    (void)state;
    written("t.zst", "a", "slurm:1");
    assert_int_equal(take("a", "", &name), RUN_JOINED);
    assert_int_equal(take("b", "slurm:1", &name), RUN_JOINED);
    assert_true(there("t.zst"));
    assert_int_equal(take("b", "slurm:2", &name), RUN_FIRST);
    /* FILE is gone or never existed: the traces of the run's other processes tell that it is taken. */
    mkdir(in_dir("t.zst.d"), 0700);
    written("t.zst.d/x.zst", "c", "");
    assert_int_equal(take("c", "", &name), RUN_JOINED);
}

static void what_is_written_stays(void **state) {
    const char *name;
    struct writer *w = begin("t.zst", "a", "", NULL);
    (void)state;
    assert_int_equal(take("b", "", &name), RUN_FIRST);
    assert_string_equal(name, "t-2.zst");
    assert_int_equal(writer_close(w, "exit"), 0);
    mkdir(in_dir("t.zst.d"), 0700);
    w = begin("t.zst.d/x.zst", "a", "", NULL); /* the main process has ended, another has not */
    assert_int_equal(take("b", "", &name), RUN_FIRST);
    assert_string_equal(name, "t-2.zst");
    assert_int_equal(writer_close(w, "exit"), 0);
    assert_int_equal(take("b", "", &name), RUN_FIRST);
    assert_string_equal(name, "t.zst");
}

/* Traces without an end: of a killed process on this host; of a process on another host, which may live; an empty one, which a full disk has left just
 * now; and a file that is no trace. */
static void without_an_end(void **state) {
    const char *name;
    struct writer *w = begin("u.zst", "a", "", NULL);
    (void)state;
    assert_int_equal(link(in_dir("u.zst"), in_dir("v.zst")), 0);
    assert_int_equal(writer_close(w, "exit"), 0);
    assert_int_equal(truncate(in_dir("v.zst"), 1 << 20), 0); /* no seek table at its end */
    rename(in_dir("v.zst"), in_dir("t.zst"));
    assert_int_equal(take("b", "", &name), RUN_FIRST);
    assert_string_equal(name, "t.zst");
    w = begin("t.zst", "a", "", "elsewhere");
    assert_int_equal(writer_close(w, "exit"), 0);
    assert_int_equal(truncate(in_dir("t.zst"), 1 << 20), 0);
    assert_int_equal(take("b", "", &name), RUN_FIRST);
    assert_string_equal(name, "t-2.zst");
    unlink(in_dir("t.zst"));
    fclose(fopen(in_dir("t.zst"), "w"));
    assert_int_equal(take("b", "", &name), RUN_FIRST);
    assert_string_equal(name, "t.zst");
    FILE *f = fopen(in_dir("t.zst"), "w");
    fputs(
        "my notes, no trace of anything, and much longer than a hint frame would have to be, so that it can be read\n",
        f);
    fclose(f);
    utime(in_dir("t.zst"), &(struct utimbuf){0, 0});
    assert_int_equal(take("b", "", &name), RUN_FIRST);
    assert_string_equal(name, "t-2.zst");
    unlink(in_dir("t.zst"));
    assert_int_equal(symlink("/nowhere/at/all", in_dir("t.zst")), 0);
    assert_int_equal(take("b", "", &name), RUN_FIRST);
    assert_string_equal(name, "t-2.zst");
}

static char asked[64]; /* what run_take() was about to try, one after the other */

static void note_name(const char *name, void *arg) {
    size_t n = strlen(arg);
    snprintf((char *)arg + n, sizeof asked - n, "%s ", strrchr(name, '/') + 1);
}

/* Which name is tried next, where old traces go, and which files are no traces. */
static void names_in_turn(void **state) {
    const struct run_id me = {"b", ""};
    char file[4096];
    const char *name;
    (void)state;
    /* Both .old and .old.d must be free. */
    mkdir(in_dir("t.zst.old.d"), 0700);
    written("t.zst", "a", "");
    assert_int_equal(take("b", "", &name), RUN_FIRST);
    assert_true(there("t.zst.old.2") && !there("t.zst.old"));
    /* A file of another kind in FILE.d belongs to no process of a run. */
    mkdir(in_dir("t.zst.d"), 0700);
    fclose(fopen(in_dir("t.zst.d/notes.txt"), "w"));
    assert_int_equal(take("b", "", &name), RUN_FIRST);
    assert_true(there("t.zst.d/notes.txt") && !there("t.zst.old.3.d"));
    /* A name without .zst gets its number at the end; one that becomes too long is refused; each trace is finished before it is judged. */
    struct writer *w = begin("notes.bin", "a", "", NULL);
    snprintf(file, sizeof file, "%s", in_dir("notes.bin"));
    assert_int_equal(run_take(file, sizeof file, &me, note_name, asked), RUN_FIRST);
    assert_string_equal(strrchr(file, '/') + 1, "notes.bin-2");
    assert_string_equal(asked, "notes.bin notes.bin-2 ");
    snprintf(file, sizeof file, "%s", in_dir("notes.bin"));
    assert_int_equal(run_take(file, strlen(file) + 2, &me, NULL, NULL), -ENAMETOOLONG);
    snprintf(file, sizeof file, "%s", in_dir("notes.bin"));
    assert_int_equal(run_take(file, strlen(file) + 3, &me, NULL, NULL), RUN_FIRST);
    assert_int_equal(writer_close(w, "exit"), 0);
}

/* Host names of any kind in names of files. */
static void names_of_processes(void **state) {
    char buf[128];
    (void)state;
    run_process_name("azAZ09.b_c-d", 3, 7, buf, sizeof buf);
    assert_string_equal(buf, "azAZ09.b_c-d-r3-7");
    run_process_name("../`{@[/: ~", 0, 7, buf, sizeof buf);
    assert_string_equal(buf, "_._________-r0-7");
    run_process_name("", -1, 7, buf, sizeof buf);
    assert_string_equal(buf, "host-7");
}

static const char *environment[8];

static int env(const char *name, char *buf, size_t n) {
    for (unsigned i = 0; environment[i]; i += 2)
        if (!strcmp(environment[i], name))
            return snprintf(buf, n, "%s", environment[i + 1]) < (int)n;
    return 0;
}

static const char *job(const char *a, const char *b, const char *c, const char *d) {
    static char out[RUN_ID];
    const char *all[] = {a, b, c, d, NULL};
    memcpy(environment, all, sizeof all);
    run_job(out, env);
    return out;
}

static void identity(void **state) {
    char one[RUN_ID], two[RUN_ID], pid[32];
    uint64_t size;
    (void)state;
    run_self(one, sizeof one);
    run_self(two, sizeof two);
    snprintf(pid, sizeof pid, "-%d-", (int)getpid());
    assert_string_equal(one, two);
    assert_non_null(strstr(one, pid));
    assert_string_equal(job(NULL, NULL, NULL, NULL), "");
    assert_string_equal(job("SLURM_JOB_ID", "7", NULL, NULL), "slurm:7");
    assert_string_equal(job("SLURM_JOB_ID", "7", "SLURM_STEP_ID", "2"), "slurm:7.2");
    assert_string_equal(job("SLURM_JOB_ID", "7", "TORCHELASTIC_RUN_ID", "x"), "elastic:x");
    assert_string_equal(job("SLURM_JOB_ID", "7", "TORCHELASTIC_RUN_ID", "none"), "slurm:7");
    assert_string_equal(job("PMIX_NAMESPACE", "p", "SLURM_JOB_ID", "7"), "mpi:p");
    assert_false(run_same(&(struct run_id){"", ""}, &(struct run_id){"", ""}));
    assert_false(run_same(&(struct run_id){"a", ""}, &(struct run_id){"b", ""}));
    written("t.zst", "a", "");
    assert_int_equal(run_recording(in_dir("t.zst"), one, &size), 0);
    assert_string_equal(one, "b/7/0/5");
    struct stat st;
    assert_int_equal(stat(in_dir("t.zst"), &st), 0);
    assert_int_equal(size, st.st_size);
    assert_int_equal(run_recording(in_dir("nothing"), one, &size), -ENOENT);
}

/* ---- several processes make one folder, under an umask that withholds permissions from its owner ---- */

#define FOLDERS 300u
#define MAKERS  3u

/* Makes the folder at the same time as the others, and a file in it. Does not return. */
static void make_one(const char *path, uint32_t *together, uint32_t number, unsigned maker) {
    char name[300];
    if (geteuid() == 0 && setuid(65534)) /* root may do everything anyway */
        _exit(2);
    umask(0777);
    snprintf(name, sizeof name, "%s/%u", path, maker);
    __atomic_add_fetch(together, 1, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(together, __ATOMIC_SEQ_CST) < number * MAKERS)
        ;
    if (own_dir_make(path, 0755))
        _exit(3);
    _exit(open(name, O_RDWR | O_CREAT | O_EXCL, 0600) < 0 ? 4 : 0);
}

static void folder_of_several_processes(void **state) {
    uint32_t *together =
        mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    (void)state;
    assert_ptr_not_equal(together, MAP_FAILED);
    assert_int_equal(chmod(dir, 0777), 0);
    for (uint32_t n = 1; n <= FOLDERS; n++) {
        char path[64];
        int status, failed = 0;
        snprintf(path, sizeof path, "%s/%u.d", dir, n);
        for (unsigned i = 0; i < MAKERS; i++) {
            pid_t pid = fork();
            assert_true(pid >= 0);
            if (pid == 0)
                make_one(path, together, n, i);
        }
        for (unsigned i = 0; i < MAKERS; i++)
            failed |= wait(&status) < 0 || status;
        assert_int_equal(failed, 0);
        for (unsigned i = 0; i < MAKERS; i++) {
            char name[80];
            snprintf(name, sizeof name, "%s/%u", path, i);
            assert_int_equal(unlink(name), 0);
        }
        assert_int_equal(rmdir(path), 0);
    }
    munmap(together, 4096);
}

/* A link is followed if the user or root has made it, and never if somebody else has. */
static void a_link_in_place_of_a_folder(void **state) {
    char path[64];
    (void)state;
    snprintf(path, sizeof path, "%s/link", dir);
    assert_int_equal(symlink("/tmp", path), 0);
    assert_int_equal(own_dir_make(path, 0755), 0);
    if (geteuid() == 0) {
        assert_int_equal(lchown(path, 65534, 65534), 0);
        assert_int_equal(own_dir_make(path, 0755), -ELOOP);
        assert_int_equal(lchown(path, 0, 0), 0);
    }
    assert_int_equal(own_dir_make("/", 0755), 0); /* a folder, whoever owns it */
    assert_int_equal(unlink(path), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(makes_way, setup, teardown),
        cmocka_unit_test_setup_teardown(joins, setup, teardown),
        cmocka_unit_test_setup_teardown(what_is_written_stays, setup, teardown),
        cmocka_unit_test_setup_teardown(without_an_end, setup, teardown),
        cmocka_unit_test_setup_teardown(names_in_turn, setup, teardown),
        cmocka_unit_test(names_of_processes),
        cmocka_unit_test_setup_teardown(identity, setup, teardown),
        cmocka_unit_test_setup_teardown(folder_of_several_processes, setup, teardown),
        cmocka_unit_test_setup_teardown(a_link_in_place_of_a_folder, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
