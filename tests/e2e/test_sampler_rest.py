# SPDX-License-Identifier: Apache-2.0
"""While the whole process sleeps, one look stands for several ticks: fewer wake-ups, the same truth."""
import json

from test_sampler import POINTS, second_look, shares

# Works and sleeps by the clock, as a DataLoader's worker does: a sampler that looked at fixed moments after it has found
# the process asleep would always find it asleep.
BURSTS = """
import json, sys, time
clock = time.perf_counter
spent = {}

def spin(until):
    while clock() < until:
        for i in range(30):
            i * i

def short(t):
    spin(clock() + t)

def long(t):
    spin(clock() + t)

def rest(until):
    time.sleep(max(0, until - clock()))

def measure(f, x):
    a = clock()
    f(x)
    spent[f.__name__] = spent.get(f.__name__, 0) + clock() - a

begin = at = clock()
while at < begin + float(sys.argv[1]):
    measure(short, 0.002)
    measure(long, 0.004)
    at += 0.030
    measure(rest, at)
print(json.dumps({k: v / (clock() - begin) for k, v in spent.items()}))
"""


def test_bursts_by_the_clock(record, convert, sql):
    def measure():
        done = record(BURSTS, 12, hz=1000)
        truth = json.loads(done.stdout.strip().splitlines()[-1])
        got = shares(sql, convert(done.trace))
        for name, share in truth.items():
            assert abs(got[name] - share) < POINTS, (name, truth, got)
    second_look(measure)


ASLEEP = """
import glob, json, time

def wakes():
    for path in glob.glob("/proc/self/task/*/comm"):
        if open(path).read().strip() == "probing-smp":
            status = open(path.replace("comm", "status")).read()
            return int(status.split("\\nvoluntary_ctxt_switches:")[1].split()[0])

time.sleep(0.5)
first, begin = wakes(), time.perf_counter()
time.sleep(3)
print(json.dumps({"ticks": (time.perf_counter() - begin) * 1000, "wakes": wakes() - first}))
"""


def test_who_sleeps_is_looked_at_less_often(record, convert, sql):
    done = record(ASLEEP, hz=1000)
    seen = json.loads(done.stdout.strip().splitlines()[-1])
    assert 0 < seen["wakes"] < seen["ticks"] / 3
    # And no tick is missing: each is in the trace, or counted as lost.
    ticks, end, lost = sql(convert(done.trace), """SELECT sum(s.count), (max(s.ts + s.count * t.period_ns) - min(s.ts)) / t.period_ns,
        (SELECT coalesce(sum(count), 0) FROM lost) FROM sample s, trace_file t""")[0]
    assert abs(ticks + lost - end) <= 0.02 * end, (ticks, lost, end)
