// SPDX-License-Identifier: Apache-2.0
// Zoom, search and details for the flame graph this script lies in. All facts are read from the picture:
// each frame is an <svg class="f"> with data-x, data-w (first tick and ticks), data-s (ticks of its own), data-d (depth).
(function () {
  "use strict";
  const script = document.currentScript;
  const svg = script.closest("svg");
  const total = Number(svg.dataset.total);
  const tick = Number(svg.dataset.tick);
  const frames = Array.from(svg.querySelectorAll("svg.f"), (el) => ({
    el: el,
    x: Number(el.dataset.x),
    w: Number(el.dataset.w),
    self: Number(el.dataset.s),
    depth: Number(el.dataset.d),
    name: el.querySelector("text").textContent,
    label: el.querySelector("text"),
    where: (el.dataset.file || "") + (el.dataset.line ? ":" + el.dataset.line : ""),
    hit: false,
  }));
  const byElement = new Map(frames.map((f) => [f.el, f]));
  const part = (name) => svg.querySelector("." + name);
  const input = part("search input");
  let zoomed = frames[0], focus = frames[0];

  // ---- text ----
  const percent = (a, b) => (b ? (100 * a) / b : 0).toFixed(a && a / b < 0.001 ? 3 : 1) + "\u2009%";
  function amount(w) {
    const ticks = w.toLocaleString("en-US") + (w === 1 ? " sample" : " samples");
    if (!tick) return ticks;
    const s = w * tick;
    const time = s < 1 ? (s * 1000).toFixed(0) + " ms" : s < 600 ? s.toFixed(1) + " s" : (s / 60).toFixed(1) + " min";
    return time + " (" + ticks + ")";
  }
  function describe(f) {
    let text = f.name + (f.where ? "  " + f.where : "") + "  \u2014  " + amount(f.w) + ", " + percent(f.w, total) + " of all";
    if (zoomed.depth > 0) text += ", " + percent(f.w, zoomed.w) + " of what is shown";
    text += "; itself " + percent(f.self, total);
    if (!f.el.dataset.a) return text;
    const a = Number(f.el.dataset.a), b = Number(f.el.dataset.b), points = 100 * (b - a); // of two recordings: flame_diff.h
    return f.name + "  \u2014  A " + percent(a, 1) + ", B " + percent(b, 1) + ": " + (points < 0 ? "\u2212" : "+") + Math.abs(points).toFixed(2) + " points" +
      (Math.abs(b - a) <= Number(f.el.dataset.noise) ? ", may be chance" : "") + (f.where ? "  " + f.where : "") + "; in B " + amount(f.w);
  }
  const resting = part("details").textContent;
  let described = null;
  function details(f) {
    described = f;
    const text = f ? describe(f) : svg.classList.contains("zoomed") ? describe(zoomed) : resting;
    part("details").textContent = fit(text, (svg.clientWidth || Number(svg.dataset.width)) - 20, font);
  }

  // As much of a text as fits into so many pixels, with an ellipsis where it is cut. Widths are measured once a letter.
  const ruler = document.createElementNS("http://www.w3.org/1999/xhtml", "canvas").getContext("2d");
  const widths = new Map();
  function fit(text, width, font) {
    let sum = 0, n = 0;
    const size = (c) => {
      const key = font + c;
      if (!widths.has(key)) {
        ruler.font = font;
        widths.set(key, ruler.measureText(c).width);
      }
      return widths.get(key);
    };
    for (const c of text) {
      sum += size(c);
      if (sum > width) break;
      n += c.length;
    }
    if (n === text.length) return text;
    for (sum += size("\u2026"); n && sum > width; n--) sum -= size(text[n - 1]);
    return n ? text.slice(0, n) + "\u2026" : "";
  }
  const fontOf = (el) => { const s = getComputedStyle(el); return s.fontWeight + " " + s.fontSize + " " + s.fontFamily; };
  const font = fontOf(part("details"));
  const titles = ["title", "head .soft"].map((name) => ({ el: part(name), text: part(name).textContent, font: fontOf(part(name)) }));
  const height = Number(svg.getAttribute("height")), NARROW = 640, MORE = 36;
  // The legend: of each text the keys before it, as they lie in one line, and how wide they are together.
  const keys = [];
  for (const el of part("legend").children) {
    const x = Number(el.getAttribute("x")), last = keys[keys.length - 1], key = last && !last.width ? last : { x: x, parts: [], width: 0 };
    if (key !== last) keys.push(key);
    key.parts.push({ el: el, x: x, y: Number(el.getAttribute("y")) });
    if (el.localName !== "text") continue;
    ruler.font = fontOf(el);
    key.width = x - key.x + ruler.measureText(el.textContent).width;
  }
  // What has no place in its line begins another; by how much that moves down what lies below.
  function flow(width) {
    let down = 0, left = 0;
    for (const key of keys) {
      if (key.x - left > 10 && key.x - left + key.width > width - 10) {
        left = key.x - 10;
        down += 18;
      }
      for (const p of key.parts) {
        p.el.setAttribute("x", p.x - left);
        p.el.setAttribute("y", p.y + down);
      }
    }
    return down;
  }

  // ---- where everything lies ----
  function layout() {
    const width = svg.clientWidth || svg.getBoundingClientRect().width || Number(svg.dataset.width);
    const scale = (width - 20) / zoomed.w;
    const end = zoomed.x + zoomed.w;
    for (const f of frames) {
      const above = f.depth < zoomed.depth;
      const inside = above ? f.x <= zoomed.x && f.x + f.w >= end : f.x >= zoomed.x && f.x + f.w <= end;
      const left = Math.max(f.x, zoomed.x), right = Math.min(f.x + f.w, end);
      const w = (right - left) * scale;
      if (!inside || w < 0.3) {
        f.el.style.display = "none";
        continue;
      }
      f.el.style.display = "";
      f.el.setAttribute("x", (10 + (left - zoomed.x) * scale).toFixed(2));
      f.el.setAttribute("width", w.toFixed(2));
      f.el.classList.toggle("n", w < 18);
      f.el.classList.toggle("above", above);
      if (w >= 18) {
        const text = fit(f.name, w - 7, font);
        if (f.label.textContent !== text) f.label.textContent = text;
      }
    }
    // On a narrow screen the search has a line of its own, and everything below it moves down.
    const narrow = width < NARROW, lines = flow(width), down = lines + (narrow ? MORE : 0), reset = svg.classList.contains("zoomed") ? 105 : 0;
    const place = (name, values) => { for (const k in values) part(name).setAttribute(k, values[k]); };
    for (const t of titles) t.el.textContent = fit(t.text, width - 20 - (narrow ? 0 : 250) - (narrow && t === titles[1] ? 0 : reset), t.font);
    place("search", narrow ? { x: 10, y: 80 + lines, width: Math.max(80, width - 130) } : { x: width - 250, y: 14, width: 240 });
    place("matched", { x: width - 10, y: narrow ? 98 + lines : 58 });
    place("reset", { transform: "translate(" + (narrow ? width - 100 : width - 250 - 100) + ",14)" });
    place("rule", { x2: width, y1: 80.5 + down, y2: 80.5 + down });
    place("details", { y: 95 + down });
    place("head .page", { height: 100 + down });
    place("frames", { transform: "translate(0," + down + ")" });
    svg.setAttribute("height", height + down);
    details(described);
  }
  // The head stays in sight while a tall picture scrolls (only when the picture is the page).
  function follow() {
    const top = svg === document.documentElement ? window.scrollY : 0;
    part("head").setAttribute("transform", "translate(0," + top + ")");
  }

  // ---- zoom; it is in the address, as the names on the way to the frame: another picture of the same program has them, too ----
  const above = (f) => f.depth > 0 && frames.find((p) => p.depth === f.depth - 1 && p.x <= f.x && p.x + p.w >= f.x + f.w);
  function path(f) {
    const names = [];
    for (let p = f; p && p.depth > 0; p = above(p)) names.unshift(p.name);
    return names.join(";");
  }
  const ours = svg === document.documentElement;
  function zoom(f, quiet) {
    zoomed = f;
    svg.classList.toggle("zoomed", f !== frames[0]);
    walk(f);
    layout();
    search();
    details(null);
    if (!ours || quiet) return;
    const hash = f === frames[0] ? "" : "#zoom=" + encodeURIComponent(path(f));
    try { history.replaceState(null, "", location.pathname + location.search + hash); } catch (e) { location.hash = hash; }
  }
  function zoomed_by_address() {
    const wanted = /^#zoom=(.+)$/.exec(location.hash);
    if (!ours || !wanted) return;
    let text = "";
    try { text = decodeURIComponent(wanted[1]); } catch (e) { return; }
    const last = text.slice(text.lastIndexOf(";") + 1);
    const f = frames.find((g) => g.depth > 0 && (g.name === last || text.endsWith(";" + g.name) || text === g.name) && path(g) === text);
    if (f) zoom(f, true);
  }

  // ---- the frame that the keys are at ----
  function walk(f) {
    focus.el.classList.remove("focus");
    focus = f;
    focus.el.classList.toggle("focus", f !== frames[0]);
  }
  function next(key) {
    const up = svg.dataset.root === "bottom" ? "ArrowUp" : "ArrowDown", down = svg.dataset.root === "bottom" ? "ArrowDown" : "ArrowUp";
    const seen = frames.filter((f) => f.el.style.display !== "none");
    if (key === up) return seen.find((f) => f.depth === focus.depth + 1 && f.x >= focus.x && f.x + f.w <= focus.x + focus.w);
    if (key === down) return above(focus);
    const row = seen.filter((f) => f.depth === focus.depth).sort((a, b) => a.x - b.x);
    return row[row.indexOf(focus) + (key === "ArrowRight" ? 1 : key === "ArrowLeft" ? -1 : NaN)];
  }

  // ---- search: a text, or a regular expression between slashes ----
  function search() {
    const text = input.value.trim();
    let matches = () => false;
    const regex = /^\/(.+)\/$/.exec(text);
    if (regex) {
      try {
        const r = new RegExp(regex[1], "i");
        matches = (s) => r.test(s);
      } catch (e) {
        part("matched").textContent = "not a regular expression";
        return;
      }
    } else if (text) {
      const lower = text.toLowerCase();
      matches = (s) => s.toLowerCase().includes(lower);
    }
    // Frames come parents first, left to right: a hit below a hit is not counted twice.
    let sum = 0, hits = 0, covered = -1;
    const end = zoomed.x + zoomed.w;
    const inOrder = frames.slice().sort((a, b) => a.x - b.x || a.depth - b.depth);
    for (const f of inOrder) {
      f.hit = Boolean(text) && (matches(f.name) || matches(f.where));
      f.el.classList.toggle("hit", f.hit);
      if (!f.hit) continue;
      hits++;
      if (f.x >= covered && f.depth >= zoomed.depth && f.x >= zoomed.x && f.x + f.w <= end) {
        sum += f.w;
        covered = f.x + f.w;
      }
    }
    part("matched").textContent = text ? (hits ? percent(sum, zoomed.w) + " matched" : "no match") : "";
  }

  // ---- events ----
  const frameOf = (target) => byElement.get(target.closest && target.closest("svg.f"));
  svg.addEventListener("click", (e) => {
    const f = frameOf(e.target);
    if (f) zoom(f);
    else if (e.target.closest(".reset")) zoom(frames[0]);
  });
  svg.addEventListener("mousemove", (e) => details(frameOf(e.target)));
  svg.addEventListener("mouseleave", () => details(null));
  input.addEventListener("input", search);
  window.addEventListener("keydown", (e) => {
    if (e.key === "Escape") {
      input.value = "";
      input.blur();
      zoom(frames[0]);
    } else if (e.key === "/" && document.activeElement !== input) {
      e.preventDefault();
      input.focus();
    } else if (document.activeElement !== input && e.key === "Enter" && focus !== zoomed) {
      zoom(focus);
    } else if (document.activeElement !== input && e.key.startsWith("Arrow")) {
      const f = next(e.key);
      if (!f) return;
      e.preventDefault();
      walk(f);
      details(f);
    }
  });
  window.addEventListener("hashchange", zoomed_by_address);
  window.addEventListener("resize", layout);
  window.addEventListener("scroll", follow);

  svg.setAttribute("width", "100%");
  svg.classList.add("live");
  layout();
  // A flame stands on its root: begin there when it is taller than the window.
  if (svg === document.documentElement && svg.dataset.root === "bottom") window.scrollTo(0, svg.getBoundingClientRect().height);
  follow();
  details(null);
  zoomed_by_address();
})();
