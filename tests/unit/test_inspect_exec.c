/* SPDX-License-Identifier: Apache-2.0 */
/* A process that starts one program after another while it is stopped, from a thread that is not its first: the kernel makes the exec wait for
 * the threads that we trace, and our next PTRACE_SEIZE wait for the exec. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gdbplugin/stop.h"
#include "traces/proc.h"

#define LIMIT_S 120
#define EXECS   50
#define THREADS 6

static void *doze(void *arg) {
    while (pause() < 0) /* it is always */
        ;
    return arg;
}

static void *begin_anew(void *arg) {
    char self[] = "/proc/self/exe", again[] = "again";
    char *const argv[] = {self, again, NULL};

    (void)arg;
    execv(self, argv);
    _exit(1);
}

/* The program that the process executes each time. */
static int program(void) {
    pthread_t t;

    for (int i = 0; i < THREADS; i++)
        pthread_create(&t, NULL, doze, NULL);
    pthread_create(&t, NULL, begin_anew, NULL);
    doze(NULL);
    return 0;
}

/* Starts a process that is not our child, because waitpid() would tell more about a child. */
static pid_t start(void) {
    int to[2];
    pid_t pid = 0;

    assert_int_equal(pipe(to), 0);
    if (fork() == 0) {
        pid = fork();
        if (pid == 0) {
            alarm(
                LIMIT_S); /* of the new programs, too: nobody waits for it if the test is killed */
            begin_anew(NULL);
        }
        _exit(write(to[1], &pid, sizeof pid) != sizeof pid);
    }
    assert_int_equal(read(to[0], &pid, sizeof pid), sizeof pid);
    while (wait(NULL) > 0)
        ;
    close(to[0]);
    close(to[1]);
    return pid;
}

static void test_an_exec_meanwhile(void **state) {
    pid_t child = start();
    uint64_t is[2], was = 0;
    struct stop s;
    int seen = 0;

    (void)state;
    while (seen < EXECS) {
        int rc = stop_seize(&s, child, 2000);
        if (rc == 0) {
            assert_true(s.n > 0);
            /* all of it stands: no exec can begin, and what is read is one program's */
            if (proc_image(child, is) == 0) {
                seen += is[1] != was;
                was = is[1];
            }
            stop_release(&s);
        } else /* it came to no end in time */
            assert_int_equal(rc, -ETIMEDOUT);
    }
    assert_int_equal(kill(child, SIGKILL), 0);
}

static void test_no_process(void **state) {
    uint64_t is[2];

    (void)state;
    assert_int_equal(proc_image(INT32_MAX, is), -ESRCH); /* ids end at 2^22 */
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_an_exec_meanwhile),
                                       cmocka_unit_test(test_no_process)};

    if (argc > 1 && strcmp(argv[1], "again") == 0)
        return program();
    alarm(LIMIT_S); /* a hang must end */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
