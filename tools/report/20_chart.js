// SPDX-License-Identifier: Apache-2.0
// A canvas that draws itself when it is seen, and the time that all of them show: one zoom for the whole page.
const charts = [];
// What waits to be drawn. A zoom concerns every picture in sight: no frame takes longer than it is given, the rest comes in the next.
const queue = [], FRAME_MS = 12;
function drawQueue() {
  const end = performance.now() + FRAME_MS;
  const first = queue.findIndex((c) => c.canvas.matches(":hover, :focus")); // the one that is looked at
  if (first > 0) queue.unshift(...queue.splice(first, 1));
  try {
    for (let n = 0; queue.length && (n < 2 || performance.now() < end); n++) queue.shift().now();
  } finally {
    if (queue.length) requestAnimationFrame(drawQueue);
  }
}
class Canvas {
  // height: pixels, or a function that tells; draw(ctx, width, height); label: what a screen reader says
  constructor(label, height, draw) {
    this.height = height;
    this.paint = draw;
    this.canvas = h("canvas", { tabindex: "0", role: "img", "aria-label": label });
    this.el = h("div", { class: "chart" }, this.canvas);
    this.seen = false;
    this.waits = false;
    charts.push(this);
    watcher.observe(this.el);
  }
  get wanted() { return typeof this.height === "function" ? this.height() : this.height; }
  // Room for it before it is drawn, so that nothing moves then.
  reserve() { this.canvas.style.height = this.wanted + "px"; }
  draw() {
    if (!this.seen || this.waits) return;
    this.waits = true;
    if (queue.push(this) === 1) requestAnimationFrame(drawQueue);
  }
  now() {
    this.waits = false;
    const w = this.el.clientWidth, ratio = Math.min(devicePixelRatio || 1, 2);
    if (!w) return;
    const height = this.wanted;
    if (this.canvas.width !== Math.round(w * ratio) || this.canvas.height !== Math.round(height * ratio)) {
      this.canvas.width = Math.round(w * ratio);
      this.canvas.height = Math.round(height * ratio);
      this.canvas.style.height = height + "px";
    }
    const ctx = this.canvas.getContext("2d");
    ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
    ctx.clearRect(0, 0, w, height);
    ctx.font = "11px ui-sans-serif, system-ui, 'DejaVu Sans', Arial, sans-serif";
    ctx.textBaseline = "middle";
    this.ratio = ratio;
    this.paint(ctx, w, height);
  }
}
const watcher = new IntersectionObserver((entries) => {
  for (const e of entries) {
    const c = charts.find((x) => x.el === e.target);
    if (c && e.isIntersecting) { c.seen = true; c.draw(); }
    else if (c) c.seen = false;
  }
}, { rootMargin: "200px" });
const reserve = () => charts.forEach((c) => c.reserve());
const redraw = () => charts.forEach((c) => c.draw());
addEventListener("resize", redraw);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
// On paper: as wide as a sheet is, so that nothing is squeezed, and in the colours of day.
const dark = () => matchMedia("(prefers-color-scheme: dark)").matches && !document.documentElement.dataset.print;
const paint = () => charts.forEach((c) => { c.seen = true; c.now(); });
addEventListener("beforeprint", () => { document.documentElement.dataset.print = "yes"; paint(); });
addEventListener("afterprint", () => { delete document.documentElement.dataset.print; paint(); });

// ---- the time that is shown ----
// Since when somebody is waited for in vain; null: nobody is.
const hung = (() => {
  const p = data.sections.flatMap((s) => s.parts).find((k) => k.names && k.names.includes("after_s") && k.rows && k.rows.length);
  return p ? Math.min(...p.rows.map((r) => r[p.names.indexOf("after_s")])) : null;
})();
const view = {
  a: 0, b: span, listeners: [],
  set(a, b, keep) {
    const least = span / 20000;
    if (b - a < least) { const m = (a + b) / 2; a = m - least / 2; b = m + least / 2; }
    if (b - a >= span) { a = 0; b = span; }
    if (a < 0) { b -= a; a = 0; }
    if (b > span) { a -= b - span; b = span; }
    this.a = a; this.b = b;
    if (!keep) place.set("t", a === 0 && b === span ? null : a.toPrecision(7) + "-" + b.toPrecision(7));
    this.listeners.forEach((f) => f());
    charts.forEach((c) => { if (c instanceof TimeChart) c.draw(); }); // the others show no part of the time
  },
  by(factor, at) { const m = at === undefined ? (this.a + this.b) / 2 : at; this.set(m - (m - this.a) * factor, m + (this.b - m) * factor); },
  get whole() { return this.a === 0 && this.b === span; },
};

