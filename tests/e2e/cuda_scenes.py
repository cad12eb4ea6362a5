# SPDX-License-Identifier: Apache-2.0
"""Programs for test_torch_cuda.py: modules that launch fake kernels on a fake GPU (tests/programs/fake_cuda.c).

    cuda_scenes.py DIR SCENE [ARGS]     DIR has libcuda.so.1 and libc10_cuda.so

torch is the installed build without CUDA. The program tells it that CUDA is initialised, and adds the one function of a CUDA build that
is needed: torch._C._cuda_memoryStats, which returns known numbers.
"""
import ctypes
import json
import os
import sys
import threading
import time

DRIVER = TORCH = torch = nn = None
NCCL = []  # the loaded fakes of fake_nccl.c: libnccl.so.2 and libtorch_cuda.so
FIELDS = ("contexts records queries elapsed made waits captured in_child wrong_context unrelaxed spent_ns errors"
          " not_ready").split()
MB = 1000000


def say(what, value):
    print(what, json.dumps(value), flush=True)


def counters():
    values = (ctypes.c_uint64 * len(FIELDS))()
    DRIVER.fake_counters(values)
    return dict(zip(FIELDS, values))


def context(device):
    for lib in (DRIVER, TORCH):
        lib.fake_context(device)


def stream(number):
    for lib in (DRIVER, TORCH):
        lib.fake_stream(number)


def launch(ns):
    DRIVER.fake_launch(ctypes.c_uint64(ns))


def hold(on):
    """on=1: the GPU starts nothing until hold(0). So kernels that are launched meanwhile last exactly as long as asked for, however slowly
    the host launches them."""
    DRIVER.fake_hold(on)


def load(where, scene):
    global DRIVER, TORCH, torch, nn
    DRIVER = ctypes.CDLL(os.path.join(where, "libcuda.so.1"))
    TORCH = ctypes.CDLL(os.path.join(where, "libc10_cuda.so"))
    if scene in ("nccl", "nccl_abort", "idle"):  # a CUDA build of torch has these libraries loaded, too
        NCCL[:] = [ctypes.CDLL(os.path.join(where, name)) for name in ("libnccl.so.2", "libtorch_cuda.so")]
    import torch
    from torch import nn
    torch.set_num_threads(1)
    define()


# ---- memory: what torch._C._cuda_memoryStats() returns ------------------------------------------

ALLOCATED = [0, 0, 0]  # bytes now, peak, reserved


def memory_stats(device):
    assert device == 0, device
    kinds = {"all": None, "small_pool": {}, "large_pool": {}}
    now, peak, reserved = ALLOCATED

    def stat(current, most):
        return dict(kinds, all={"current": current, "peak": most, "allocated": 0, "freed": 0})
    return {"num_ooms": 0, "allocated_bytes": stat(now, peak), "reserved_bytes": stat(reserved, reserved + 5)}


def initialise(device=0, stats=memory_stats):
    context(device)
    torch.cuda._initialized = True
    if stats:
        torch._C._cuda_memoryStats = stats


# ---- modules -------------------------------------------------------------------------------------


def define():
    global Kernel, Net, Backward

    class Backward(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, ns):
            ctx.ns = ns
            return x * 1

        @staticmethod
        def backward(ctx, grad):
            launch(ctx.ns)
            return grad, None

    class Kernel(nn.Module):
        """Launches a kernel of `ns` in forward and one of `back` in backward, and allocates `takes` bytes."""

        def __init__(self, ns, back=0, takes=0):
            super().__init__()
            self.ns, self.back, self.takes = ns, back, takes

        def forward(self, x):
            launch(self.ns)
            ALLOCATED[0] += self.takes
            ALLOCATED[1] = max(ALLOCATED[:2])
            ALLOCATED[2] = ALLOCATED[1] + 7 * MB
            return Backward.apply(x, self.back) if self.back else x

    class Net(nn.Module):
        def __init__(self, *parts):
            super().__init__()
            self.parts = nn.ModuleList(parts)
            self.w = nn.Parameter(torch.ones(2))

        def forward(self, x):
            x = x * self.w
            for part in self.parts:
                x = part(x)
            return x


def armed():
    """Waits until the agent has found the libraries and, in a call of a module, the CUDA context: then it records events."""
    end = time.monotonic() + 600
    x, probe, before = torch.ones(2), nn.Tanh(), counters()
    while time.monotonic() < end:
        probe(x)
        if counters()["records"] > before["records"] or counters()["errors"]:
            return
        time.sleep(0.01)
    raise SystemExit("no event was recorded within a minute")


def train(net, steps, pause=0.0):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        net(torch.ones(2)).sum().backward()
        optimizer.step()
        time.sleep(pause)


