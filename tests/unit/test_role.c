/* SPDX-License-Identifier: Apache-2.0 */
/*
 * agent/core/role.h: ranks come from the environment, else from torch.distributed; a forked child with its parent's rank is no worker; and a
 * launcher is known by its command line. For that, this program runs itself under the command lines of launchers and of other programs.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "agent/base/memory.c"
#include "agent/core/config.c"
#include "agent/core/role.c"
#include "agent/core/settings.c"

#define ASKED "TEST_ROLE_ASKED"

static const char *const variables[] = {
    "RANK",
    "OMPI_COMM_WORLD_RANK",
    "SLURM_PROCID",
    "LOCAL_RANK",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "SLURM_LOCALID",
    "WORLD_SIZE",
    "OMPI_COMM_WORLD_SIZE",
    "SLURM_NTASKS",
    "MASTER_ADDR",
    "MASTER_PORT",
};

static int setup(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++)
        unsetenv(variables[i]);
    role_set_ranks(-1, -1);
    role.parent_rank = role.known_rank = -1;
    return 0;
}

static struct agent_ranks found(const char *how) {
    static const struct agent_python none;
    struct agent_ranks r;
    role_find(&r, &none, how);
    return r;
}

static void assert_found(const char *how, int32_t rank, int32_t world_size, const char *name) {
    struct agent_ranks r = found(how);
    assert_int_equal(r.rank, rank);
    assert_int_equal(r.world_size, world_size);
    assert_string_equal(r.role, name);
    assert_int_equal(role_is_worker(), !strcmp(name, "worker"));
    assert_int_equal(role_has_rank(), rank >= 0);
}

static void by_environment_or_by_torch(void **state) {
    (void)state;
    assert_found("preload", -1, -1, "");
    setenv("WORLD_SIZE", "4", 1); /* also of a process that has no rank */
    assert_found("preload", -1, 4, "");
    for (int32_t rank = 0; rank < 3; rank++) { /* the program called init_process_group(rank=...) */
        role_set_ranks(rank, 3);
        assert_int_equal(role_has_rank(), 1);
        assert_found("preload", rank, 3, "worker");
    }
    setenv("RANK", "1", 1); /* the environment's are a pair: nothing is mixed */
    assert_found("inject", 1, 4, "worker");
    role_set_ranks(-1, -1);
    assert_found("inject", 1, 4, "worker");
}

static void master(void **state) {
    (void)state;
    assert_string_equal(found("preload").master, "");
    setenv("MASTER_PORT", "29500", 1);
    assert_string_equal(found("preload").master, "");
    setenv("MASTER_ADDR", "10.0.0.7", 1);
    assert_string_equal(found("preload").master, "10.0.0.7:29500");
    unsetenv("MASTER_PORT");
    assert_string_equal(found("preload").master, "10.0.0.7");
}

