/* SPDX-License-Identifier: Apache-2.0 */
/* A live file that somebody has planted, or changes and truncates while it is read (tests/fuzz/fuzz_live.c): its readers refuse it, or go on,
 * and never die of it. It runs in a process of its own, so that a death is a result. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define FUZZ_LIBFUZZER
#include "../fuzz/fuzz_live.c"

#define ROUNDS 1500

/* Names of files are damaged, too: no such file is created where other files are. */
static void test_changed_while_read(void **state) {
    unsigned from = (unsigned)getpid();
    int status;

    (void)state;
    print_message("seed %u\n", from);
    status = fuzz_confined(ROUNDS, from);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
        skip();
    assert_int_equal(status, 0);
}

/* Another user's file is never finished, not even by root. */
static void test_foreign_owner(void **state) {
    struct writer_finished done;
    struct stat st;

    (void)state;
    prepare();
    restore();
    if (geteuid() == 0) {
        assert_int_equal(chown(victim.live, 65534, 65534), 0);
        assert_int_equal(writer_finish(victim.live, "killed", 0, &done),
                         -EBADMSG); /* another's name in it */
        struct live head;
        memcpy(&head, victim.image, sizeof head);
        head.uid = 65534;
        put(victim.live, (uint8_t *)&head, sizeof head);
        put(victim.live, victim.image, victim.size);
        int fd = open(victim.live, O_RDWR);
        assert_int_equal(pwrite(fd, &head, sizeof head, 0), sizeof head);
        close(fd);
        assert_int_equal(writer_finish(victim.live, "killed", 0, &done), -EPERM);
        assert_int_equal(chown(victim.live, 0, 0), 0);
    }
    restore();
    assert_int_equal(writer_finish(victim.live, "killed", 0, &done), 0);
    assert_true(done.recovered > 0);
    assert_int_equal(stat(victim.live, &st), -1);
    assert_int_equal(remove_tree(victim.dir), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_foreign_owner),
        cmocka_unit_test(test_changed_while_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
