// SPDX-License-Identifier: Apache-2.0
// Ranks x time: a pixel has the extreme of all the cells that lie under it, so that a single slow step of one rank is seen.
const HEAD_ROWS = 40;
function drawGrid(layers) {
  for (const p of layers) {
    p.most = bytesOf(p.max);
    p.least = p.min ? bytesOf(p.min) : null;
    p.unit = p.kind === "share" ? "percent" : unitOf(p.names[3]);
    p.order = p.keys.map((k, i) => [k, i]).sort((a, b) => (Number(a[0]) - Number(b[0])) || (a[0] < b[0] ? -1 : 1)).map((x) => x[1]);
  }
  layers = layers.filter((p) => p.keys.length);
  if (!layers.length) return [];
  const state = { p: layers[0] };
  const value = (p, code) => (code === 0 ? null : p.hi <= p.lo ? p.lo : p.lo > 0 ? p.lo * (p.hi / p.lo) ** ((code - 1) / 254) : p.lo + ((p.hi - p.lo) * (code - 1)) / 254);
  const chart = new TimeChart("ranks over time", () => TOP + BOTTOM + Math.max(60, Math.min(640, state.p.keys.length * 16)), function (ctx, w, hh) {
    const p = state.p, ratio = this.ratio, R = p.keys.length, C = p.columns;
    const W = Math.max(1, Math.round((w - LEFT - RIGHT) * ratio)), H = Math.max(1, Math.round((hh - TOP - BOTTOM) * ratio));
    const most = new Uint8Array(W * H), dt = span / C, scale = W / (view.b - view.a);
    const c0 = Math.max(0, Math.floor(view.a / dt)), c1 = Math.min(C - 1, Math.floor(view.b / dt));
    for (let n = 0; n < R; n++) {
      const at = p.order[n] * C, y0 = Math.floor((n * H) / R), y1 = Math.max(y0 + 1, Math.floor(((n + 1) * H) / R) - (H / R > 6 ? 1 : 0));
      for (let c = c0; c <= c1; c++) {
        const v = p.most[at + c];
        if (!v) continue;
        const x0 = Math.max(0, Math.floor((c * dt - view.a) * scale)), x1 = Math.min(W, Math.max(x0 + (p.sparse ? 3 * ratio : 1), Math.ceil(((c + 1) * dt - view.a) * scale)));
        for (let x = x0; x < x1; x++) if (most[y0 * W + x] < v) most[y0 * W + x] = v;
      }
      for (let y = y0 + 1; y < y1; y++) { // where several ranks share a line of pixels y1 is y0 + 1
        most.copyWithin(y * W, y0 * W, y0 * W + W);
      }
    }
    const image = ctx.createImageData(W, H), pixel = new Uint32Array(image.data.buffer);
    for (let i = 0; i < most.length; i++) if (most[i]) pixel[i] = RAMP[most[i]];
    ctx.putImageData(image, Math.round(LEFT * ratio), Math.round(TOP * ratio));
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
  const scale = h("span", { class: "note" });
  const body = h("div");
  const choose = (p) => {
    state.p = p;
    p.sparse = p.kind === "grid" && p.names[3] === "skew_ms";
    scale.textContent = amount(p.lo, p.unit) + " (dark) to " + amount(p.hi, p.unit) + " (bright)";
    Array.from(buttons.children).forEach((b, i) => b.classList.toggle("on", layers[i] === p));
    body.replaceChildren(...sqlOf(p));
    chart.draw();
  };
  const buttons = h("span", {}, layers.map((p) => h("button", { onclick: () => choose(p) }, p.title)));
  const out = [h("div", { class: "bar" }, buttons, scale), chart.el, body];
  choose(state.p);
  return out;
}
