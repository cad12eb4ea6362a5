// SPDX-License-Identifier: Apache-2.0
// The collectives of one step as a waterfall, modules as an icicle, stacks of events as a merged tree.
const record = (names, row) => Object.fromEntries(names.map((n, i) => [n, row[i]]));

function drawWaterfall(p) {
  let rows = p.rows.map((r) => record(p.names, r));
  const last = rows[rows.length - 1]; // the step that not all rows of are there is left out, unless it is the only one
  if (p.count > rows.length && rows[0].began !== last.began) rows = rows.filter((r) => r.began !== last.began);
  if (!rows.length) return [h("p", { class: "note" }, "No step has collectives to show.")];
  const keys = [...new Map(rows.map((r) => [r.began + " " + r.why, r])).values()];
  const groups = new Set(rows.map((r) => r.clock_group)), uncertain = rows.some((r) => r.clock === "none" || (r.clock === "anchors" && data.hosts > 1)); // of one machine all clocks are one
  let chosen = keys[0], zoom = [0, 1];
  const ops = [...new Set(rows.map((r) => r.op))];
  const mine = () => rows.filter((r) => r.began === chosen.began && r.why === chosen.why);
  const chart = new Canvas("collectives of a step", () => 28 + Math.max(60, Math.min(900, new Set(mine().map((r) => r.rank)).size * 18)), function (ctx, w, hh) {
    const list = mine(), ranks = [...new Set(list.map((r) => r.rank))].sort((a, b) => a - b), row = new Map(ranks.map((r, i) => [r, i]));
    const total = chosen.ended - chosen.began, a = chosen.began + zoom[0] * total, b = chosen.began + zoom[1] * total;
    const x = (t) => LEFT + ((t - a) / (b - a)) * (w - LEFT - RIGHT), lane = (hh - 26) / ranks.length;
    this.hits = [];
    ctx.fillStyle = css("--soft");
    ctx.textAlign = "center";
    for (const t of ticks(a - chosen.began, b - chosen.began, Math.max(2, w / 130))) ctx.fillText(seconds(t), x(chosen.began + t), hh - 9);
    ctx.textAlign = "right";
    const each = Math.ceil(13 / lane);
    ranks.forEach((r, i) => { if (i % each === 0) ctx.fillText("rank " + r, LEFT - 6, (i + 0.5) * lane); });
    ctx.textAlign = "left";
    ctx.save(); ctx.beginPath(); ctx.rect(LEFT, 0, w - LEFT - RIGHT, hh - 20); ctx.clip();
    const bad = css("--bad");
    for (const r of list) {
      const x0 = x(r.enter), x1 = Math.max(x0 + 1, x(r.enter + r.length_s)), y = row.get(r.rank) * lane;
      ctx.fillStyle = r.waits ? bad : color(ops.indexOf(r.op));
      ctx.fillRect(x0, y + 1, x1 - x0, Math.max(1, lane - 2));
      if (lane > 11) { ctx.fillStyle = inkOn(ctx.fillStyle); ctx.fillText(fit(ctx, r.op + " " + r.seq, x1 - x0 - 4), x0 + 3, y + lane / 2); }
      this.hits.push([x0, x1, y, y + lane, r]);
    }
    ctx.restore();
  });
  const describe = (r) => "rank " + r.rank + ": " + r.op + " " + r.seq + (r.group ? " of " + r.group : "") + "\nfrom " + seconds(r.enter - r.began) + (r.waits ? ", never complete" : " for " + seconds(r.length_s)) + (r.bytes ? "\n" + r.bytes.toLocaleString("en-US") + " bytes" : "");
  chart.canvas.addEventListener("pointermove", (e) => {
    const box = chart.canvas.getBoundingClientRect(), px = e.clientX - box.left, py = e.clientY - box.top;
    const hit = (chart.hits || []).filter((q) => px >= q[0] - 1 && px <= q[1] + 1 && py >= q[2] && py < q[3]).pop();
    showTip(hit ? describe(hit[4]) : "", e.clientX, e.clientY);
  });
  for (const gone of ["pointerleave", "blur"]) chart.canvas.addEventListener(gone, () => showTip(""));
  // Shift and arrows: from call to call, and of a rank to the next one's call of that time.
  let at;
  const step = (key) => {
    const shown = (chart.hits || []).filter((q) => q[1] > LEFT && q[0] < chart.el.clientWidth - RIGHT);
    const from = shown.find((q) => q[4] === at), near = (list) => list.reduce((a, q) => (!a || Math.abs(q[0] - from[0]) < Math.abs(a[0] - from[0]) ? q : a), null);
    const lane = from && shown.filter((q) => q[2] === from[2]), next = key === "ArrowDown" ? 1 : -1, rows = [...new Set(shown.map((q) => q[2]))].sort((a, b) => a - b);
    const to = !from ? shown[0] : key === "ArrowLeft" || key === "ArrowRight" ? lane[lane.indexOf(from) + (key === "ArrowRight" ? 1 : -1)] : near(shown.filter((q) => q[2] === rows[rows.indexOf(from[2]) + next]));
    if (!to) return;
    at = to[4];
    const box = chart.canvas.getBoundingClientRect();
    showTip(describe(at), box.left + Math.max(LEFT, to[0]), box.top + to[3]);
  };
  const by = (f, m = 0.5) => { const at = zoom[0] + (zoom[1] - zoom[0]) * m, n = (zoom[1] - zoom[0]) * f; zoom = n >= 1 ? [0, 1] : [Math.max(0, at - n * m), Math.min(1, at + n * (1 - m))]; chart.draw(); };
  chart.canvas.addEventListener("dblclick", () => { zoom = [0, 1]; chart.draw(); });
  chart.canvas.addEventListener("wheel", (e) => { if (e.ctrlKey || e.shiftKey) { e.preventDefault(); by(e.deltaY > 0 || e.deltaX > 0 ? 1.25 : 0.8, Math.max(0, Math.min(1, (e.offsetX - LEFT) / (chart.el.clientWidth - LEFT - RIGHT)))); } }, { passive: false });
  chart.canvas.addEventListener("keydown", (e) => {
    const d = (zoom[1] - zoom[0]) / 5;
    if (e.shiftKey && /^Arrow/.test(e.key)) step(e.key);
    else if (e.key === "+" || e.key === "=") by(0.6);
    else if (e.key === "-") by(1 / 0.6);
    else if (e.key === "ArrowLeft" && zoom[0] > 0) { zoom = zoom.map((v) => v - Math.min(d, zoom[0])); chart.draw(); }
    else if (e.key === "ArrowRight" && zoom[1] < 1) { const k = Math.min(d, 1 - zoom[1]); zoom = zoom.map((v) => v + k); chart.draw(); }
    else return;
    e.preventDefault();
  });
  const select = h("select", { "aria-label": "step", onchange: (e) => { chosen = keys[e.target.value]; zoom = [0, 1]; chart.now(); } },
    keys.map((k, i) => h("option", { value: String(i) }, (k.step > 0 ? "step " + k.step : "moment " + seconds(k.began - data.t0)) + " (" + k.why + ", " + seconds(k.ended - k.began) + ")")));
  return [h("div", { class: "bar" }, select, h("button", { onclick: () => by(0.5) }, "closer"), h("button", { onclick: () => by(2) }, "wider"),
    uncertain || groups.size > 1 ? h("b", { class: "wrong" }, "not calibrated: the machines' clocks were not aligned by their collectives; compare lengths, not places") : h("span", { class: "note" }, data.hosts > 1 ? "times of all machines are aligned" : "all times are of one machine's clock")),
    chart.el, legend(ops), p.count > rows.length ? h("div", { class: "note" }, "the first " + rows.length.toLocaleString("en-US") + " calls of " + p.count.toLocaleString("en-US")) : null];
}

