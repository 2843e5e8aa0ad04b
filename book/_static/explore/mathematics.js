/* The mathematics of the pages that can be explored, with the names of the Python package `ntpnb`.
   A classic script without dependencies, so that a page works from a file and without a network.

   Everything is small and dense. W is a flat array of length p·q, row by row. Scores are bilinear:
   s[j, v] = t_v · W h_j = ⟨W, t_v h_jᵀ⟩. Logarithms are natural, losses in nats. */
"use strict";
globalThis.ntpnb = (() => {
  const RANK = 1e-11; // directions of relative size below this are rounding
  const COMPATIBLE = 1e-8; // nats of log-odds that count as met
  const INFEASIBLE = 1e-10; // relative length of a combination of pairs that counts as zero

  // -- vectors and small matrices (arrays of rows) ------------------------------------------------

  const zeros = (n) => new Array(n).fill(0);
  const norm = (x) => Math.sqrt(dot(x, x));

  function dot(x, y) {
    let sum = 0;
    for (let i = 0; i < x.length; i++) sum += x[i] * y[i];
    return sum;
  }

  /** y ← y + c x, in place. */
  function add(y, c, x) {
    for (let i = 0; i < y.length; i++) y[i] += c * x[i];
    return y;
  }

  /** Σ_k c_k rows_k, of length n. */
  function combine(c, rows, n) {
    const sum = zeros(n);
    rows.forEach((row, k) => add(sum, c[k], row));
    return sum;
  }

  /** A vector of n entries from a function of their number. */
  function vector(n, entry) {
    const x = zeros(n);
    for (let i = 0; i < n; i++) x[i] = entry(i);
    return x;
  }

  const transpose = (A, n) => Array.from({ length: n }, (_, i) => vector(A.length, (k) => A[k][i]));

  /** What is left of x after its part in the span of orthonormal vectors; twice is enough. */
  function reject(x, basis) {
    const rest = x.slice();
    for (let pass = 0; pass < 2; pass++) for (const b of basis) add(rest, -dot(rest, b), b);
    return rest;
  }

  /** Orthonormal basis of the span of vectors whose own lengths do not count (pivoted). */
  function orthonormal(vectors, inside = []) {
    const basis = [];
    const units = vectors.filter((x) => norm(x) > 0).map((x) => add(zeros(x.length), 1 / norm(x), x));
    let rests = units.map((x) => reject(x, inside));
    while (rests.length) {
      const sizes = rests.map(norm);
      const largest = Math.max(...sizes);
      if (largest <= RANK) break;
      const pivot = sizes.indexOf(largest);
      const unit = reject(rests[pivot], [...inside, ...basis]);
      const length = norm(unit);
      if (length <= RANK) break;
      basis.push(unit.map((x) => x / length));
      rests = rests.filter((_, i) => i !== pivot && sizes[i] > RANK);
      rests = rests.map((x) => reject(x, [basis.at(-1)]));
    }
    return basis;
  }

  /** Lower factor of a symmetric positive definite matrix; a pivot that is not positive is 1e-300. */
  function cholesky(A) {
    const L = A.map(() => zeros(A.length));
    for (let i = 0; i < A.length; i++)
      for (let j = 0; j <= i; j++) {
        let sum = A[i][j];
        for (let k = 0; k < j; k++) sum -= L[i][k] * L[j][k];
        L[i][j] = i === j ? Math.sqrt(Math.max(sum, 1e-300)) : sum / L[j][j];
      }
    return L;
  }

  function solveCholesky(L, b) {
    const x = b.slice();
    const n = x.length;
    for (let i = 0; i < n; i++) {
      for (let k = 0; k < i; k++) x[i] -= L[i][k] * x[k];
      x[i] /= L[i][i];
    }
    for (let i = n - 1; i >= 0; i--) {
      for (let k = i + 1; k < n; k++) x[i] -= L[k][i] * x[k];
      x[i] /= L[i][i];
    }
    return x;
  }

  /** Least squares Σ_k c_k columns_k ≈ b with independent columns: Gram–Schmidt, then refined. */
  function leastSquares(columns, b) {
    const Q = [];
    const R = [];
    for (const column of columns) {
      const unit = column.slice();
      const r = zeros(columns.length);
      for (let pass = 0; pass < 2; pass++)
        Q.forEach((q, i) => {
          const part = dot(unit, q);
          r[i] += part;
          add(unit, -part, q);
        });
      r[Q.length] = norm(unit) || 1e-300;
      Q.push(unit.map((x) => x / r[Q.length]));
      R.push(r);
    }
    const c = zeros(columns.length);
    const rest = b.slice();
    for (let pass = 0; pass < 2; pass++) {
      const step = Q.map((q) => dot(q, rest));
      for (let i = Q.length - 1; i >= 0; i--) {
        for (let k = i + 1; k < Q.length; k++) step[i] -= R[k][i] * step[k];
        step[i] /= R[i][i];
        c[i] += step[i];
        add(rest, -step[i], columns[i]);
      }
    }
    return { c, rest };
  }

  // -- data ---------------------------------------------------------------------------------------

  /** Contexts h_j, next-token laws p_j; the rest as in `ntpnb.NextTokenData`, with its defaults. */
  function nextTokenData({ contextEmbeddings, targetProbs, contextProbs, tokenEmbeddings, candidateCounts, contextGroups }) {
    const H = contextEmbeddings;
    const P = targetProbs;
    const V = P[0].length;
    const T = tokenEmbeddings ?? P[0].map((_, v) => P[0].map((_, i) => Number(i === v)));
    const counts = candidateCounts ?? P.map((row) => row.map(() => 1));
    const pi = contextProbs ?? H.map(() => 1 / H.length);
    const groups = contextGroups ?? H.map((_, j) => j);
    let entropy = 0;
    P.forEach((row, j) => row.forEach((p) => (entropy -= p > 0 ? pi[j] * p * Math.log(p) : 0)));
    return { H, P, V, T, counts, pi, groups, entropy, size: T[0].length * H[0].length };
  }

  /** (t_i − t_j) hᵀ, flat. */
  function pairFeature({ T }, i, j, h) {
    const q = h.length;
    const feature = zeros(T[i].length * q);
    for (let a = 0; a < T[i].length; a++) for (let b = 0; b < q; b++) feature[a * q + b] = (T[i][a] - T[j][a]) * h[b];
    return feature;
  }

  // -- the order of tokens ------------------------------------------------------------------------

  /** Ties i ≍ j and strict pairs i ⇒ j as {group, i, j, feature}, one representative a component. */
  function tokenPriority(data) {
    const { V, P, counts, groups, H } = data;
    const names = [...new Set(groups)].sort((a, b) => a - b);
    const components = new Map(); // group → smallest token of each token's component, −1 outside
    const equal = [];
    const strict = [];
    for (const group of names) {
      const rows = groups.flatMap((g, j) => (g === group ? [j] : []));
      const h = H[rows[0]];
      const reach = Array.from({ length: V }, (_, v) => Array.from({ length: V }, (_, u) => u === v));
      const node = Array(V).fill(false);
      for (const j of rows)
        counts[j].forEach((c, v) => {
          if (c > 0) node[v] = true;
          P[j].forEach((p, z) => (reach[z][v] ||= p > 0 && c > 0));
        });
      for (let k = 0; k < V; k++)
        for (let i = 0; i < V; i++)
          for (let j = 0; j < V; j++) reach[i][j] ||= reach[i][k] && reach[k][j];
      const label = reach.map((row, v) => (node[v] ? row.findIndex((yes, u) => yes && reach[u][v]) : -1));
      components.set(group, label);
      const pair = (i, j) => ({ group, i, j, feature: pairFeature(data, i, j, h) });
      label.forEach((i, v) => i >= 0 && i !== v && equal.push(pair(i, v)));
      const seen = new Set();
      for (const j of rows) {
        const winner = label[P[j].findIndex((p) => p > 0)];
        counts[j].forEach((c, v) => {
          if (c > 0 && label[v] !== winner) seen.add(winner * V + label[v]);
        });
      }
      for (const code of [...seen].sort((a, b) => a - b)) strict.push(pair(Math.floor(code / V), code % V));
    }
    return { groups: names, components, equal, strict };
  }

  // -- coordinates: u in the tied subspace F, w off it --------------------------------------------

  /** Candidates whose logits, relative to their row's anchor, are offset + slopes · (u, w).

      Logits of tied tokens depend on u alone, so that they keep their digits when w is huge. */
  function coordinates(data, order = tokenPriority(data)) {
    const { H, P, V, counts, groups, pi, size } = data;
    const F = orthonormal(order.equal.map((k) => k.feature));
    const offF = orthonormal(order.strict.map((k) => k.feature), F);
    const basis = [...F, ...offF];
    const rows = H.map((h, j) => {
      const label = order.components.get(groups[j]);
      const anchor = P[j].findIndex((p) => p > 0);
      const candidates = [];
      for (let v = 0; v < V; v++) {
        if (!(counts[j][v] > 0)) continue;
        const feature = pairFeature(data, v, anchor, h);
        const tied = label[v] === label[anchor];
        candidates.push({
          token: v,
          p: P[j][v],
          tied,
          offset: Math.log(counts[j][v] / counts[j][anchor]),
          slopes: vector(basis.length, (i) => (tied && i >= F.length ? 0 : dot(basis[i], feature))),
        });
      }
      return { pi: pi[j], anchor, candidates, probs: zeros(candidates.length) };
    });
    return { data, order, F, offF, basis, rows, dim: basis.length, size };
  }

  const toWeights = (coords, y) => combine(y, coords.basis, coords.size);
  const toCoordinates = (coords, W) => vector(coords.dim, (i) => dot(coords.basis[i], W));

  /** Logits of a row's candidates, relative to its anchor. */
  const rowLogits = ({ candidates }, y) => vector(candidates.length, (i) => candidates[i].offset + dot(candidates[i].slopes, y));

  const largestOf = (x) => x.reduce((largest, one) => (one > largest ? one : largest), -Infinity);

  /** Probabilities of a row's candidates; the array is the row's own and used again. */
  function rowProbs({ candidates, probs }, y) {
    let largest = -Infinity;
    for (let i = 0; i < candidates.length; i++) {
      const { offset, slopes } = candidates[i];
      let x = offset;
      for (let a = 0; a < y.length; a++) x += slopes[a] * y[a];
      probs[i] = x;
      if (x > largest) largest = x;
    }
    let total = 0;
    for (let i = 0; i < probs.length; i++) total += probs[i] = Math.exp(probs[i] - largest);
    for (let i = 0; i < probs.length; i++) probs[i] /= total;
    return probs;
  }

  /** Gradient of the loss in coordinates. */
  function slope(coords, y) {
    const g = zeros(coords.dim);
    for (const row of coords.rows) {
      const q = rowProbs(row, y);
      for (let i = 0; i < q.length; i++) {
        const { p, slopes } = row.candidates[i];
        const force = row.pi * (q[i] - p);
        for (let a = 0; a < g.length; a++) g[a] += force * slopes[a];
      }
    }
    return g;
  }

  /** Hessian of the loss in coordinates. */
  function curvature(coords, y) {
    const n = coords.dim;
    const B = Array.from({ length: n }, () => zeros(n));
    for (const row of coords.rows) {
      const q = rowProbs(row, y);
      const mean = zeros(n);
      for (let i = 0; i < q.length; i++) add(mean, q[i], row.candidates[i].slopes);
      for (let i = 0; i < q.length; i++) {
        const { slopes } = row.candidates[i];
        for (let a = 0; a < n; a++) {
          const force = row.pi * q[i] * (slopes[a] - mean[a]);
          for (let b = 0; b <= a; b++) B[a][b] += force * (slopes[b] - mean[b]);
        }
      }
    }
    for (let a = 0; a < n; a++) for (let b = 0; b < a; b++) B[b][a] = B[a][b];
    return B;
  }

  /** eˣ − 1 − x to full relative accuracy. */
  function expMinusLinear(x) {
    if (Math.abs(x) >= 0.3) return Math.expm1(x) - x;
    let series = 0;
    for (let k = 13; k >= 2; k--) series = (1 + series) * (x / k);
    return x * series;
  }

  const logSumExp = (x) => {
    const largest = Math.max(...x);
    return largest === -Infinity ? largest : largest + Math.log(x.reduce((sum, one) => sum + Math.exp(one - largest), 0));
  };

  /** Cross-entropy minus entropy as a sum of nonnegative terms: nothing is subtracted. */
  function excessLoss(coords, y) {
    let excess = 0;
    for (const row of coords.rows) {
      const x = rowLogits(row, y);
      const inside = [];
      const outside = [];
      row.candidates.forEach((c, i) => (c.p > 0 ? inside : outside).push({ p: c.p, x: x[i] }));
      const delta = inside.map((c) => c.x - Math.log(c.p));
      const mean = inside.reduce((sum, c, i) => sum + c.p * delta[i], 0);
      let divergence = Math.log1p(inside.reduce((sum, c, i) => sum + c.p * expMinusLinear(delta[i] - mean), 0));
      if (divergence === Infinity) divergence = logSumExp(inside.map((c, i) => delta[i] - mean + Math.log(c.p)));
      const lead = logSumExp(outside.map((c) => c.x)) - logSumExp(inside.map((c) => c.x));
      const cost = lead > 0 ? lead + Math.log1p(Math.exp(-lead)) : Math.log1p(Math.exp(lead));
      excess += row.pi * (divergence + cost);
    }
    return excess;
  }

  const crossEntropy = (coords, y) => coords.data.entropy + excessLoss(coords, y);

  /** Gradient of the cross-entropy as a flat matrix. */
  const gradient = (coords, y) => toWeights(coords, slope(coords, y));

  // -- the finite part ----------------------------------------------------------------------------

  /** Minimise the loss of the tied tokens over F: least squares if they are compatible, else Newton. */
  function finitePart(coords) {
    const dim = coords.F.length;
    const rows = coords.rows.map((row) => {
      const candidates = row.candidates.filter((c) => c.tied).map((c) => ({ ...c, slopes: c.slopes.slice(0, dim) }));
      return { ...row, candidates, probs: zeros(candidates.length) };
    });
    const tied = { ...coords, rows, dim };
    const ties = rows.flatMap((row) => {
      const p = row.candidates.find((c) => c.token === row.anchor).p;
      return row.candidates
        .filter((c) => c.token !== row.anchor && c.p > 0)
        .map((c) => ({ slopes: c.slopes, goal: Math.log(c.p / p) - c.offset }));
    });
    const allOccur = rows.every((row) => row.candidates.every((c) => c.p > 0));
    const goals = vector(ties.length, (k) => ties[k].goal);
    let u = zeros(dim);
    let exact = dim === 0;
    if (dim && ties.length >= dim) {
      const fit = leastSquares(transpose(ties.map((tie) => tie.slopes), dim), goals).c;
      exact = allOccur && logOddsError(rows, fit) <= COMPATIBLE;
      if (exact || excessLoss(tied, fit) < excessLoss(tied, u)) u = fit;
    }
    if (!exact) u = newton(tied, u); // the odds of a cycle of labels are in no row
    const residual = logOddsError(rows, u);
    const y = vector(coords.dim, (i) => (i < dim ? u[i] : 0));
    return {
      y,
      W: toWeights(coords, y),
      gradientNorm: norm(slope(tied, u)),
      residual,
      compatible: allOccur && residual <= COMPATIBLE,
    };
  }

  /** Largest deviation of an in-support log-odds of a row from its target, in nats. */
  function logOddsError(rows, u) {
    let largest = 0;
    for (const row of rows) {
      const x = rowLogits(row, u);
      const errors = row.candidates.flatMap((c, i) => (c.p > 0 ? [x[i] - Math.log(c.p)] : []));
      largest = Math.max(largest, Math.max(...errors) - Math.min(...errors));
    }
    return largest;
  }

  /** Damped Newton steps until the gradient's norm no longer halves. */
  function newton(tied, start) {
    let u = start;
    let g = slope(tied, u);
    for (let k = 0; k < 200; k++) {
      const B = curvature(tied, u);
      const most = Math.max(...B.map((row, i) => row[i]));
      B.forEach((row, i) => (row[i] += 1e-16 * most));
      const step = solveCholesky(cholesky(B), g);
      const loss = excessLoss(tied, u);
      const enough = 1e-4 * dot(step, g);
      let size = 1;
      while (size > 1e-10 && !(excessLoss(tied, add(u.slice(), -size, step)) <= loss - size * enough + 1e-14)) size /= 2;
      const next = add(u.slice(), -size, step);
      const nextSlope = slope(tied, next);
      if (norm(g) < 1e-9 && !(norm(nextSlope) < norm(g) / 2)) break;
      u = next;
      g = nextSlope;
    }
    return u;
  }

  /** Ties that contradict each other: weights with Σ weight · feature = 0 and Σ weight · goal ≠ 0.

      The shortest that elimination finds; empty where all log-odds can be met. In nats. */
  function contradictingTies(coords) {
    const { data } = coords;
    const independent = [];
    const units = [];
    let best = null;
    coords.rows.forEach((row, j) => {
      const anchor = row.candidates.find((c) => c.token === row.anchor);
      for (const c of row.candidates) {
        if (c === anchor || !(c.p > 0)) continue;
        const feature = pairFeature(data, c.token, row.anchor, data.H[j]);
        const tie = { row: j, i: row.anchor, j: c.token, feature, goal: Math.log(c.p / anchor.p) - c.offset };
        const rest = reject(feature, units);
        const left = norm(rest);
        if (left > RANK * norm(feature)) {
          units.push(rest.map((x) => x / left));
          independent.push(tie);
          continue;
        }
        const weights = leastSquares(independent.map((one) => one.feature), feature).c;
        const gap = tie.goal - independent.reduce((sum, one, k) => sum + weights[k] * one.goal, 0);
        const parts = [{ ...tie, weight: 1 }];
        independent.forEach((one, k) => Math.abs(weights[k]) > 1e-9 && parts.push({ ...one, weight: -weights[k] }));
        if (Math.abs(gap) > COMPATIBLE && (!best || parts.length < best.ties.length)) best = { gap, ties: parts };
      }
    });
    return best ?? { gap: 0, ties: [] };
  }

  // -- the max-margin direction -------------------------------------------------------------------

  /** Nonnegative least squares by Lawson and Hanson's active set: min ‖Σ u_k columns_k − goal‖. */
  function nonnegativeLeastSquares(columns, goal) {
    const u = zeros(columns.length);
    const passive = [];
    let rest = goal.slice();
    let banned = -1;
    for (let round = 0; round < 20 * columns.length + 20; round++) {
      let entering = -1;
      let most = 1e-13 * norm(rest) + 1e-15;
      columns.forEach((column, k) => {
        const pull = passive.includes(k) || k === banned ? 0 : dot(column, rest) / (norm(column) || 1);
        if (pull > most) [most, entering] = [pull, k];
      });
      if (entering < 0) break;
      passive.push(entering);
      banned = -1;
      for (;;) {
        const { c } = leastSquares(passive.map((k) => columns[k]), goal);
        if (c[passive.indexOf(entering)] <= 0 && u[entering] === 0) banned = entering; // rounding
        let share = 1;
        passive.forEach((k, i) => {
          if (c[i] <= 0) share = Math.min(share, u[k] / (u[k] - c[i]) || 0);
        });
        passive.forEach((k, i) => (u[k] = c[i] > 0 || share < 1 ? u[k] + share * (c[i] - u[k]) : 0));
        if (share === 1 && c.every((one) => one > 0)) break;
        for (let i = passive.length - 1; i >= 0; i--)
          if (c[i] <= 0 && u[passive[i]] <= 1e-15 * Math.max(...u)) u[passive.splice(i, 1)[0]] = 0;
        if (!passive.length) break;
      }
      rest = add(goal.slice(), -1, combine(u, columns, goal.length));
    }
    return { u, passive, rest };
  }

  /** The smallest W with ties met and strict pairs one apart, or the proof that there is none.

      Least distance programming (Lawson & Hanson 1974, ch. 23): min ‖w‖ with G w ≥ b is a
      nonnegative least squares problem; where its residual vanishes, its weights contradict. */
  function maxMargin(coords) {
    const { order, F, offF } = coords;
    const { strict } = order;
    const r = offF.length;
    const none = { W: zeros(coords.size), norm: 0, multipliers: zeros(strict.length), separable: true };
    if (!strict.length) return { ...none, kktResidual: 0, minMargin: Infinity };
    const lengths = strict.map((k) => norm(k.feature));
    if (lengths.some((length) => length === 0)) {
      const at = lengths.indexOf(0);
      const certificate = vector(strict.length, (k) => Number(k === at));
      return { ...none, W: null, separable: false, certificate, residual: 0 };
    }
    const shortest = Math.min(...lengths);
    const G = strict.map((k, i) => vector(r, (a) => dot(offF[a], k.feature) / lengths[i]));
    const b = lengths.map((length) => shortest / length); // margins in units that no length changes
    const goal = zeros(r + 1);
    goal[r] = 1;
    const { u, passive, rest } = nonnegativeLeastSquares(G.map((g, k) => vector(r + 1, (i) => (i < r ? g[i] : b[k]))), goal);
    if (norm(rest) <= INFEASIBLE) return { ...none, W: null, separable: false, ...contradiction(coords, u, lengths) };

    // Once more with the pairs that carry a weight alone, as equations.
    const active = passive.filter((k) => u[k] > 0);
    const margins = vector(active.length, (i) => b[active[i]]);
    const { w, multipliers: mu } = smallestWith(active.map((k) => G[k]), margins, r);
    const multipliers = zeros(strict.length);
    active.forEach((k, i) => (multipliers[k] = Math.max(0, mu[i]) / (shortest * lengths[k])));
    const y = vector(coords.dim, (i) => (i < F.length ? 0 : w[i - F.length] / shortest));
    const W = toWeights(coords, y);
    return { y, W, norm: norm(W), multipliers, separable: true, ...residuals(coords, W, multipliers) };
  }

  /** The smallest w with G w = b for independent rows of G, as Σ μ_k G_k. */
  function smallestWith(G, b, r) {
    const multipliers = zeros(G.length);
    let w = zeros(r);
    const L = cholesky(G.map((g) => vector(G.length, (k) => dot(g, G[k]))));
    for (let pass = 0; pass < 4; pass++) {
      add(multipliers, 1, solveCholesky(L, b.map((one, k) => one - dot(G[k], w))));
      w = combine(multipliers, G, r);
    }
    return { w, multipliers };
  }

  /** How far W is from optimal, recomputed from data and multipliers: see MarginSolution. */
  function residuals({ data, order }, W, multipliers) {
    const size = norm(W);
    const reach = (k) => Math.max(1, size * norm(data.H[data.groups.indexOf(k.group)]) * tokenLength(data, k));
    const margins = order.strict.map((k) => dot(k.feature, W));
    let worst = 0;
    for (const k of order.equal) worst = Math.max(worst, Math.abs(dot(k.feature, W)) / reach(k));
    order.strict.forEach((k, i) => (worst = Math.max(worst, (1 - margins[i]) / reach(k))));
    const slack = order.strict.reduce((sum, k, i) => sum + (multipliers[i] * Math.abs(1 - margins[i])) / reach(k), 0);
    const total = multipliers.reduce((sum, one) => sum + one, 0);
    return { kktResidual: Math.max(worst, slack / total), minMargin: Math.min(...margins) };
  }

  const tokenLength = ({ T }, { i, j }) => Math.min(1, norm(T[i].map((t, a) => t - T[j][a])));

  /** Weights λ ≥ 0 of strict pairs, with sum one, whose combination vanishes off F (Farkas). */
  function contradiction(coords, u, lengths) {
    const { order, offF } = coords;
    const scaled = u.map((one, k) => one / lengths[k]);
    const kept = [...scaled.keys()].filter((k) => scaled[k] > 1e-9 * Math.max(...scaled));
    const off = (k) => vector(offF.length, (i) => dot(offF[i], order.strict[k].feature));
    // The first pair's weight stays; the others' solve the equations once more.
    const certificate = zeros(scaled.length);
    for (const k of kept) certificate[k] = scaled[k];
    const rest = kept.slice(1);
    if (rest.length) {
      const goal = off(kept[0]).map((x) => -certificate[kept[0]] * x);
      const { c } = leastSquares(rest.map(off), goal);
      if (c.every((one) => one > 0)) rest.forEach((k, i) => (certificate[k] = c[i]));
    }
    const total = certificate.reduce((sum, one) => sum + one, 0);
    certificate.forEach((one, k) => (certificate[k] = one / total));
    const left = combine(certificate, [...certificate.keys()].map(off), offF.length);
    const size = certificate.reduce((sum, one, k) => sum + one * lengths[k], 0);
    return { certificate, residual: norm(left) / size };
  }

  // -- training -----------------------------------------------------------------------------------

  /** Angle in radians, accurate near 0 and π (Kahan). */
  function angle(W, direction) {
    const a = norm(W);
    const b = norm(direction);
    let apart = 0;
    let along = 0;
    for (let i = 0; i < W.length; i++) {
      apart += (W[i] / a - direction[i] / b) ** 2;
      along += (W[i] / a + direction[i] / b) ** 2;
    }
    return 2 * Math.atan2(Math.sqrt(apart), Math.sqrt(along));
  }

  /** Numbers 0, 1, … that a logarithmic grid with `each` per decade asks for, up to `last`. */
  function logarithmicGrid(last, each) {
    const grid = [0];
    for (let i = 0; i <= Math.log10(last) * each + 1e-9; i++) {
      const k = Math.round(10 ** (i / each));
      if (k > grid.at(-1)) grid.push(k);
    }
    if (grid.at(-1) < last) grid.push(last);
    return grid;
  }

  /** One step of each method, from step number, coordinates y, matrix W (Adam alone) and gradient. */
  const METHODS = {
    GD: ({ step }) => (k, g) => g.map((x) => step * x),
    NGD: ({ step }) => (k, g) => {
      const size = norm(g);
      return g.map((x) => (size > 0 ? (step * x) / size : 0));
    },
    Adam: ({ step, beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8 }) => {
      let mean, square;
      return (k, g) => {
        mean ??= zeros(g.length);
        square ??= zeros(g.length);
        return g.map((x, i) => {
          mean[i] = beta1 * mean[i] + (1 - beta1) * x;
          square[i] = beta2 * square[i] + (1 - beta2) * x * x;
          return ((step / (1 - beta1 ** k)) * mean[i]) / (Math.sqrt(square[i] / (1 - beta2 ** k)) + epsilon);
        });
      };
    },
  };

  /** Steps of a gradient method from W0; W is recorded at the steps asked for.

      Gradients lie in the span of the coordinates, so all but Adam's steps are taken there. */
  function descend(coords, { method = "GD", ...settings }, record, W0 = zeros(coords.size)) {
    const move = METHODS[method](settings);
    const whole = method === "Adam";
    let W = W0.slice();
    let y = toCoordinates(coords, W);
    const still = add(W.slice(), -1, toWeights(coords, y)); // what no gradient touches
    const points = [];
    let done = 0;
    for (const until of record) {
      for (; done < until; done++) {
        const g = slope(coords, y);
        if (whole) {
          add(W, -1, move(done + 1, toWeights(coords, g)));
          y = toCoordinates(coords, W);
        } else add(y, -1, move(done + 1, g));
      }
      if (!whole) W = add(toWeights(coords, y), 1, still);
      points.push({ time: until, y: y.slice(), W: W.slice() });
    }
    return points;
  }

  // RODAS (Hairer & Wanner, Solving ODEs II, sec. IV.7): six stages, order four, stiffly accurate.
  const GAMMA = 0.25;
  const NODES = [0, 0.386, 0.21, 0.63, 1, 1];
  const SLOPE_IN_TIME = [0.25, -0.1043, 0.1035, -0.0362, 0, 0];
  const A = [
    [],
    [1.544],
    [0.9466785280815826, 0.2557011698983284],
    [3.314825187068521, 2.896124015972201, 0.9986419139977817],
    [1.221224509226641, 6.019134481288629, 12.53708332932087, -0.687886036105895],
  ];
  A.push([...A[4], 1]);
  const C = [
    [],
    [-5.6688],
    [-2.430093356833875, -0.2063599157091915],
    [-0.1073529058151375, -9.594562251023355, -20.47028614809616],
    [7.496443313967647, -10.24680431464352, -33.99990352819905, 11.7089089320616],
    [8.083246795921522, -7.981132988064893, -31.52159432874371, 16.31930543123136, -6.058818238834054],
  ];

  /** Gradient flow dW/dt = −∇CE from W0, recorded at increasing natural logarithms of t.

      In s = log(1 + t) it reads dy/ds = −eˢ ∇(y), whose Jacobian is −eˢ times the loss's Hessian. */
  function gradientFlow(coords, logTimes, W0 = zeros(coords.size), tolerance = 1e-8) {
    const n = coords.dim;
    let y = toCoordinates(coords, W0);
    const still = add(W0.slice(), -1, toWeights(coords, y));
    const velocity = (s, state) => add(zeros(n), -Math.exp(s), slope(coords, state));
    let s = 0;
    let natural = 1e-3; // step that the tolerance asks for
    return Array.from(logTimes, (logTime) => {
      const end = logTime > 0 ? logTime + Math.log1p(Math.exp(-logTime)) : Math.log1p(Math.exp(logTime));
      for (let tries = 0; s < end && tries < 5000; tries++) {
        const h = Math.min(natural, end - s);
        const now = velocity(s, y);
        const M = curvature(coords, y);
        for (let i = 0; i < n; i++) for (let j = 0; j < n; j++) M[i][j] = M[i][j] * Math.exp(s) + (i === j ? 1 / (GAMMA * h) : 0);
        const L = cholesky(M);
        const U = [];
        let at = y;
        for (let i = 0; i < 6; i++) {
          at = y.slice();
          A[i].forEach((a, j) => add(at, a, U[j]));
          const right = i ? velocity(s + NODES[i] * h, at) : now.slice();
          C[i].forEach((c, j) => add(right, c / h, U[j]));
          add(right, h * SLOPE_IN_TIME[i], now); // ∂/∂s of the velocity is the velocity itself
          U.push(solveCholesky(L, right));
        }
        let error = 0;
        for (let i = 0; i < n; i++) error = Math.max(error, Math.abs(U[5][i]) / (tolerance * (1 + Math.abs(y[i]))));
        const factor = Number.isFinite(error) ? Math.min(5, Math.max(0.2, 0.9 * Math.max(error, 1e-8) ** -0.25)) : 0.2;
        if (error <= 1) {
          y = add(at, 1, U[5]);
          s = end - s - h < 1e-14 * end ? end : s + h;
          if (h < natural) natural = Math.max(natural, h * factor);
          else natural *= factor;
        } else natural = h * Math.min(0.5, factor);
      }
      return { time: Math.exp(logTime), y: y.slice(), W: add(toWeights(coords, y), 1, still) };
    });
  }

  return {
    nextTokenData, tokenPriority, coordinates, toWeights, toCoordinates, crossEntropy, excessLoss, gradient,
    finitePart, contradictingTies, maxMargin, angle, logarithmicGrid, descend, gradientFlow, norm, dot,
  };
})();
