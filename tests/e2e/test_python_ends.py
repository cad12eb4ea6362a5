# SPDX-License-Identifier: Apache-2.0
"""A thread of the agent that is about to enter Python while Python ends."""
import os

import pytest

# What takes system calls in a thread's first allocation, here takes until Python has ended. Then the process stays for a moment.
SCENE = r"""
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>
extern void *__libc_malloc(size_t);
static __thread int calls;
static int (*is_initialized)(void);
void *malloc(size_t n) {
    char name[16] = "";
    if (!calls++ && !prctl(PR_GET_NAME, name) && !strcmp(name, "probing-gil") &&
        (is_initialized = dlsym(RTLD_DEFAULT, "Py_IsInitialized"))) {
        for (int ms = 0; ms < 60000 && is_initialized(); ms++)
            usleep(1000);
        usleep(100000); // what it had is freed, too
    }
    return __libc_malloc(n);
}
static void linger(void) { usleep(500000); }
__attribute__((constructor)) static void at_start(void) { atexit(linger); }
"""
PROGRAM = """
import os, time, probing
def threads():
    return [open("/proc/self/task/%s/comm" % t).read().strip() for t in os.listdir("/proc/self/task")]
probing.enable(trace="t.zst", sample_rate=0)
end = time.time() + 60
while "probing-gil" not in threads() and time.time() < end:
    time.sleep(0.001)
print("probing-gil" in threads(), flush=True)
"""


@pytest.mark.pythons(min=(3, 8), max=(3, 8), count=1)
def test_python_ends_before_it_enters(build, python, run, tmp_path):
    """It must not have been allowed to enter before that: 6 of 1,600 short programs of 3.8 ended by SIGSEGV on a busy machine."""
    (tmp_path / "scene.c").write_text(SCENE)
    run(["cc", "-D_GNU_SOURCE", "-shared", "-fPIC", "-o", tmp_path / "scene.so", tmp_path / "scene.c", "-ldl"])
    env = dict(os.environ, LD_PRELOAD=str(tmp_path / "scene.so"), PYTHONPATH=str(build.share / "python"),
               PROBING_AGENT=str(build.root / "lib/probing/libprobing-agent.so"))
    assert run([python.path, "-c", PROGRAM], env=env, cwd=str(tmp_path)).stdout == "True\n"
