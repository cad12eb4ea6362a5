# SPDX-License-Identifier: Apache-2.0
"""Why a job hangs: real jobs of four gloo ranks that hang, each in its own way (hang_scenes.py), started by torchrun and recorded. `probing ask
hang` and the view hangs name the collective and the group, the rank that is at fault, and what that rank does instead. So they do for
simulated jobs of 1,000 ranks."""
import json
import os
import pathlib
import pickle
import re
import signal
import subprocess
import time

import conftest
import pytest
from ask_helpers import MADE_ANEW, edited
from test_tools_record import state
from test_torch import find_torch

SCENES = pathlib.Path(__file__).with_name("hang_scenes.py")
COLUMNS = ("rank", "state", "cause", "group", "seq", "op", "waiters", "level", "does", "waited")


def children(pid):
    done = subprocess.run(["pgrep", "-P", str(pid)], stdout=subprocess.PIPE, universal_newlines=True)
    return [p for c in done.stdout.split() for p in [int(c)] + children(int(c))]


class Job:
    """torchrun with four ranks of a scene (or the scene's own launcher), recorded."""

    def __init__(self, build, tmp, python, scene, launched=True, **env):
        self.build, self.dir, self.traces = build, tmp, tmp / "traces"
        os.mkfifo(str(tmp / "fifo"))
        env = dict(os.environ, GLOO_SOCKET_IFNAME="lo", OMP_NUM_THREADS="1", **env)
        launcher = [] if python == "/usr/bin/python3" or not launched else ["-m", "torch.distributed.run", "--nproc_per_node", "4", "--rdzv_backend", "c10d",
                                                            "--rdzv_endpoint", "127.0.0.1:0", "--monitor_interval", "2"]  # looks seldom, so that the others come to their call
        with open(str(tmp / "log"), "w") as log:
            self.process = subprocess.Popen([str(build.tool("probing-record")), "-o", str(self.traces) + "/", python, "-W", "ignore"] + launcher
                                            + [str(SCENES), scene, str(tmp)], stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env)

    def log(self):
        return (self.dir / "log").read_text()

    def query(self, what):
        """Returns rows of the recordings so far, as dicts."""
        for live in pathlib.Path(os.environ["PROBING_RUN_DIR"]).glob("*.live"):
            subprocess.run([str(self.build.root / "tests/programs/mailbox"), str(live), "flush"], stdout=subprocess.DEVNULL)
        done = subprocess.run([str(self.build.tool("probing-query")), "--json", str(self.traces), what], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, universal_newlines=True)
        return json.loads(done.stdout) if done.returncode in (0, 1) and done.stdout else []

    def hangs(self):
        return self.query("SELECT * FROM hangs")

    def until_it_hangs(self, ranks=3):
        """Waits until so many ranks have recorded that they wait, and all ranks but one, which may have died, have recorded a second and a
        half of that, up to the same time (on a busy machine one rank is seconds behind the others); or until the job is over."""
        end, rows, until, waiters = time.monotonic() + 1000, [], [], set()
        while self.process.poll() is None and not (
                len(waiters) >= ranks and len(until) == 4 and until[0 if ranks == 3 else 1] > max(rows[0]["since"] + 1.5, until[-1] - 2)):
            assert time.monotonic() < end, (rows, self.log())
            time.sleep(0.5)
            rows = self.query('SELECT max("end") AS until, (SELECT max(since) FROM hangs) AS since, (SELECT group_concat(waiters) FROM hangs) AS waiters'
                              " FROM trace WHERE rank IS NOT NULL GROUP BY rank")
            until = sorted(row["until"] for row in rows)
            waiters = {r for row in rows for r in (row["waiters"] or "").split(",") if r}

    def until_it_failed(self):
        """Waits until a rank has recorded that call 6 failed in it (one of the dead rank's neighbours may go on waiting), and all but the
        dead rank have recorded two seconds after that; or until the job is over."""
        end, failed, until = time.monotonic() + 1000, [], []
        while self.process.poll() is None and not (failed and len(until) == 4 and until[1] > max(failed) + 2):
            assert time.monotonic() < end, (failed, until, self.log())
            time.sleep(0.5)
            failed = [row["exit"] for row in self.query("SELECT exit FROM comm_metrics WHERE seq = 6 AND complete")]
            until = sorted(row["until"] for row in self.query('SELECT max("end") AS until FROM trace WHERE rank IS NOT NULL GROUP BY rank'))

    def end(self):
        """Kills all processes at once, as the end of a control group does, so that no rank sees another one die."""
        for number in (signal.SIGSTOP, signal.SIGKILL):
            pids = [self.process.pid] + children(self.process.pid)
            for pid in pids:
                try:
                    os.kill(pid, number)
                except OSError:
                    pass
        self.process.wait()
        until = time.monotonic() + 240
        while any(state(pid) not in "ZX" for pid in pids) and time.monotonic() < until:  # a zombie's parent need not be here
            time.sleep(0.02)

    def ask(self):
        done = subprocess.run([str(self.build.tool("probing")), "ask", "hang", "--json", str(self.traces)], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, universal_newlines=True)
        parts = {p["title"]: p["rows"] for p in json.loads(done.stdout)} if done.stdout else {}
        assert "answer" in parts and "say that they are rank" not in done.stderr, (done.stderr, self.log())
        return parts.pop("answer")[0]["answer"], list(parts.values())


