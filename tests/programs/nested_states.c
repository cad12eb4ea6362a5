/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nested_states.c - a thread that goes from one interpreter into another, and back into one that it is already in.
 *
 *     enter(2, "print('in another interpreter')");  // by ctypes.PyDLL: holds the GIL
 *     finish();                                     // in interpreter 0, before Python ends
 *
 * Interpreter 0 is the caller's at the first call; another is made when it is first entered. Each has one state, of this thread.
 */
#define MOST 4

void *PyThreadState_Get(void);
void *PyThreadState_Swap(void *);
void *Py_NewInterpreter(void);
void Py_EndInterpreter(void *);
int PyRun_SimpleString(const char *);

static void *states[MOST];

int enter(int which, const char *code) {
    void *from = PyThreadState_Get();
    if (!states[0])
        states[0] = from;
    if (states[which])
        PyThreadState_Swap(states[which]);
    else
        states[which] = Py_NewInterpreter();
    int rc = PyRun_SimpleString(code);
    PyThreadState_Swap(from);
    return rc;
}

void finish(void) {
    for (int i = 1; i < MOST; i++)
        if (states[i]) {
            PyThreadState_Swap(states[i]);
            Py_EndInterpreter(states[i]);
        }
    PyThreadState_Swap(states[0]);
}