def finish():
    """Waits until the GPU has finished, then until the agent has read what it still waits for: one elapsed time for each two events; or,
    where some events are given up, until nothing has been read for a while."""
    DRIVER.fake_wait()
    quiet, before = 0, None
    while quiet < 20:
        at = counters()
        if 2 * at["elapsed"] == at["records"]:
            break
        quiet = quiet + 1 if at["elapsed"] == before else 0
        before = at["elapsed"]
        time.sleep(0.1)
    say("counters", counters())


# ---- scenes ---------------------------------------------------------------------------------------


def truth():
    """Kernels of known durations, forward and backward, on two streams. The GPU is behind the host, so it never waits for it."""
    initialise()
    armed()
    warm = Net()
    warm.__class__ = type("Warm", (Net,), {})
    train(warm, 1)  # imports whatever an optimizer's first step imports
    hold(1)
    net = Net(Kernel(3 * MB, 5 * MB, 100 * MB), Kernel(7 * MB, 11 * MB, 30 * MB), Kernel(0, 0, -130 * MB))
    train(net, 6)
    stream(3)
    side = Kernel(13 * MB)
    for _ in range(3):
        side(torch.ones(2))
    stream(0)
    hold(0)
    finish()


class Node:
    """Runs a node of autograd as the engine's thread for a device would: with a RecordFunction of scope BACKWARD."""

    def __init__(self):
        path = [line.split()[-1] for line in open("/proc/self/maps") if "/libtorch_cpu.so" in line][0]
        self.lib = ctypes.CDLL(path)
        self.construct = getattr(self.lib, "_ZN2at14RecordFunctionC1ENS_11RecordScopeE")
        self.destroy = getattr(self.lib, "_ZN2at14RecordFunctionD1Ev")
        self.peek = getattr(self.lib, "_ZN2at15sequence_number4peekEv")
        self.peek.restype = ctypes.c_uint64
        self.thread_id = getattr(self.lib, "_ZN2at14RecordFunction15currentThreadIdEv")
        self.thread_id.restype = ctypes.c_uint64
        room, at = self.made()
        before = room.raw
        getattr(self.lib, "_ZN2at14RecordFunction9_setAsyncEv")(at)
        changed, = [i for i in range(4096) if before[i] != room.raw[i]]
        self.destroy(at)
        self.thread_at = ctypes.addressof(room) + changed - 16 - at.value  # the forward's thread is the second field before

    def made(self):
        room = ctypes.create_string_buffer(4096)
        at = ctypes.c_void_p((ctypes.addressof(room) + 63) & ~63)
        self.construct(at, ctypes.c_uint8(1))
        return room, at

    def run(self, number, thread, work):
        name = ctypes.create_string_buffer(b"node")
        room, at = self.made()
        ctypes.c_uint64.from_address(at.value + self.thread_at).value = thread
        try:
            before = getattr(self.lib, "_ZN2at14RecordFunction6beforeEPKcl")
            before(at, name, ctypes.c_int64(number))
        except AttributeError:
            class View(ctypes.Structure):  # the argument's type in this torch: std::variant<string_view, ...>
                _fields_ = [("n", ctypes.c_uint64), ("p", ctypes.c_void_p), ("index", ctypes.c_uint8)]
            before = getattr(self.lib, "_ZN2at14RecordFunction6beforeESt7variantIJSt17basic_string_viewIcSt11char_traitsIcEESt17"
                             "reference_wrapperIKN3c1014FunctionSchemaEEEEl")
            before(at, View(4, ctypes.addressof(name), 0), ctypes.c_int64(number))
        work()
        self.destroy(at)


def engine():
    """Runs the backward of modules in a thread of the engine's own, as with CUDA: an interval that is still open when a pass ends, ends with it.

    This scene makes the nodes of that thread by hand, so only the agent's callback sees them. There must be fewer real nodes than NODES_PROOF
    (torch_back.h).
    """
    initialise()
    armed()
    node, asked, done, jobs = Node(), threading.Semaphore(0), threading.Semaphore(0), []
    trains = node.thread_id()

    def engine_thread():
        context(0)
        while True:
            asked.acquire()
            if not jobs:
                return
            for number, ns in jobs:
                node.run(number, trains, lambda: launch(ns))
            done.release()
    thread = threading.Thread(target=engine_thread, name="pt_autograd_0")
    thread.start()

    class Numbered(nn.Module):
        def forward(self, x):
            self.number = node.peek()
            return x * 2
    net = Net(Numbered(), Numbered())
    net.__class__ = type("Engined", (Net,), {})

    class Pass(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, grad):
            asked.release()
            done.acquire()
            return grad
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    hold(1)
    for _ in range(5):
        out = Pass.apply(net(torch.ones(2)))
        jobs[:] = [(net.parts[1].number, 4 * MB), (net.parts[0].number, 9 * MB)]
        out.sum().backward()
        optimizer.step()
    hold(0)
    finish()
    jobs[:] = []
    asked.release()
    thread.join()


