// SPDX-License-Identifier: Apache-2.0
// The flame graph: all samples, those of one rank, or those of the time that is shown; the root is at the top.
function drawFlame(f) {
  const N = f.nodes.length / 2, label = new Uint32Array(N), parent = new Uint32Array(N), kids = Array.from({ length: N }, () => []);
  for (let i = 0; i < N; i++) { label[i] = f.nodes[2 * i]; parent[i] = f.nodes[2 * i + 1]; if (i) kids[parent[i]].push(i); }
  // A name that several files share is shown with its file.
  const files = new Map();
  const inKind = (name, kind) => (kind === 3 ? "n" : "p") + name; // native code and Python code are told apart by their colours
  for (const [name, file, kind] of f.labels) { const key = inKind(name, kind); if (!files.has(key)) files.set(key, new Set()); files.get(key).add(file); }
  const text = f.labels.map(([name, file, kind]) => (file && files.get(inKind(name, kind)).size > 1 ? name + " (" + baseName(file) + ")" : name));
  const KIND = [(k) => `hsl(220 10% ${dark() ? 34 : 85}%)`, (k) => `hsl(${18 + k % 18} 85% 62%)`, (k) => `hsl(${42 + k % 9} 75% 72%)`, (k) => `hsl(${198 + k % 22} 48% 70%)`];
  const depth = new Uint16Array(N);
  for (let i = 1; i < N; i++) depth[i] = depth[parent[i]] + 1;
  const total = new Float64Array(N), self = new Float64Array(N), left = new Float64Array(N), hit = new Uint8Array(N);
  const state = { rank: "", idle: false, ranged: false, zoom: 0, focus: 0, search: "" };
  const ROW = 18;

  function weigh() {
    self.fill(0);
    const add = (list) => { for (let i = 0; i < list.length; i += 3) self[list[i]] += list[i + 1] + (state.idle ? list[i + 2] : 0); };
    if (state.ranged && !view.whole) {
      const w = span / f.slices;
      f.slice.forEach((list, i) => { if ((i + 1) * w > view.a && i * w < view.b) add(list); });
    } else if (state.rank !== "") add(f.rank[f.ranks.indexOf(Number(state.rank))]);
    else add(f.all);
    total.set(self);
    for (let i = N - 1; i > 0; i--) total[parent[i]] += total[i];
    for (let i = 0; i < N; i++) {
      kids[i].sort((a, b) => total[b] - total[a]);
      let x = left[i];
      for (const k of kids[i]) { left[k] = x; x += total[k]; }
    }
    if (!total[state.zoom]) state.zoom = 0;
    find();
  }
  function find() {
    const regex = /^\/(.+)\/$/.exec(state.search);
    let test = () => false, bad = false;
    if (regex) { try { const r = new RegExp(regex[1], "i"); test = (s) => r.test(s); } catch (e) { bad = true; } }
    else if (state.search) { const low = state.search.toLowerCase(); test = (s) => s.toLowerCase().includes(low); }
    const hits = f.labels.map(([name, file]) => test(name) || test(file));
    const inside = new Uint8Array(N); // below a hit: not counted again
    let sum = 0;
    for (let i = 0; i < N; i++) {
      hit[i] = hits[label[i]] && total[i] > 0 ? 1 : 0;
      if (i) inside[i] = inside[parent[i]] || hit[parent[i]];
      if (hit[i] && !inside[i]) sum += total[i];
    }
    found.textContent = bad ? "not a regular expression" : state.search ? (sum ? percent(sum, total[0]) + " matched" : "no match") : "";
  }
  const visible = (i) => total[i] > 0 && (left[i] < left[state.zoom] + total[state.zoom]) && left[i] + total[i] > left[state.zoom];
  const deepest = () => { let d = depth[state.zoom]; for (let i = 0; i < N; i++) if (depth[i] > d && visible(i) && total[i] >= total[state.zoom] / 3000) d = depth[i]; return d; };
  const chart = new Canvas("flame graph", () => (deepest() + 1) * ROW + 4, function (ctx, w) {
    const z = state.zoom, scale = w / total[z], from = left[z], end = from + total[z];
    this.hits = [];
    ctx.textAlign = "left";
    for (let i = 0; i < N; i++) {
      if (!visible(i) || (depth[i] < depth[z] && !(left[i] <= from && left[i] + total[i] >= end)) || (depth[i] === depth[z] && i !== z)) continue;
      const x0 = Math.max(0, (left[i] - from) * scale), x1 = Math.min(w, (left[i] + total[i] - from) * scale), y = depth[i] * ROW;
      if (x1 - x0 < 0.3) continue;
      const l = f.labels[label[i]];
      ctx.globalAlpha = depth[i] < depth[z] ? 0.5 : 1;
      ctx.fillStyle = hit[i] ? css("--hit") : KIND[l[2]](hash(l[1] || l[0]));
      ctx.fillRect(x0, y, Math.max(0.4, x1 - x0 - 0.6), ROW - 1);
      if (i === state.focus && i) { ctx.strokeStyle = css("--ink"); ctx.lineWidth = 2; ctx.strokeRect(x0 + 1, y + 1, x1 - x0 - 3, ROW - 3); }
      if (x1 - x0 > 20) { ctx.fillStyle = hit[i] ? "#ffffff" : l[2] === 0 && dark() ? "#e6e8ec" : "#1d1f24"; ctx.fillText(fit(ctx, text[label[i]], x1 - x0 - 7), x0 + 4, y + ROW / 2); }
      ctx.globalAlpha = 1;
      this.hits.push([x0, x1, depth[i], i]);
    }
    if (!total[0]) { ctx.fillStyle = css("--soft"); ctx.fillText("no sample: all of them are idle", 4, ROW / 2); }
  });
  const time = (n) => (f.tick_s ? seconds(n * f.tick_s) + " (" + n.toLocaleString("en-US") + " samples)" : n.toLocaleString("en-US") + " samples");
  function describe(i) {
    const l = f.labels[label[i]];
    return l[0] + (l[1] ? "\n" + l[1] + (l[3] ? ":" + l[3] : "") : "") + "\n" + time(total[i]) + ", " + percent(total[i], total[0]) + " of all" +
      (state.zoom ? ", " + percent(total[i], total[state.zoom]) + " of what is shown" : "") + (self[i] ? "; itself " + percent(self[i], total[0]) : "");
  }
  const at = (e) => { const b = chart.canvas.getBoundingClientRect(), x = e.clientX - b.left, d = Math.floor((e.clientY - b.top) / ROW); const q = (chart.hits || []).find((k) => k[2] === d && x >= k[0] && x < k[1]); return q ? q[3] : -1; };
  // A frame's place in the address: the names on the way there, which another report of the same program has, too.
  const path = (i) => { const out = []; for (; i; i = parent[i]) out.unshift(f.labels[label[i]][0]); return out.join(";"); };
  function zoom(i, quiet) {
    state.zoom = state.focus = i;
    if (!quiet) place.set("flame", i ? path(i) : null);
    reset.hidden = !i;
    chart.now();
  }
  chart.canvas.addEventListener("pointermove", (e) => { const i = at(e); showTip(i >= 0 ? describe(i) : "", e.clientX, e.clientY); });
  for (const gone of ["pointerleave", "blur"]) chart.canvas.addEventListener(gone, () => showTip(""));
  chart.canvas.addEventListener("click", (e) => { const i = at(e); if (i >= 0) zoom(i); });
  chart.canvas.addEventListener("keydown", (e) => {
    const i = state.focus, row = kids[parent[i]].filter((k) => total[k]), n = row.indexOf(i);
    const to = e.key === "ArrowDown" ? kids[i].find((k) => total[k]) : e.key === "ArrowUp" ? parent[i] : e.key === "ArrowLeft" ? row[n - 1] : e.key === "ArrowRight" ? row[n + 1] : undefined;
    if (e.key === "Enter") zoom(i);
    else if (e.key === "Escape") zoom(0);
    else if (to === undefined) return;
    else { state.focus = to; if (!visible(to) || depth[to] < depth[state.zoom]) state.zoom = to; chart.now(); const b = chart.canvas.getBoundingClientRect(); showTip(describe(to), b.left + 20, b.top + depth[to] * ROW + ROW); }
    e.preventDefault();
  });
  const again = () => { weigh(); chart.now(); };
  const found = h("span", { class: "note", role: "status" });
  const input = h("input", { type: "search", placeholder: "search: text or /regex/", "aria-label": "search the flame graph", spellcheck: "false", oninput: (e) => { state.search = e.target.value.trim(); find(); chart.draw(); } });
  const reset = h("button", { onclick: () => zoom(0), hidden: true }, "reset zoom");
  const ranks = h("select", { "aria-label": "rank", onchange: (e) => { state.rank = e.target.value; if (state.rank !== "") { state.ranged = false; range.checked = false; } again(); } }, h("option", { value: "" }, "all ranks"), f.ranks.map((r) => h("option", { value: String(r) }, "rank " + r)));
  const check = (name, change) => h("input", { type: "checkbox", name, onchange: (e) => { change(e.target.checked); again(); } });
  const range = check("range", (on) => { state.ranged = on; if (on) { state.rank = ""; ranks.value = ""; } });
  const idle = check("idle", (on) => { state.idle = on; });
  view.listeners.push(() => { if (state.ranged) again(); });
  addEventListener("keydown", (e) => {
    if (e.key === "/" && !/^(INPUT|SELECT)$/.test(document.activeElement.tagName)) { e.preventDefault(); input.focus(); }
    else if (e.key === "Escape" && document.activeElement === input) { input.value = state.search = ""; input.blur(); find(); chart.draw(); }
  });
  weigh();
  if (!total[0]) { state.idle = idle.checked = true; weigh(); }
  const wanted = place.get("flame");
  if (wanted) { for (let i = 1; i < N; i++) if (path(i) === wanted && total[i]) { zoom(i, true); break; } }
  const names = ["", "your Python", "Python libraries", "native"];
  const key = h("div", { class: "legend" }, [1, 2, 3].map((k) => { const s = h("i"); s.style.background = KIND[k](0); return h("span", {}, s, names[k]); }));
  return [h("div", { class: "bar" }, f.ranks.length > 1 ? ranks : null, h("label", {}, range, "only the time that is shown above"), h("label", {}, idle, "idle threads too"), input, found, reset),
    h("div", { class: "note" }, "Width is time. Click a frame to zoom in, / searches, arrows walk, Enter zooms, Esc goes back."), chart.el, key];
}
