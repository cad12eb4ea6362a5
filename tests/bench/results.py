# SPDX-License-Identifier: Apache-2.0
"""Stores what was measured, and makes the pages of it.

A part (PARTS in run.py) writes what it measured into a Report. results.json keeps the last Report of each part, with the day and the
machine, so that parts can be measured again one at a time: RESULTS.md and the table in README.md are written anew from all of them.

    kept = load(path); kept["toggle"] = entry(report, machine)
    text = page(kept, order, by_hand)
"""
import datetime
import json

# The bars that README.md shows, by how they begin; RESULTS.md has all.
HEADLINES = (
    "convert, rows a second (convert 8 M", "convert, recorded stacks", "first ten rows of the slowest view", "a rank and ten seconds, the slowest view",
    "all of samples", "to Arrow: 16 ranks x 5 minutes, recorded stacks, all columns", "a process is asked: steps", "a process is asked: samples",
    "inject: target stopped", "backtrace without a stop", "backtrace --stop: target stopped", "agent memory over the bare process, with torch",
    "trace bytes a sample, steady state, training", "training, slow-down", "nn.Identity, recorded", "step of transformer, all")


class Report:
    """Markdown text, and the bars."""

    def __init__(self):
        self.lines = []
        self.bars = []

    def add(self, *lines):
        self.lines.extend(lines)

    def table(self, head, rows):
        self.add("", "| " + " | ".join(head) + " |", "|" + "|".join(["---"] + ["---:"] * (len(head) - 1)) + "|")
        self.add(*["| " + " | ".join(row) + " |" for row in rows])
        self.add("")

    def bar(self, what, limit, value, unit, error=0.0, least=False):
        """Adds a promise and the measured value. `error`: differences below it cannot be told apart."""
        good = value >= limit if least else value <= limit
        sure = abs(value - limit) > 2 * error
        verdict = ("pass" if good else "FAIL") + ("" if sure else " (within the noise)")
        shown = "%.3g %s" % (value, unit) + (" ± %.2g" % error if error else "")
        self.bars.append((what, "%s %g %s" % ("at least" if least else "at most", limit, unit), shown, verdict))

    def missing(self, what, why):
        self.bars.append((what, "", "not measured", why))


def entry(report, machine):
    return {"date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d"), "machine": machine,
            "lines": report.lines, "bars": [list(b) for b in report.bars]}


def load(path):
    try:
        with open(path) as f:
            return json.load(f)
    except FileNotFoundError:
        return {}


def store(path, kept):
    with open(path, "w") as f:
        json.dump(kept, f, indent=1, ensure_ascii=False)
        f.write("\n")


def page(kept, order, by_hand, quick=False):
    """Returns RESULTS.md; by_hand is the text that follows the parts."""
    parts = [kept[name] for name in order if name in kept]
    out = Report()
    out.add("# What recording costs", "", "Written by `make bench`%s. When and where each part was measured:"
            % (" (QUICK: too short to trust)" if quick else ""), "")
    where = {}
    for name in order:
        if name in kept:
            where.setdefault((kept[name]["date"], kept[name]["machine"]), []).append(name)
    out.add(*["- %s: %s. %s" % (date, ", ".join(names), machine) for (date, machine), names in sorted(where.items(), reverse=True)])
    out.add("", "## Bars")
    out.table(["promise", "bar", "measured", "", "when"], [bar + [part["date"]] for part in parts for bar in part["bars"]])
    for part in parts:
        out.add("", *part["lines"])
    text = "\n".join(out.lines) + "\n\n" + by_hand
    while "\n\n\n" in text:
        text = text.replace("\n\n\n", "\n\n")
    return text.rstrip() + "\n"


def write_readme(path, kept, order):
    """Writes the bars in short between the two marks in README.md."""
    with open(path) as f:
        text = f.read()
    begin, end = "<!-- bench: make bench writes what stands here -->\n", "<!-- /bench -->"
    if begin not in text or end not in text:
        return
    wanted = [b for name in order if name in kept for b in kept[name]["bars"] if b[1] and b[0].startswith(HEADLINES)]
    lines = ["The most important of what `make bench` measures (`tests/bench/RESULTS.md` has the rest, when and on what machine, how peers do, and which figures to doubt):", "",
             "| | measured | promised |", "|---|---:|---:|"] + ["| %s | %s | %s |" % (b[0], b[2], b[1]) for b in wanted]
    head, rest = text.split(begin, 1)
    with open(path, "w") as f:
        f.write(head + begin + "\n".join(lines) + "\n" + end + rest.split(end, 1)[1])
