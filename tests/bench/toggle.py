# SPDX-License-Identifier: Apache-2.0
"""What sampling costs, switched on and off within one run.

On a machine that may be half as fast in one minute as in the next, comparing whole runs cannot show differences of one percent. Here one
program goes on, and several times a second the recording of all its processes is changed through their mailboxes: off, or one of the rates,
with or without native frames, in an order that changes each round. Each step is timed. If two processors are threads of one core, a step takes
nearly twice as long while the other one works. So for each mode only the steps count that ran at full speed (at most a quarter longer than the
mode's fastest twentieth), and their mean is compared with that of the "off" steps. "off, again" is measured like all others, and shows the
noise. This cannot see what the loaded agent costs while it samples nothing; whole runs (slowdown.py) can.

    toggle.py loop|train SECONDS [ARGUMENT OF train.py]...      run under probing-record; JSON into $BENCH_OUT

$BENCH_PEERS: JSON, [[name, [command...], quiet], ...]: other profilers, as modes of their own (PID stands for the process's number). A
profiler that only reads the process (quiet) is started once, and stopped by SIGSTOP while it is not its turn. A profiler that stops the
process to read it could then leave the process stopped, so it is started and ended for each turn, and with such a one the blocks are longer.

$BENCH_TICKER: tests/programs/ticker, for the modes "100 Hz, a bare tick" and "1000 Hz, a bare tick": a thread that wakes at fixed times and
sends the working thread a signal whose handler does nothing. No sampler that reads a thread at moments of its own costs less on that machine.
"""
import atexit
import ctypes
import glob
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
OFF, AGAIN = "off", "off, again"
BARE = {"100 Hz, a bare tick": 10000000, "1000 Hz, a bare tick": 1000000}  # ns between ticks
# name, seconds between samples, native frames
MODES = ((AGAIN, "0", "1"), (OFF, "0", "1"), (OFF, "0", "1"), ("100 Hz", "0.01", "1"), ("100 Hz, Python only", "0.01", "0"),
         ("1000 Hz", "0.001", "1"), ("1000 Hz, Python only", "0.001", "0"))
CLOCKS = ("wall", "thread", "process")
MAIL_CONFIG = 5  # enum mail_kind, writer/live.h
SETTLE = 2       # steps after a change that do not count,
TAKES_HOLD = 0.12  # nor do those in so many seconds: a sampler that is off checks ten times a second whether it was switched on
FULL_SPEED = 1.25  # a step that takes longer than the fastest ones of its mode by more than this factor had only half a core, or none
START_UP = 1.5   # seconds that a peer gets to find its way around the process


class Switch:
    """The mailboxes of all processes that this run records."""

    def __init__(self):
        self.lib = ctypes.CDLL(os.environ["BENCH_INSPECT"])
        self.dir = os.environ["PROBING_RUN_DIR"]

    def ask(self, pid, text):
        out = ctypes.c_void_p()
        rc = self.lib.inspect_mail(pid, MAIL_CONFIG, text.encode(), 2000, ctypes.byref(out))
        self.lib.inspect_free(out)
        if rc:
            raise SystemExit("toggle.py: process %d refuses %s: %s" % (pid, text, os.strerror(-rc)))

    def set(self, rate, native):
        for name in glob.glob(os.path.join(self.dir, "*.live")):
            pid = int(os.path.basename(name).split("-")[0])
            if os.path.exists("/proc/%d" % pid):
                self.ask(pid, "native=" + native)
                self.ask(pid, "sample_rate=" + rate)


class Peer:
    """Another profiler, which works on this process while it is its turn."""

    def __init__(self, command, quiet):
        self.command = [str(os.getpid()) if word == "PID" else word for word in command]
        self.quiet, self.process, self.ready = quiet, None, 0
        if quiet:
            self.launch()
            time.sleep(START_UP)
            self.spent()
            self.process.send_signal(signal.SIGSTOP)
            atexit.register(self.end)

    def launch(self):
        self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def start(self):
        if self.quiet:
            self.process.send_signal(signal.SIGCONT)
        else:
            self.launch()
            self.ready = time.monotonic() + START_UP

    def spent(self):
        """Returns the CPU seconds of all its threads so far. Raises SystemExit if it is gone."""
        total = 0
        for path in glob.glob("/proc/%d/task/*/schedstat" % self.process.pid):
            with open(path) as f:
                total += int(f.read().split()[0])
        if self.process.poll() is not None:
            raise SystemExit("toggle.py: %s ended: %s" % (self.command[0], self.process.returncode))
        return total / 1e9

    def stop(self):
        if self.quiet:
            self.process.send_signal(signal.SIGSTOP)
        else:
            self.end()

    def end(self):
        self.process.send_signal(signal.SIGINT)
        self.process.send_signal(signal.SIGCONT)
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Ticker:
    """For Blocks it is a peer like the others: a thread of ours that wakes and signals, and does nothing else."""

    ready, lib = 0, None

    def __init__(self, library, period):
        self.period = ctypes.c_uint64(period)
        if not Ticker.lib:
            Ticker.lib = ctypes.CDLL(library)
            Ticker.lib.ticker_answers.restype = ctypes.c_uint64
            rc = Ticker.lib.ticker_start()
            if rc:
                raise SystemExit("toggle.py: the ticker does not start: " + os.strerror(rc))

    def start(self):
        self.before = self.lib.ticker_answers()
        self.lib.ticker_switch(self.period)

    def stop(self):
        self.lib.ticker_switch(ctypes.c_uint64(0))
        if self.lib.ticker_answers() == self.before:
            raise SystemExit("toggle.py: the ticker did not tick: what it costs cannot be told")

    def spent(self):
        return 0  # it belongs to this process