/* The child has its parent's environment, as a data loader's worker does, unless it is given a rank of its own, as torch.multiprocessing's spawn does. */
static void in_a_forked_child(const char *of_parent, int32_t given, const char *of_child,
                              int32_t given_to_child, int32_t rank, int32_t world_size,
                              const char *name) {
    int status;
    setup(NULL);
    if (of_parent)
        setenv("RANK", of_parent, 1);
    role_set_ranks(given, given < 0 ? -1 : 8);
    if (given < 0 || !of_parent)
        found("preload"); /* else: forked before the service thread looked */
    pid_t pid = fork();
    if (pid == 0) {
        if (memory_init())
            _exit(2);
        role_after_fork();
        if (of_child)
            setenv("RANK", of_child, 1);
        struct agent_ranks r = found("fork");
        int ok = r.rank == (of_child ? atoi(of_child) : of_parent ? atoi(of_parent) : -1);
        if (given_to_child >= 0)
            role_set_ranks(given_to_child, 16);
        r = found("fork");
        _exit(!(ok && r.rank == rank && r.world_size == world_size && !strcmp(r.role, name) &&
                role_has_rank() == (rank >= 0)));
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (status)
        fail_msg("RANK=%s, given %d; child: RANK=%s, given %d: not rank %d of %d, \"%s\"",
                 of_parent ? of_parent : "", given, of_child ? of_child : "", given_to_child, rank,
                 world_size, name);
}

static void forked(void **state) {
    (void)state;
    in_a_forked_child(NULL, -1, NULL, -1, -1, -1, "");
    in_a_forked_child("0", -1, NULL, -1, 0, -1, "");
    in_a_forked_child("3", -1, NULL, -1, 3, -1, "");
    in_a_forked_child("3", -1, "5", -1, 5, -1, "worker");
    in_a_forked_child(NULL, -1, "0", -1, 0, -1, "worker");
    /* torch.distributed knows the parent's rank. The child asks it itself. */
    in_a_forked_child(NULL, 3, NULL, -1, -1, -1, "");
    in_a_forked_child(NULL, 3, NULL, 3, 3, 16, "");
    in_a_forked_child(NULL, 0, NULL, 0, 0, 16, "");
    in_a_forked_child(NULL, 3, NULL, 0, 0, 16, "worker");
    in_a_forked_child(NULL, -1, NULL, 0, 0, 16, "worker");
}

/* Returns the role of a process with this command line, given as words with blanks between them. */
static char role_under(const char *command, const char *rank) {
    char text[256], *argv[16], *rest = text;
    int n = 0, status;
    snprintf(text, sizeof text, "%s", command);
    while (n < 15 && (argv[n] = strsep(&rest, " ")))
        n++;
    argv[n] = NULL;
    pid_t pid = fork();
    if (pid == 0) {
        setup(NULL);
        setenv(ASKED, "1", 1);
        if (rank)
            setenv("RANK", rank, 1);
        execv("/proc/self/exe", argv);
        _exit(1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return (char)WEXITSTATUS(status);
}

static void launchers(void **state) {
    static const char *const yes[] = {
        "python /usr/bin/torchrun train.py",
        "python3 -m torch.distributed.run --nproc-per-node 2 train.py",
        "python3 -u -m torch.distributed.launch train.py",
        "python -mtorch.distributed.run train.py",
        "python -X dev -m torch.distributed.run train.py",
        "python -W ignore -X utf8 /usr/bin/torchrun train.py",
        "python -Wignore -Xutf8 /usr/bin/torchrun train.py",
        "/v/bin/python /v/lib/python3.11/site-packages/torch/distributed/run.py train.py",
        "/v/bin/python -u /v/lib/python3.11/site-packages/torch/distributed/launch.py train.py",
        "python deepspeed train.py",
        "python -m accelerate.commands.launch train.py",
    };
    static const char *const no[] = {
        "python",
        "torchrun",
        "python train.py",
        "python train.py torchrun",
        "python -m train torchrun",
        "python -u train.py -m torch.distributed.run",
        "python -X torchrun train.py",
        "python my-torchrun",
        "python torchrun.py",
        "python -c -m",
    };
    (void)state;
    for (size_t i = 0; i < sizeof yes / sizeof *yes; i++) {
        if (role_under(yes[i], NULL) != 'l')
            fail_msg("no launcher: %s", yes[i]);
        assert_int_equal(role_under(yes[i], "0"),
                         'w'); /* what has a rank is a worker, whatever its name */
    }
    for (size_t i = 0; i < sizeof no / sizeof *no; i++)
        if (role_under(no[i], NULL) != 0)
            fail_msg("a launcher: %s", no[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(by_environment_or_by_torch, setup),
        cmocka_unit_test_setup(master, setup),
        cmocka_unit_test_setup(forked, setup),
        cmocka_unit_test_setup(launchers, setup),
    };
    if (memory_init())
        return 1;
    if (getenv(ASKED)) {
        struct agent_ranks r = found("preload");
        return r.rank < -1 || r.world_size != -1 ? '?' : r.role[0];
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