@pytest.fixture(params=[pytest.param("debian", marks=pytest.mark.slow), "recent"])
def python_torch(request):
    path, why = find_torch(request.param)
    if not path:
        pytest.skip(why)
    return path


@pytest.fixture
def job(build, tmp_path):
    jobs = []

    def start(python, scene, **options):
        jobs.append(Job(build, tmp_path, python, scene, **options))
        return jobs[-1]

    yield start
    for j in jobs:
        j.end()


def line_of(text):
    """Returns the number of the only line of hang_scenes.py that contains `text`."""
    lines = [n for n, line in enumerate(SCENES.read_text().split("\n"), 1) if text in line]
    assert len(lines) == 1, text
    return lines[0]


# What rank 2 does instead of coming to the collective: the line of hang_scenes.py that it is in, and its function there.
ELSEWHERE = {"never_comes": ("gone_elsewhere", "time.sleep(600)  # elsewhere"), "loader": ("train_on", "for _ in loader:"),
             "lock": ("take_twice", "with lock:  # again"), "fifo": ("read_config", 'open(DIR + "/fifo")'),
             "flock": ("lock_file", "fcntl.flock(f, fcntl.LOCK_EX)  # forever"), "hold_at_fork": ("wait_for", "os.waitpid(child, 0)  # for the child"),
             "two_locks": ("take_both", "with second:  # never"), "joins": ("wait_for_thread", "thread.join()  # never over")}
# What else the answer names: who the rank that is elsewhere waits for.
FOR = {"loader": r"; its data loader \(process \d+\) in Data.read_slowly \(hang_scenes.py:\d+\)",
       "hold_at_fork": r"; it waits for the end of its child process \d+, which is in take \(hang_scenes.py:\d+\)",
       "two_locks": r"; its thread other waits for a lock, too, in take_both \(hang_scenes.py:\d+\)",
       "joins": r"; it waits for a thread of its own: saver in save_checkpoint \(hang_scenes.py:\d+\)"}


