// SPDX-License-Identifier: Apache-2.0
// Ranks x time: a pixel has the extreme of all the cells that lie under it, so that a single slow step of one rank is seen.
// What report_grid.c wrote, rows in the order of `order`.
async function matrixOf([by, text], rows, columns, order) {
  const a = await unpack(text), out = new Uint8Array(a.length);
  for (let r = 0, at = 0; r < rows && by; r++)
    for (let c = 0; c < columns; c++, at++) a[at] += by === 1 ? (c ? a[at - 1] : 0) : r ? a[at - columns] : 0;
  order.forEach((row, n) => out.set(a.subarray(row * columns, (row + 1) * columns), n * columns));
  return out;
}
// The same with half as many columns: each has the most of two.
function half(most, rows, columns) {
  const C = Math.ceil(columns / 2), out = new Uint8Array(rows * C);
  for (let r = 0, at = 0; r < rows; r++)
    for (let c = 0, from = r * columns; c < C; c++, at++, from += 2) {
      const v = most[from], w = 2 * c + 1 < columns ? most[from + 1] : 0;
      out[at] = v > w ? v : w;
    }
  return out;
}
const shades = (p) => Uint32Array.from({ length: p.steps + 2 }, (_, code) => (code ? RAMP[p.hi <= p.lo ? 128 : 1 + Math.round((254 * (code - 1)) / p.steps)] : 0));
const TILE = 256, MOST_TILES = 96;
function drawGrid(layers) {
  layers = layers.filter((p) => p.keys.length);
  if (!layers.length) return [];
  for (const p of layers) {
    p.tiles = new Map();
    p.shade = shades(p);
    p.unit = p.kind === "share" ? "percent" : unitOf(p.names[3]);
    p.order = p.keys.map((k, i) => [k, i]).sort((a, b) => (Number(a[0]) - Number(b[0])) || (a[0] < b[0] ? -1 : 1)).map((x) => x[1]);
    unpacking.push((async () => {
      try {
        const most = await matrixOf(p.max, p.keys.length, p.columns, p.order);
        p.less = p.less ? await matrixOf(p.less, p.keys.length, p.columns, p.order) : null;
        const levels = [most];
        for (let C = p.columns; C > 1; C = Math.ceil(C / 2)) {
          levels.push(half(levels[levels.length - 1], p.keys.length, C));
          await new Promise((r) => setTimeout(r)); // no frame waits for all of it
        }
        p.levels = levels;
      } catch (e) { p.failed = TOO_OLD; }
      chart.draw();
    })());
  }
  const state = { p: layers[0] };
  const value = (p, code) => (code === 0 ? null : p.hi <= p.lo ? p.lo : p.lo > 0 ? p.lo * (p.hi / p.lo) ** ((code - 1) / p.steps) : p.lo + ((p.hi - p.lo) * (code - 1)) / p.steps);
  const columnsAt = (p, level) => Math.ceil(p.columns / 2 ** level);
  // TILE columns of a level, drawn once and again only stretched: a row of pixels is a rank, or the most of several.
  const tileOf = (p, level, H, i) => {
    const key = level + " " + H + " " + i;
    let tile = p.tiles.get(key);
    if (tile) { p.tiles.delete(key); p.tiles.set(key, tile); return tile; } // last used, last to go
    const R = p.keys.length, C = columnsAt(p, level), most = p.levels[level], from = i * TILE, n = Math.min(TILE, C - from), gap = H / R > 6 ? 1 : 0;
    tile = h("canvas", { width: n, height: H });
    const ctx = tile.getContext("2d"), image = ctx.createImageData(n, H), pixel = new Uint32Array(image.data.buffer), row = new Uint8Array(n);
    for (let r = 0; r < R; ) {
      const y = Math.floor((r * H) / R);
      row.fill(0);
      let next = r;
      for (; next < R && (next === r || Math.floor((next * H) / R) === y); next++)
        for (let c = 0, at = next * C + from; c < n; c++, at++) if (row[c] < most[at]) row[c] = most[at];
      const y1 = Math.max(y + 1, Math.floor((next * H) / R) - gap);
      for (let c = 0; c < n; c++) pixel[y * n + c] = p.shade[row[c]];
      for (let k = y + 1; k < y1; k++) pixel.copyWithin(k * n, y * n, y * n + n);
      r = next;
    }
    ctx.putImageData(image, 0, 0);
    p.tiles.set(key, tile);
    if (p.tiles.size > MOST_TILES) p.tiles.delete(p.tiles.keys().next().value);
    return tile;
  };
  const chart = new TimeChart("ranks over time", () => TOP + BOTTOM + Math.max(60, Math.min(640, state.p.keys.length * 16)), function (ctx, w, hh) {
    const p = state.p, R = p.keys.length, width = w - LEFT - RIGHT, height = hh - TOP - BOTTOM;
    ctx.fillStyle = css("--soft");
    if (!p.levels) { ctx.textAlign = "left"; ctx.fillText(p.failed || "\u2026", LEFT, TOP + 20); return; }
    // The level whose columns are no narrower than a pixel (of what is rare, three), so that none falls between two.
    const want = ((view.b - view.a) / span) * p.columns / Math.max(1, width * this.ratio) * (p.sparse ? 3 : 1);
    const level = Math.max(0, Math.min(Math.ceil(Math.log2(want)), Math.ceil(Math.log2(p.columns)))), C = columnsAt(p, level), each_s = (span / p.columns) * 2 ** level;
    const most = Math.max(1, Math.round(height * this.ratio)), H = R > most ? most : R * Math.floor(most / R);
    const first = Math.max(0, Math.floor(view.a / each_s)), last = Math.min(C, Math.ceil(view.b / each_s));
    const edge = (c) => Math.round(this.x(c * each_s) * this.ratio) / this.ratio; // on a pixel, so that two tiles meet without a seam
    ctx.save();
    ctx.beginPath(); ctx.rect(LEFT, TOP, width, height); ctx.clip();
    ctx.imageSmoothingEnabled = false;
    for (let i = Math.floor(first / TILE); i * TILE < last; i++) {
      const tile = tileOf(p, level, H, i), a = Math.max(first, i * TILE), b = Math.min(last, i * TILE + tile.width);
      ctx.drawImage(tile, a - i * TILE, 0, b - a, H, edge(a), TOP, edge(b) - edge(a), height);
    }
    ctx.restore();
    ctx.textAlign = "right";
    const each = Math.ceil((R * 13) / height);
    for (let n = 0; n < R; n += each) ctx.fillText(fit(ctx, p.keys[p.order[n]], LEFT - 8), LEFT - 6, TOP + ((n + 0.5) * height) / R);
  }, function (t, y) {
    const p = state.p, n = Math.floor(((y - TOP) / (this.h - TOP - BOTTOM)) * p.keys.length), c = Math.floor((t / span) * p.columns);
    if (!p.levels || n < 0 || n >= p.keys.length || c < 0 || c >= p.columns) return "";
    const i = n * p.columns + c, code = p.levels[0][i], hi = value(p, code), lo = p.less ? value(p, code - p.less[i]) : null;
    return "rank " + p.keys[p.order[n]] + ", " + moment((c * span) / p.columns) + "\n" + p.title + ": " +
      (hi === null ? "none" : lo !== null && hi > lo * 1.03 ? amount(lo, p.unit) + " to " + amount(hi, p.unit) : "about " + amount(hi, p.unit));
  });
  chart.rows = () => state.p.keys.length;
  const bar = h("i", { class: "ramp" }), scale = h("div", { class: "note scale" });
  bar.style.background = "linear-gradient(to right," + [0, 64, 128, 192, 255].map(rampCss) + ")";
  const button = h("span"), text = h("div");
  const unaligned = data.unclocked || data.clocks > 1 ? h("b", { class: "wrong" }, "the clocks of these machines were not aligned: places in time are as good as their own clocks") : null;
  const choose = (p) => {
    state.p = p;
    p.sparse = p.kind === "grid" && p.names[3] === "skew_ms";
    scale.replaceChildren(p.title + ": " + amount(p.lo, p.unit) + " ", bar, " " + amount(p.hi, p.unit));
    Array.from(buttons.children).forEach((b, i) => b.classList.toggle("on", layers[i] === p));
    const [open, sql] = sqlOf(p);
    button.replaceChildren(open);
    text.replaceChildren(sql);
    chart.draw();
  };
  const buttons = h("span", { class: "group" }, layers.map((p) => h("button", { onclick: () => choose(p) }, p.title)));
  const out = [h("div", { class: "bar" }, buttons, button, unaligned), text, scale, chart.el];
  choose(state.p);
  return out;
}
