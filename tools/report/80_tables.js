// SPDX-License-Identifier: Apache-2.0
// Tables that sort, and the SQL behind each result.
function table(p) {
  if (!p.rows || !p.rows.length) return null;
  const units = p.names.map(unitOf);
  const numeric = p.names.map((_, i) => p.rows.every((r) => r[i] === null || typeof r[i] === "number"));
  const used = p.names.map((_, i) => i).filter((i) => p.rows.some((r) => r[i] !== null && r[i] !== "")); // a column without a value tells nothing
  // What is a sentence has room for some words, however narrow the window: the table is moved sideways instead.
  // A few words stay on one line.
  const longest = p.names.map((_, i) => (numeric[i] ? 0 : Math.max(0, ...p.rows.map((r) => (typeof r[i] === "string" && r[i].includes(" ") ? r[i].length : 0)))));
  const kinds = longest.map((n, i) => (numeric[i] ? "n" : n > 28 ? "text" : n ? "words" : ""));
  let rows = p.rows.slice(), sorted = -1, down = false;
  const body = h("tbody");
  const fill = () => body.replaceChildren(...rows.map((r) => h("tr", {}, used.map((i) => h("td", { class: kinds[i] }, units[i] ? amount(r[i], units[i]) : r[i] === null ? "" : String(r[i]))))));
  const head = h("tr", {}, used.map((i) => h("th", { class: numeric[i] ? "n" : "", tabindex: "0", title: "sort by it", onclick: (e) => {
    down = sorted === i ? !down : numeric[i];
    sorted = i;
    rows.sort((a, b) => { const x = a[i], y = b[i]; const d = x === null ? 1 : y === null ? -1 : numeric[i] ? x - y : String(x) < String(y) ? -1 : 1; return down ? -d : d; });
    Array.from(head.children).forEach((th) => th.removeAttribute("aria-sort"));
    e.currentTarget.setAttribute("aria-sort", down ? "descending" : "ascending");
    fill();
  }, onkeydown: (e) => { if (e.key === "Enter" || e.key === " ") { e.preventDefault(); e.target.click(); } } }, titleOf(p.names[i]))));
  fill();
  return h("div", {}, h("div", { class: "table", tabindex: "0" }, h("table", {}, h("thead", {}, head), body)),
    p.count > p.rows.length ? h("div", { class: "note" }, "the first " + p.rows.length + " of " + p.count.toLocaleString("en-US")) : null);
}
function sqlOf(p) {
  const pre = h("pre", { hidden: true }, p.sql.trim());
  const button = h("button", { class: "sql", "aria-expanded": "false", onclick: () => { pre.hidden = !pre.hidden; button.setAttribute("aria-expanded", String(!pre.hidden)); } }, "SQL");
  return [button, pre];
}