// ---- modules: an icicle by their dotted names ----
function drawModules(p) {
  const rows = p.rows.map((r) => record(p.names, r));
  const measures = [["forward and backward", (r) => (r.forward_s || 0) + (r.backward_s || 0)], ["forward", (r) => r.forward_s || 0], ["backward", (r) => r.backward_s || 0], ["GPU", (r) => r.gpu_s || 0]]
    .filter((m) => rows.some((r) => m[1](r) > 0));
  let measure = measures[0], top = null;
  if (!measure) return [];
  const names = new Set(rows.map((r) => r.module));
  const parentOf = (n) => { for (let k = n.lastIndexOf("."); k > 0; k = n.lastIndexOf(".", k - 1)) if (names.has(n.slice(0, k))) return n.slice(0, k); return ""; };
  // What is called like a class and holds no other is the model itself, or something beside it: all stand side by side at the root.
  const nodes = new Map(rows.map((r) => [r.module + "\n" + r.type, { r, kids: [] }]));
  const byName = new Map(rows.map((r) => [r.module, nodes.get(r.module + "\n" + r.type)]));
  const roots = [];
  for (const n of nodes.values()) { const up = byName.get(parentOf(n.r.module)); n.up = up && up !== n ? up : null; (n.up ? n.up.kids : roots).push(n); }
  // A root that holds none by its name may hold other roots all the same (DistributedDataParallel does): what it takes itself is its own.
  const own = (n) => (!n.up && !n.kids.length && roots.length > 1 && measures[0][1](n.r) > 0 ? Math.min(1, n.r.self_s / measures[0][1](n.r)) : 1);
  const weigh = (n) => { const kids = n.kids.reduce((a, k) => a + weigh(k), 0); return (n.w = Math.max(measure[1](n.r) * own(n), kids)); };
  const depth = (n) => 1 + Math.max(0, ...n.kids.map(depth));
  const ROW = 22;
  const chart = new Canvas("modules", () => 4 + ROW * Math.max(1, ...(top ? [top] : roots).map(depth)), function (ctx, w) {
    roots.forEach(weigh);
    // A module without dots that lies within another by time alone is not known to: the root that takes most is what others are shares of.
    this.hits = [];
    const place = (list, x, y, room, whole) => {
      for (const n of list.slice().sort((a, b) => b.w - a.w)) {
        const width = whole ? (n.w / whole) * room : 0;
        if (width < 0.5) continue;
        ctx.fillStyle = color(hash(n.r.type) % PALETTE.length);
        ctx.fillRect(x, y, Math.max(0.5, width - 1), ROW - 2);
        ctx.fillStyle = inkOn(ctx.fillStyle);
        ctx.textAlign = "left";
        const name = n.up ? n.r.module.slice(n.up.r.module.length + 1) : n.r.module;
        ctx.fillText(fit(ctx, name + " (" + n.r.type + ")", width - 8), x + 4, y + ROW / 2);
        this.hits.push([x, x + width, y, y + ROW, n]);
        place(n.kids, x, y + ROW, width, n.w);
        x += width;
      }
    };
    const list = top ? [top] : roots;
    place(list, 0, 0, w, list.reduce((a, n) => a + n.w, 0));
  });
  const describe = (n) => n.r.module + " (" + n.r.type + ")\n" + n.r.calls.toLocaleString("en-US") + " calls; forward " + seconds(n.r.forward_s || 0) + ", backward " + seconds(n.r.backward_s || 0) + ", its own " + seconds(n.r.self_s || 0) + (n.r.gpu_s ? "\nGPU " + seconds(n.r.gpu_s) + " in " + n.r.gpu_calls + " calls" : "");
  const find = (e) => { const b = chart.canvas.getBoundingClientRect(), x = e.clientX - b.left, y = e.clientY - b.top; const q = (chart.hits || []).find((k) => x >= k[0] && x < k[1] && y >= k[2] && y < k[3]); return q && q[4]; };
  chart.canvas.addEventListener("pointermove", (e) => {
    const n = find(e);
    showTip(n ? describe(n) : "", e.clientX, e.clientY);
  });
  for (const gone of ["pointerleave", "blur"]) chart.canvas.addEventListener(gone, () => showTip(""));
  chart.canvas.addEventListener("click", (e) => { const n = find(e); top = !n || n === top ? (top ? top.up : null) : n; chart.now(); });
  chart.canvas.addEventListener("keydown", (e) => {
    const row = (top && top.up ? top.up.kids : roots).slice().sort((a, b) => b.w - a.w), n = row.indexOf(top), down = (top ? top.kids : roots).slice().sort((a, b) => b.w - a.w)[0];
    if (e.key === "Escape" || e.key === "Backspace" || e.key === "ArrowUp") top = top ? top.up : null;
    else if (e.key === "ArrowDown" || e.key === "Enter") top = down || top;
    else if (e.key === "ArrowLeft" || e.key === "ArrowRight") top = row[n + (e.key === "ArrowLeft" ? -1 : 1)] || top;
    else return;
    e.preventDefault();
    chart.now();
    const box = chart.canvas.getBoundingClientRect();
    showTip(top ? describe(top) : "", box.left + 10, box.top + ROW);
  });
  const buttons = h("span", { class: "group" }, measures.map((m) => h("button", { class: m === measure ? "on" : "", onclick: (e) => { measure = m; Array.from(buttons.children).forEach((b) => b.classList.toggle("on", b === e.target)); chart.draw(); } }, m[0])));
  return [h("div", { class: "bar" }, buttons, h("span", { class: "note" }, "click or arrows: into a module, again or Esc: back")), chart.el,
    table({ names: p.names, rows: p.rows.slice(0, 40), count: Math.min(40, p.rows.length) })];
}
function hash(text) { let v = 2166136261; for (let i = 0; i < text.length; i++) v = Math.imul(v ^ text.charCodeAt(i), 16777619); return (v >>> 8) & 0xffff; }