const LEFT = 62, RIGHT = 10, TOP = 8, BOTTOM = 20;
const CLOCK = [1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 10800, 21600, 43200, 86400]; // round on a clock
function ticks(lo, hi, n, clock) {
  const raw = (hi - lo) / n, mag = 10 ** Math.floor(Math.log10(raw)), step = (clock && raw > 1 && CLOCK.find((k) => k >= raw)) || [1, 2, 5, 10].map((k) => k * mag).find((k) => k >= raw);
  const out = [];
  for (let v = Math.ceil(lo / step) * step; v <= hi + step * 1e-6; v += step) out.push(Math.abs(v) < step * 1e-6 ? 0 : v);
  return out;
}
// Over time: drag to zoom, double click or Esc to go back, arrows and + - when it has the focus.
class TimeChart extends Canvas {
  constructor(label, height, draw, hover) {
    super(label, height, (ctx, w, hh) => {
      this.w = w; this.h = hh;
      draw.call(this, ctx, w, hh);
      this.frame(ctx);
      if (this.from !== undefined) {
        ctx.fillStyle = css("--accent"); ctx.globalAlpha = 0.2;
        ctx.fillRect(Math.min(this.from, this.to), TOP, Math.abs(this.to - this.from), hh - TOP - BOTTOM);
        ctx.globalAlpha = 1;
      }
      if (this.cursor) {
        ctx.strokeStyle = css("--ink"); ctx.lineWidth = 1;
        ctx.beginPath(); ctx.moveTo(this.cursor.x, TOP); ctx.lineTo(this.cursor.x, hh - BOTTOM); ctx.stroke();
        ctx.strokeRect(this.cursor.x - 3, this.cursor.y - 3, 6, 6);
      }
    });
    // With the keyboard, what the mouse is told where it points: Shift and arrows move a cursor.
    const point = (dx, dy) => {
      const k = this.cursor || { x: (LEFT + this.w - RIGHT) / 2, y: this.h / 2 };
      this.cursor = { x: Math.max(LEFT, Math.min(this.w - RIGHT, k.x + dx * Math.max(1, this.w / 200))), y: Math.max(TOP, Math.min(this.h - BOTTOM - 1, k.y + dy * this.rowHeight())) };
      const box = this.canvas.getBoundingClientRect();
      showTip(hover ? hover.call(this, this.time(this.cursor.x), this.cursor.y, this.cursor.x, true) : "", box.left + this.cursor.x, box.top + this.cursor.y);
      this.draw();
    };
    const c = this.canvas;
    const at = (e) => e.clientX - c.getBoundingClientRect().left;
    c.addEventListener("pointerdown", (e) => { if (e.button === 0 && e.pointerType !== "touch") { this.from = this.to = at(e); c.setPointerCapture(e.pointerId); } });
    c.addEventListener("pointermove", (e) => {
      const x = at(e), y = e.clientY - c.getBoundingClientRect().top;
      if (this.from !== undefined) { this.to = x; this.draw(); }
      showTip(hover ? hover.call(this, this.time(x), y, x) : "", e.clientX, e.clientY);
    });
    c.addEventListener("pointerup", () => {
      if (this.from === undefined) return;
      const [a, b] = [Math.min(this.from, this.to), Math.max(this.from, this.to)];
      this.from = this.to = undefined;
      if (b - a > 4) view.set(this.time(a), this.time(b)); else this.draw();
    });
    c.addEventListener("pointerleave", () => showTip(""));
    c.addEventListener("dblclick", () => view.set(0, span));
    c.addEventListener("wheel", (e) => { if (e.ctrlKey || e.shiftKey) { e.preventDefault(); view.by(e.deltaY > 0 || e.deltaX > 0 ? 1.25 : 0.8, this.time(at(e))); } }, { passive: false });
    c.addEventListener("blur", () => { if (this.cursor) { this.cursor = undefined; showTip(""); this.draw(); } });
    c.addEventListener("keydown", (e) => {
      const d = (view.b - view.a) / 5;
      if (e.shiftKey && /^Arrow/.test(e.key)) point((e.key === "ArrowRight") - (e.key === "ArrowLeft"), (e.key === "ArrowDown") - (e.key === "ArrowUp"));
      else if (e.key === "ArrowLeft") view.set(view.a - d, view.b - d);
      else if (e.key === "ArrowRight") view.set(view.a + d, view.b + d);
      else if (e.key === "+" || e.key === "=") view.by(0.6);
      else if (e.key === "-") view.by(1 / 0.6);
      else if (e.key === "Escape") view.set(0, span);
      else return;
      e.preventDefault();
    });
  }
  rowHeight() { return this.rows ? (this.h - TOP - BOTTOM) / this.rows() : 8; }
  x(t) { return LEFT + ((t - view.a) / (view.b - view.a)) * (this.w - LEFT - RIGHT); }
  time(x) { return view.a + ((x - LEFT) / (this.w - LEFT - RIGHT)) * (view.b - view.a); }
  // The axis of time, and where the job began to hang.
  frame(ctx) {
    if (hung !== null && hung >= view.a && hung <= view.b) {
      const x = Math.round(this.x(hung)) + 0.5, left = x > (LEFT + this.w) / 2;
      ctx.strokeStyle = ctx.fillStyle = css("--bad"); ctx.lineWidth = 1.5;
      ctx.beginPath(); ctx.moveTo(x, TOP); ctx.lineTo(x, this.h - BOTTOM); ctx.stroke();
      ctx.textAlign = left ? "right" : "left";
      ctx.fillText("hangs", x + (left ? -4 : 4), this.h - BOTTOM - 8);
    }
    ctx.fillStyle = css("--soft");
    ctx.textAlign = "center";
    for (const t of ticks(view.a, view.b, Math.max(2, this.w / 130), true)) {
      const x = this.x(t), room = ctx.measureText(seconds(t)).width / 2;
      if (x >= LEFT && x + room <= this.w) ctx.fillText(seconds(t), x, this.h - 8);
    }
  }
  // The other axis; returns value -> y.
  axis(ctx, lo, hi, unit, log) {
    const height = this.h - TOP - BOTTOM, f = log ? Math.log : (v) => v;
    if (!(hi > lo)) hi = lo + (Math.abs(lo) || 1);
    // The topmost line has its number, too.
    const steps = log ? [] : ticks(lo, hi, Math.max(2, height / 40)), step = steps.length > 1 ? steps[1] - steps[0] : 0;
    if (step) hi = Math.ceil(hi / step - 1e-6) * step;
    const y = (v) => TOP + height * (1 - (f(Math.max(v, log ? lo : -Infinity)) - f(lo)) / (f(hi) - f(lo)));
    ctx.textAlign = "right";
    ctx.lineWidth = 1;
    const marks = log ? [1, 2, 5].flatMap((m) => Array.from({ length: 16 }, (_, i) => m * 10 ** (i - 8))).filter((v) => v >= lo && v <= hi) : ticks(lo, hi, Math.max(2, height / 40));
    for (const v of marks) {
      if (log && marks.length > 8 && String(v.toExponential())[0] !== "1") continue;
      ctx.strokeStyle = css("--line");
      ctx.beginPath(); ctx.moveTo(LEFT, Math.round(y(v)) + 0.5); ctx.lineTo(this.w - RIGHT, Math.round(y(v)) + 0.5); ctx.stroke();
      ctx.fillStyle = css("--soft");
      ctx.fillText(amount(v, unit), LEFT - 6, y(v));
    }
    ctx.save();
    ctx.beginPath(); ctx.rect(LEFT, TOP - 2, this.w - LEFT - RIGHT, height + 4); ctx.clip();
    return y;
  }
}
