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

  const circle = (p, r, kind) => `<circle class="${kind}" cx="${at(p[0])}" cy="${at(p[1])}" r="${at(r)}"/>`;

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
      if (near) parts.push(circle([x(near[0]), y(near[1])], 4, `${kind} spot`));
    }
    if (note) parts.push(text([(left + right) / 2, (top + bottom) / 2], note, "tick middle"));
    svg.innerHTML = parts.join("");
  }

  // -- handles ------------------------------------------------------------------------------------

  const STEPS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };

  /** Let everything in `svg` with data-handle be moved, in whole hundredths within ±limit.

      `place(name)` says where a handle is, `move(name, x, y)` moves it, `click(x, y)` is told of a
      click beside all handles. */
  function handles(svg, { limit, place, move, click, release }) {
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

  // -- the plane ----------------------------------------------------------------------------------

  const LIMIT = 150; // of coordinates, in hundredths
  const [SIZE, UNIT] = [440, 130]; // of the drawing, and of one unit in it, in pixels
  const toPixels = ([x, y]) => [SIZE / 2 + UNIT * x, SIZE / 2 - UNIT * y];
  const toPlane = ([x, y]) => [(x - SIZE / 2) / UNIT, (SIZE / 2 - y) / UNIT];
  const plain = (row) => row.map((x) => x / 100); // from the hundredths of a state
  const rowsOf = (W, scale = 1) => Array.from({ length: W.length / 2 }, (_, v) => [scale * W[2 * v], scale * W[2 * v + 1]]);

  /** Where an arrow's name fits: ahead of its tip, or beside it where something is in the way.

      `wide` is half the name's width and `taken` are [x, y, half a width], in pixels. */
  function freeSpot(w, wide, apart, taken) {
    const length = Math.hypot(...w) || 1;
    const [x, y] = toPixels(w.map((one) => one * (1 + apart / length)));
    const inside = (p) => [Math.max(wide, Math.min(SIZE - wide, p[0])), Math.max(14, Math.min(SIZE - 10, p[1] + 5))];
    const free = (p) => taken.every((other) => Math.abs(p[0] - other[0]) > wide + other[2] || Math.abs(p[1] - other[1] - 5) > 20);
    const [a, b] = [w[0] / length, -w[1] / length];
    const [tx, ty] = toPixels(w);
    const aside = (side) => [tx - side * (wide + 10) * b - 8 * a, ty + side * (wide + 10) * a - 8 * b];
    const choices = [[x, y], [x + 22 * a, y + 22 * b], aside(1), aside(-1)];
    return inside(choices.find((p) => free(inside(p))) ?? choices[0]);
  }

  // -- training -----------------------------------------------------------------------------------

  const DESCENT = 10_000; // steps of gradient methods

  /** Whether training goes to infinity, in the direction of a W^mm. */
  const grows = ({ svm }) => svm.separable && svm.norm > 0;

  const logTimes = (first, last, each) =>
    Array.from({ length: Math.round((last - first) * each) + 1 }, (_, i) => (first + i / each) * Math.LN10);

  /** Points of a path from W0 as {exponent of time, W, size, excess, angle, corrected}.

      Without settings that of gradient flow. GD goes on as the flow where its steps end. */
  function trainingPath(solved, settings, W0, rough) {
    const { coords, svm, finite } = solved;
    const M = globalThis.ntpnb;
    let points;
    const tolerance = rough ? 1e-3 : 1e-6;
    if (!settings) points = M.gradientFlow(coords, [-8, -4, -2, -1, ...logTimes(0, 12, rough ? 2 : 8)], W0, tolerance);
    else {
      const most = rough ? 50 : DESCENT;
      points = M.descend(coords, settings, M.logarithmicGrid(most, rough ? 4 : 12), W0);
      if (settings.method === "GD") {
        const [{ W }, { step }] = [points.at(-1), settings];
        const powers = logTimes(Math.log10(most), 12, rough ? 2 : 8).slice(1);
        const later = M.gradientFlow(coords, powers.map((s) => s + Math.log(step) + Math.log1p(-most * Math.exp(-s))), W, tolerance);
        points.push(...later.map((point, i) => ({ ...point, time: Math.exp(powers[i]) })));
      }
    }
    const shows = grows(solved);
    return points.map(({ time, y, W }) => ({
      exponent: Math.log10(time),
      W,
      size: M.norm(W),
      excess: M.excessLoss(coords, y),
      angle: shows ? M.angle(W, svm.W) : NaN,
      corrected: shows ? M.angle(W.map((x, i) => x - finite.W[i]), svm.W) : NaN,
    }));
  }

  /** The point of a path at a power of ten, between its neighbours. */
  function pointAt(path, exponent) {
    const i = path.findIndex((point) => point.exponent >= exponent - 1e-9);
    if (i <= 0) return path.at(i);
    const [a, b] = [path[i - 1], path[i]];
    const share = Number.isFinite(a.exponent) ? (exponent - a.exponent) / (b.exponent - a.exponent) : 1;
    const mix = (x, y) => x + share * (y - x);
    const logMix = (x, y) => (x > 0 && y > 0 ? Math.exp(mix(Math.log(x), Math.log(y))) : y);
    return { ...b, W: a.W.map((x, k) => mix(x, b.W[k])), size: mix(a.size, b.size), excess: logMix(a.excess, b.excess),
      angle: mix(a.angle, b.angle), corrected: mix(a.corrected, b.corrected) };
  }

  /** Charts of the loss and the angle to W^mm, or of the norm where there is no W^mm.

      Paths are {points, look}; the first alone is shown `corrected`, without its finite part. */
  function curves(find, { paths, last, now, shows, corrected, loss }) {
    const here = paths.map(({ points }) => pointAt(points, now));
    const logs = paths.map(({ points }) => points.map((point) => [point.exponent, Math.log10(point.excess)]));
    const least = Math.min(-4, ...logs.flat().map((p) => p[1]).filter(Number.isFinite));
    const low = Math.max(-300, -4 * Math.ceil(-least / 4 - 1e-9));
    const every = 4 * Math.ceil(-low / 16);
    const ticks = [];
    for (let k = 0; k >= low; k -= every) ticks.push([k, power(k)]);
    const known = logs.map((points, i) => ({ points, kind: paths[i].look }));
    chart(find(".loss"), { title: loss, last, low, high: 1, ticks, now, curves: known });
    find(".loss").setAttribute("aria-label", `${loss} against time: ${here.map((p) => short(p.excess)).join(" and ")} now.`);
    const degrees = 180 / Math.PI;
    const angle = find(".angle");
    if (shows) {
      const curve = (name) => (path) => path.points.map((point) => [point.exponent, point[name] * degrees]);
      const drawn = paths.map((path) => ({ points: curve("angle")(path), kind: path.look }));
      if (corrected) drawn.unshift({ points: curve("corrected")(paths[0]), kind: "corrected" });
      const high = Math.max(...drawn.flatMap(({ points }) => points.filter((p) => p[0] >= 0).map((p) => p[1]))) > 90 ? 180 : 90;
      chart(angle, { title: "angle to Wᵐᵐ (degrees)", last, low: 0, high, ticks: [[0, "0"], [high / 2, high / 2], [high, high]], curves: drawn, now });
      angle.setAttribute("aria-label", `Angle to the max-margin direction against time: ${here.map((p) => fixed(p.angle * degrees, 1)).join(" and ")} degrees now.`);
    } else {
      const points = paths[0].points.map((point) => [point.exponent, point.size]);
      const high = Math.max(1, Math.ceil(1.05 * Math.max(...points.map((p) => p[1]))));
      chart(angle, { title: "norm of W (there is no Wᵐᵐ)", last, low: 0, high, ticks: [[0, "0"], [high, high]], curves: [{ points, kind: paths[0].look }], now });
      angle.setAttribute("aria-label", `Norm of W against time: ${short(here[0].size)} now.`);
    }
  }

  /** What a page computed, as plain values that publishing/live/explored.py reads.

      `flow` is the flow's start and its points, where it is what trains. */
  const answers = ({ data, coords, svm, finite }, flow) => ({
    data,
    svm,
    finite,
    pairs: coords.order.strict.map(({ group, i, j }) => [group, i, j]),
    start: flow?.start,
    angle: flow && grows({ svm }) ? flow.points.at(-1).angle : null,
  });

  // -- states -------------------------------------------------------------------------------------

  const copy = (rows) => rows.map((row) => [...row]);
  const table = (rows) => rows.map((row) => row.join(",")).join(";");
  const lists = (words) => (words.length > 1 ? `${words.slice(0, -1).join(", ")} and ${words.at(-1)}` : words.join(""));

  /** Rows of whole numbers from a field of the address. */
  function numbers(fields, name) {
    const rows = (fields.get(name) ?? "").split(";").map((row) => row.split(",").map((x) => (/^-?\d{1,3}$/.test(x) ? Number(x) : NaN)));
    if (rows.flat().some(Number.isNaN)) throw new Error(`${name} needs whole numbers`);
    return rows;
  }

  const inPlane = (rows) => rows.every((row) => row.length === 2 && row.every((x) => Math.abs(x) <= LIMIT));

  /** What the addresses of all pages hold: the method, the time and the layers that are shown. */
  function common(fields, methods, all, usual) {
    const method = fields.get("m") ?? "flow";
    if (!Object.hasOwn(methods, method)) throw new Error(`m is one of ${Object.keys(methods).join(", ")}`);
    const time = Number(fields.get("t") ?? 4);
    if (!(time >= 0 && time <= methods[method].last)) throw new Error(`t lies between 0 and ${methods[method].last}`);
    const layers = fields.get("l") ?? usual;
    if (!new RegExp(`^${[...all].join("?")}?$`).test(layers)) throw new Error(`l is made of ${lists([...all])}`);
    return { method, time, layers };
  }

  // What every page has and `shell` listens to: the choice of an example, and the controls of time.
  const CHOICE = `<div class="bar">
      <label>Example <select class="preset"><option value="">(your own)</option></select></label>
      <button type="button" class="reset">Reset</button>
    </div>
    <p class="note" role="status" hidden></p>`;
  const TIME = `<div class="time">
        <button type="button" class="play">Train</button>
        <label>by <select class="method"></select></label>
        <label class="clock"><span></span><input type="range" class="when" min="0" step="0.05"></label>
        <output class="reading"></output>
      </div>`;

  /** A point to drag, drawn as `look`; the start of training is called w. */
  const handleMarkup = (name, look) =>
    `<g data-handle="${name}" tabindex="0" role="slider" aria-roledescription="movable point" aria-valuemin="-1.5" aria-valuemax="1.5"><circle class="touch" r="${name === "w" ? 13 : 22}"/>${look}</g>`;

  /** Put a handle at a place of the plane, and say where it is. */
  function putHandle(handle, place) {
    handle.setAttribute("transform", `translate(${toPixels(place)})`);
    handle.setAttribute("aria-valuenow", place[0]);
    handle.setAttribute("aria-valuetext", `${fixed(place[0])} to the right, ${fixed(place[1])} up`);
  }

  /** Strict pairs that cannot all lead, those that count most first; none where the data are separable. */
  function contradicting({ svm, coords }) {
    if (svm.separable) return [];
    const pairs = coords.order.strict.map((pair, k) => ({ ...pair, row: pair.group, weight: svm.certificate[k] }));
    return pairs.filter((pair) => pair.weight > 1e-9).sort((a, b) => b.weight - a.weight);
  }

  const yes = (words) => `<b class="yes">yes</b> ${words}`;
  const no = (words) => `<b class="no">no</b> ${words}`;

  /** Numbers of the solvers, for those who ask. */
  const door = (words) => `<details><summary>numbers</summary>${words}</details>`;

  /** Whether the strict pairs can all lead, with the proof. Words of the page: `nothing` where there
      is no such pair, alone(pair) where one alone contradicts itself, each(pair) for one of many. */
  function separable(solved, nothing, alone, each) {
    const { svm, coords } = solved;
    const pairs = contradicting(solved);
    if (!coords.order.strict.length) return yes(nothing);
    if (svm.separable) return yes(`all wishes hold together${door(`W<sup>mm</sup> has norm ${short(svm.norm)}; it meets the conditions of optimality to ${short(svm.kktResidual)}`)}`);
    if (pairs.length === 1) return no(alone(pairs[0]));
    const sum = svm.residual < 1e-15 ? "to the last digit" : `to ${short(svm.residual)}`;
    const wishes = pairs.map(each).join(", ");
    const weights = pairs.map((pair) => short(pair.weight)).join(", ");
    const end = pairs.length === 2 ? "both" : "all of this";
    return no(`${wishes}: ${end} cannot hold${door(`weighted by ${weights} in this order, the leads of any W that meets the ties sum to zero, ${sum}`)}`);
  }

  /** Put a page's controls and drawings at the top of its container; the ways to reach and fill them. */
  function mount(host, layout, look) {
    const root = document.createElement("div");
    root.className = `explore ${look}`;
    root.innerHTML = layout;
    host.prepend(root);
    host.classList.add("live");
    const find = (selector) => root.querySelector(selector);
    const written = {};
    /** Fill an element where that changes it. */
    const write = (selector, html) => {
      if (written[selector] !== html) find(selector).innerHTML = written[selector] = html;
    };
    return { root, find, write };
  }

  /** Build each explorable when its place comes near the screen. */
  function whenNear(hosts, build) {
    const near = new IntersectionObserver((seen) => {
      for (const { isIntersecting, target } of seen) {
        if (!isIntersecting) continue;
        near.unobserve(target);
        build(target);
      }
    }, { rootMargin: "800px" });
    for (const host of hosts) {
      if (host.closest(".beside")) near.observe(host);
      else build(host);
    }
    // A sentence that sets the state needs it now, wherever the reader is.
    document.addEventListener("click", ({ target }) => {
      if (!target.closest(".explore-here")) return;
      for (const host of hosts) {
        if (host.classList.contains("live")) continue;
        near.unobserve(host);
        build(host);
      }
    });
  }

  /** Replace what stands in an element and give the focus back to the control that had it. */
  function keepFocus(element, html) {
    const had = element.contains(document.activeElement) ? JSON.stringify({ ...document.activeElement.dataset }) : null;
    element.innerHTML = html;
    if (had) [...element.querySelectorAll("button, select")].find((one) => JSON.stringify({ ...one.dataset }) === had)?.focus();
  }

  /** What stands around a drawing: examples, the address, reset, layers, and time that plays.

      The page keeps the state, which `get` and `set` reach. `update(rough)` does everything anew,
      `show()` only what depends on time, `say()` is what a screen reader is told at rest, and
      `computed()` are the `answers` to compare. */
  function shell({ root, presets, first, methods, fromPreset, fromFragment, toFragment, get, set, update, show, say, computed }) {
    const find = (selector) => root.querySelector(selector);
    let home = first; // where "Reset" leads
    let written = "";
    let waiting = false;
    let stop = () => {};
    const options = (named) => Object.entries(named).map(([key, { name }]) => `<option value="${key}">${name}</option>`).join("");
    find(".preset").insertAdjacentHTML("beforeend", options(presets));
    find(".method").innerHTML = options(methods);
    root.computed = computed;

    const afterwards = settled(200, () => {
      const fragment = toFragment(get());
      if (fragment !== written) writeAddress(fragment); // not before something has been moved
      written = fragment;
      find(".spoken").textContent = say();
    });
    const refine = settled(120, () => renew());

    /** Everything anew; `rough` while something is dragged: fewer points of the path. */
    function renew(rough = false) {
      const begin = performance.now();
      const { method, layers } = get();
      find(".method").value = method;
      for (const box of root.querySelectorAll(".layers input")) box.checked = layers.includes(box.value);
      update(rough);
      root.dispatchEvent(new Event("explored", { bubbles: true })); // publishing/live compares it
      root.dataset.milliseconds = (performance.now() - begin).toFixed(2);
      afterwards();
    }

    // One drawing a frame, however often a pointer reports.
    function soon() {
      if (waiting) return;
      waiting = true;
      requestAnimationFrame(() => {
        waiting = false;
        renew(true);
      });
    }

    /** The reader has made the state another one; `rough` while something is dragged. */
    function changed(rough = false) {
      find(".preset").value = "";
      if (!rough) return renew();
      soon();
      refine();
    }

    function train() {
      stop();
      const { last } = methods[get().method];
      stop = play(5, (share) => {
        get().time = Math.round(20 * last * share) / 20;
        show();
      }, afterwards);
    }

    function load(key) {
      stop();
      home = key;
      set(fromPreset(key));
      find(".preset").value = key;
      find(".note").hidden = true;
      renew();
    }

    /** The slider of time and the words beside it. */
    function clock(word) {
      const { method, time } = get();
      const slider = find(".when");
      slider.max = methods[method].last;
      slider.value = time;
      slider.setAttribute("aria-valuetext", `${word} ${when(time)}`);
      find(".clock span").textContent = `${word} ${when(time)}`;
    }

    /** The example that an address such as #preset-NAME asks for, null where it asks for none. */
    function named(fragment) {
      const asked = fragment.match(/^preset-(.*)$/);
      if (!asked) return null;
      if (!Object.hasOwn(presets, asked[1])) throw new Error(`preset is one of ${Object.keys(presets).join(", ")}`);
      return fromPreset(asked[1]);
    }

    /** Show what the address asks for, or say that it asks for nothing that can be shown. */
    function open() {
      const fragment = location.hash.slice(1);
      let wrong = "";
      try {
        const asked = named(fragment) ?? fromFragment(fragment);
        if (asked) set(asked);
      } catch (error) {
        wrong = error.message;
      }
      find(".note").hidden = !wrong;
      find(".note").textContent = wrong && `The address names no state that can be shown (${wrong}), and is ignored.`;
      const same = (key) => toFragment({ ...fromPreset(key), time: get().time, layers: get().layers }) === toFragment(get());
      find(".preset").value = Object.keys(presets).find(same) ?? "";
      home = find(".preset").value || first;
      written = toFragment(get());
      renew();
    }

    root.addEventListener("click", ({ target }) => {
      if (target.closest(".reset")) load(home);
      if (target.closest(".play")) train();
    });
    root.addEventListener("input", ({ target }) => {
      if (!target.matches(".when")) return;
      stop();
      get().time = Number(target.value);
      show();
      afterwards();
    });
    root.addEventListener("change", ({ target }) => {
      if (target.matches(".preset") && target.value) load(target.value);
      else if (target.matches(".method")) {
        stop();
        get().method = target.value;
        get().time = Math.min(get().time, methods[target.value].last);
        renew();
      } else if (target.matches(".layers input")) {
        get().layers = [...root.querySelectorAll(".layers input")].map((box) => (box.checked ? box.value : "")).join("");
        renew();
      }
    });
    addEventListener("hashchange", () => {
      const fragment = location.hash.slice(1);
      const asksForState = /=|^preset-/.test(fragment); // and not for a heading of this page
      if (!asksForState || fragment === toFragment(get())) return;
      stop();
      open();
      find("svg.main").scrollIntoView({ block: "nearest" }); // a link further down may have asked for it
    });
    return { open, renew, changed, refine, train, clock, halt: () => stop() };
  }

  return {
    fixed, short, when, line, polyline, circle, text, arrow, chart, handles, SIZE, LIMIT, toPixels, plain, rowsOf, freeSpot,
    grows, trainingPath, pointAt, curves, copy, table, lists, numbers, inPlane, common, CHOICE, TIME, handleMarkup, putHandle,
    answers, contradicting, yes, no, door, separable, whenNear, mount, keepFocus, shell,
  };
})();