// ---- stacks of several threads as one tree: "12  main (train.py:3)" ----
function drawStacks(p) {
  const rows = p.rows.map((r) => record(p.names, r));
  if (!rows.length) return [];
  return [...new Set(rows.map((r) => r.kind))].map((kind) => {
    const root = { kids: new Map(), ranks: [] };
    for (const r of rows) {
      if (r.kind !== kind) continue;
      let at = root;
      for (const f of String(r.stack || "").split("\n").concat(r.is_cause ? ["(the thread that it came from)"] : [])) {
        if (!at.kids.has(f)) at.kids.set(f, { kids: new Map(), ranks: [] });
        at = at.kids.get(f);
        at.ranks.push(r.rank === null ? r.thread : r.rank);
      }
    }
    const lines = [];
    const put = (n, indent) => {
      for (const [name, k] of [...n.kids].sort((a, b) => b[1].ranks.length - a[1].ranks.length)) {
        const who = [...new Set(k.ranks)];
        lines.push(String(k.ranks.length).padStart(5) + "  " + indent + name + (n.kids.size > 1 || n === root ? "   [" + who.slice(0, 12).join(", ") + (who.length > 12 ? ", \u2026" : "") + "]" : ""));
        put(k, indent + (k.kids.size > 1 || n.kids.size > 1 ? "  " : ""));
      }
    };
    put(root, "");
    return h("div", {}, h("h3", {}, kind), h("div", { class: "tree", tabindex: "0" }, lines.join("\n")));
  });
}