class Enough(Exception):
    """Raised when the time is over; the argument is the list of rounds."""


class Blocks:
    """Called after each step of the work. Equal steps make blocks, and blocks of all modes make rounds."""

    def __init__(self, seconds, steps, warm_up):
        self.switch, self.order = Switch(), random.Random(os.getpid())
        self.end = time.monotonic() + seconds
        self.modes = [(name, (rate, native), None) for name, rate, native in MODES]
        peers = json.loads(os.environ.get("BENCH_PEERS", "[]"))
        self.modes += [(name, ("0", "1"), Peer(command, quiet)) for name, command, quiet in peers]
        if "BENCH_TICKER" in os.environ:
            self.modes += [(name, ("0", "1"), Ticker(os.environ["BENCH_TICKER"], period)) for name, period in BARE.items()]
        self.steps, self.left = steps if all(quiet for _, _, quiet in peers) else 4 * steps, warm_up
        self.rounds, self.round, self.todo = [], [], []
        self.mode = self.peer = self.marks = None
        self.ready = 0

    def now(self):
        """Returns wall time, the working thread's CPU time, and that of the whole process with its agent and the peer."""
        return (time.perf_counter(), time.clock_gettime(time.CLOCK_THREAD_CPUTIME_ID),
                time.clock_gettime(time.CLOCK_PROCESS_CPUTIME_ID) + (self.peer.spent() if self.peer else 0))

    def step(self):
        self.left -= 1
        if self.mode and self.left == self.steps:
            if time.monotonic() < max(self.ready, self.peer.ready if self.peer else 0):
                self.left += 1
                return
            self.marks = [self.now()]
        elif self.mode and self.left < self.steps:
            self.marks.append(self.now())
        if self.left > 0:
            return
        if self.mode:
            self.round.append((self.mode, [[b - a for a, b in zip(*two)] for two in zip(self.marks, self.marks[1:])]))
        if self.peer:
            self.peer.stop()
        if not self.todo:
            if self.round:
                self.rounds.append(self.round)
            if time.monotonic() > self.end:
                raise Enough(self.rounds)
            self.round, self.todo = [], list(self.modes)
            self.order.shuffle(self.todo)
        self.mode, setting, self.peer = self.todo.pop()
        self.switch.set(*setting)
        if self.peer:
            self.peer.start()
        self.left, self.ready = self.steps + SETTLE, time.monotonic() + TAKES_HOLD


def run_loop(seconds):
    import workload
    begin = time.perf_counter()
    workload.loop(200)
    units = max(1, int(0.005 * 200 / (time.perf_counter() - begin)))  # makes a step of 5 ms
    blocks = Blocks(seconds, 32, 200)
    while True:
        workload.loop(units)
        blocks.step()


def run_train(seconds, args):
    sys.path.insert(0, os.path.join(os.path.dirname(HERE), "demo"))
    import train
    blocks, real = Blocks(seconds, 5, 40), train.train_step

    def step(*them):
        loss = real(*them)
        blocks.step()
        return loss

    train.train_step = step
    sys.argv = ["train.py", "--steps", "1000000", "--report", "1000000"] + args
    train.main()


def slower(rounds, mode, than, clock):
    """Returns by how many percent the steps of `mode` are slower than those of `than`, and the standard error of that (by resampling
    rounds). The wall clock decides for all clocks which steps ran at full speed, because a process's CPU clock adds other threads' time in
    leaps."""
    sums = [[] for _ in rounds]  # for each round: sum and number of the steps that count, of `mode` and of `than`
    for which in (mode, than):
        steps = [[step for name, steps in one if name == which for step in steps] for one in rounds]
        walls = sorted(step[0] for one in steps for step in one)
        for one, total in zip(steps, sums):
            counted = [step[clock] for step in one if step[0] <= FULL_SPEED * walls[len(walls) // 20]]
            total += [sum(counted), len(counted)]

    def ratio(of):
        a, n, b, m = map(sum, zip(*of))
        return 100 * (a / n / (b / m) - 1) if n and m else 0.0

    draw = random.Random(1)
    drawn = [ratio([sums[draw.randrange(len(sums))] for _ in sums]) for _ in range(300)]
    return ratio(sums), statistics.pstdev(drawn)


def summary(rounds):
    """Returns {mode: {clock: (percent slower than "off", its standard error)}}."""
    return {mode: {clock: slower(rounds, mode, OFF, i) for i, clock in enumerate(CLOCKS)}
            for mode in dict.fromkeys(name for name, _ in sorted(rounds[0]) if name != OFF)}


def main():
    what, seconds, args = sys.argv[1], float(sys.argv[2]), sys.argv[3:]
    try:
        if what == "loop":
            run_loop(seconds)
        else:
            run_train(seconds, args)
    except Enough as e:
        with open(os.environ["BENCH_OUT"], "w") as f:
            json.dump({"rounds": e.args[0]}, f)


if __name__ == "__main__":
    main()
