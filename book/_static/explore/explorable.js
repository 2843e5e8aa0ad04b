/* What the pages that can be explored share: numbers in words, arrows, charts, handles that mouse,
   touch and keyboard move, the state in the address, and time that plays. */
"use strict";
globalThis.explorable = (() => {
  const SUPERSCRIPTS = { "-": "⁻", 0: "⁰", 1: "¹", 2: "²", 3: "³", 4: "⁴", 5: "⁵", 6: "⁶", 7: "⁷", 8: "⁸", 9: "⁹" };
  const raised = (n) => String(n).replace(/./g, (sign) => SUPERSCRIPTS[sign] ?? sign);
  const power = (n) => `10${raised(n)}`;
  const minus = (text) => text.replace("-", "−");
  const fixed = (x, digits = 2) => minus(x.toFixed(digits));

  /** A number in four or fewer letters where that is possible, else with a power of ten. */
  function short(x) {
    if (x === 0 || (Math.abs(x) >= 0.001 && Math.abs(x) < 9999.5)) return minus(String(Number(x.toPrecision(3))));
    const [digits, exponent] = x.toExponential(1).split("e");
    return `${minus(digits)}·${power(Number(exponent))}`;
  }

  /** A time or a number of steps, from its power of ten. */
  function when(exponent) {
    if (exponent < 4) return minus(String(Number((10 ** exponent).toPrecision(3))));
    const whole = Math.floor(exponent + 1e-9);
    const digits = (10 ** (exponent - whole)).toFixed(1);
    return digits === "1.0" ? power(whole) : `${digits}·${power(whole)}`;
  }

  // -- drawing, as text of SVG in pixels ----------------------------------------------------------

  const at = (x) => Math.round(10 * x) / 10;

  const line = (a, b, kind, more = "") =>
    `<line class="${kind}" x1="${at(a[0])}" y1="${at(a[1])}" x2="${at(b[0])}" y2="${at(b[1])}" ${more}/>`;

  const polyline = (points, kind) => `<path class="${kind}" d="M${points.map((p) => `${at(p[0])} ${at(p[1])}`).join("L")}"/>`;

  const text = (p, words, kind, more = "") => `<text class="${kind}" x="${at(p[0])}" y="${at(p[1])}" ${more}>${words}</text>`;

  /** An arrow with a filled head; nothing where it would have no length. */
  function arrow(a, b, kind) {
    const length = Math.hypot(b[0] - a[0], b[1] - a[1]);
    if (length < 2) return "";
    const [x, y] = [(b[0] - a[0]) / length, (b[1] - a[1]) / length];
    const head = Math.min(13, 0.7 * length);
    const base = [b[0] - head * x, b[1] - head * y];
    const corner = (side) => [base[0] - side * 0.38 * head * y, base[1] + side * 0.38 * head * x];
    const points = [b, corner(1), corner(-1)].map((p) => `${at(p[0])},${at(p[1])}`).join(" ");
    return line(a, base, kind) + `<polygon class="${kind} head" points="${points}"/>`;
  }

  /** Draw curves over powers of ten. `y` is linear; curves are {points: [[exponent, y]], kind}. */
  function chart(svg, { title, last, low, high, ticks, curves, now, note = "" }) {
    const [left, right, top, bottom] = [44, 280, 24, 128];
    const x = (exponent) => left + ((right - left) * exponent) / last;
    const y = (value) => bottom + ((top - bottom) * (Math.min(high, Math.max(low, value)) - low)) / (high - low);
    const parts = [text([left, 14], title, "title")];
    for (const [value, words] of ticks) {
      parts.push(line([left, y(value)], [right, y(value)], "grid"), text([left - 6, y(value) + 4], words, "tick end"));
    }
    for (let k = 0; k <= last; k += last / 4) parts.push(text([x(k), bottom + 16], power(k), "tick middle"));
    parts.push(line([x(now), top], [x(now), bottom], "now"));
    for (const { points, kind } of curves) {
      const shown = points.filter((p) => p[0] >= 0 && p[0] <= last && Number.isFinite(p[1]));
      if (shown.length) parts.push(polyline(shown.map((p) => [x(p[0]), y(p[1])]), `curve ${kind}`));
      const near = shown.findLast((p) => p[0] <= now + 1e-9);
      if (near) parts.push(`<circle class="${kind} spot" cx="${at(x(near[0]))}" cy="${at(y(near[1]))}" r="4"/>`);
    }
    if (note) parts.push(text([(left + right) / 2, (top + bottom) / 2], note, "tick middle"));
    svg.innerHTML = parts.join("");
  }

  // -- handles ------------------------------------------------------------------------------------

  const STEPS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };

  /** Let everything in `svg` with data-handle be moved, in whole hundredths within ±limit.

      `place(name)` says where a handle is, `move(name, x, y)` moves it, `click(x, y)` is told of a
      click beside all handles. `toPlane` turns pixels of the drawing into coordinates. */
  function handles(svg, { limit, toPlane, place, move, click, release }) {
    const clamp = (x) => Math.max(-limit, Math.min(limit, Math.round(x)));
    const where = (event) => {
      const p = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
      return toPlane([p.x, p.y]);
    };
    let held = null;
    let wasHeld = false; // the browser reports a click after each drag
    svg.addEventListener("pointerdown", (event) => {
      wasHeld = false;
      const handle = event.target.closest("[data-handle]");
      if (!handle || event.button) return;
      const [x, y] = where(event);
      const [a, b] = place(handle.dataset.handle);
      held = { name: handle.dataset.handle, apart: [a - 100 * x, b - 100 * y] };
      wasHeld = true;
      svg.setPointerCapture(event.pointerId);
      handle.focus({ preventScroll: true });
      event.preventDefault();
    });
    // A finger on a handle moves it, and beside all handles it scrolls the page; `touch-action` is
    // not heeded inside a drawing.
    svg.addEventListener("touchstart", (event) => event.target.closest("[data-handle]") && event.preventDefault(), { passive: false });
    svg.addEventListener("pointermove", (event) => {
      if (!held) return;
      const [x, y] = where(event);
      move(held.name, clamp(100 * x + held.apart[0]), clamp(100 * y + held.apart[1]));
    });
    for (const end of ["pointerup", "pointercancel"])
      svg.addEventListener(end, () => {
        if (held) release();
        held = null;
      });
    svg.addEventListener("click", (event) => {
      if (wasHeld || event.target.closest("[data-handle]")) return;
      const [x, y] = where(event);
      if (Math.max(Math.abs(x), Math.abs(y)) * 100 <= limit) click(Math.round(100 * x), Math.round(100 * y));
    });
    svg.addEventListener("keydown", (event) => {
      const step = STEPS[event.key];
      const name = event.target.dataset?.handle;
      if (!step || !name || event.ctrlKey || event.metaKey || event.altKey) return;
      const size = event.shiftKey ? 1 : 5;
      const [x, y] = place(name);
      move(name, clamp(x + size * step[0]), clamp(y + size * step[1]));
      release();
      event.preventDefault();
    });
  }

  // -- the address, a voice, and time -------------------------------------------------------------

  /** What `run` does last, once nothing has asked for it again for so many milliseconds. */
  function settled(delay, run) {
    let timer = 0;
    return () => {
      clearTimeout(timer);
      timer = setTimeout(run, delay);
    };
  }

  /** Write the state into the address. A file or a frame may refuse, and then the page goes on. */
  function writeAddress(fragment) {
    try {
      history.replaceState(null, "", `#${fragment}`);
    } catch {
      /* the state is then not in the address */
    }
  }

  const calm = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

  /** Call show(0 … 1) frame by frame for so many seconds; at once for who wants no motion. */
  function play(seconds, show, done = () => {}) {
    let running = true;
    const begin = performance.now();
    const frame = (now) => {
      if (!running) return;
      const share = calm() ? 1 : Math.min(1, Math.max(0, (now - begin) / (1000 * seconds)));
      show(share);
      if (share < 1) requestAnimationFrame(frame);
      else done();
    };
    requestAnimationFrame(frame);
    return () => (running = false);
  }

  return { power, fixed, short, when, line, polyline, text, arrow, chart, handles, settled, writeAddress, play };
})();