@pytest.mark.limit(300)
@pytest.mark.parametrize("scene", [s if s == "never_comes" else pytest.param(s, marks=pytest.mark.slow) for s in sorted(ELSEWHERE)])
def test_a_rank_that_is_elsewhere(job, python_torch, scene):
    hung = job(python_torch, scene)
    hung.until_it_hangs()
    live = hung.hangs()
    hung.end()
    answer, tables = hung.ask()
    func, line = ELSEWHERE[scene]
    where = "%s (hang_scenes.py:%d)" % (func, line_of(line))
    assert re.match(r"all_reduce number \d+ of group (0|default_pg): rank 2 never came, 3 of 4 wait since \d+\.\d s before the end \(\d\d:\d\d:\d\d\.\d{3}\): rank 2 is in .*"
                    + re.escape(where), answer), (answer, tables)
    assert [(r["rank"], r["cause"], r["waiters"], r["level"]) for r in live] == [(2, 1, "0,1,3", 0)]  # a job that still hangs can be asked, too
    assert tables[0][0]["waiting"] == "0,1,3" and tables[0][0]["waits_for"] == "2" and len(tables[0]) == 1
    assert tables[1][0]["last_call"].startswith("all_reduce number %d of" % (tables[0][0]["seq"] - 1))
    inner = {r["role"]: r["func"] for r in reversed(tables[2])}
    assert re.search(r"\): rank 2 is in [^;]*%s$" % FOR.get(scene, ""), answer), answer
    if scene == "loader":  # the rank's worker, from which the data do not come
        assert inner["dataloader"] == "Data.read_slowly", tables[2]
    else:
        assert set(inner) == ({"worker", ""} if scene == "hold_at_fork" else {"worker"}) and (inner["worker"] == func or scene == "joins")


@pytest.mark.limit(300)
@pytest.mark.parametrize("scene, says", [
    pytest.param("stops", r"all_reduce number 6 of group 0: rank 2 is stopped, by SIGSTOP or a debugger \(process \d+\), 3 of 4 wait since .*", marks=pytest.mark.slow),
    ("outside", r"no call is incomplete, but ranks 0,1,3 wait in init_process_group, which is over when all ranks have come, since [0-9.]+ s before their end \(.*\): "
                r"rank 2 is not in it; rank 2 is in gone_elsewhere \(hang_scenes.py:\d+\)")])
def test_a_live_rank_that_no_call_names(build, run, job, python_torch, tmp_path, scene, says):
    """A stopped rank has not died, although it writes nothing any more; and a rank that creates a group waits for all other ranks without a
    collective."""
    hung = job(python_torch, scene, launched=scene == "stops")
    end, said = time.monotonic() + 1000, ""
    while time.monotonic() < end and not re.fullmatch(says, said):
        time.sleep(0.5)
        said = run([build.tool("probing"), "ask", "hang", "--answer", tmp_path / "traces"], check=None).stdout.strip()
    assert re.fullmatch(says, said), said
    if scene == "stops":  # the view, which any program may query, does not call it dead
        assert [(r["rank"], r["state"], r["cause"]) for r in hung.hangs()] == [(2, "silent", 1)]


# SQL for a job whose rank 3 hangs: it is killed, the others' calls fail because of that with an exception, and 40 ms later they are killed,
# too.
ALL_KILLED = """UPDATE trace_file SET end_reason = 'killed', end_ts = (SELECT max(end_ts) FROM trace_file) - iif(rank = 3, 80000000, 20000000);
UPDATE comm SET flags = flags & ~1, duration = (SELECT max(end_ts) FROM trace_file) - 45000000 - ts WHERE flags & 1;
INSERT INTO trigger_event(id, ts, kind, tid, detail) SELECT first_id + 900000, (SELECT max(end_ts) FROM trace_file) - 20000000, 'exception', pid, 'RuntimeError: Connection closed by peer'
FROM trace_file WHERE rank <> 3;
DELETE FROM collective; INSERT INTO collective SELECT * FROM collectives_made; DELETE FROM hang; INSERT INTO hang SELECT * FROM hangs_made;"""


