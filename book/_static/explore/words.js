/* "Words in the plane": a linear decoder in two dimensions. Contexts are dragged, supports toggled,
   probabilities set; the order, W*, W^mm, their proofs and training answer at once. */
"use strict";
// All scripts are there by then, in whatever order the page names them.
document.addEventListener("DOMContentLoaded", () => {
  const { fixed, short, when, line, polyline, circle, text, arrow, handles, SIZE, LIMIT, toPixels, plain, rowsOf, freeSpot,
    grows, trainingPath, pointAt, curves, copy, table, lists, numbers, inPlane, common, CHOICE, TIME, handleMarkup, putHandle,
    answers, contradicting, yes, no, door, separable, whenNear, mount, keepFocus, shell } = globalThis.explorable;
  const M = globalThis.ntpnb;
  const NAMES = "ABCDEF";
  const MOST_TOKENS = 7;
  const LENGTH = 2.26; // of W as drawn: that of the toy's W^mm
  const METHODS = {
    flow: { name: "gradient flow", last: 12 },
    gd: { name: "gradient descent", last: 12, settings: { method: "GD", step: 0.5 } },
    ngd: { name: "normalized GD", last: 4, settings: { method: "NGD", step: 0.02 } },
    adam: { name: "Adam", last: 4, settings: { method: "Adam", step: 0.01 } },
    both: { name: "normalized GD and Adam", last: 4 },
  };
  const TOY = { h: [[0, 100], [-100, -50], [100, -75]], p: [[0, 35, 55, 10, 0], [60, 0, 0, 10, 30], [15, 15, 0, 0, 70]] };
  const ONE_EACH = { h: [[20, 130], [-130, -30], [80, -110]], p: [[100, 0, 0], [0, 100, 0], [0, 0, 100]] };
  const PRESETS = {
    toy: { name: "The toy of the first chapter", ...TOY },
    single: { name: "One token per context", ...ONE_EACH },
    tie: { name: "A tie", h: [[60, 90], [-90, -60]], p: [[90, 10, 0], [0, 0, 100]] },
    barely: { name: "Barely separable", h: [TOY.h[0], TOY.h[1], [12, -124]], p: TOY.p },
    inseparable: { name: "Not separable", h: [[0, -100], TOY.h[1], TOY.h[2]], p: TOY.p },
    moved: { name: "The toy, with A moved", h: [[15, 30], TOY.h[1], TOY.h[2]], p: TOY.p },
    incompatible: { name: "Not compatible", h: [[0, 70], TOY.h[1], TOY.h[2], [0, 140]], p: [...TOY.p, [0, 10, 30, 60, 0]] },
    remainder: { name: "Something remains", h: [[120, 20], [-120, -90], [-50, 40]], p: [[10, 90, 0, 0], [0, 0, 100, 0], [0, 0, 0, 100]] },
    optimizers: { name: "Adam and normalized GD, side by side", ...ONE_EACH, method: "both", time: 4 },
  };

  // -- the state and its address ------------------------------------------------------------------

  function fromPreset(key) {
    const { h, p, method = "flow", time = 4 } = PRESETS[key];
    return { h: copy(h), p: copy(p), start: p[0].map(() => [0, 0]), method, time, token: 0, context: 0, layers: "hp" };
  }

  function toFragment(state) {
    const parts = [`h=${table(state.h)}`, `p=${table(state.p)}`, `m=${state.method}`, `t=${state.time}`, `l=${state.layers}`];
    if (state.start.some((row) => row[0] || row[1])) parts.push(`w=${table(state.start)}`);
    return parts.join("&");
  }

  /** The state of an address, null where it names none; throws an Error that says what is wrong. */
  function fromFragment(fragment) {
    if (!fragment.includes("=")) return null; // nothing, or a heading of this page
    const fields = new URLSearchParams(fragment);
    const [h, p] = [numbers(fields, "h"), numbers(fields, "p")];
    if (h.length > NAMES.length || !inPlane(h)) throw new Error(`h needs up to ${NAMES.length} places within ±${LIMIT}`);
    const V = p[0].length;
    const laws = p.every((row) => row.length === V && row.every((x) => x >= 0) && row.reduce((a, b) => a + b) === 100);
    if (p.length !== h.length || V < 2 || V > MOST_TOKENS || !laws)
      throw new Error(`p needs one row of 2 to ${MOST_TOKENS} percentages for each place, each row with sum 100`);
    const start = fields.has("w") ? numbers(fields, "w") : p[0].map(() => [0, 0]);
    if (start.length !== V || !inPlane(start)) throw new Error("w needs one place for each token");
    const { method, time, layers } = common(fields, METHODS, "hpf", "hp");
    return { h, p, start, method, time, token: 0, context: 0, layers };
  }

  // -- what the theory says, and training ---------------------------------------------------------

  function solve({ h, p }) {
    const data = M.nextTokenData({
      contextEmbeddings: h.map(plain),
      targetProbs: p.map(plain),
    });
    const coords = M.coordinates(data);
    const svm = M.maxMargin(coords);
    const finite = M.finitePart(coords);
    return { data, coords, svm, finite, clash: finite.compatible ? { gap: 0, ties: [] } : M.contradictingTies(coords) };
  }

  /** Points of one method's path from the rows of a start in hundredths. */
  const train = (solved, method, start, rough) => trainingPath(solved, METHODS[method].settings, plain(start.flat()), rough);

  // -- drawing ------------------------------------------------------------------------------------

  const kind = (v) => `token-${v + 1}`;
  const supportOf = (row) => row.flatMap((x, v) => (x ? [v] : []));

  /** Length of W in the drawing: the longest arrow stays inside. */
  function drawnLength(solved) {
    const { svm } = solved;
    if (!grows(solved)) return LENGTH;
    const longest = Math.max(...rowsOf(svm.W).map((w) => Math.hypot(...w)));
    return Math.min(LENGTH, (1.2 * svm.norm) / longest);
  }

  function drawPlane(state, solved, path, layers) {
    const { svm, finite } = solved;
    const parts = [];
    const names = []; // on top of everything else
    const size = drawnLength(solved);
    const origin = toPixels([0, 0]);
    const drawn = (W, length) => rowsOf(W, size / Math.max(size, length));
    const now = pointAt(path, state.time);
    const here = drawn(now.W, now.size);
    if (grows(solved)) {
      const rows = rowsOf(svm.W, size / svm.norm);
      const same = rows.map((w) => rows.findIndex((other) => Math.hypot(w[0] - other[0], w[1] - other[1]) < 1e-6));
      if (layers.includes("h"))
        rows.forEach((w, v) => {
          const length = Math.hypot(...w);
          if (length < 1e-6 || same[v] !== v) return;
          const far = (along, across) => toPixels([(along * w[0] - across * w[1]) / length, (along * w[1] + across * w[0]) / length]);
          const chosen = same[state.token] === v;
          if (chosen) {
            const corners = [far(0, 4), far(0, -4), far(4, -4), far(4, 4)].map((p) => p.join(",")).join(" ");
            parts.unshift(`<polygon class="half ${kind(state.token)}" points="${corners}"/>`);
          }
          parts.push(line(far(0, 4), far(0, -4), `${kind(v)} border${chosen ? " chosen" : ""}`));
        });
      rows.forEach((w, v) => {
        parts.push(arrow(origin, toPixels(w), `${kind(v)} row${same[v] === v ? "" : " again"}`));
      });
      const taken = state.h.flatMap((h, j) => {
        const [x, y] = toPixels(plain(h));
        const half = 8.5 * supportOf(state.p[j]).length;
        return [[x, y, 12], [x + 16 + half, y, half]];
      });
      if (layers.includes("p")) taken.push(...here.map((w) => [...toPixels(w), 6]));
      rows.forEach((w, v) => {
        if (same[v] !== v) return;
        const shared = rows.flatMap((_, u) => (same[u] === v ? [`w<tspan class="sub">${u + 1}</tspan>`] : []));
        const wide = 16 + 20 * (shared.length - 1); // half a label
        const spot = freeSpot(w, wide, 0.13 + 0.05 * (shared.length - 1), taken);
        taken.push([...spot, wide]);
        names.push(text(spot, shared.join(" = "), `${kind(v)} name middle`));
      });
    }
    if (layers.includes("f")) {
      const shrink = Math.min(1, size / (M.norm(finite.W) || 1));
      rowsOf(finite.W, shrink).forEach((w, v) => {
        const [x, y] = toPixels(w);
        parts.push(line(origin, [x, y], `${kind(v)} finite`));
        parts.push(`<rect class="${kind(v)} diamond" x="${x - 5}" y="${y - 5}" width="10" height="10" transform="rotate(45 ${x} ${y})"/>`);
      });
    }
    if (layers.includes("p")) {
      const scaled = path.map((point) => drawn(point.W, point.size));
      const passed = path.findLastIndex((point) => point.exponent <= state.time) + 1;
      here.forEach((w, v) => {
        parts.push(polyline(scaled.map((rows) => toPixels(rows[v])), `${kind(v)} path ahead`));
        parts.push(polyline([...scaled.slice(0, passed).map((rows) => toPixels(rows[v])), toPixels(w)], `${kind(v)} path`));
      });
      here.forEach((w, v) => parts.push(circle(toPixels(w), 5.5, `${kind(v)} here`)));
      // Where no arrow has its name, the paths have theirs.
      if (!grows(solved)) {
        const taken = state.h.map((h) => [...toPixels(plain(h)), 14]);
        here.forEach((w, v) => {
          const spot = freeSpot(w, 16, 0.13, taken);
          taken.push([...spot, 16]);
          names.push(text(spot, `w<tspan class="sub">${v + 1}</tspan>`, `${kind(v)} name middle`));
        });
      }
    }
    parts.push(line([origin[0] - 5, origin[1]], [origin[0] + 5, origin[1]], "origin"));
    parts.push(line([origin[0], origin[1] - 5], [origin[0], origin[1] + 5], "origin"));
    drawContradictions(state, solved, parts);
    return parts.concat(names).join("");
  }

  /** Contexts that contradict each other, joined, each with the pairs of tokens in question. */
  function drawContradictions(state, solved, parts) {
    const draw = (pairs, sign, look) => {
      const rows = [...new Set(pairs.map((pair) => pair.row))].sort((a, b) => a - b);
      const places = rows.map((j) => toPixels(plain(state.h[j])));
      if (rows.length > 1) parts.push(polyline(rows.length > 2 ? [...places, places[0]] : places, `${look} link`));
      rows.forEach((j, i) => {
        parts.push(circle(places[i], 17, `${look} ring`));
        const words = pairs.filter((pair) => pair.row === j).slice(0, 3).map((pair) => `${pair.i + 1} ${sign} ${pair.j + 1}`).join(", ");
        const beside = places[i][0] > 90;
        parts.push(text(beside ? [places[i][0] - 24, places[i][1] + 5] : [places[i][0] + 14, places[i][1] - 24], words, `${look} ${beside ? "end" : "middle"}`));
      });
    };
    draw(contradicting(solved), "&gt;", "clash");
    draw(solved.clash.ties, ":", "odds");
  }

  // -- the page -----------------------------------------------------------------------------------

  const LAYOUT = `
    ${CHOICE}
    <div class="panes">
      <div class="planes">
        <div class="plane"><p class="caption" hidden></p><svg class="main" viewBox="0 0 ${SIZE} ${SIZE}" role="group"
          aria-label="The plane. Contexts can be moved with the mouse, a finger or the arrow keys.">
          <g class="drawn" aria-hidden="true"></g><g class="handles"></g></svg></div>
        <div class="plane" hidden><p class="caption"></p><svg class="second" viewBox="0 0 ${SIZE} ${SIZE}" role="img"
          aria-label="The same contexts, trained with Adam."></svg></div>
        <div class="layers">
          <label><input type="checkbox" value="h"> half-planes</label>
          <label><input type="checkbox" value="p"> training</label>
          <label><input type="checkbox" value="f"> finite part W<sup>⋆</sup></label>
        </div>
      </div>
      ${TIME}
      <div class="side">
        <dl class="verdicts"></dl>
        <svg class="chart loss" viewBox="0 0 300 150" role="img"></svg>
        <svg class="chart angle" viewBox="0 0 300 150" role="img"></svg>
        <p class="key"></p>
      </div>
    </div>
    <p class="hint">Which tokens follow which contexts. Press a cell to let a token follow, or never follow. Choose a
      context for its sliders, a token for its half-plane and its start.</p>
    <div class="scroller"><table class="laws" aria-label="Which tokens follow which contexts"></table></div>
    <div class="bar"><button type="button" data-size="context,1">Add a context</button>
      <button type="button" data-size="context,-1">Remove a context</button>
      <button type="button" data-size="token,1">Add a token</button>
      <button type="button" data-size="token,-1">Remove a token</button></div>
    <fieldset class="sliders"></fieldset>
    <p class="spoken" role="status"></p>`;

  function build(host) {
    const { root, find, write } = mount(host, LAYOUT, "");
    let state = fromPreset("toy");
    let solved = null;
    let paths = [];

    // Handles are kept from frame to frame, so that they keep the focus.
    function placeHandles() {
      const ringed = new Set([...contradicting(solved), ...solved.clash.ties].map((pair) => pair.row));
      const wanted = state.h.map((_, j) => `h${j}`).concat("w");
      const group = find(".handles");
      if (group.children.length !== wanted.length)
        group.innerHTML = wanted
          .map((name) => {
            const look = name === "w" ? `<circle class="start" r="7"/>` : `<circle class="dot" r="11"/><text class="letter middle" y="5">${NAMES[name[1]]}</text><text class="support" y="5"></text>`;
            return handleMarkup(name, look);
          })
          .reverse() // contexts above the start
          .join("");
      for (const handle of group.children) {
        const name = handle.dataset.handle;
        const place = plain(placeOf(name));
        putHandle(handle, place);
        if (name === "w") {
          handle.setAttribute("aria-label", `Start of token ${state.token + 1}`);
          handle.querySelector(".start").setAttribute("class", `start ${kind(state.token)}`);
          continue;
        }
        const j = Number(name[1]);
        const tokens = supportOf(state.p[j]);
        handle.classList.toggle("chosen", j === state.context);
        handle.setAttribute("aria-label", `Context ${NAMES[j]}, followed by ${lists(tokens.map((v) => v + 1))}`);
        const label = handle.querySelector(".support");
        const words = tokens.map((v) => `<tspan class="${kind(v)}">${v + 1}</tspan>`).join(", ");
        if (label.innerHTML !== words) label.innerHTML = words;
        const toLeft = toPixels(place)[0] > SIZE - 30 - 17 * tokens.length;
        const apart = ringed.has(j) ? 23 : 16;
        label.setAttribute("x", toLeft ? -apart : apart);
        label.classList.toggle("end", toLeft);
      }
    }

    const placeOf = (name) => (name === "w" ? state.start[state.token] : state.h[name[1]]);

    function drawTable() {
      const V = state.p[0].length;
      const head = Array.from({ length: V }, (_, v) => `<th scope="col"><button type="button" class="${kind(v)}" data-token="${v}" aria-pressed="${v === state.token}" aria-label="Choose token ${v + 1}">${v + 1}</button></th>`).join("");
      const rows = state.p.map((row, j) => {
        const cells = row.map((x, v) => `<td><button type="button" class="${kind(v)}" data-cell="${j},${v}" aria-pressed="${x > 0}" aria-label="${x ? `${x}%: ` : ""}token ${v + 1} follows ${NAMES[j]}">${x ? `${x}%` : "·"}</button></td>`).join("");
        return `<tr><th scope="row"><button type="button" data-context="${j}" aria-pressed="${j === state.context}" aria-label="Choose context ${NAMES[j]}">${NAMES[j]}</button></th>${cells}</tr>`;
      });
      keepFocus(find(".laws"), `<thead><tr><td></td>${head}</tr></thead><tbody>${rows.join("")}</tbody>`);
      for (const button of root.querySelectorAll("[data-size]")) {
        const [what, by] = button.dataset.size.split(",");
        const [now, least, most] = what === "context" ? [state.h.length, 1, NAMES.length] : [V, 2, MOST_TOKENS];
        button.disabled = now + Number(by) < least || now + Number(by) > most;
      }
      const row = state.p[state.context];
      const tokens = supportOf(row);
      const sliders = tokens
        .map((v) => `<label class="${kind(v)}"><span>token ${v + 1}</span><input type="range" data-share="${v}" min="1" max="${101 - tokens.length}" value="${row[v]}" ${tokens.length < 2 ? "disabled" : ""} aria-valuetext="${row[v]} percent"><output>${row[v]} %</output></label>`)
        .join("");
      const box = find(".sliders");
      const key = `${state.context}:${tokens}`;
      if (box.dataset.key !== key) box.innerHTML = `<legend>After ${NAMES[state.context]}</legend><div>${sliders}</div>`;
      else
        for (const input of box.querySelectorAll("input")) {
          const x = row[input.dataset.share];
          if (Number(input.value) !== x) input.value = x;
          input.setAttribute("aria-valuetext", `${x} percent`);
          input.nextElementSibling.textContent = `${x} %`;
        }
      box.dataset.key = key;
    }

    function verdicts() {
      const { finite, coords, clash } = solved;
      const separate = separable(
        solved,
        "every token follows every context, so nothing has to be silenced",
        ({ row, i, j }) => `any W that meets the ties scores ${i + 1} and ${j + 1} alike at ${NAMES[row]}`,
        ({ row, i, j }) => `${NAMES[row]} wants ${i + 1} above ${j + 1}`,
      );
      let compatible;
      if (finite.compatible) compatible = yes(coords.F.length ? `one W meets all odds${door(`W<sup>⋆</sup> meets them to ${short(finite.residual)} nats`)}` : "each context is followed by one token, so there are no odds to meet");
      else {
        const rows = [...new Set(clash.ties.map((tie) => NAMES[tie.row]))].sort();
        const odds = [...new Set(clash.ties.map((tie) => [tie.i + 1, tie.j + 1].sort().join(" : ")))];
        compatible = no(`${lists(rows)} contradict ${rows.length > 1 ? "each other" : "linearity"} about the odds of ${lists(odds)}${door(`the best W misses some odds by ${short(finite.residual)} nats`)}`);
      }
      return `<dt>Separable?</dt><dd>${separate}</dd><dt>Compatible?</dt><dd>${compatible}</dd>`;
    }

    function drawTime() {
      const { last } = METHODS[state.method];
      const { data, finite, coords } = solved;
      const now = paths.map((path) => pointAt(path.points, state.time));
      const [first] = paths;
      const shows = grows(solved);
      const degrees = 180 / Math.PI;
      const corrected = finite.compatible && coords.F.length > 0 && paths.length === 1;
      curves(find, { paths, last, now: state.time, shows, corrected, loss: "loss − entropy (nats)" });
      const names = { both0: "normalized GD", both1: "Adam", corrected: "W − W<sup>⋆</sup>" };
      const keys = paths.length > 1 ? ["both0", "both1"] : shows && corrected ? ["corrected"] : [];
      write(".key", keys.map((key) => `<span class="swatch ${key}"></span> ${names[key]}`).join(" "));
      const isFlow = state.method === "flow";
      const reading = now.map((point, i) => {
        const who = paths.length > 1 ? `${["normalized GD", "Adam"][i]}: ` : `${isFlow ? "t" : "step"} = ${when(state.time)}: `;
        const angles = shows ? `, ${fixed(point.angle * degrees, 1)}° from W<sup>mm</sup>` : `, norm ${short(point.size)}`;
        return `${who}loss ${fixed(data.entropy + point.excess, 4)} = entropy ${fixed(data.entropy, 4)} + ${short(point.excess)}${angles}`;
      });
      write(".reading", reading.join("<br>"));
      page.clock(isFlow ? "time" : "step");
      write(".drawn", drawPlane(state, solved, first.points, state.layers));
      const second = find(".second").parentElement;
      second.hidden = paths.length < 2;
      root.classList.toggle("twin", !second.hidden);
      find(".plane .caption").hidden = second.hidden;
      if (!second.hidden) {
        find(".plane .caption").textContent = "normalized GD";
        second.querySelector(".caption").textContent = "Adam";
        const dots = state.h.map((h, j) => {
          const [x, y] = toPixels(plain(h));
          return `<g transform="translate(${x} ${y})"><circle class="dot" r="11"/><text class="letter middle" y="5">${NAMES[j]}</text></g>`;
        });
        write(".second", drawPlane(state, solved, paths[1].points, state.layers) + dots.join(""));
      }
    }

    function update(rough) {
      solved = solve(state);
      const methods = state.method === "both" ? ["ngd", "adam"] : [state.method];
      paths = methods.map((method, i) => ({ look: methods.length > 1 ? `both${i}` : "only", points: train(solved, method, state.start, rough) }));
      placeHandles();
      drawTable();
      write(".verdicts", verdicts());
      drawTime();
    }

    const say = () =>
      `${solved.svm.separable ? "Separable" : "Not separable"}, ${solved.finite.compatible ? "compatible" : "not compatible"}. ${find(".reading").textContent}`;

    const page = shell({
      root, presets: PRESETS, first: "toy", methods: METHODS, fromPreset, fromFragment, toFragment,
      get: () => state, set: (one) => (state = one), update, show: drawTime, say,
      computed: () => answers(solved, state.method === "flow" ? { start: plain(state.start.flat()), points: paths[0].points } : null),
    });

    handles(find(".main"), {
      limit: LIMIT,
      place: placeOf,
      move(name, x, y) {
        page.halt();
        if (name === "w") state.start[state.token] = [x, y];
        else {
          state.h[name[1]] = [x, y];
          state.context = Number(name[1]);
        }
        page.changed(true);
      },
      release: page.refine,
      click(x, y) {
        state.start[state.token] = [x, y];
        page.changed();
        page.train();
      },
    });

    /** Give one token of the chosen context x percent; the others share the rest as before. */
    function share(v, x) {
      const row = state.p[state.context];
      const others = supportOf(row).filter((u) => u !== v);
      const rest = 100 - x;
      const total = others.reduce((sum, u) => sum + row[u], 0);
      row[v] = x;
      const exact = others.map((u) => 1 + ((rest - others.length) * (row[u] - 0.999)) / (total - 0.999 * others.length));
      others.forEach((u, i) => (row[u] = Math.floor(exact[i])));
      const order = others.map((u, i) => [exact[i] - Math.floor(exact[i]), u]).sort((a, b) => b[0] - a[0]);
      const missing = 100 - row.reduce((sum, one) => sum + one, 0);
      for (let i = 0; i < missing; i++) row[order[i % order.length][1]] += 1;
    }

    function toggle(j, v) {
      const row = state.p[j];
      const tokens = supportOf(row);
      state.context = j;
      if (row[v] && tokens.length === 1) return; // something has to follow
      if (row[v]) {
        const freed = row[v];
        row[v] = 0;
        const others = supportOf(row);
        const largest = others.reduce((a, b) => (row[b] > row[a] ? b : a));
        others.forEach((u) => (row[u] += Math.floor((freed * row[u]) / (100 - freed))));
        row[largest] += 100 - row.reduce((sum, one) => sum + one, 0);
      } else {
        row[v] = 1;
        const largest = tokens.reduce((a, b) => (row[b] > row[a] ? b : a));
        row[largest] -= 1;
        share(v, Math.floor(100 / (tokens.length + 1)));
      }
    }

    function resize(what, by) {
      if (what === "token") {
        for (const row of state.p) {
          if (by > 0) row.push(0);
          else {
            const lost = row.pop();
            row[supportOf(row)[0] ?? 0] += lost;
          }
        }
        if (by > 0) state.start.push([0, 0]);
        else state.start.pop();
        state.token = Math.min(state.token, state.p[0].length - 1);
      } else if (by > 0) {
        const turn = state.h.length * 2.4;
        state.h.push([Math.round(110 * Math.cos(turn)), Math.round(110 * Math.sin(turn))]);
        state.p.push(state.p[0].map((_, v) => (v === state.h.length % state.p[0].length ? 100 : 0)));
        state.context = state.h.length - 1;
      } else {
        state.h.pop();
        state.p.pop();
        state.context = Math.min(state.context, state.h.length - 1);
      }
    }

    root.addEventListener("click", (event) => {
      const button = event.target.closest("button");
      if (!button || button.disabled) return;
      const { token, cell, context, size } = button.dataset;
      if (button.matches(".reset, .play")) return;
      if (token) state.token = Number(token);
      else if (context) state.context = Number(context);
      else if (cell) toggle(...cell.split(",").map(Number));
      else if (size) resize(...size.split(",").map((x, i) => (i ? Number(x) : x)));
      if (cell || size) page.changed();
      else page.renew();
    });
    root.addEventListener("input", ({ target }) => {
      if (!target.matches("[data-share]")) return;
      share(Number(target.dataset.share), Number(target.value));
      page.changed(true);
    });
    page.open();
  }

  globalThis.exploreWords = { solve, train, fromFragment, toFragment, fromPreset, PRESETS, NAMES };
  whenNear(document.querySelectorAll(".explore-words"), build);
});
