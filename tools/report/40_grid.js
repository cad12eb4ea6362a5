// SPDX-License-Identifier: Apache-2.0
// Ranks x time: a pixel has the extreme of all the cells that lie under it, so that a single slow step of one rank is seen.
function drawGrid(layers) {
  for (const p of layers) {
    p.most = bytesOf(p.max);
    p.least = p.min ? bytesOf(p.min) : null;
    p.pictures = new Map();
    p.unit = p.kind === "share" ? "percent" : unitOf(p.names[3]);
    p.order = p.keys.map((k, i) => [k, i]).sort((a, b) => (Number(a[0]) - Number(b[0])) || (a[0] < b[0] ? -1 : 1)).map((x) => x[1]);
  }
  layers = layers.filter((p) => p.keys.length);
  if (!layers.length) return [];
  const state = { p: layers[0] };
  const value = (p, code) => (code === 0 ? null : p.hi <= p.lo ? p.lo : p.lo > 0 ? p.lo * (p.hi / p.lo) ** ((code - 1) / 254) : p.lo + ((p.hi - p.lo) * (code - 1)) / 254);
  // Drawn once, and again only stretched: a row of pixels is a rank, or the most of several; a column is so many cells that it is no narrower
  // than a pixel (of what is rare three), so that none falls between two. Zooming is one drawImage().
  const pictureOf = (p, most, perPixel) => {
    const want = perPixel * (p.sparse ? 3 : 1);
    let cells = 1;
    while (cells < want && cells < p.columns) cells *= 2;
    const R = p.keys.length, H = R > most ? most : R * Math.floor(most / R), key = cells + " " + H;
    if (p.pictures.has(key)) return p.pictures.get(key);
    const C = Math.ceil(p.columns / cells), picture = h("canvas", { width: C, height: H }), ctx = picture.getContext("2d");
    const image = ctx.createImageData(C, H), pixel = new Uint32Array(image.data.buffer), values = new Uint8Array(C * H), gap = H / R > 6 ? 1 : 0;
    for (let n = 0; n < R; n++) {
      const from = p.order[n] * p.columns, y = Math.floor((n * H) / R), y1 = Math.max(y + 1, Math.floor(((n + 1) * H) / R) - gap);
      for (let c = 0; c < p.columns; c++) {
        const at = y * C + Math.floor(c / cells), v = p.most[from + c];
        if (values[at] < v) values[at] = v;
      }
      for (let k = y + 1; k < y1; k++) values.copyWithin(k * C, y * C, y * C + C);
    }
    for (let i = 0; i < values.length; i++) if (values[i]) pixel[i] = RAMP[values[i]];
    ctx.putImageData(image, 0, 0);
    const made = { picture, cells };
    if (p.pictures.size > 12) p.pictures.clear(); // of windows that were wider or lower
    p.pictures.set(key, made);
    return made;
  };
  const chart = new TimeChart("ranks over time", () => TOP + BOTTOM + Math.max(60, Math.min(640, state.p.keys.length * 16)), function (ctx, w, hh) {
    const p = state.p, R = p.keys.length, width = w - LEFT - RIGHT, height = hh - TOP - BOTTOM;
    const { picture, cells } = pictureOf(p, Math.max(1, Math.round(height * this.ratio)), ((view.b - view.a) / span) * p.columns / Math.max(1, width * this.ratio));
    ctx.save();
    ctx.beginPath(); ctx.rect(LEFT, TOP, width, height); ctx.clip();
    ctx.imageSmoothingEnabled = false;
    // All of the picture where it would lie, of which what is shown: a column is where the axis has it.
    const scale = width / (view.b - view.a), first = Math.floor((view.a / span) * (p.columns / cells)), last = Math.min(picture.width, Math.ceil((view.b / span) * (p.columns / cells)));
    const each_s = (span / p.columns) * cells;
    if (last > first) ctx.drawImage(picture, first, 0, last - first, picture.height, LEFT + (first * each_s - view.a) * scale, TOP, (last - first) * each_s * scale, height);
    ctx.restore();
    ctx.fillStyle = css("--soft");
    ctx.textAlign = "right";
    const each = Math.ceil((R * 13) / (hh - TOP - BOTTOM));
    for (let n = 0; n < R; n += each) ctx.fillText(fit(ctx, p.keys[p.order[n]], LEFT - 8), LEFT - 6, TOP + ((n + 0.5) * (hh - TOP - BOTTOM)) / R);
  }, function (t, y) {
    const p = state.p, n = Math.floor(((y - TOP) / (this.h - TOP - BOTTOM)) * p.keys.length), c = Math.floor((t / span) * p.columns);
    if (n < 0 || n >= p.keys.length || c < 0 || c >= p.columns) return "";
    const i = p.order[n] * p.columns + c, hi = value(p, p.most[i]), lo = p.least ? value(p, p.least[i]) : null;
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
