#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks whether tests notice errors: changes one line of C or SQL at a time, in a copy of the tree, and runs the tests of the changed file.

    make mutants                                two mutants of each C file that a unit program covers: half an hour or so
    make mutants FILES='writer/encode.c agent/unwind/rules.c' N=20 SEED=7
    tests/mutants.py -n 5 --e2e='test_comm.py -k every_operation' agent/comm/comm_wrap.c

A mutant is a line with an operator reversed, a number changed by one, a condition made always or never true, or a statement left out; comments,
strings and preprocessor lines stay. It is killed if a test fails, crashes or hangs; one that does not compile does not count. The same seed
makes the same mutants. The SQL of converter/schema has mutants of its own (another comparison or aggregate, a term or column left out, an inner instead
of an outer join, another unit or order). Of survivors the line is shown before and after the change: some cannot be noticed at all (another size of a buffer);
the others show which tests are missing.

The tests are the unit programs that include the file or its header (as their .d files say), and those of its folder in UNITS. With --e2e (make
mutants E2E=1), mutants that survive these are also given to the end-to-end tests of the folder, or to those that the arguments for pytest
select; that takes some minutes for each. A file that no test covers is reported as such, and left out of the rate.
"""
import argparse
import collections
import concurrent.futures
import glob
import os
import pathlib
import random
import re
import resource
import shlex
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile

REPO = pathlib.Path(__file__).resolve().parents[1]
FOLDERS = ("traces", "writer", "agent", "converter", "gdbplugin", "tools")
UNITS = {  # unit programs that use these libraries as a whole
    "traces": "block rows varint settings merge exprs triggers golden torch symbols writer inspect_process",
    "writer": "rows ring writer live segment finish disk block golden reader",
    "agent/pywalk": "pywalk debug_offsets", "gdbplugin": "inspect_pure inspect_process",
    "converter": "convert reader vtab golden symbols torch tables merge",
    "converter/schema": "views views_jobs goes_on joined rotation_rows torch_append torch_rotation",
}
E2E = (  # the longest folder name that matches
    ("agent", "test_agent.py test_agent_records.py test_sampler_signals.py"), ("agent/comm", "test_comm.py"),
    ("agent/gpu", "test_gpu.py test_torch_cuda.py"), ("agent/python", "test_api.py test_agent_eval.py"),
    ("agent/pywalk", "test_pywalk.py test_objects.py test_pywalk_tasks.py"), ("agent/torch", "test_torch.py"),
    ("agent/trigger", "test_triggers.py test_trigger_exceptions.py"), ("converter", "test_convert.py test_convert_output.py test_format.py test_flamegraph.py"),
    ("gdbplugin", "test_backtrace_live.py test_core.py test_console.py test_gdb_inject.py"), ("traces", "test_format.py test_tools_cli.py"),
    ("tools", "test_tools_cli.py test_tools_query.py test_tools_record.py test_record_terminal.py test_flamegraph.py test_report.py test_report_page.py"),
    ("writer", "test_convert.py test_agent_records.py test_rotation.py"))
NUMBER = r"(?<![\w.])(\d+)(?![\w.])"
SWAPS = [(r" == ", " != "), (r" != ", " == "), (r" <= ", " < "), (r" < ", " <= "), (r" >= ", " > "), (r" > ", " >= "),
         (r" && ", " || "), (r" \|\| ", " && "), (r" \+ ", " - "), (r" - ", " + "), (r" \* ", " / "), (r" \+= ", " = "), (r" -= ", " += "),
         (r"\+\+", "--"), (r"(?<=[(\s])!(?=\w)", ""), (r" & ", " | "), (r" \| ", " & "), (r" << ", " >> "), (r" >> ", " << "),
         (r"\bbreak;", ";"), (r"\bcontinue;", ";"), (r"\bif \(", "if (1 || "), (r"\bif \(", "if (0 && "), (r"\bwhile \(", "while (0 && "),
         (r"\breturn (?!NULL;)[^;]+;", "return 0;"), (NUMBER, lambda m: str(int(m.group(1)) + 1)), (r"\b(memcpy|memset|memmove)\(.*\);$", ";"),
         (r"^(\s+)[\w>.\[\]-]+ [|&+^-]?= [^;{]+;$", r"\1;"), (r"^(\s+)[a-z_]\w+\([^;]*\);$", r"\1;")]

SQL_SWAPS = [(r" = ", " <> "), (r" IS (?!NOT)", " IS NOT "), (r" IS NOT ", " IS "), (r" <= ", " < "), (r" < ", " <= "), (r" >= ", " > "), (r" > ", " >= "), (r" AND ", " OR "),
             (r" OR ", " AND "), (r"(?<=[( ])NOT ", ""), (r" AND [^()]+$", ""), (r"\bWHERE [^()]+? AND ", "WHERE "), (r"\bmax\(", "min("), (r"\bmin\(", "max("), (r"\bsum\(", "max("),
             (r"\bcount\(DISTINCT ", "count("), (r" DESC\b", ""), (r"\bLEFT JOIN\b", "JOIN"), (r"\bUNION ALL\b", "UNION"), (r" \+ ", " - "), (r" - ", " + "), (r" & ", " | "),
             (r" \* ", " + "), (r"\b1e9\b", "1e6"), (r"\b1e6\b", "1e9"), (r"\bcoalesce\(([^(),]+), [^()]+\)", r"\1"), (r"\bELSE [^()]+? END", "END"), (r", [a-z]\.\w+ (?=AS)", ", NULL "),
             (r"PARTITION BY \w+, ", "PARTITION BY "), (r"GROUP BY \w+, ", "GROUP BY "), (r", t\.(pid|rank)\b", ", t.id"), (r"(?<!LIMIT )" + NUMBER, lambda m: str(int(m.group(1)) + 1))]


def programs():
    """Programs that end-to-end tests run beside the product. Some are linked with its libraries, and so with a mutant."""
    return ["build/" + str(p.relative_to(REPO))[:-2] for p in sorted((REPO / "tests/programs").glob("*.c"))]


def code_only(text, is_sql=False):
    """Returns the text with comments, strings and preprocessor lines replaced by blanks, so that everything else stays in its place."""
    blank = lambda m: re.sub(r"[^\n]", " ", m.group())
    if is_sql:
        return re.sub(r"--[^\n]*|'[^'\n]*'", blank, text)
    text = re.sub(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', blank, text, flags=re.S)
    return re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", blank, text, flags=re.M)


def refused(path, text):
    """Returns the views that SQLite does not accept when the file of the schema has this text; None: it is not even SQL."""
    parts = {p: p.read_text() for p in sorted((REPO / path).parent.glob("*.sql"))}
    parts[REPO / path] = text
    db = sqlite3.connect(":memory:")
    try:
        db.executescript("\n".join(parts.values()).split("--@ after load")[0])
    except sqlite3.Error:
        return None
    views = set()
    for name, in db.execute("SELECT name FROM sqlite_master WHERE type = 'view'").fetchall():
        try:
            db.execute('SELECT * FROM "%s" LIMIT 0' % name)
        except sqlite3.Error:
            views.add(name)
    return views


def mutants_of(path, n, seed):
    """Returns [(line number, the line before, the line after)], each for another place."""
    text = (REPO / path).read_text()
    is_sql = path.endswith(".sql")
    lines, plain, found = text.split("\n"), code_only(text, is_sql).split("\n"), []
    for number, line in enumerate(plain):
        if re.match(r"\s*(static )?(inline )?(const )?(struct|enum|union|typedef)\b[^=;]*[{;]?$", line) or "static_assert" in line:
            continue  # declarations
        for pattern, into in SQL_SWAPS if is_sql else SWAPS:
            for m in re.finditer(pattern, line):
                after = lines[number][:m.start()] + m.expand(into) if isinstance(into, str) else lines[number][:m.start()] + into(m)
                after += lines[number][m.end():]
                if after != lines[number]:
                    found.append((number, lines[number], after))
    rng = random.Random("%s %s" % (seed, path))
    rng.shuffle(found)
    chosen, places = [], set()
    for mutant in found:
        if len(chosen) == n:
            break
        if is_sql and refused(path, "\n".join(lines[:mutant[0]] + [mutant[2]] + lines[mutant[0] + 1:])) != refused(path, text):
            continue
        if mutant[0] not in places:
            places.add(mutant[0])
            chosen.append(mutant)
    return chosen


class Tree:
    """A copy of the tree with a build of its own."""

    def __init__(self, root, make):
        self.root, self.make = root, shlex.split(make)
        files = subprocess.run(["git", "ls-files", "-z", "-co", "--exclude-standard"], cwd=str(REPO), stdout=subprocess.PIPE, check=True).stdout
        for name in filter(None, files.decode().split("\0")):
            if (REPO / name).is_file():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(str(REPO / name), str(root / name))

    def run(self, cmd, seconds):
        """Runs a command. Returns its exit code and output; none of its processes is left."""
        def limits():
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 30, 1 << 30))
        env = dict(os.environ, PROBING_BUILD=str(self.root / "build"), TMPDIR=str(self.root / "tmp"), MAKEFLAGS="", MAKELEVEL="")
        (self.root / "tmp").mkdir(exist_ok=True)
        p = subprocess.Popen(cmd, cwd=str(self.root), env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                             start_new_session=True, preexec_fn=limits)
        try:
            return p, p.communicate(timeout=seconds)[0].decode(errors="replace")
        except subprocess.TimeoutExpired:
            return None, "hung"
        finally:
            try:
                os.killpg(p.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            p.wait()

    def build(self, targets):
        p, said = self.run(self.make + targets, 900)
        return p is not None and p.returncode == 0, said

    def units(self, path):
        """Returns the names of the unit programs that test this file."""
        names = set()
        for folder in UNITS:
            if path.startswith(folder + "/"):
                names |= {"test_" + n for n in UNITS[folder].split()}
        for d in glob.glob(str(self.root / "build/obj/tests/unit/*.d")):
            if re.search(r"\s%s\.[ch]\b" % re.escape(os.path.splitext(path)[0]), " " + pathlib.Path(d).read_text()):
                names.add(pathlib.Path(d).stem)
        return sorted(n for n in names if (self.root / "tests/unit" / (n + ".c")).exists())

    def try_mutant(self, path, mutant, e2e):
        """Returns "killed", "survived", "stillborn" or "uncovered", and which test killed it."""
        units = self.units(path)
        if not units and not e2e:
            return "uncovered", ""
        file = self.root / path
        text = file.read_text()
        lines = text.split("\n")
        lines[mutant[0]] = mutant[2]
        try:
            file.write_text("\n".join(lines))
            ok, _ = self.build(["build/tests/unit/" + n for n in units] + (["all"] + programs() if e2e else []))
            if not ok:
                return "stillborn", ""
            for name in units:
                p, _ = self.run(["build/tests/unit/" + name], 60)
                if p is None or p.returncode != 0:
                    return "killed", name
            if e2e:
                p, said = self.run([sys.executable, "-m", "pytest", "-q", "-x", "-m", "not slow", "-p", "no:cacheprovider"] + e2e, 900)
                if p is None or p.returncode == 1:
                    return "killed", "e2e"
                if p.returncode != 0:  # 2 and more: no test has run
                    sys.exit("mutants: pytest %s: exit code %d: %s" % (shlex.join(e2e), p.returncode, said[-500:]))
            return "survived", ""
        finally:
            file.write_text(text)


def main():
    ap = argparse.ArgumentParser(usage="tests/mutants.py [-n N] [--seed S] [--jobs J] [--e2e[=ARGUMENTS OF PYTEST]] [FILE.c ...] [converter/schema/FILE.sql ...]")
    ap.add_argument("-n", type=int, default=2, help="mutants of each file")
    ap.add_argument("--seed", default="1")
    ap.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    ap.add_argument("--make", default="make", help="with its switches")
    ap.add_argument("--e2e", nargs="?", const="folder", default="", help="these, too; without a value those of the file's folder")
    ap.add_argument("files", nargs="*")
    a = ap.parse_args()

    def e2e_of(path):
        fit = [tests for folder, tests in sorted(E2E) if path.startswith(folder + "/")]
        words = (fit or [""])[-1] if a.e2e == "folder" else a.e2e
        return ["tests/e2e/" + w if re.match(r"test_\w+\.py", w) else w for w in shlex.split(words)]

    os.chdir(str(REPO))
    files = a.files or sorted(str(p.relative_to(REPO)) for f in FOLDERS for p in (REPO / f).rglob("*.c"))
    if [f for f in files if not (REPO / f).is_file()]:
        sys.exit("mutants: no such file: %s" % [f for f in files if not (REPO / f).is_file()])
    work = pathlib.Path(tempfile.mkdtemp(prefix="mutants-"))
    try:
        trees, sums = [], collections.defaultdict(collections.Counter)
        for i in range(a.jobs):
            tree = Tree(work / str(i), a.make)
            ok, said = tree.build(["-j%d" % (os.cpu_count() or 1)] + programs() + (["all"] if a.e2e else []) +
                                  ["build/" + str(p.relative_to(REPO))[:-2] for p in sorted((REPO / "tests/unit").glob("test_*.c"))])
            if not ok:
                sys.exit("mutants: the tree does not build as it is:\n" + said[-2000:])
            trees.append(tree)

        def one(job):
            path, mutant = job
            tree = trees.pop()
            try:
                return path, mutant, tree.try_mutant(path, mutant, e2e_of(path))
            finally:
                trees.append(tree)

        jobs = [(path, m) for path in files for m in mutants_of(path, a.n, a.seed)]
        alive = []
        with concurrent.futures.ThreadPoolExecutor(a.jobs) as pool:
            for path, mutant, (result, by) in pool.map(one, jobs):
                print("  %-9s %s:%d %s" % (result, path, mutant[0] + 1, by), flush=True)
                sums[os.path.dirname(path)][result] += 1
                if result == "survived":
                    alive.append((path, mutant))
        for path, (number, before, after) in alive:
            print("\n%s:%d survived\n- %s\n+ %s" % (path, number + 1, before.strip(), after.strip()))
        print("\n%-18s %7s %7s %8s %9s %9s" % ("folder", "mutants", "killed", "survived", "kill rate", "no tests"))
        total = collections.Counter()
        for folder in sorted(sums) + ["all"]:
            c = sums[folder] if folder != "all" else total
            total.update(c if folder != "all" else {})
            n = c["killed"] + c["survived"]
            print("%-18s %7d %7d %8d %8s%% %9d" % (folder, n, c["killed"], c["survived"], 100 * c["killed"] // n if n else "-", c["uncovered"]))
    finally:
        shutil.rmtree(str(work), ignore_errors=True)


if __name__ == "__main__":
    main()
