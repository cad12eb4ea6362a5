# SPDX-License-Identifier: Apache-2.0
"""The front program, what all commands have in common, their man pages, and `probing list`."""
import json
import os
import re
import shutil
import signal
import time

import pytest

from conftest import REPO

COMMANDS = ["record", "convert", "query", "ask", "diff", "stacks", "flamegraph", "top", "report", "serve", "cluster", "export", "pack", "python-install",
            "list"]
USAGE = {"record": 125}  # for all others: 2


def test_front_program(build, run):
    tool = build.tool("probing")
    assert "usage: probing COMMAND" in run([tool, "--help"]).stdout
    assert run([tool, "help"]).stdout == run([tool, "-h"]).stdout == run([tool, "help", "help"]).stdout
    assert "usage: probing COMMAND" in run([tool], check=2).stderr
    assert "no command 'nope'" in run([tool, "nope"], check=2).stderr
    assert "no command 'nope'" in run([tool, "help", "nope"], check=2).stderr
    assert "unknown option '--nope'" in run([tool, "--nope"], check=2).stderr
    assert re.fullmatch(r"probing \d+\.\d+\.\d+\n", run([tool, "--version"]).stdout)
    for name in COMMANDS:
        assert re.search(r"^  %s " % name, run([tool, "--help"]).stdout, re.M)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_and_version_of_each_command(build, run, name):
    tool = build.tool("probing")
    help_text = run([tool, name, "--help"])
    usage = ("usage: probing-%s " if os.path.exists(build.tool("probing-" + name)) else "usage: probing %s ") % name  # a command that there is
    assert help_text.stdout.startswith(usage) and help_text.stderr == ""
    assert run([tool, name, "-h"]).stdout == run([tool, "help", name]).stdout == help_text.stdout
    assert re.fullmatch(r"probing-%s \d+\.\d+\.\d+\n" % name, run([tool, name, "--version"]).stdout)
    wrong = run([tool, name, "--no-such-option"], check=USAGE.get(name, 2))
    assert wrong.stderr == "probing-%s: unknown option '--no-such-option' (see probing %s --help)\n" % (name, name)
    assert wrong.stdout == ""
    assert max(len(line) for line in help_text.stdout.splitlines()) <= 100


@pytest.mark.parametrize("name", ["inject", "backtrace", "eval", "repl", "watch", "config", "status", "stop", "memory"])
def test_help_of_target_commands(build, run, name):
    tool = build.tool("probing")
    text = run([tool, "help", name]).stdout
    assert text.startswith("usage: ") and name in text
    assert run([tool, name, "--help"]).stdout == text
    if name != "backtrace":
        assert run([tool, name], check=2).stderr.startswith("probing: %s is for a live process: probing -t PID %s" % (name, name))


@pytest.mark.parametrize("name", ["query", "flamegraph", "top"])
def test_help_of_commands_that_take_a_process_too(build, run, name):
    tool = build.tool("probing")
    assert run([tool, "-t", "1", name, "--help"]).stdout == run([tool, name, "--help"]).stdout


@pytest.mark.parametrize("name", ["record", "convert", "query"])
def test_links(build, run, name):
    assert run([build.tool("probing-" + name), "--help"]).stdout == run([build.tool("probing"), name, "--help"]).stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_man_page_names_every_option(build, run, name):
    """And it names no other: the page and the help say the same."""
    page = (REPO / "tools" / "man" / ("probing-%s.1" % name)).read_text().replace("\\-", "-")
    help_text = run([build.tool("probing"), name, "--help"]).stdout

    def options(text):
        return set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", text))

    assert options(help_text) - {"--nproc-per-node"} <= options(page)
    described = "\n".join(re.findall(r"^\.TP\n(.*)$", page, re.M))
    assert options(described) <= options(help_text)


@pytest.mark.skipif(not shutil.which("groff"), reason="no groff")
def test_man_pages_are_clean(run):
    pages = sorted((REPO / "tools" / "man").glob("*.1"))
    assert len(pages) >= 8
    for page in pages:
        done = run(["groff", "-man", "-ww", "-Tutf8", "-z", page])
        assert done.stderr == "", page
        assert '.TH ' in page.read_text() and ".SH EXIT STATUS" in page.read_text() or "gdb" in page.name


@pytest.mark.parametrize("to", [">&-", "> /dev/full"])
def test_a_standard_output_that_cannot_be_written(build, run, to):
    """Every program says so in one line, whoever writes: also those that are programs of their own."""
    trace = str(REPO / "tests" / "golden" / "basic.zst")
    for words in (["serve", "--help"], ["cluster", "--version"], ["report", trace], ["export", "--format", "chrome", "-o", "-", trace],
                  ["export", "--format", "pprof", "-o", "-", trace], ["-t", "localhost:1", "--help"]):
        done = run(["sh", "-c", '"$@" ' + to, "sh", build.tool("probing")] + words, check=3)
        assert re.fullmatch(r"probing(-\w+)?: cannot write to standard output: .*\n", done.stderr), (words, done.stderr)


# ---- list ----------------------------------------------------------------------------------------


def test_list_nothing(build, run):
    done = run([build.tool("probing"), "list"], check=1)
    assert done.stdout == "" and "nothing is being recorded" in done.stderr
    assert json.loads(run([build.tool("probing"), "list", "--json"], check=1).stdout) == []


