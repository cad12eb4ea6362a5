// SPDX-License-Identifier: Apache-2.0
// The page: the verdict first, then a section for each picture; of a job that hung or died that section comes first.
const DRAW = {
  band: drawBand, lines: (p) => (p.names[2] === "number" ? drawVariables(p) : drawLines(p)), rates: drawLines, parts: drawParts, table: (p) => [table(p)],
  rows: (p) => (p.names[0] === "module" ? drawModules(p) : p.names[0] === "kind" ? drawStacks(p) : drawWaterfall(p)),
};
const isEmpty = (p) => !p.wrong && !p.packed && !(p.rows && p.rows.length) && !(p.row && p.row.c.length) && !(p.keys && p.keys.length);
// A picture of rows that were packed comes when they are unpacked.
function later(p) {
  const place = h("div");
  unpacking.push(unpack(p.packed).then((bytes) => { p.rows = JSON.parse(new TextDecoder().decode(bytes)); place.append(...[DRAW[p.kind](p)].flat().filter(Boolean)); reserve(); },
    () => place.append(h("p", { class: "wrong" }, TOO_OLD))));
  return place;
}
function partOf(p) {
  if (isEmpty(p)) return null;
  const [button, pre] = sqlOf(p);
  return h("div", { class: "part" }, h("h3", {}, p.title, button), pre, p.wrong ? h("p", { class: "wrong" }, p.wrong) : null, p.names && DRAW[p.kind] ? p.packed ? later(p) : DRAW[p.kind](p) : null);
}
const answerOf = (q) => { const p = q.parts[0]; return p && p.rows && p.rows.length ? p.rows[0].filter((v) => v !== null).map(String).join("; ") : p && p.wrong ? p.wrong : ""; };
function sectionOf(s) {
  const grids = s.parts.slice(1).filter((p) => (p.kind === "grid" || p.kind === "share") && p.keys);
  const rest = s.parts.slice(1).filter((p) => !grids.includes(p));
  const answer = s.nothing || answerOf(s);
  return h("section", { id: s.name, "data-empty": s.nothing ? "yes" : "no" }, h("h2", {}, s.title),
    h("p", { class: s.nothing ? "soft" : "answer" }, answer ? answer[0].toUpperCase() + answer.slice(1) + (/[.!?]$/.test(answer) ? "" : ".") : "", s.parts[0] ? sqlOf(s.parts[0]) : null),
    grids.length ? drawGrid(grids) : null, rest.map(partOf));
}

// ---- the verdict: the questions' answers; where each is shown ----
const WHERE = { hang: "triggers", died: "triggers", straggler: "ranks", what_if: "comm", loader: "parts", step: "steps", time: "flame", memory: "memory", gpu: "machine", overlap: "comm", last: "triggers" };
// Who waits for a process that is gone does not hang for a reason of its own.
function titleOfQuestion(q) {
  const p = q.name === "hang" && q.parts.find((k) => k.names && k.names.includes("state") && k.names.includes("waits_for") && k.rows && k.rows.length);
  const state = p && p.rows[0][p.names.indexOf("state")];
  return { dead: "Who died, and who waited for it?", ended: "Who ended, and who waited for it?", raised: "Who raised an exception, and who waited?" }[state] || q.title.replace(/ \(--.*\)$/, "");
}
const ORDER = ["verdict", "hang", "died", "straggler", "loader", "step", "time", "what_if", "gpu", "memory", "overlap", "last"];
function verdict() {
  // What says that there is nothing of the kind is no headline.
  const quiet = (q) => /^no(body|where|thing)?\b/i.test(answerOf(q));
  const known = data.questions.filter((q) => !q.nothing && answerOf(q)).sort((a, b) => quiet(a) - quiet(b) || (ORDER.indexOf(a.name) + 99) % 99 - (ORDER.indexOf(b.name) + 99) % 99);
  const open = data.questions.filter((q) => q.nothing || !answerOf(q));
  const card = (q, i) => h("div", { class: "card" + (q.name === "hang" || (q.name === "died" && !/^(the recording|\d+ recordings) /.test(answerOf(q))) ? " bad" : "") + (i ? "" : " first"), id: "q-" + q.name },
    h("b", {}, titleOfQuestion(q)), h("p", {}, answerOf(q)),
    WHERE[q.name] ? h("a", { href: "#" + WHERE[q.name] }, "show it") : null,
    h("details", {}, h("summary", {}, "what it rests on, and the SQL"), sqlOf(q.parts[0]), q.parts.slice(1).map(partOf)));
  return h("section", { id: "verdict" }, h("h2", {}, "Verdict"), known.length ? known.map(card) : h("p", { class: "soft" }, "There is nothing to judge by."),
    open.length ? h("details", {}, h("summary", {}, open.length + (open.length === 1 ? " question" : " questions") + " that this recording does not answer"), h("ul", {}, open.map((q) => h("li", {}, q.title.replace(/ \(--.*\)$/, "") + " \u2014 " + (q.nothing || "no answer"))))) : null);
}