def idle():
    """The libraries are loaded, but CUDA is never initialised, so no thread has a context."""
    net = Net(nn.Linear(2, 2), nn.ReLU())
    while "__init_subclass__" not in vars(nn.Module):  # wait until the agent records calls of modules
        time.sleep(0.01)
    train(net, 20, 0.01)
    say("counters", counters())


def capture():
    initialise()
    armed()
    net, captured = Net(Kernel(1 * MB)), Net(Kernel(1 * MB))
    captured.__class__ = type("Captured", (Net,), {})
    net(torch.ones(2))
    stream(2)
    DRIVER.fake_capture(1)
    for _ in range(10):
        captured(torch.ones(2))
    stream(0)
    for _ in range(10):  # the default stream, which cannot be used during a capture
        captured(torch.ones(2))
    stream(4)            # a stream that can be used, but by a thread that must make no unsafe call
    for _ in range(3):
        net(torch.ones(2))
        time.sleep(0.1)
    stream(2)
    DRIVER.fake_capture(0)
    stream(0)
    net(torch.ones(2))
    finish()


def exhausted():
    """The GPU is far behind: the number of events in flight is bounded."""
    initialise()
    armed()
    hold(1)
    net = Net(*[Kernel(1000) for _ in range(500)])
    for _ in range(8):
        net(torch.ones(2))
    say("behind", counters())
    hold(0)
    finish()
    for _ in range(2):
        net(torch.ones(2))
    finish()


def budget(cost, seconds):
    """Prints the share of this thread's time that the driver's calls take."""
    initialise()
    armed()
    DRIVER.fake_cost(int(cost))
    net = Net(*([Kernel(1000) for _ in range(40)] + [Net(Kernel(1000))]))
    before, start, passes = counters()["spent_ns"], time.monotonic(), 0
    # On a busy machine, waits for a processor count as the driver's time. So this also runs until there were as many passes and measured
    # times as on a quiet one.
    while time.monotonic() < start + float(seconds) or passes < 400 * float(seconds) or counters()["elapsed"] < 400:
        net(torch.ones(2))
        time.sleep(0.001)
        passes += 1
    spent, took = counters()["spent_ns"] - before, time.monotonic() - start
    DRIVER.fake_cost(0)
    say("share", spent / took / 1e9)
    finish()


def errors(code, after):
    initialise()
    armed()
    DRIVER.fake_error(int(code), int(after))
    net = Net(Kernel(1000), Kernel(1000))
    train(net, 50)
    at = counters()
    train(net, 50)
    say("errors", [at["errors"], counters()["errors"]])


def ends(code):
    """The driver fails, and the program ends before any other thread has looked at the error."""
    initialise()
    armed()
    net = Net(Kernel(1000))
    DRIVER.fake_error(int(code), 0)
    while not counters()["errors"]:
        net(torch.ones(2))
    os._exit(0)


def raising():
    """The statistics function raises, and the program raises exceptions of its own."""
    calls = []

    def stats(device):
        calls.append(1)
        raise RuntimeError("no statistics")
    initialise(stats=stats)
    armed()

    class Fails(nn.Module):
        def forward(self, x):
            raise ValueError("the program's own")
    net, fails = Net(Kernel(1000)), Fails()
    said = []
    for _ in range(30):
        net(torch.ones(2))
        try:
            fails(torch.ones(2))
        except ValueError as e:
            said.append(str(e))
    train(net, 5)
    say("raised", [len(said), sorted(set(said)), len(calls) > 5])


def threads():
    """Each thread uses a device of its own."""
    def stats(device):
        return memory_stats(0)
    initialise(stats=stats)
    armed()
    launched = threading.Barrier(3, lambda: hold(0))

    def work(device):
        context(device)
        net = Net(Kernel((device + 2) * MB))
        net.__class__ = type("On%d" % device, (Net,), {})
        for _ in range(5):
            net(torch.ones(2))
        launched.wait()
        DRIVER.fake_wait()
        net(torch.ones(2))
        time.sleep(0.2)
        net(torch.ones(2))
    hold(1)
    all_threads = [threading.Thread(target=work, args=(i,)) for i in range(3)]
    for t in all_threads:
        t.start()
    for t in all_threads:
        t.join()
    finish()