def test_list_while_recording(build, run, spawn, tmp_path):
    trace = tmp_path / "t.zst"
    code = "import os; print('ready', os.getpid(), flush=True)\nwhile True: sum(range(999))"
    env = dict(os.environ, RANK="3", WORLD_SIZE="8")
    recorder = spawn([build.tool("probing-record"), "-r", "50", "-o", trace, "/usr/bin/python3", "-c", code], ready="ready", env=env)
    for _ in range(4000):
        out = run([build.tool("probing"), "list", "--json"], check=None).stdout
        rows = json.loads(out)
        if rows and rows[0]["samples"] > 5:
            break
        time.sleep(0.05)
    row = rows[0]
    assert len(rows) == 1
    assert row["rank"] == 3 and row["state"] == "recording" and row["rate_hz"] == 50 and row["trace"] == str(trace)
    assert "python3" in row["command"] and row["uptime_s"] > 0 and row["samples"] > 5 and row["lost"] >= 0
    for words, page in ((["list"], "list"), (["-t", row["pid"], "status"], "target")):  # what JSON has is described
        keys = json.loads(run([build.tool("probing")] + words + ["--json"]).stdout)
        described = (REPO / "tools" / "man" / ("probing-%s.1" % page)).read_text()
        assert [k for k in (keys[0] if page == "list" else keys) if not re.search(r"\b%s\b" % k, described)] == []
    for word in ("inject", "stop"):  # they print text
        assert "has no --json" in run([build.tool("probing"), "-t", row["pid"], word, "--json"], check=2).stderr
    text = run([build.tool("probing"), "list"]).stdout.splitlines()
    assert text[0].split() == ["pid", "rank", "command", "state", "uptime", "rate_hz", "samples", "lost", "size", "trace", "run", "problem"]
    assert str(row["pid"]) in text[2] and "recording" in text[2]

    os.kill(recorder.pid, signal.SIGKILL)
    recorder.wait(timeout=240)
    os.kill(row["pid"], signal.SIGKILL)
    for _ in range(4000):
        after = run([build.tool("probing"), "list", "--json"], check=None)
        if json.loads(after.stdout)[0]["state"] == "dead":
            break
        time.sleep(0.05)
    assert json.loads(after.stdout)[0]["state"] == "dead" and "probing-convert" in after.stderr
    # Converting it completes it, as the message says.
    run([build.tool("probing-convert"), "-q", trace, tmp_path / "out.db"])
    assert json.loads(run([build.tool("probing"), "list", "--json"], check=1).stdout) == []


def test_list_shows_the_pid_that_others_see(build, run, spawn, tmp_path):
    """A process in a pid namespace of its own calls itself 1 or 2, which is another process here."""
    if os.getuid() or run(["unshare", "-p", "-f", "--mount-proc", "true"], check=None).returncode:
        pytest.skip("unshare -p --mount-proc is not permitted here")
    program = "import time; print('up', flush=True); time.sleep(600)"
    spawn(["unshare", "-p", "-f", "--kill-child", build.tool("probing-record"), "-q", "-o", tmp_path / "t.zst", "python3", "-c",
           program], ready="up")
    for _ in range(2000):
        rows = json.loads(run([build.tool("probing"), "list", "--json"], check=None).stdout)
        if rows and rows[0]["state"] == "recording":
            break
        time.sleep(0.05)
    pid = rows[0]["pid"]
    status = open("/proc/%d/status" % pid).read()
    inside = int(re.search(r"^NSpid:.*\t(\d+)$", status, re.M).group(1))
    assert inside != pid and program.encode() in open("/proc/%d/cmdline" % pid, "rb").read()
    # from within a namespace the outer process cannot be seen: no pid is printed, rather than another's
    rows = json.loads(run(["unshare", "-p", "-f", "--mount-proc", build.tool("probing"), "list", "--json"]).stdout)
    assert [(r["pid"], r["state"]) for r in rows] == [(None, "unknown")]


def test_next_command_can_be_pasted(build, run, tmp_path):
    """Whatever the file is called; and a name that ends in a number is not taken for a segment of another trace."""
    code = "import time; time.sleep(0.4)"
    for name in ("train-v1.2.zst", "my run's.zst", "$(x).zst", "-odd.zst"):
        done = run([build.tool("probing-record"), "-o", "./" + name if name[0] == "-" else name, "python3", "-c", code], cwd=str(tmp_path))
        assert "1 process, " in done.stderr, done.stderr
        command = done.stderr.strip().split("; next: ")[1].replace("out.db", "--alone -f out.db")
        run(["sh", "-c", "PATH=%s:$PATH; %s" % (build.bin, command)], cwd=str(tmp_path))
        (tmp_path / "out.db").unlink()
    if not shutil.which("bash"):
        return
    for name in ("two\nlines'.zst", os.fsdecode(b"no\xffutf8\\.zst"), "\u202eright.zst"):  # as the message must not contain them
        done = run([build.tool("probing-record"), "-o", name, "python3", "-c", code], cwd=str(tmp_path))
        command = done.stderr.strip().split("; next: ")[1].replace("out.db", "--alone -f out.db")
        run(["bash", "-c", "PATH=%s:$PATH; %s" % (build.bin, command)], cwd=str(tmp_path))
        (tmp_path / "out.db").unlink()
