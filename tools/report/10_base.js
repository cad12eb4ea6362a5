// SPDX-License-Identifier: Apache-2.0
// The page of `probing report`: everything is drawn from the JSON text in #data, names only ever as text.
"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const span = (data.t1 || 1) - (data.t0 || 0);

// ---- elements ----
// h("p", {class: "soft"}, "text", child, ...): no HTML is ever made of data.
function h(tag, props, ...children) {
  const el = document.createElement(tag);
  for (const [k, v] of Object.entries(props || {})) {
    if (k.startsWith("on")) el.addEventListener(k.slice(2), v);
    else if (v !== undefined && v !== false) el.setAttribute(k, v === true ? "" : v);
  }
  for (const c of children.flat()) if (c !== null && c !== undefined) el.append(c);
  return el;
}
const tip = h("div", { id: "tip", role: "status" });
function showTip(text, x, y) {
  tip.style.display = text ? "block" : "none";
  if (!text) return;
  tip.textContent = text;
  const box = tip.getBoundingClientRect();
  tip.style.left = Math.max(4, Math.min(x + 14, innerWidth - box.width - 6)) + "px";
  tip.style.top = (y + 18 + box.height > innerHeight ? Math.max(4, y - box.height - 10) : y + 18) + "px";
}

// ---- numbers: the end of a column's name is its unit ----
const unitOf = (name) => (/_(s|ms|mb|percent|w|bps)$/.exec(name || "") || [])[1] || "";
const titleOf = (name) => (unitOf(name) ? name.slice(0, name.lastIndexOf("_")) : name).replace(/_/g, " ");
const short = (v, d = 3) => (v === 0 ? "0" : Math.abs(v) >= 1000 ? Math.round(v).toLocaleString("en-US") : String(Number(v.toPrecision(d))));
function seconds(s) {
  const a = Math.abs(s);
  if (a === 0) return "0 s";
  if (a < 1e-3) return short(s * 1e6) + " \u00b5s";
  if (a < 1) return short(s * 1e3) + " ms";
  if (a < 120) return short(s) + " s";
  // Rounded first: 59.7 s of a minute are none of its own.
  const two = (one, big, few, small) => { const n = Math.round(s / few), rest = n % (one / few); return Math.trunc(n / (one / few)) + " " + big + (rest ? " " + Math.abs(rest) + " " + small : ""); };
  return a < 7200 ? two(60, "min", 1, "s") : a < 172800 ? two(3600, "h", 60, "min") : two(86400, "d", 3600, "h");
}
function amount(v, unit) {
  if (v === null || v === undefined) return "\u2013";
  if (typeof v !== "number") return String(v);
  if (unit === "s") return seconds(v);
  if (unit === "ms") return seconds(v / 1e3);
  if (unit === "mb") return v >= 1e4 ? short(v / 1e3) + " GB" : short(v) + " MB";
  if (unit === "percent") return short(v) + "\u2009%";
  if (unit === "w") return short(v) + " W";
  if (unit === "bps") return v >= 1e6 ? short(v / 1e6) + " MB/s" : short(v / 1e3) + " kB/s";
  return short(v, 5);
}
const percent = (a, b) => (b ? (100 * a) / b : 0).toFixed(a && a / b < 0.001 ? 3 : 1) + "\u2009%";
// A moment of the recording: since its begin, and the time of day (UTC) where the clock had one.
function moment(t) {
  return (span < 600 ? t.toFixed(span < 20 ? 3 : 2) + " s" : seconds(t)) + (data.unclocked ? "" : "  (" + new Date((data.t0 + t) * 1000).toISOString().slice(11, 21) + " UTC)");
}
function bytesOf(base64) {
  const text = atob(base64);
  const out = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) out[i] = text.charCodeAt(i);
  return out;
}
const unpacking = []; // the page is ready when these are done
// What zlib packed (page_packed()).
async function unpack(base64) {
  const packed = new ReadableStream({ start(c) { c.enqueue(bytesOf(base64)); c.close(); } });
  const reader = packed.pipeThrough(new DecompressionStream("deflate")).getReader(), parts = [];
  for (let r; !(r = await reader.read()).done; ) parts.push(r.value);
  const out = new Uint8Array(parts.reduce((n, a) => n + a.length, 0));
  parts.reduce((at, a) => { out.set(a, at); return at + a.length; }, 0);
  return out;
}
const TOO_OLD = "this browser cannot unpack it (no DecompressionStream)";

// ---- colours ----
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
// The first five are told apart with any kind of colour blindness (OKLab, Machado's matrices: test_report), on white and on the page of the night.
const PALETTE = ["#3f9cf0", "#c9a000", "#e03a88", "#5b35dc", "#7d5a1c", "#0a9a10", "#961a88", "#8a68cc", "#f88a88", "#7a8794"];
const color = (i) => PALETTE[i % PALETTE.length];
const RAMP = (() => {
  const stops = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]];
  const out = new Uint32Array(256);
  for (let i = 0; i < 256; i++) {
    const at = (i / 255) * 4, k = Math.min(3, Math.floor(at)), f = at - k;
    const [r, g, b] = [0, 1, 2].map((j) => Math.round(stops[k][j] + f * (stops[k + 1][j] - stops[k][j])));
    out[i] = (255 << 24) | (b << 16) | (g << 8) | r;
  }
  return out;
})();
const rampCss = (i) => { const v = RAMP[Math.max(0, Math.min(255, i | 0))]; return "rgb(" + (v & 255) + "," + ((v >> 8) & 255) + "," + ((v >> 16) & 255) + ")"; };

// Black or white, whichever is read better on it.
function inkOn(hex) {
  const [r, g, b] = [1, 3, 5].map((i) => { const v = parseInt(hex.slice(i, i + 2), 16) / 255; return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.179 ? "#0d0f12" : "#ffffff";
}

// As much of a text as fits, with an ellipsis where it is cut.
function fit(ctx, text, width) {
  if (width < 12) return "";
  const w = ctx.measureText(text).width;
  if (w <= width) return text;
  let n = Math.floor((text.length * width) / w);
  while (n > 0 && ctx.measureText(text.slice(0, n) + "\u2026").width > width) n--;
  return n ? text.slice(0, n) + "\u2026" : "";
}
const baseName = (path) => path.slice(path.lastIndexOf("/") + 1);

// ---- what is in the address: #t=12.5-40&flame=3.2 ----
const place = {
  get(key) { return new URLSearchParams(location.hash.slice(1)).get(key); },
  set(key, value) {
    const p = new URLSearchParams(location.hash.includes("=") ? location.hash.slice(1) : "");
    if (value === null) p.delete(key); else p.set(key, value);
    try { history.replaceState(null, "", p.toString() ? "#" + p : location.pathname + location.search); } catch (e) { /* a page in a frame */ }
  },
};