def forks():
    initialise()
    armed()
    net = Net(Kernel(1000))
    train(net, 5)
    pid = os.fork()
    if not pid:
        try:
            train(net, 50, 0.02)
        except RuntimeError as e:  # torch from 2.14 on raises this in the child, because the fake device, too, has threads of the autograd engine
            if "Autograd-and-Fork" not in str(e):
                raise
            for _ in range(50):
                net(torch.ones(2))
                time.sleep(0.02)
        at = counters()
        say("child", {k: at[k] for k in ("in_child", "waits")})
        os._exit(0)
    os.waitpid(pid, 0)
    finish()


def switched():
    """The program switches GPU times off, on, and off again."""
    import probing
    initialise()
    armed()
    net = Net(Kernel(1000))
    counts = []
    for setting in ("cuda=off,memory=off", "cuda=all,memory=all", "cuda=off,memory=off"):
        probing.config("torch.profiling", setting)
        time.sleep(0.5)
        net(torch.ones(2))
        before = counters()
        for _ in range(20):
            net(torch.ones(2))
        time.sleep(0.3)
        after = counters()
        counts.append([after[k] - before[k] for k in ("records", "contexts")])
    say("switched", counts)


def nccl_backend():
    """Returns the fake ProcessGroupNCCL after it has counted 100 operations and the agent has found it."""
    initialise()
    for lib in NCCL:
        lib.fake_nccl(ctypes.cast(DRIVER.fake_launch_on, ctypes.c_void_p), ctypes.c_uint64(30000000))
    backend = NCCL[1]
    backend.fake_count(ctypes.c_uint64(100))
    end = time.monotonic() + 30
    while "probing-nccl" not in names_of_threads() and time.monotonic() < end:
        time.sleep(0.01)
    return backend


def nccl_abort():
    """Operation 101 of communicator 7 is over when the communicator is aborted; 102 and 103 are not; nor is 104 of communicator 8, which
    lives on."""
    backend = nccl_backend()
    for number, communicator in ((101, 7), (102, 7), (103, 7), (104, 8)):
        backend.fake_communicator(ctypes.c_uint64(communicator))
        backend.fake_all_reduce(3, 1)
        if number == 101:
            time.sleep(0.4)
            hold(1)
    DRIVER.fake_capture(1)  # capturing in this thread's stream, which forbids most calls of the driver
    backend.fake_abort(ctypes.c_uint64(7))
    DRIVER.fake_capture(0)
    hold(0)
    time.sleep(0.5)
    backend.fake_abort(ctypes.c_uint64(8))
    say("counters", counters())


def nccl(code=0):
    """Operations 101 to 110 of a ProcessGroupNCCL, each with kernels of 30 ms: 101 has one kernel, 102 has three; 103 is called a second
    before the GPU comes to it; 104 to 106 are a group; 107 is captured; 108 has one kernel again; the GPU never starts 109 and 110. code:
    from the second operation on, the driver fails with it; then only 101 to 103 are called."""
    backend = nccl_backend()
    times = {}

    def call(number, kernels=1, on=3, wait=0.4):
        times[str(number)] = time.time()
        backend.fake_all_reduce(on, kernels)
        times["%d, returned" % number] = time.time()
        time.sleep(wait)
        times["%d, done" % number] = time.time()
    call(101)
    if code:
        DRIVER.fake_error(int(code), 0)
        call(102)
        call(103)
        say("counters", counters())
        return
    call(102, 3)
    DRIVER.fake_launch_on(3, ctypes.c_uint64(1000000000))
    call(103, wait=1.4)
    backend.fake_group(1)
    for number in (104, 105, 106):
        call(number, wait=0)
    backend.fake_group(0)
    time.sleep(0.4)
    stream(2)
    DRIVER.fake_capture(1)
    call(107, on=2, wait=0)
    DRIVER.fake_capture(0)
    call(108)
    hold(1)
    call(109, wait=0)
    call(110)
    say("times", times)
    say("counters", counters())


def names_of_threads():
    return [open("/proc/self/task/%s/comm" % tid).read().strip() for tid in os.listdir("/proc/self/task")]


def on_and_on():
    """Trains until its input ends. For each line that it reads, it prints the counts of driver calls, and the number of steps, since the
    line before."""
    initialise()
    lines, ended, before, steps = [], threading.Event(), counters(), 0

    def listen():
        for line in sys.stdin:
            lines.append(line.strip())
        ended.set()
    threading.Thread(target=listen, daemon=True).start()
    net = Net(Kernel(1000), Kernel(1000))
    train(net, 1)
    say("ready", 0)
    while not ended.is_set():
        train(net, 1)
        steps += 1
        time.sleep(0.002)
        if lines:
            now = counters()
            say(lines.pop(), [{k: now[k] - before[k] for k in FIELDS}, steps])
            before, steps = now, 0


if __name__ == "__main__":
    load(sys.argv[1], sys.argv[2])
    globals()[sys.argv[2]](*sys.argv[3:])