def test_all_are_killed_one_after_the_other(build, run, simulated_job, tmp_path):
    """kill -9 of a job that hangs: the first rank that dies is not blamed, and the rank that had not come still is."""
    db = edited(simulated_job("--hang", "3:6") / "out.db", tmp_path, ALL_KILLED)
    said = run([build.tool("probing"), "ask", "hang", "--answer", db]).stdout
    assert re.match(r"\w+ number \d+ of group \S+: rank 3 never came, and the call failed in 7 of 8 at .* \(RuntimeError: Connection closed by peer\): rank 3 was in ", said), said


@pytest.mark.parametrize("recent", ["", pytest.param("UPDATE comm SET flags = 8 WHERE flags & 4;" + MADE_ANEW, marks=pytest.mark.slow)])  # the call itself raises, or Work.wait() after it
@pytest.mark.parametrize("lost, who", [([2], "rank 2 has"), ([0, 2], "ranks 0,2 have"), ([0, 1, 2, 3, 4, 5, 6], "ranks 0-6 have")])
def test_the_trace_of_who_died_is_missing(build, run, simulated_job, tmp_path, recent, lost, who):
    """All that are here have failed, for somebody who is not: that is no job in which nothing hangs."""
    there = [t for t in simulated_job("--kill", "2:10").glob("node*/*.zst") if not re.search("-r(%s)-" % "|".join(map(str, lost)), t.name)]
    run([build.tool("probing-convert"), "-q"] + there + [tmp_path / "few.db"])
    said = run([build.tool("probing"), "ask", "hang", "--answer", edited(tmp_path / "few.db", tmp_path, recent)]).stdout
    assert re.match(r"\w+ number \d+ of group \S+: %s no trace here, and the call failed in %d of 8 at .* \(RuntimeError: Connection closed by peer\)$" % (who, 8 - len(lost)), said), said


@pytest.mark.parametrize("ends", ["", "INSERT INTO trigger_event(id, ts, kind, tid, detail) SELECT first_id + 900000, end_ts, 'exception', pid, 'ValueError: loss is NaN' FROM trace_file;" + MADE_ANEW])
def test_a_missing_trace_makes_no_hang(build, run, simulated_job, tmp_path, ends):
    """The same of a job that is healthy, or that all ranks leave by an exception of their own after a call that all came to."""
    done = run([build.tool("probing"), "ask", "hang", "--answer", edited(simulated_job("--lose", "2") / "out.db", tmp_path, ends)], check=1)
    assert "nothing hangs in torch.distributed" in done.stderr and "traces of 7 of 8 ranks are here" in done.stderr and not done.stdout, done


@pytest.mark.slow
@pytest.mark.limit(300)
def test_another_order(job, python_torch):
    hung = job(python_torch, "order", launched=False)
    hung.until_it_hangs()
    hung.end()
    answer, tables = hung.ask()
    assert re.match(r"call number 6 of group \w+: rank 2 called all_gather in .*other_first \(hang_scenes.py:%d\), where others called all_reduce: their order"
                    r" differs, 3 of 4 wait since" % line_of("dist.all_gather([torch.ones(10) for _ in range(WORLD)], torch.ones(10))  # first"), answer)
    assert [(r["waits_for"], r["state"]) for r in tables[0]] == [("2", "other call")]


@pytest.mark.limit(300)
@pytest.mark.slow
def test_other_shapes(job, python_torch):
    """gloo does not compare sizes: one rank aborts, others fail or wait."""
    hung = job(python_torch, "shapes")
    hung.until_it_hangs(ranks=1)
    hung.end()
    answer, tables = hung.ask()
    assert re.match(r"all_reduce number 6 of group \w+: rank 2 brought 4000 bytes, others 40, (and later was )?in .*: the shapes differ, \d of 4 wait", answer), (answer, tables, hung.log())


