// SPDX-License-Identifier: Apache-2.0
// Values over time: the band of all ranks with its largest values, a line for each key, parts on top of one another.
const shown = (p, c) => { const w = span / p.columns; return (c + 1) * w >= view.a && c * w <= view.b; };
const legend = (names) => h("div", { class: "legend" }, names.map((n, i) => { const s = h("i"); s.style.background = color(i); return h("span", {}, s, n); }));
const unitButton = (text, chart, key) => h("button", { onclick: (e) => { chart[key] = !chart[key]; e.target.classList.toggle("on", chart[key]); chart.draw(); } }, text);

function drawBand(p) {
  const unit = unitOf(p.names[2]), row = p.row, w = span / p.columns, most = row.max, least = row.min || row.max, mean = row.mean || row.max;
  const sorted = mean.slice().sort((a, b) => a - b), middle = sorted[sorted.length >> 1];
  const points = p.points || p.largest;
  const outlier = (v) => v > 1.5 * middle;
  const nearest = (t, y) => {
    let best = null, near = 12;
    for (const q of points) { const d = Math.hypot(chart.x(q[0]) - chart.x(t), (chart.scale ? chart.scale(q[1]) : 0) - y); if (d < near) { near = d; best = q; } }
    return best;
  };
  const chart = new TimeChart(p.title, 220, function (ctx) {
    let hi = 0, lo = Infinity;
    row.c.forEach((c, i) => { if (shown(p, c)) { hi = Math.max(hi, most[i]); lo = Math.min(lo, least[i] > 0 ? least[i] : Infinity); } });
    const y = this.scale = this.axis(ctx, this.log ? (isFinite(lo) ? lo * 0.9 : 1e-6) : 0, hi * (this.log ? 1.05 : 1) || 1, unit, this.log);
    // Between two columns that hold something nothing is drawn where the gap is wide: there was no step.
    ctx.fillStyle = css("--fill");
    const wide = Math.max(1.2, this.x(w) - this.x(0) + 0.7);
    row.c.forEach((c, i) => {
      if (!shown(p, c)) return;
      const top = y(most[i]), bottom = y(least[i]);
      ctx.fillRect(this.x(c * w), top, wide, Math.max(1.2, bottom - top));
    });
    ctx.strokeStyle = css("--accent");
    ctx.lineWidth = 1.3;
    ctx.beginPath();
    row.c.forEach((c, i) => { if (shown(p, c) || shown(p, c + 1) || shown(p, c - 1)) ctx.lineTo(this.x((c + 0.5) * w), y(mean[i])); });
    ctx.stroke();
    if (p.points) {
      ctx.fillStyle = css("--accent");
      for (const q of p.points) ctx.fillRect(this.x(q[0]) - 1, y(q[1]) - 1, 2, 2);
    }
    ctx.fillStyle = css("--hit");
    for (const q of p.largest) if (outlier(q[1])) { ctx.beginPath(); ctx.arc(this.x(q[0]), y(q[1]), 2.6, 0, 7); ctx.fill(); }
    ctx.restore();
  }, function (t, y) {
    const q = nearest(t, y);
    if (q) return "rank " + q[2] + (q[3] >= 0 ? ", step " + q[3] : "") + ": " + amount(q[1], unit) + "\n" + moment(q[0]);
    const c = Math.floor(t / w);
    let i = row.c.findIndex((k) => k >= c);
    if (i < 0) i = row.c.length - 1;
    return i < 0 ? "" : moment(row.c[i] * w) + "\n" + titleOf(p.names[2]) + ": " + amount(least[i], unit) + " to " + amount(most[i], unit) + ", mean " + amount(mean[i], unit);
  });
  chart.log = sorted.length > 1 && Math.max(...most) > 20 * middle && middle > 0;
  const log = unitButton("logarithmic", chart, "log");
  log.classList.toggle("on", chart.log);
  return [h("div", { class: "bar" }, log, h("span", { class: "note" }, p.count.toLocaleString("en-US") + " values; band: least to most of all ranks, line: mean, dots: the largest")), chart.el];
}

