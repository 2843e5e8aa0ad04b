/* "A layer of attention": tokens in the plane, sequences with their labels. Tokens are dragged and
   sequences edited; graphs, constraints, W^mm, W^cyc, training and attention answer at once. */
"use strict";
// All scripts are there by then, in whatever order the page names them.
document.addEventListener("DOMContentLoaded", () => {
  const { fixed, short, when, line, polyline, circle, text, arrow, chart, handles, SIZE, LIMIT, toPixels, plain, freeSpot, grows,
    trainingPath, pointAt, curves, copy, table, lists, numbers, inPlane, common, CHOICE, TIME, handleMarkup, putHandle,
    answers, contradicting, yes, no, separable, whenNear, mount, keepFocus, shell } = globalThis.explorable;
  const M = globalThis.ntpnb;
  const [MOST_TOKENS, MOST_SEQUENCES, LONGEST] = [6, 8, 5];
  const SCORE_TIE = 1e-7; // scores of W^mm closer than this are equal
  const REACH = 1.15; // of the longest arrow W^mm e_k as drawn
  const METHODS = {
    flow: { name: "gradient flow", last: 12 },
    gd: { name: "gradient descent", last: 12, settings: { method: "GD", step: 0.1 } },
    ngd: { name: "normalized GD", last: 4, settings: { method: "NGD", step: 0.02 } },
  };
  const FIG2 = { e: [[110, 75], [0, 75], [-110, 75], [20, -70]], s: "321-3;241-2;41-4;132-1;312-3;132-3;142-2" };
  const PRESETS = {
    acyclic: { name: "Acyclic", e: [[-30, 115], [60, 70], [90, -60], [-90, -50]], s: "124-1;24-2;34-3;231-2;31-3", x: "14", q: 4 },
    cycle: { name: "A cycle", e: [[100, 20], [30, 120], [-50, 90], [-30, -80]], s: "124-1;214-1;124-2;134-1;34-3", x: "234", q: 4 },
    fig2: { name: "Fig. 2 of L24, in the plane", ...FIG2, x: "431", q: 2 },
    automaton: { name: "A new sequence for the automaton", ...FIG2, x: "31142", q: 2, chosen: "new" },
    silent: { name: "A new sequence that the graph does not order", e: [[-90, 40], [20, 120], [100, 10], [0, -90]], s: "14-1;234-2;34-3", x: "124", q: 4, chosen: "new" },
    inseparable: { name: "Not separable", e: [[-100, 60], [110, 30], [0, 10], [0, -90]], s: "1234-3;14-1;24-2", x: "134", q: 4 },
  };

  // -- the state and its address ------------------------------------------------------------------

  const digits = (word) => [...word].map((x) => Number(x) - 1);
  const word = (tokens) => tokens.map((v) => v + 1).join("");
  const lastOf = (tokens) => tokens[tokens.length - 1];

  function readSequences(words) {
    return words.split(";").map((one) => {
      const [tokens, label] = one.split("-");
      return { tokens: digits(tokens), label: Number(label) - 1 };
    });
  }

  function fromPreset(key) {
    const { e, s, x, q, chosen } = PRESETS[key];
    const state = { e: copy(e), s: readSequences(s), x: digits(x), q: q - 1, start: [0, 0], of: q - 1, method: "flow", time: 4, layers: "spc" };
    return { ...state, chosen: chosen ? state.s.length : firstWith(state) };
  }

  /** Number of the first sequence with the chosen query; the new one where there is none. */
  function firstWith({ s, q }) {
    const found = s.findIndex(({ tokens }) => lastOf(tokens) === q);
    return found < 0 ? s.length : found;
  }

  function toFragment(state) {
    const s = state.s.map(({ tokens, label }) => `${word(tokens)}-${label + 1}`).join(";");
    const parts = [`e=${table(state.e)}`, `s=${s}`, `x=${word(state.x)}`, `q=${state.q + 1}`, `c=${state.chosen + 1}`];
    parts.push(`m=${state.method}`, `t=${state.time}`, `l=${state.layers}`);
    if (state.start[0] || state.start[1]) parts.push(`w=${state.of + 1},${state.start}`);
    return parts.join("&");
  }

  /** The state of an address, null where it names none; throws an Error that says what is wrong. */
  function fromFragment(fragment) {
    if (!fragment.includes("=")) return null; // nothing, or a heading of this page
    const fields = new URLSearchParams(fragment);
    const e = numbers(fields, "e");
    if (e.length < 2 || e.length > MOST_TOKENS || !inPlane(e)) throw new Error(`e needs 2 to ${MOST_TOKENS} places within ±${LIMIT}`);
    const isToken = (v) => v >= 0 && v < e.length;
    const isSequence = (tokens) => tokens.length > 0 && tokens.length <= LONGEST && tokens.every(isToken);
    const s = readSequences(fields.get("s") ?? "");
    if (s.length > MOST_SEQUENCES || !s.every(({ tokens, label }) => isSequence(tokens) && tokens.includes(label)))
      throw new Error(`s needs up to ${MOST_SEQUENCES} sequences such as 124-1, of up to ${LONGEST} tokens, each with one of its own as label`);
    const x = digits(fields.get("x") ?? word(s[0].tokens));
    if (!isSequence(x)) throw new Error(`x needs up to ${LONGEST} tokens`);
    const q = Number(fields.get("q") ?? lastOf(s[0].tokens) + 1) - 1;
    if (!(Number.isInteger(q) && isToken(q))) throw new Error("q is one of the tokens");
    const chosen = Number(fields.get("c") ?? firstWith({ s, q }) + 1) - 1;
    if (!(Number.isInteger(chosen) && chosen >= 0 && chosen <= s.length)) throw new Error("c is the number of a sequence");
    const [w] = fields.has("w") ? numbers(fields, "w") : [[q + 1, 0, 0]];
    if (w.length !== 3 || !isToken(w[0] - 1) || !inPlane([w.slice(1)])) throw new Error("w needs a token and a place");
    return { e, s, x, q, chosen, start: w.slice(1), of: w[0] - 1, ...common(fields, METHODS, "spc", "spc") };
  }

  // -- what the theory says, and training ---------------------------------------------------------

  const countsOf = (tokens, K) => Array.from({ length: K }, (_, v) => tokens.filter((u) => u === v).length);

  function solve({ e, s }) {
    const K = e.length;
    const T = e.map(plain);
    const data = M.nextTokenData({
      contextEmbeddings: s.map(({ tokens }) => T[lastOf(tokens)]),
      targetProbs: s.map(({ label }) => T.map((_, v) => Number(v === label))),
      tokenEmbeddings: T,
      candidateCounts: s.map(({ tokens }) => countsOf(tokens, K)),
      contextGroups: s.map(({ tokens }) => lastOf(tokens)),
    });
    const coords = M.coordinates(data);
    return { data, coords, svm: M.maxMargin(coords), finite: M.finitePart(coords) };
  }

  /** W e_k: what a token's score is the product with, after last token k. */
  const along = (W, e) => [W[0] * e[0] + W[1] * e[1], W[2] * e[0] + W[3] * e[1]];

  /** The smallest W with W e_k = g. */
  function startWith(g, e) {
    const size = e[0] ** 2 + e[1] ** 2;
    return size ? [g[0] * e[0], g[0] * e[1], g[1] * e[0], g[1] * e[1]].map((x) => x / size) : [0, 0, 0, 0];
  }

  const startOf = ({ e, start, of }) => startWith(plain(start), plain(e[of]));

  /** Attention on each token of a sequence that holds token v so many times: counts[v]. */
  function attention(W, T, counts, k) {
    const g = along(W, T[k]);
    const scores = T.map((t) => t[0] * g[0] + t[1] * g[1]);
    const most = Math.max(...scores.filter((_, v) => counts[v]));
    const mass = scores.map((x, v) => (counts[v] ? counts[v] * Math.exp(x - most) : 0));
    const total = mass.reduce((sum, x) => sum + x, 0);
    return mass.map((x) => x / total);
  }

  /** The graph after last token k: nodes, edges from labels, components by their smallest token. */
  function graphOf({ s }, { coords }, k) {
    const label = coords.order.components.get(k) ?? [];
    const edges = new Map();
    for (const { tokens, label: i } of s)
      if (lastOf(tokens) === k) for (const j of tokens) if (j !== i) edges.set(10 * i + j, [i, j]);
    const members = new Map();
    label.forEach((c, v) => c >= 0 && members.set(c, [...(members.get(c) ?? []), v]));
    const strict = coords.order.strict.filter((pair) => pair.group === k);
    return { label, edges: [...edges.values()], members, strict };
  }

  /** Whether the graph has a path from token i to token j. */
  function reaches({ edges }, i, j) {
    const seen = new Set([i]);
    for (const v of seen) for (const [a, b] of edges) if (a === v) seen.add(b);
    return seen.has(j);
  }

  /** Where attention ends on a sequence: {by, mass}, with what decides it.

      The automaton's rule where the graph has a top; else the scores of W^mm. `mass` is null where
      neither decides, and training's end depends on more than they say. */
  function rule(state, solved, tokens) {
    const { svm, finite, data, coords } = solved;
    const [K, k] = [state.e.length, lastOf(tokens)];
    const counts = countsOf(tokens, K);
    const own = [...counts.keys()].filter((v) => counts[v]);
    const graph = graphOf(state, solved, k);
    const inGraph = own.every((v) => graph.label[v] >= 0);
    const top = inGraph ? own.filter((v) => own.every((u) => reaches(graph, v, u))) : [];
    const share = (among) => attention(finite.W, data.T, counts.map((c, v) => (among.includes(v) ? c : 0)), k);
    if (!svm.separable) return { by: "none", mass: null, among: top };
    if (top.length) return { by: "graph", mass: share(top), among: top };
    const g = along(svm.W, data.T[k]);
    const scores = data.T.map((t) => t[0] * g[0] + t[1] * g[1]);
    const best = Math.max(...own.map((v) => scores[v]));
    const first = own.filter((v) => scores[v] >= best - SCORE_TIE);
    // Among them W^cyc decides what is tied for every W that the ties allow.
    const settled = first.every((v) => {
      const [a, b, h] = [data.T[v], data.T[first[0]], data.T[k]];
      const feature = [0, 1, 2, 3].map((n) => (a[n >> 1] - b[n >> 1]) * h[n & 1]);
      const rest = feature.slice();
      for (const f of coords.F) f.forEach((one, n) => (rest[n] -= M.dot(f, feature) * one));
      return M.norm(rest) <= 1e-9 * M.norm(feature);
    });
    return { by: settled ? "margins" : "tie", mass: settled ? share(first) : null, among: first };
  }

  // -- drawing ------------------------------------------------------------------------------------

  const kind = (v) => `token-${v + 1}`;
  const named = (sup, k) => `W<tspan class="sup">${sup}</tspan><tspan class="back">e</tspan><tspan class="sub">${k + 1}</tspan>`;
  const scaled = (x, c) => x.map((one) => c * one);

  /** Length of W in the drawing: the longest arrow W^mm e_k of all queries has one length. */
  function drawnLength({ svm, data, coords }) {
    if (!grows({ svm })) return 1;
    const longest = Math.max(...coords.order.groups.map((k) => Math.hypot(...along(svm.W, data.T[k]))));
    return (REACH * svm.norm) / (longest || 1);
  }

  function drawPlane(state, solved, path) {
    const { svm, finite, data } = solved;
    const k = state.q;
    const h = data.T[k];
    const parts = [];
    const names = []; // on top of everything else
    const origin = toPixels([0, 0]);
    const size = drawnLength(solved);
    const drawn = ({ W, size: length }) => along(scaled(W, size / Math.max(size, length)), h);
    const graph = graphOf(state, solved, k);
    const taken = data.T.map((t) => [...toPixels(t), 14]);
    const tip = grows(solved) ? scaled(along(svm.W, h), size / svm.norm) : [0, 0];
    const length = Math.hypot(...tip);
    if (length > 1e-6) {
      if (state.layers.includes("s"))
        graph.label.forEach((c, v) => {
          if (c < 0) return;
          const far = (side) => toPixels([data.T[v][0] - (side * tip[1]) / length, data.T[v][1] + (side * tip[0]) / length]);
          parts.push(line(far(4), far(-4), `${kind(v)} border`));
        });
      parts.push(arrow(origin, toPixels(tip), `${kind(k)} row`));
      const spot = freeSpot(tip, 30, 0.2, taken);
      taken.push([...spot, 30]);
      names.push(text(spot, named("mm", k), `${kind(k)} name middle`));
    }
    if (state.layers.includes("c")) {
      const g = along(finite.W, h);
      const long = Math.hypot(...g);
      if (long > 1e-9) {
        const end = scaled(g, Math.min(1, 1.3 / long));
        parts.push(arrow(origin, toPixels(end), "cyclic row"));
        names.push(text(freeSpot(end, 30, 0.2, taken), named("cyc", k), "cyclic name middle"));
      }
    }
    if (state.layers.includes("p")) {
      const points = path.map((point) => toPixels(drawn(point)));
      const passed = path.findLastIndex((point) => point.exponent <= state.time) + 1;
      const here = toPixels(drawn(pointAt(path, state.time)));
      parts.push(polyline(points, `${kind(k)} path ahead`), polyline([...points.slice(0, passed), here], `${kind(k)} path`));
      parts.push(circle(here, 5.5, `${kind(k)} here`));
    }
    parts.push(line([origin[0] - 5, origin[1]], [origin[0] + 5, origin[1]], "origin"));
    parts.push(line([origin[0], origin[1] - 5], [origin[0], origin[1] + 5], "origin"));
    for (const { group, i, j } of contradicting(solved)) {
      if (group !== k) continue;
      parts.push(line(toPixels(data.T[i]), toPixels(data.T[j]), "clash link"));
      for (const v of [i, j]) parts.push(circle(toPixels(data.T[v]), 18, "clash ring"));
    }
    return parts.concat(names).join("");
  }

  /** Components of a graph, higher ranks first: rows of lists of tokens. */
  function levels({ members, strict }) {
    const rank = new Map();
    while (rank.size < members.size)
      for (const c of members.keys()) {
        const over = strict.filter((pair) => pair.j === c).map((pair) => rank.get(pair.i));
        if (!rank.has(c) && over.every((r) => r !== undefined)) rank.set(c, 1 + Math.max(-1, ...over));
      }
    const rows = [];
    for (const [c, r] of rank) (rows[r] ??= []).push(members.get(c));
    return rows;
  }

  const [GRAPH_WIDTH, GRAPH_HEIGHT] = [300, 270];

  /** The graph after last token k, as the book draws it: components in dashed circles, higher ones first. */
  function drawGraph(state, solved, k) {
    const graph = graphOf(state, solved, k);
    const rows = levels(graph);
    if (!rows.length) return text([150, 130], `no sequence ends in ${k + 1}`, "middle");
    const radius = (m) => (m.length === 1 ? 0.42 : 0.32 + 0.34 * m.length ** 0.85);
    const widest = Math.max(...rows.map((row) => row.reduce((sum, m) => sum + 2 * radius(m) + 0.15, 0)));
    const heights = rows.map((row) => 2 * Math.max(...row.map(radius)));
    const gap = 0.45;
    const high = heights.reduce((sum, x) => sum + x + gap, -gap);
    const unit = Math.min(46, (GRAPH_WIDTH - 20) / widest, (GRAPH_HEIGHT - 16) / high);
    const disc = 0.28 * unit;
    const place = new Map();
    const [circles, arrows, discs] = [[], [], []];
    let y = (GRAPH_HEIGHT - unit * high) / 2;
    rows.forEach((row, r) => {
      let x = GRAPH_WIDTH / 2 - (unit / 2) * row.reduce((sum, m) => sum + 2 * radius(m) + 0.15, -0.15);
      for (const m of row) {
        const [cx, cy] = [x + unit * radius(m), y + (unit * heights[r]) / 2];
        const ring = m.length === 1 ? 0 : unit * (radius(m) - 0.4);
        m.forEach((v, n) => {
          const turn = -Math.PI / 2 + (2 * Math.PI * n) / m.length;
          place.set(v, [cx + ring * Math.cos(turn), cy + ring * Math.sin(turn)]);
        });
        circles.push(circle([cx, cy], unit * radius(m), `component${m.length > 1 ? " cycle" : ""}`));
        x += unit * (2 * radius(m) + 0.15);
      }
      y += unit * (heights[r] + gap);
    });
    const clashing = contradicting(solved).filter((pair) => pair.group === k);
    for (const [i, j] of graph.edges) {
      const tied = graph.label[i] === graph.label[j];
      const red = clashing.some((pair) => pair.i === graph.label[i] && pair.j === graph.label[j]);
      const [a, b] = [place.get(i), place.get(j)];
      const bend = tied ? 0.18 : blocked(place, i, j, disc) ? 0.4 : 0;
      arrows.push(bent(a, b, bend, disc, `edge${tied ? " tied" : ""}${red ? " clash" : ""}`));
    }
    for (const [v, p] of place) {
      if (v === k) discs.push(circle(p, 1.22 * disc, "query"));
      discs.push(circle(p, disc, `${kind(v)} disc`), text([p[0], p[1] + 4.5], v + 1, "letter middle"));
    }
    return [...circles, ...arrows, ...discs].join("");
  }

  /** Whether a straight arrow from i to j would cross another token. */
  function blocked(place, i, j, disc) {
    const [a, b] = [place.get(i), place.get(j)];
    const [x, y] = [b[0] - a[0], b[1] - a[1]];
    return [...place].some(([v, p]) => {
      if (v === i || v === j) return false;
      const t = Math.max(0, Math.min(1, ((p[0] - a[0]) * x + (p[1] - a[1]) * y) / (x * x + y * y)));
      return Math.hypot(p[0] - a[0] - t * x, p[1] - a[1] - t * y) < 1.25 * disc;
    });
  }

  /** An arrow from one disc to another, bent to its side by a share of its length. */
  function bent(a, b, bend, disc, look) {
    const [x, y] = [b[0] - a[0], b[1] - a[1]];
    const middle = [(a[0] + b[0]) / 2 - bend * y, (a[1] + b[1]) / 2 + bend * x];
    const toward = (p, q, far) => {
      const length = Math.hypot(q[0] - p[0], q[1] - p[1]) || 1;
      return [p[0] + (far * (q[0] - p[0])) / length, p[1] + (far * (q[1] - p[1])) / length];
    };
    const [start, tip, base] = [toward(a, middle, disc + 1), toward(b, middle, disc + 1), toward(b, middle, disc + 9)];
    const [u, v] = [(tip[0] - base[0]) / 2.4, (tip[1] - base[1]) / 2.4];
    const put = (p) => `${p[0].toFixed(1)} ${p[1].toFixed(1)}`;
    return `<path class="${look}" d="M${put(start)}Q${put(middle)} ${put(base)}"/><polygon class="${look} head" points="${put(tip)} ${put([base[0] - v, base[1] + u])} ${put([base[0] + v, base[1] - u])}"/>`;
  }

  /** A bar of attention: parts in the tokens' colours, as wide as their shares. */
  const bar = (mass) =>
    mass.map((x, v) => (x > 5e-4 ? `<i class="${kind(v)}" style="flex:${x.toFixed(4)} 1 0">${x > 0.08 ? v + 1 : ""}</i>` : "")).join("");

  const percents = (mass) => lists(mass.flatMap((x, v) => (x >= 0.005 ? [`${Math.round(100 * x)} % on ${v + 1}`] : [])));

  // -- the page -----------------------------------------------------------------------------------

  const LAYOUT = `
    ${CHOICE}
    <div class="panes">
      <div class="planes">
        <div class="plane"><svg class="main" viewBox="0 0 ${SIZE} ${SIZE}" role="group"
          aria-label="The plane. Tokens can be moved with the mouse, a finger or the arrow keys.">
          <g class="drawn" aria-hidden="true"></g><g class="handles"></g></svg></div>
        <div class="layers">
          <label><input type="checkbox" value="s"> lines of equal score</label>
          <label><input type="checkbox" value="p"> training</label>
          <label><input type="checkbox" value="c"> finite part W<sup>cyc</sup></label>
        </div>
      </div>
      <div class="side">
        <div class="queries" role="group" aria-label="Last token"></div>
        <svg class="graph" viewBox="0 0 ${GRAPH_WIDTH} ${GRAPH_HEIGHT}" role="img"></svg>
        <p class="constraints"></p>
        <dl class="verdicts"></dl>
      </div>
      ${TIME}
      <div class="given">
        <div class="sequences" role="group" aria-label="Sequences, their labels, and attention"></div>
        <div class="predicted"></div>
        <div class="bar"><button type="button" data-size="sequence">Add a sequence</button>
          <button type="button" data-size="token,1">Add a token</button>
          <button type="button" data-size="token,-1">Remove a token</button></div>
      </div>
      <div class="proofs">
        <svg class="chart mass" viewBox="0 0 300 150" role="img"></svg>
        <svg class="chart angle" viewBox="0 0 300 150" role="img"></svg>
        <p class="key"></p>
        <svg class="chart loss" viewBox="0 0 300 150" role="img"></svg>
      </div>
    </div>
    <p class="spoken" role="status"></p>`;

  function build(host) {
    const { root, find, write } = mount(host, LAYOUT, "layer");
    let state = fromPreset("cycle");
    let solved = null;
    let path = [];

    /** Tokens of a sequence of the table; the new one comes last. */
    const tokensOf = (n) => (n < state.s.length ? state.s[n].tokens : state.x);
    const nameOf = (n) => (n < state.s.length ? `sequence ${n + 1}` : "the new sequence");

    // W(0) e_k for the chosen query k, in whole hundredths.
    function placeOf(name) {
      if (name !== "w") return state.e[name[1]];
      const limited = (x) => Math.max(-LIMIT, Math.min(LIMIT, Math.round(100 * x)));
      return state.of === state.q ? state.start : along(startOf(state), plain(state.e[state.q])).map(limited);
    }

    // Handles are kept from frame to frame, so that they keep the focus.
    function placeHandles() {
      const group = find(".handles");
      if (group.children.length !== state.e.length + 1)
        group.innerHTML = ["w", ...state.e.map((_, v) => `e${v}`)]
          .map((name) => {
            const look = name === "w" ? `<circle class="start" r="7"/>` : `<circle class="query" r="15"/><circle class="dot ${kind(Number(name[1]))}" r="11.5"/><text class="letter middle" y="5">${Number(name[1]) + 1}</text>`;
            return handleMarkup(name, look);
          })
          .join("");
      for (const handle of group.children) {
        const name = handle.dataset.handle;
        const place = plain(placeOf(name));
        putHandle(handle, place);
        if (name === "w") {
          handle.setAttribute("aria-label", `Start of W times token ${state.q + 1}`);
          handle.querySelector(".start").setAttribute("class", `start ${kind(state.q)}`);
        } else {
          const isQuery = Number(name[1]) === state.q;
          handle.setAttribute("aria-label", `Token ${Number(name[1]) + 1}${isQuery ? ", the last token" : ""}`);
          handle.querySelector(".query").setAttribute("visibility", isQuery ? "visible" : "hidden");
        }
      }
    }

    /** The sequences, anew where they are others than before. */
    function drawSequences() {
      const key = JSON.stringify([state.s, state.x, state.e.length, state.chosen]);
      const box = find(".sequences");
      if (box.dataset.key === key) return;
      box.dataset.key = key;
      const options = (tokens, chosen) => tokens.map((v) => `<option value="${v + 1}"${v === chosen ? " selected" : ""}>${v + 1}</option>`).join("");
      const all = state.e.map((_, v) => v);
      const rows = Array.from({ length: state.s.length + 1 }, (_, n) => {
        const tokens = tokensOf(n);
        const isNew = n === state.s.length;
        const gone = tokens.length > 1 ? `<option value="-">remove</option>` : "";
        const choice = (v, t) => `<select class="${kind(v)}${t === tokens.length - 1 ? " query" : ""}" data-at="${n},${t}" aria-label="Token at place ${t + 1} of ${tokens.length} in ${nameOf(n)}">${options(all, v)}${gone}</select>`;
        const longer = `<button type="button" class="small" data-longer="${n}" aria-label="Put a token in front of ${nameOf(n)}"${tokens.length < LONGEST ? "" : " disabled"}>+</button>`;
        const label = isNew ? "" : `<span aria-hidden="true">→</span><select class="${kind(state.s[n].label)}" data-label="${n}" aria-label="Label of ${nameOf(n)}">${options([...new Set(tokens)].sort(), state.s[n].label)}</select>`;
        const drop = isNew ? `<span class="small"></span>` : `<button type="button" class="small" data-drop="${n}" aria-label="Remove ${nameOf(n)}"${state.s.length > 1 ? "" : " disabled"}>×</button>`;
        return `<div class="sequence${isNew ? " new" : ""}"><button type="button" class="number" data-choose="${n}" aria-pressed="${n === state.chosen}" aria-label="Choose ${nameOf(n)}">${isNew ? "new" : n + 1}</button>
          <span class="tokens">${longer}${tokens.map(choice).join("")}${label}</span><span class="share" role="img"></span>${drop}</div>`;
      });
      keepFocus(box, rows.join(""));
      find("[data-size=sequence]").disabled = state.s.length === MOST_SEQUENCES;
      find('[data-size="token,1"]').disabled = state.e.length === MOST_TOKENS;
      find('[data-size="token,-1"]').disabled = state.e.length === 2;
    }

    function drawQueries() {
      const groups = new Set(solved.coords.order.groups);
      const red = new Set(contradicting(solved).map((pair) => pair.group));
      const buttons = state.e.map((_, v) => `<button type="button" class="${kind(v)}${groups.has(v) ? "" : " unused"}${red.has(v) ? " red" : ""}" data-query="${v}" aria-pressed="${v === state.q}" aria-label="Sequences that end in token ${v + 1}">${v + 1}</button>`);
      const html = `<span>Last token</span>${buttons.join("")}`;
      if (find(".queries").dataset.html !== html) keepFocus(find(".queries"), html);
      find(".queries").dataset.html = html;
    }

    /** What Graph-SVM asks for after last token k, with the leads that W^mm gives. */
    function constraints() {
      const { label, members, strict } = graphOf(state, solved, state.q);
      if (!label.length) return "";
      const { svm, data } = solved;
      const set = (c) => (members.get(c).length > 1 ? `{${members.get(c).map((v) => v + 1).join(", ")}}` : `${c + 1}`);
      const ties = [...members.values()].filter((m) => m.length > 1).map((m) => m.map((v) => v + 1).join(" ≍ "));
      const g = grows(solved) ? along(svm.W, data.T[state.q]) : null;
      const red = contradicting(solved).filter((pair) => pair.group === state.q);
      const orders = strict.map(({ i, j }) => {
        const lead = g && ` <small>by ${short(M.dot(g, data.T[i]) - M.dot(g, data.T[j]))}</small>`;
        const bad = red.some((pair) => pair.i === i && pair.j === j);
        return `<span${bad ? ' class="no"' : ""}>${set(i)} ⇒ ${set(j)}${lead ?? ""}</span>`;
      });
      return ties.concat(orders).join(", ") || "no constraints: one token alone";
    }

    function verdicts() {
      const { finite, coords } = solved;
      const cycles = coords.order.groups.flatMap((k) => [...graphOf(state, solved, k).members.values()].filter((m) => m.length > 1).map((m) => `${lists(m.map((v) => v + 1))} after ${k + 1}`));
      const acyclic = cycles.length ? no(`cycles: ${cycles.join("; ")}; W<sup>cyc</sup> has norm ${short(M.norm(finite.W))}, and the gradient there is ${short(finite.gradientNorm)}`) : yes("every component is one token, and W<sup>cyc</sup> = 0");
      const one = ({ group, i, j }) => `${i + 1} ⇒ ${j + 1} after ${group + 1}`;
      const separate = separable(
        solved,
        "there is nothing to separate, and W<sup>mm</sup> = 0",
        (pair) => `${one(pair)} cannot be: any W that meets the ties scores ${pair.i + 1} and ${pair.j + 1} alike`,
        one,
      );
      return `<dt>Acyclic?</dt><dd>${acyclic}</dd><dt>Has Graph-SVM a solution?</dt><dd>${separate}</dd>`;
    }

    /** What is predicted for the new sequence, and why. */
    function predicted() {
      const { by, mass, among } = rule(state, solved, state.x);
      const tokens = among.map((v) => v + 1);
      const k = lastOf(state.x) + 1;
      const seen = state.s.some(({ tokens: own }) => lastOf(own) === k - 1 && [...new Set(own)].sort().join() === [...new Set(state.x)].sort().join());
      const words = {
        graph: `${lists(tokens)} ${among.length > 1 ? "stand" : "stands"} highest after ${k}${among.length > 1 ? "; W<sup>cyc</sup> and how often each occurs split attention among them" : ", and takes all"}${seen ? " (a training sequence has the same tokens)" : ""}`,
        margins: `the graph after ${k} names no top, but W<sup>mm</sup> scores ${lists(tokens)} highest`,
        tie: `the graph after ${k} names no top, and W<sup>mm</sup> scores ${lists(tokens)} alike: neither decides`,
        none: "there is no W<sup>mm</sup>, and no prediction",
      }[by];
      const shown = mass ? `<span class="share" role="img" aria-label="Predicted: ${percents(mass)}">${bar(mass)}</span>` : "";
      return `<p><b>The rule</b> for the new sequence: ${words}.</p>${shown}`;
    }

    function drawTime() {
      const { data: { T }, coords } = solved;
      const now = pointAt(path, state.time);
      const shows = grows(solved);
      const { last } = METHODS[state.method];
      root.querySelectorAll(".sequence .share").forEach((box, n) => {
        const tokens = tokensOf(n);
        const mass = attention(now.W, T, countsOf(tokens, T.length), lastOf(tokens));
        box.innerHTML = bar(mass);
        box.setAttribute("aria-label", `Attention: ${percents(mass)}`);
      });
      const tokens = tokensOf(state.chosen);
      const counts = countsOf(tokens, T.length);
      const masses = path.map(({ W }) => attention(W, T, counts, lastOf(tokens)));
      const lines = [...new Set(tokens)].sort().map((v) => ({ kind: kind(v), points: path.map(({ exponent }, i) => [exponent, masses[i][v]]) }));
      chart(find(".mass"), { title: `attention in ${[...word(tokens)].join(" ")}`, last, low: 0, high: 1, ticks: [[0, "0"], [0.5, "½"], [1, "1"]], curves: lines, now: state.time });
      find(".mass").setAttribute("aria-label", `Attention in ${nameOf(state.chosen)} against time: ${percents(attention(now.W, T, counts, lastOf(tokens)))} now.`);
      const corrected = coords.F.length > 0;
      curves(find, { paths: [{ points: path, look: "only" }], last, now: state.time, shows, corrected, loss: "loss (nats)" });
      write(".key", shows && corrected ? `<span class="swatch corrected"></span> W − W<sup>cyc</sup>` : "");
      const isFlow = state.method === "flow";
      const angle = shows ? `, W is ${fixed((now.angle * 180) / Math.PI, 1)}° from W<sup>mm</sup>` : `, norm ${short(now.size)}`;
      write(".reading", `${isFlow ? "t" : "step"} = ${when(state.time)}: loss ${short(now.excess)}${angle}`);
      page.clock(isFlow ? "time" : "step");
      write(".drawn", drawPlane(state, solved, path));
    }

    function update(rough) {
      solved = solve(state);
      path = trainingPath(solved, METHODS[state.method].settings, startOf(state), rough);
      placeHandles();
      drawSequences();
      drawQueries();
      write(".graph", drawGraph(state, solved, state.q));
      find(".graph").setAttribute("aria-label", `Token-priority graph after last token ${state.q + 1}: ${graphOf(state, solved, state.q).edges.map(([i, j]) => `${i + 1} over ${j + 1}`).join(", ") || "empty"}.`);
      write(".constraints", constraints());
      write(".verdicts", verdicts());
      write(".predicted", predicted());
      drawTime();
    }

    const say = () =>
      `${contradicting(solved).length ? "Graph-SVM has no solution" : "Graph-SVM has a solution"}. ${find(".reading").textContent} ${find(".mass").getAttribute("aria-label")}`;

    const page = shell({
      root, presets: PRESETS, first: "cycle", methods: METHODS, fromPreset, fromFragment, toFragment,
      get: () => state, set: (one) => (state = one), update, show: drawTime, say,
      computed: () => answers(solved, state.method === "flow" ? { start: startOf(state), points: path } : null),
    });

    function begin(x, y) {
      state.start = [x, y];
      state.of = state.q;
    }

    handles(find(".main"), {
      limit: LIMIT,
      place: placeOf,
      move(name, x, y) {
        page.halt();
        if (name === "w") begin(x, y);
        else state.e[name[1]] = [x, y];
        page.changed(true);
      },
      release: page.refine,
      click(x, y) {
        begin(x, y);
        page.changed();
        page.train();
      },
    });

    /** After a sequence has changed: its label is one of its tokens, and the query that of the chosen one. */
    function settle() {
      for (const one of state.s) if (!one.tokens.includes(one.label)) one.label = lastOf(one.tokens);
      state.chosen = Math.min(state.chosen, state.s.length);
    }

    function choose(n) {
      state.chosen = n;
      state.q = lastOf(tokensOf(n));
    }

    function resize(what, by) {
      if (what === "sequence") {
        const tokens = state.x.slice();
        state.s.push({ tokens, label: tokens[0] });
        choose(state.s.length - 1);
      } else if (by > 0) {
        const turn = state.e.length * 2.4;
        state.e.push([Math.round(110 * Math.cos(turn)), Math.round(110 * Math.sin(turn))]);
      } else {
        const gone = state.e.length - 1;
        const without = (tokens) => tokens.filter((v) => v !== gone);
        state.e.pop();
        state.s = state.s.map((one) => ({ ...one, tokens: without(one.tokens) })).filter(({ tokens }) => tokens.length);
        if (!state.s.length) state.s.push({ tokens: [0, 1], label: 0 });
        state.x = without(state.x);
        if (!state.x.length) state.x = [0, 1];
        state.q = Math.min(state.q, gone - 1);
        if (state.of === gone) begin(0, 0);
      }
    }

    root.addEventListener("click", ({ target }) => {
      const button = target.closest("button");
      if (!button || button.disabled || button.matches(".reset, .play")) return;
      const { query, longer, drop, size } = button.dataset;
      if (button.dataset.choose) choose(Number(button.dataset.choose));
      else if (query) {
        state.q = Number(query);
        if (lastOf(tokensOf(state.chosen)) !== state.q) state.chosen = firstWith(state);
      } else if (longer) {
        const tokens = tokensOf(Number(longer));
        tokens.unshift(state.e.findIndex((_, v) => !tokens.includes(v)) < 0 ? 0 : state.e.findIndex((_, v) => !tokens.includes(v)));
        choose(Number(longer));
      } else if (drop) {
        state.s.splice(Number(drop), 1);
        if (state.chosen > Number(drop)) state.chosen -= 1;
      } else if (size) resize(...size.split(",").map((x, i) => (i ? Number(x) : x)));
      settle();
      if (longer || drop || size) page.changed();
      else page.renew();
    });
    root.addEventListener("change", ({ target }) => {
      const { at, label } = target.dataset;
      if (at) {
        const [n, t] = at.split(",").map(Number);
        tokensOf(n).splice(t, 1, ...(target.value === "-" ? [] : [Number(target.value) - 1]));
        choose(n);
      } else if (label) {
        state.s[label].label = Number(target.value) - 1;
        choose(Number(label));
      } else return;
      settle();
      page.changed();
    });
    page.open();
  }

  globalThis.exploreAttention = { solve, startWith, attention, rule, graphOf, fromFragment, toFragment, fromPreset, METHODS, PRESETS };
  whenNear(document.querySelectorAll(".explore-attention"), build);
});
