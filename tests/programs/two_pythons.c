// SPDX-License-Identifier: Apache-2.0
// A program with two CPythons. Usage: two_pythons LIB HOME CODE LIB HOME CODE. Each is loaded separately, in a thread of
// its own, and runs its code.
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <wchar.h>

static void *run(void *arg) {
    char **a = arg;
    void *lib = dlopen(a[0], RTLD_NOW | RTLD_LOCAL);
    static wchar_t homes[2][1024];
    static int n;
    wchar_t *home = homes[__atomic_fetch_add(&n, 1, __ATOMIC_SEQ_CST)];

    if (!lib) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    mbstowcs(home, a[1], 1024);
    *(int *)dlsym(lib, "Py_NoSiteFlag") = 1;
    ((void (*)(wchar_t *))dlsym(lib, "Py_SetPythonHome"))(home);
    ((void (*)(int))dlsym(lib, "Py_InitializeEx"))(0);
    ((int (*)(const char *))dlsym(lib, "PyRun_SimpleString"))(a[2]);
    return NULL;
}

int main(int argc, char **argv) {
    pthread_t t[2];

    if (argc != 7)
        return 2;
    for (int i = 0; i < 2; i++)
        pthread_create(&t[i], NULL, run, argv + 1 + 3 * i);
    for (int i = 0; i < 2; i++)
        pthread_join(t[i], NULL);
    return 0;
}