@pytest.mark.limit(300)
@pytest.mark.slow
def test_a_smaller_shape(job, python_torch):
    """The rank that brings it aborts within a millisecond of its call, which it has recorded nonetheless."""
    dying = job(python_torch, "smaller", launched=False)
    dying.until_it_failed()
    dying.end()
    answer, tables = dying.ask()
    assert re.match(r"all_reduce number 6 of group \w+: rank 2 brought 40 bytes, others 4000, in .*smaller \(hang_scenes.py:\d+\): the shapes differ, ", answer), (
        answer, tables, dying.log())


@pytest.mark.limit(300)
@pytest.mark.slow
@pytest.mark.parametrize("launched", [True, False])
@pytest.mark.parametrize("scene", ["killed", "killed_inside"])
def test_one_dead_by_signal_9(job, python_torch, scene, launched):
    """The connections of its neighbours break, and rank 0 goes on waiting. torchrun then ends the others at once. Without torchrun they
    live on, and all are killed some seconds later; that does not mean that rank 2 was killed together with them."""
    if launched and python_torch == "/usr/bin/python3":
        pytest.skip("torch 1.13's torchrun fails on Python 3.11")
    dying = job(python_torch, scene, launched=launched)
    dying.until_it_failed()
    dying.end()
    answer, tables = dying.ask()
    assert re.match(r"all_reduce number 6 of group \w+: rank 2 died at [0-9:.]+ \(killed by ", answer), (answer, tables, dying.log())
    assert [(r["waits_for"], r["state"]) for r in tables[0]] == [("2", "dead")]
    assert [(r["rank"], r["state"]) for r in tables[1]] == [(2, "dead")]


@pytest.mark.limit(300)
@pytest.mark.parametrize("scene", ["termed_inside", "termed_with_its_child"])
@pytest.mark.slow
def test_one_that_a_stranger_tells_to_end(job, scene):
    """A stranger sends SIGTERM to one rank, and torchrun then ends the others by SIGTERM, too; theirs come from their parent, all from the
    same process. In one scene the stranger's signal reaches the rank's own child as well."""
    path, why = find_torch("recent")
    if not path:
        pytest.skip(why)
    dying = job(path, scene)
    dying.process.wait(timeout=1000)
    answer, tables = dying.ask()
    assert re.match(r"all_reduce number 6 of group \w+: rank 2 died at [0-9:.]+ \(term SIGTERM sent by ", answer), (answer, tables, dying.log())
    assert [(r["rank"], r["state"]) for r in tables[1]] == [(2, "dead")], tables


@pytest.mark.slow
@pytest.mark.limit(300)
def test_one_that_leaves(job, build, run):
    """It did not leave because of the others, whose exceptions come before its recording ends."""
    path, why = find_torch("recent")
    if not path:
        pytest.skip(why)
    leaving = job(path, "leaves")
    leaving.process.wait(timeout=1000)
    answer, tables = leaving.ask()
    assert re.match(r"all_reduce number 6 of group \w+: rank 2 had ended (at [0-9:.]+ )?\(exit with code 3(; its process was gone at [0-9:.]+)?\)", answer), (answer, tables, leaving.log())
    died = run([build.tool("probing"), "ask", "died", "--answer", leaving.traces]).stdout
    assert re.match(r"rank 2 \(process \d+\) on .*: exit with code 3 while others waited for it", died), (died, leaving.log())


@pytest.mark.slow
@pytest.mark.limit(300)
def test_one_that_comes_too_late(build, run, job, python_torch):
    """No call is incomplete, as all ranks came; but the others' time was up. Who dies of that first is not to blame, and the answer says
    who is."""
    late = job(python_torch, "comes_too_late", launched=False)
    late.process.wait(timeout=1000)
    answer, tables = late.ask()
    assert re.match(r"all_reduce number \d+ of group \w+: rank 2 came \d+\.\d s too late, and the call failed in 3 of 4 at [0-9:.]+ after \d+\.\d s \(.*\): rank 2 was in comes_too_late "
                    r"\(hang_scenes.py:%d\)$" % line_of("time.sleep(6)  # before it comes"), answer), (answer, tables, late.log())
    assert [(r["waits_for"], r["waiting"], r["state"]) for r in tables[0]] == [("2", "0,1,3", "late")]
    died = run([build.tool("probing"), "ask", "died", "--answer", late.traces]).stdout
    assert re.match(r"rank [013] \(process \d+\) on \S+ at \S+ \S+, because rank 2 came late to all_reduce number \d+ of group \w+ \(`probing ask hang`\): exception \w+: ", died), died


