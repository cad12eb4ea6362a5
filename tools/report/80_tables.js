// SPDX-License-Identifier: Apache-2.0
// Tables that sort, and the SQL behind each result.
function table(p) {
  if (!p.rows || !p.rows.length) return null;
  const units = p.names.map(unitOf);
  const numeric = p.names.map((_, i) => p.rows.every((r) => r[i] === null || typeof r[i] === "number"));
  let rows = p.rows.slice(), sorted = -1, down = false;
  const body = h("tbody");
  const fill = () => body.replaceChildren(...rows.map((r) => h("tr", {}, r.map((v, i) => h("td", { class: numeric[i] ? "n" : "" }, units[i] ? amount(v, units[i]) : v === null ? "" : String(v))))));
  const head = h("tr", {}, p.names.map((n, i) => h("th", { class: numeric[i] ? "n" : "", tabindex: "0", onclick: () => {
    down = sorted === i ? !down : numeric[i];
    sorted = i;
    rows.sort((a, b) => { const x = a[i], y = b[i]; const d = x === null ? 1 : y === null ? -1 : numeric[i] ? x - y : String(x) < String(y) ? -1 : 1; return down ? -d : d; });
    fill();
  }, onkeydown: (e) => { if (e.key === "Enter") e.target.click(); } }, titleOf(n))));
  fill();
  return h("div", {}, h("div", { class: "table", tabindex: "0" }, h("table", {}, h("thead", {}, head), body)),
    p.count > p.rows.length ? h("div", { class: "note" }, "the first " + p.rows.length + " of " + p.count.toLocaleString("en-US")) : null);
}
function sqlOf(p) {
  const pre = h("pre", { hidden: true }, p.sql.trim());
  const button = h("button", { class: "sql", "aria-expanded": "false", onclick: () => { pre.hidden = !pre.hidden; button.setAttribute("aria-expanded", String(!pre.hidden)); } }, "SQL");
  return [button, pre];
}
