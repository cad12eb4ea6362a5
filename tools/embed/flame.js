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
    where: el.dataset.file || "",
    hit: false,
  }));
  const byElement = new Map(frames.map((f) => [f.el, f]));
  const part = (name) => svg.querySelector("." + name);
  const input = part("search input");
  let zoomed = frames[0];

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
    return text + "; itself " + percent(f.self, total);
  }
  const resting = part("details").textContent;
  function details(f) {
    part("details").textContent = f ? describe(f) : svg.classList.contains("zoomed") ? describe(zoomed) : resting;
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
    }
    part("search").setAttribute("x", Math.max(10, width - 250));
    part("matched").setAttribute("x", width - 10);
    part("reset").setAttribute("transform", "translate(" + Math.max(10, width - 250 - 100) + ",14)");
    part("rule").setAttribute("x2", width);
  }
  // The head stays in sight while a tall picture scrolls (only when the picture is the page).
  function follow() {
    const top = svg === document.documentElement ? window.scrollY : 0;
    part("head").setAttribute("transform", "translate(0," + top + ")");
  }

  // ---- zoom ----
  function zoom(f) {
    zoomed = f;
    svg.classList.toggle("zoomed", f !== frames[0]);
    layout();
    search();
    details(null);
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
    }
  });
  window.addEventListener("resize", layout);
  window.addEventListener("scroll", follow);

  svg.setAttribute("width", "100%");
  svg.classList.add("live");
  layout();
  // A flame stands on its root: begin there when it is taller than the window.
  if (svg === document.documentElement && svg.dataset.root === "bottom") window.scrollTo(0, svg.getBoundingClientRect().height);
  follow();
})();