@pytest.mark.slow
@pytest.mark.limit(300)
def test_one_that_joins_too_late(build, run, job, python_torch):
    """Torch may refuse it at once, or let it wait in turn."""
    late = job(python_torch, "joins_too_late", launched=False)
    late.process.wait(timeout=1000)
    answer, tables = late.ask()
    assert re.match(r"no call is incomplete, but ranks 0,1,3 wait in init_process_group, .*: rank 2 (came to it when they had given up, \d+\.\d s later|is not in it; rank 2 is in .*)$", answer), (answer, tables, late.log())
    died = run([build.tool("probing"), "ask", "died", "--answer", late.traces]).stdout
    assert re.match(r"rank [013] \(process \d+\) on \S+ at \S+ \S+, because not all ranks had come to init_process_group \(`probing ask hang`\): exception \w+: ", died), died


@pytest.mark.limit(300)
def test_the_first_of_several_that_failed(job, python_torch):
    """Three calls are in flight when rank 2 dies, and a fourth is tried after them: all fail, because of the first of them."""
    failing = job(python_torch, "several_fail", launched=False)
    failing.process.wait(timeout=1000)
    answer, tables = failing.ask()
    assert re.match(r"all_reduce number 6 of group \w+: rank 2 died at [0-9:.]+ \(.*\), and the call failed in 3 of 4 at ", answer), (answer, tables, failing.log())
    assert [(r["seq"], r["waits_for"], r["state"]) for r in tables[0]] == [(6, "2", "dead")]


def test_one_more_waits(build, run, simulated_job):
    """The one that waits for a rank that waits for the cause is said in the singular."""
    job = simulated_job("--ranks", 4, "--tp", 2, "--no-world", "--hang", "3:5")
    said = run([build.tool("probing"), "ask", "hang", "--answer", job / "out.db"]).stdout
    assert re.search(r": rank 3 never came, 1 of 2 wait since .*; one more collective or message waits for that$", said.strip()), said


@pytest.mark.slow
@pytest.mark.limit(300)
def test_a_chain_over_groups(job, python_torch):
    """Rank 0 waits for 1, 1 for 3 and 3 for 2, each in a group of its own; 2 waits for nobody."""
    hung = job(python_torch, "groups", launched=False)
    hung.until_it_hangs()
    hung.end()
    answer, tables = hung.ask()
    assert re.search(r": rank 2 never came, 1 of 2 wait since .*: rank 2 is in gone_elsewhere \(hang_scenes.py:\d+\); 2 more collectives and messages of "
                     "2 groups wait for that$", answer), (answer, tables)
    assert [(r["level"], r["waiting"], r["waits_for"]) for r in tables[0]] == [(0, "3", "2"), (1, "1", "3"), (2, "0", "1")]
    assert len({r["group"] for r in tables[0]}) == 3
    assert [(r["rank"], r["state"]) for r in tables[1]] == [(2, "never came"), (3, "waits itself"), (1, "waits itself")]
    assert all("wait_in_order" in r["does"] for r in tables[1][1:])