function page() {
  document.title = data.title + " \u2014 Probing";
  const facts = data.traces ? [data.traces + (data.traces === 1 ? " trace" : " traces"), data.ranks ? data.ranks + (data.ranks === 1 ? " rank" : " ranks") : null, data.hosts > 1 ? data.hosts + " machines" : null,
    data.runs > 1 ? data.runs + " runs" : null, seconds(span) + " recorded", data.unclocked ? "no time of day" : "from " + new Date(data.t0 * 1000).toISOString().slice(0, 19).replace("T", " ") + " UTC"].filter(Boolean).join(" \u00b7 ") : "";
  document.body.append(h("header", {}, h("h1", {}, data.title), h("p", { class: "soft" }, facts),
    data.clocks > 1 ? h("p", { class: "wrong" }, "The clocks of " + data.clocks + " groups of machines were not aligned with each other: no collective or message is common to them.") : null));
  if (!data.traces) {
    document.body.append(h("main", {}, h("p", { class: "card" }, "There is nothing to show: no trace is in it. A recording is made by probing-record, a database of it by probing-convert."),
      data.wrong ? h("p", { class: "wrong" }, data.wrong + " (is it a database made by probing-convert?)") : null), tip);
    return;
  }
  const sections = data.sections.map((s) => ({ name: s.name, title: s.title, nothing: s.nothing, el: () => sectionOf(s) }));
  const flame = { name: "flame", title: "Flame graph", nothing: !data.flame, el: () => h("section", { id: "flame", "data-empty": data.flame ? "no" : "yes" }, h("h2", {}, "Flame graph"), data.flame ? drawFlame(data.flame) : h("p", { class: "soft" }, "No samples were taken.")) };
  sections.splice(5, 0, flame);
  const died = data.questions.some((q) => (q.name === "hang" || q.name === "died") && !q.nothing && answerOf(q));
  if (died) sections.unshift(...sections.splice(sections.findIndex((s) => s.name === "triggers"), 1));
  const all = [{ name: "verdict", title: "Verdict", el: verdict }, ...sections];
  const nav = h("nav", { "aria-label": "sections" }, h("div", {}, all.map((s) => h("a", { href: "#" + s.name, class: s.nothing ? "empty" : "", onclick: (e) => { e.preventDefault(); document.getElementById(s.name).scrollIntoView(); } }, s.title.replace(/:.*/, ""))),
    h("button", { id: "whole", hidden: true, onclick: () => view.set(0, span) }, "whole time")));
  document.body.append(nav, h("main", {}, all.map((s) => s.el())), h("footer", {}, "probing " + data.version + ", written " + new Date(data.made * 1000).toISOString().slice(0, 16).replace("T", " ") +
    " UTC. Drag over a picture to zoom all of them in time, double click to go back; with a picture in focus: arrows, + and -, and Shift with arrows tells what is there. j and k: next and previous section; /: search the flame graph."), tip);
  reserve();
  const room = () => { document.documentElement.style.scrollPaddingTop = nav.offsetHeight + 8 + "px"; }; // the bar may have two lines
  addEventListener("resize", room);
  room();
  view.listeners.push(() => { document.getElementById("whole").hidden = view.whole; });
  addEventListener("keydown", (e) => {
    if (/^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement.tagName) || e.ctrlKey || e.metaKey || e.altKey) return;
    if (e.key === "j" || e.key === "k") {
      const tops = all.map((s) => document.getElementById(s.name)), at = tops.findIndex((t) => t.getBoundingClientRect().top > nav.offsetHeight + 16);
      const to = e.key === "j" ? (at < 0 ? tops.length - 1 : at) : Math.max(0, (at < 0 ? tops.length : at) - 2);
      tops[to].scrollIntoView();
    } else if (e.key === "Escape" && document.activeElement.tagName !== "CANVAS") view.set(0, span);
  });
  document.querySelectorAll("main a").forEach((a) => a.addEventListener("click", (e) => { const to = document.getElementById((a.getAttribute("href") || "").slice(1)); if (to) { e.preventDefault(); to.scrollIntoView(); } }));
  const t = (place.get("t") || "").match(/^([\d.e+-]+?)-([\d.e+]+)$/);
  if (t && Number(t[2]) > Number(t[1])) view.set(Number(t[1]), Number(t[2]), true);
  else if (hung !== null && hung > 0 && hung < span / 2) view.set(0, hung * 1.2, true); // the work, not the waiting after it
  const anchor = !location.hash.includes("=") && document.getElementById(location.hash.slice(1));
  if (anchor) anchor.scrollIntoView();
  // Where one is.
  const links = Array.from(nav.querySelectorAll("a")), here = () => {
    const tops = all.map((s) => document.getElementById(s.name).getBoundingClientRect().top), at = Math.max(0, tops.filter((y) => y < nav.offsetHeight + 30).length - 1);
    links.forEach((a, i) => { if (i === at) a.setAttribute("aria-current", "true"); else a.removeAttribute("aria-current"); });
    const a = links[at]; // kept in sight where the bar is wider than the window
    if (a.offsetLeft < nav.scrollLeft || a.offsetLeft + a.offsetWidth > nav.scrollLeft + nav.clientWidth) nav.scrollLeft = a.offsetLeft - 20;
  };
  let waits = false;
  addEventListener("scroll", () => { if (!waits) { waits = true; setTimeout(() => { waits = false; here(); }, 50); } }, { passive: true });
  here();
  Promise.all(unpacking).then(() => { document.documentElement.dataset.ready = "yes"; });
}
page();