function drawLines(p) {
  const unit = unitOf(p.names[2]), w = span / p.columns, order = p.rows.map((_, i) => i);
  let chosen = -1;
  const chart = new TimeChart(p.title, 180, function (ctx) {
    let lo = Infinity, hi = -Infinity;
    for (const i of order) p.rows[i].c.forEach((c, k) => { if (shown(p, c)) { lo = Math.min(lo, (p.rows[i].min || p.rows[i].max)[k]); hi = Math.max(hi, p.rows[i].max[k]); } });
    if (!(hi >= lo)) { lo = 0; hi = 1; }
    if (this.zero !== false && unit) lo = Math.min(lo, 0);
    const y = this.axis(ctx, lo, hi, unit, false);
    order.forEach((i, n) => {
      const r = p.rows[i];
      ctx.strokeStyle = ctx.fillStyle = color(n);
      ctx.globalAlpha = chosen < 0 || chosen === i ? 0.9 : 0.15;
      ctx.lineWidth = chosen === i ? 2.2 : 1; // wider than a pixel a line takes ten times as long
      ctx.beginPath();
      r.c.forEach((c, k) => {
        if (!shown(p, c) && !shown(p, c + 1) && !shown(p, c - 1)) return;
        const x = this.x((c + 0.5) * w), v = r.max[k], v0 = r.min ? r.min[k] : v;
        ctx.lineTo(x, y(v));
        if (v0 < v) ctx.lineTo(x, y(v0)); // extremes of the column
      });
      ctx.stroke();
    });
    ctx.globalAlpha = 1;
    this.y = y;
    ctx.restore();
  }, function (t, y, x, far) {
    const c = t / w - 0.5;
    let best = "", near = far ? Infinity : 30;
    for (const i of order) {
      const r = p.rows[i];
      let k = r.c.findIndex((v) => v >= c);
      if (k < 0) k = r.c.length - 1;
      if (k > 0 && c - r.c[k - 1] < r.c[k] - c) k--;
      const d = Math.abs(this.y(r.max[k]) - y);
      if (d < near) { near = d; best = p.keys[i] + ": " + (r.min && r.min[k] < r.max[k] ? amount(r.min[k], unit) + " to " : "") + amount(r.max[k], unit) + "\n" + moment((r.c[k] + 0.5) * w); }
    }
    return best;
  });
  const el = legend(order.map((i) => p.keys[i]));
  Array.from(el.children).forEach((s, n) => {
    s.addEventListener("pointerenter", () => { chosen = order[n]; chart.draw(); });
    s.addEventListener("pointerleave", () => { chosen = -1; chart.draw(); });
  });
  return [chart.el, el, p.of > p.rows.length ? h("div", { class: "note" }, "of " + p.of + ": the " + Math.floor(p.rows.length / 2) + " that reach highest, and the " + Math.ceil(p.rows.length / 2) + " that reach lowest") : null];
}

// A loss of 2.4 and a rate of 0.001 have no axis in common: a picture for each variable, "loss (rank 3)" being loss's.
function drawVariables(p) {
  const of = (key) => key.replace(/ \(rank [0-9]+\)$/, ""), names = [...new Set(p.keys.map(of))];
  return names.flatMap((name) => {
    const at = p.keys.map((k, i) => [k, i]).filter(([k]) => of(k) === name).map((x) => x[1]), keys = at.map((i) => p.keys[i]);
    return [h("h4", {}, name), ...drawLines({ ...p, title: name, keys, rows: at.map((i) => p.rows[i]), of: names.length > 1 ? keys.length : p.of })];
  });
}

function drawParts(p) {
  const names = p.names.slice(1), w = span / p.columns;
  const chart = new TimeChart(p.title, 200, function (ctx) {
    const rows = p.rows.filter((r) => shown(p, r[0]));
    const hi = Math.max(...rows.map((r) => r.slice(1).reduce((a, v) => a + Math.max(0, v), 0)), 1e-9);
    const y = this.axis(ctx, 0, hi, unitOf(names[0]), false);
    rows.forEach((r) => {
      let sum = 0;
      // A column reaches to the next that holds something, but no further than a few: fewer steps than pixels are no stripes.
      const next = p.rows[p.rows.indexOf(r) + 1], to = Math.min(next ? next[0] : r[0] + 1, r[0] + Math.max(1, p.columns / 40));
      const x = Math.round(this.x(r[0] * w) * this.ratio) / this.ratio, x1 = Math.round(this.x(to * w) * this.ratio) / this.ratio; // whole pixels: no seams
      for (let i = 0; i < names.length; i++) {
        const v = Math.max(0, r[i + 1]);
        ctx.fillStyle = color(i);
        ctx.fillRect(x, y(sum + v), Math.max(1, x1 - x + 0.4), y(sum) - y(sum + v)); // paper has no whole pixels: a little under the next one
        sum += v;
      }
    });
    ctx.restore();
  }, function (t) {
    let r = null;
    for (const q of p.rows) if (q[0] * w <= t) r = q;
    return r && moment(r[0] * w) + names.map((n, i) => "\n" + titleOf(n) + ": " + amount(r[i + 1], unitOf(n))).join("");
  });
  return [chart.el, legend(names.map(titleOf))];
}