@pytest.mark.limit(300)
@pytest.mark.slow
@pytest.mark.parametrize("scene, says", [("never_comes", "missing ranks: {2}"), ("order", "all_gather")])
def test_beside_the_flight_recorder(job, scene, says):
    """PyTorch's own record of the same hang, read by its own analyser, names the same call and the same rank; only Probing says where that
    rank is instead. (gloo's dumps call their group '' in one place and '0' in another; the test makes them equal, because the analyser
    would fail.)"""
    path, why = find_torch("recent")
    if not path:
        pytest.skip(why)
    hung = job(path, scene, TORCH_FR_BUFFER_SIZE="2000")
    hung.until_it_hangs()
    (hung.dir / "dump").touch()
    end = time.monotonic() + 600
    while len([f for f in hung.dir.glob("fr_*") if f.suffix != ".part"]) < 4:
        assert time.monotonic() < end, hung.log()
        time.sleep(0.1)
    hung.end()
    (hung.dir / "dumps").mkdir()
    for rank in range(4):
        dump = pickle.loads((hung.dir / ("fr_%d" % rank)).read_bytes())
        config = dump["pg_config"].pop("", None)
        if config:
            config.update(name="0", desc="default_pg")
            dump["pg_config"]["0"] = config
        (hung.dir / "dumps" / ("fr_%d" % rank)).write_bytes(pickle.dumps(dump))
    theirs = conftest.run_command([path, "-m", "torch.distributed.flight_recorder.fr_trace", hung.dir / "dumps", "-p", "fr_"])
    theirs = theirs.stdout + theirs.stderr
    answer, tables = hung.ask()
    assert "sequence number: %d" % tables[0][0]["seq"] in theirs and says in theirs, theirs
    assert "rank 2" in answer and ("gone_elsewhere" in answer) == (scene == "never_comes"), answer
    assert "gone_elsewhere" not in theirs


@pytest.mark.slow
@pytest.mark.limit(300)
def test_what_if_of_a_real_job(build, run, job, python_torch):
    """One of four ranks takes 50 ms longer. The answer says how much shorter the job would be without its lateness, within 10 % of what the
    ranks' own clocks say."""
    done = job(python_torch, "late", launched=False)
    assert done.process.wait(timeout=1000) == 0, done.log()
    ranks = [json.loads((done.dir / ("late_%d" % r)).read_text()) for r in range(4)]
    truth = sum(max(work[i] for work, _ in ranks) - max(work[i] - planted[i] for work, planted in ranks) for i in range(1, 40))
    out = json.loads(run([build.tool("probing"), "ask", "what_if", "--json", done.traces]).stdout)
    answer, saved = out[0]["rows"][0]["answer"], {row["what"]: row["saved"] for row in out[1]["rows"]}
    assert answer.startswith("without rank 2's lateness it would take "), answer
    assert saved["without rank 2's lateness"] == pytest.approx(truth, rel=0.1), (answer, ranks)


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(), ("--tp", 4, "--pp", 8, "--no-world", "--layers", 1)])
def test_a_thousand_ranks(build, run, sql, tmp_path, shape):
    """One of 1,024 ranks does not come any more: it is the only cause, and in a job of many groups every wait is in the chain that leads to
    it."""
    run([build.root / "tests" / "fleet" / "probing-fleet", "--quiet", "--out", tmp_path / "f", "--nodes", 16, "--minutes", 0.2, "--ranks", 1024,
         "--hang", "777:5"] + list(shape))
    run([build.tool("probing-convert"), "-q"] + sorted((tmp_path / "f").glob("node*")) + [tmp_path / "out.db"])
    assert sql(tmp_path / "out.db", "SELECT DISTINCT rank FROM hangs WHERE cause") == [(777,)]
    assert sql(tmp_path / "out.db", "SELECT count(*) FROM hangs WHERE level IS NULL") == [(0,)]
    waiting = {int(r) for row in sql(tmp_path / "out.db", "SELECT waiters FROM hangs") for r in row[0].split(",")}
    assert waiting == set(range(1024)) - {777}
    answer = run([build.tool("probing"), "ask", "hang", "--answer", tmp_path / "out.db"]).stdout
    assert "rank 777 never came" in answer and ("groups wait for that" in answer) == bool(shape), answer
