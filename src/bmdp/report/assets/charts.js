// Charts of the dial and of films: axes, the frontier, asked against realised, a line by round.

/** Axes with light lines: returns the layer to draw on, and both scales. */
function axes(node, size, { x, y, xName, yName, yTicks = 5, xStep = 0 }) {
  const { width, height } = size;
  const yMarks = ticks(...y, yTicks);
  const letters = Math.max(...yMarks.map((tick) => tick.text.length));
  const left = 14 + 7 * letters;
  const [right, top, bottom] = [14, 24, 40];
  const toX = scale(x, [left, width - right]);
  const toY = scale(y, [height - bottom, top]);
  const grid = svg("g", { class: "grid" });
  for (const { value, text } of yMarks) {
    const at = toY(value);
    grid.append(svg("line", { x1: left, x2: width - right, y1: at, y2: at }));
    grid.append(svg("text", { x: left - 8, y: at, dy: "0.32em", "text-anchor": "end" }, text));
  }
  for (const { value, text } of ticks(...x, clamp(Math.floor(width / 70), 2, 10), xStep)) {
    const at = toX(value);
    grid.append(svg("line", { class: "faint", x1: at, x2: at, y1: top, y2: height - bottom }));
    grid.append(svg("text", { x: at, y: height - bottom + 18, "text-anchor": "middle" }, text));
  }
  grid.append(svg("text", { class: "name", x: 4, y: 12 }, yName));
  const end = { class: "name", x: width - right, y: height - 6, "text-anchor": "end" };
  grid.append(svg("text", end, xName));
  const layer = svg("g");
  node.replaceChildren(grid, layer);
  return { layer, toX, toY, top, bottom: height - bottom };
}

const points = (xs, ys) => xs.map((x, i) => `${x.toFixed(1)},${ys[i].toFixed(1)}`).join(" ");

/** An interval of values with room around them, from zero where that is near. */
function span(values, { room = 0.06, zero = false } = {}) {
  const all = known(values);
  if (all.length === 0) return [0, 1];
  let low = Math.min(...all);
  let high = Math.max(...all);
  if (zero || (low > 0 && low < 0.35 * high)) low = Math.min(low, 0);
  const extra = (high - low || Math.abs(high) || 1) * room;
  high += extra;
  return [low < 0 || !(zero || low === 0) ? low - extra : low, high];
}

function path(layer, name, xs, ys) {
  if (xs.length === 0) return;
  layer.append(svg("polyline", { class: name, points: points(xs, ys) }));
}

/** A box of the interval in cost and reward, as a cross with caps. */
function cross(layer, { x, y, low, high, left, right }) {
  const group = svg("g", { class: "interval" });
  const line = (x1, y1, x2, y2) => group.append(svg("line", { x1, y1, x2, y2 }));
  if (isNumber(left) && isNumber(right)) {
    line(left, y, right, y);
    for (const end of [left, right]) line(end, y - 4, end, y + 4);
  }
  if (isNumber(low) && isNumber(high)) {
    line(x, low, x, high);
    for (const end of [low, high]) line(x - 4, end, x + 4, end);
  }
  layer.append(group);
}

const diamond = (x, y, r) => `${x},${y - r} ${x + r},${y} ${x},${y + r} ${x - r},${y}`;

/** Reward against cost: the frontier of a state, the mixture there, and what came of the whole policy. */
function frontierChart(data, choose) {
  const { truth, budgets, realised, forecast } = data;
  const baselines = (data.baselines ?? []).map((one, i) => ({ ...one, kind: i })).filter((one) => !one.is_far);
  const digits = digitsOf(budgets);
  let index = 0;
  let at = { frontier: data.frontier, choices: data.choices, isStart: true };
  let place = null;
  const chart = drawing(330, draw, { class: "chart frontier-chart" });
  const whole = () => (at.isStart ? [realised, forecast].filter(Boolean) : []);
  const curves = () => (at.isStart ? [truth, ...baselines] : []).concat(at.frontier).filter(Boolean);

  function range(name) {
    const means = whole().flatMap((one) => ["", "_low", "_high"].flatMap((end) => one[name + end] ?? []));
    return [...means, ...curves().flatMap((curve) => curve[`${name}s`])];
  }
  function draw(node, width, height) {
    const x = span([...range("cost"), ...budgets], { zero: true, room: 0.03 });
    const y = span(range("reward"));
    place = axes(node, { width, height }, { x, y, xName: "expected cost", yName: "expected reward" });
    const { layer, toX, toY, top, bottom } = place;
    const map = (curve) => [curve.costs.map(toX), curve.rewards.map(toY)];
    if (at.isStart) {
      if (truth) path(layer, "truth", ...map(truth));
      for (const one of baselines) drawBaseline(layer, one, place);
      for (const [found, kind] of [[forecast, "foreseen"], [realised, "course"]]) {
        const seen = found ? budgets.map((_, i) => i).filter((i) => isNumber(found.cost[i]) && isNumber(found.reward[i])) : [];
        path(layer, kind, seen.map((i) => toX(found.cost[i])), seen.map((i) => toY(found.reward[i])));
      }
    }
    const asked = toX(budgets[index]);
    layer.append(svg("line", { class: "asked", x1: asked, x2: asked, y1: top, y2: bottom }));
    if (at.frontier) drawMixture(layer, map(at.frontier), at.choices[index], toX, toY);
    if (!at.isStart) return;
    if (forecast && isNumber(forecast.cost[index])) {
      layer.append(svg("polygon", { class: "foretold", points: diamond(toX(forecast.cost[index]), toY(forecast.reward[index]), 6.5) }));
    }
    const of = (name) => (isNumber(realised[name][index]) ? realised[name][index] : null);
    if (of("cost") !== null && of("reward") !== null) {
      const bound = (name, to) => (of(name) === null ? null : to(of(name)));
      const [cx, cy] = [toX(of("cost")), toY(of("reward"))];
      const across = { left: bound("cost_low", toX), right: bound("cost_high", toX) };
      cross(layer, { x: cx, y: cy, low: bound("reward_low", toY), high: bound("reward_high", toY), ...across });
      layer.append(svg("polygon", { class: "realised", points: diamond(cx, cy, 6.5) }));
    }
  }
  function say() {
    const cost = (value) => fixed(value, digits);
    const told = [];
    if (at.frontier) {
      const [{ costs, rewards }, c] = [at.frontier, at.choices[index]];
      told.push(
        `Frontier: reward ${brief(rewards[0])} at cost ${cost(costs[0])} up to ${brief(rewards.at(-1))} at ${cost(costs.at(-1))}.`,
        `At budget ${cost(budgets[index])} the mixture promises cost ${cost(c.cost)} and reward ${brief(c.reward)}.`,
      );
    }
    if (at.isStart && forecast) told.push(`Forecast at budget ${cost(budgets[index])}: cost ${cost(forecast.cost[index])}, reward ${brief(forecast.reward[index])}.`);
    if (at.isStart) told.push(`Realised at budget ${cost(budgets[index])}: cost ${cost(realised.cost[index])}, reward ${brief(realised.reward[index])}.`);
    chart.say(told.join(" "));
  }
  dragging(chart.node, () => place, budgets, choose);
  return {
    node: chart.node,
    show(i) {
      index = i;
      say();
      chart.again();
    },
    /** Shows another state. */
    go(to) {
      at = to;
      say();
      chart.again();
    },
  };
}

/** The vertices of a state, and the two that are mixed. */
function drawMixture(layer, [xs, ys], choice, toX, toY) {
  path(layer, "predicted", xs, ys);
  xs.forEach((cx, i) => layer.append(svg("circle", { class: "vertex", cx, cy: ys[i], r: 3.5 })));
  const ends = [choice.lower, choice.upper];
  path(layer, "chosen", ends.map((i) => xs[i]), ends.map((i) => ys[i]));
  for (const i of new Set(ends)) layer.append(svg("circle", { class: "end", cx: xs[i], cy: ys[i], r: 6 }));
  layer.append(svg("circle", { class: "mixture", cx: toX(choice.cost), cy: toY(choice.reward), r: 9 }));
}

/** Something to compare with: a line, or a point with its interval. */
function drawBaseline(layer, { name, kind, costs, rewards, ...ends }, { toX, toY }) {
  const [xs, ys] = [costs.map(toX), rewards.map(toY)];
  if (xs.length > 1) return path(layer, "baseline", xs, ys);
  const [x, y] = [xs[0], ys[0]];
  const to = (end, map) => (isNumber(ends[end]) ? map(ends[end]) : null);
  const shape = kind % 2 ? `${x},${y - 6} ${x + 6},${y + 5} ${x - 6},${y + 5}` : `${x - 5},${y - 5} ${x + 5},${y - 5} ${x + 5},${y + 5} ${x - 5},${y + 5}`;
  const group = svg("g", { class: "baseline-point" }, svg("title", {}, name));
  cross(group, { x, y, left: to("cost_low", toX), right: to("cost_high", toX), low: to("reward_low", toY), high: to("reward_high", toY) });
  group.append(svg("polygon", { points: shape }));
  layer.append(group);
}

/** Lets a pointer choose the budget nearest to where it is. */
function dragging(node, place, budgets, choose) {
  let down = false;
  function move(event) {
    const from = node.getBoundingClientRect();
    const asked = place().toX.back(event.clientX - from.left);
    const distances = budgets.map((budget) => Math.abs(budget - asked));
    choose(distances.indexOf(Math.min(...distances)));
  }
  node.addEventListener("pointerdown", (event) => {
    down = true;
    move(event);
  });
  node.addEventListener("pointermove", (event) => down && move(event));
  for (const name of ["pointerup", "pointercancel", "pointerleave"]) {
    node.addEventListener(name, () => (down = false));
  }
}

/** Asked against realised or forecast cost: on the diagonal the dial tells the truth. */
function honestyChart({ budgets, realised, forecast }, choose) {
  const digits = digitsOf(budgets) + 1;
  const range = span([...budgets, ...realised.cost, ...realised.cost_high, ...(forecast?.cost ?? [])], { zero: true, room: 0.03 });
  let index = 0;
  let place = null;
  const chart = drawing(216, draw, { class: "chart" });

  function draw(node, width, height) {
    const names = { xName: "budget asked for", yName: "expected cost", yTicks: 4 };
    place = axes(node, { width, height }, { x: range, y: range, ...names });
    const { layer, toX, toY, top, bottom } = place;
    path(layer, "truth", range.map(toX), range.map(toY));
    budgets.forEach((budget, i) => {
      const [low, high] = [realised.cost_low[i], realised.cost_high[i]];
      if (!isNumber(low) || !isNumber(high)) return;
      layer.append(svg("line", { class: "whisker", x1: toX(budget), x2: toX(budget), y1: toY(low), y2: toY(high) }));
    });
    for (const [costs, kind] of [[forecast?.cost ?? [], "foreseen"], [realised.cost, "course"]]) {
      const seen = budgets.map((_, i) => i).filter((i) => isNumber(costs[i]));
      path(layer, kind, seen.map((i) => toX(budgets[i])), seen.map((i) => toY(costs[i])));
    }
    const asked = toX(budgets[index]);
    layer.append(svg("line", { class: "asked", x1: asked, x2: asked, y1: top, y2: bottom }));
    if (isNumber(forecast?.cost[index])) layer.append(svg("polygon", { class: "foretold", points: diamond(asked, toY(forecast.cost[index]), 7) }));
    if (isNumber(realised.cost[index])) {
      layer.append(svg("polygon", { class: "realised", points: diamond(asked, toY(realised.cost[index]), 7) }));
    }
  }
  dragging(chart.node, () => place, budgets, choose);
  return {
    node: chart.node,
    show(i) {
      index = i;
      const foretold = forecast ? `, forecast ${fixed(forecast.cost[i], digits)}` : "";
      chart.say(`Asked against paid: at budget ${fixed(budgets[i], digits - 1)} the realised cost is ${fixed(realised.cost[i], digits)}${foretold}.`);
      chart.again();
    },
  };
}

/** Shares of actions as stacked bars at places on an axis. */
function sharesChart({ names, xs, xName, yName, told }, choose = null) {
  let [index, columns] = [0, []];
  let place = null;
  const gap = Math.min(...xs.slice(1).map((x, i) => x - xs[i]), Infinity);
  const wide = Number.isFinite(gap) ? gap : 1;
  const x = [xs[0] - wide / 2, xs.at(-1) + wide / 2];
  const chart = drawing(196, draw, { class: "chart shares" });

  function draw(node, width, height) {
    place = axes(node, { width, height }, { x, y: [0, 100], xName, yName, yTicks: 2, xStep: choose ? 0 : 1 });
    const { layer, toX, toY } = place;
    const half = Math.max((toX(wide) - toX(0)) * 0.43, 0.5);
    columns.forEach((shares, i) => {
      let below = 0;
      const bar = svg("g", { class: choose && i === index ? "now" : null });
      shares.forEach((share, k) => {
        const box = { x: toX(xs[i]) - half, width: 2 * half, y: toY(100 * (below + share)), height: Math.max(toY(0) - toY(100 * share), 0) };
        below += share;
        if (share > 0) bar.append(svg("rect", { class: `s${k}`, ...box }, svg("title", {}, `${told(i)}: ${names[k]} ${percent(share)}`)));
      });
      if (choose && i === index) bar.append(svg("rect", { class: "ring", x: toX(xs[i]) - half - 2, width: 2 * half + 4, y: toY(100) - 2, height: toY(0) - toY(100) + 4 }));
      layer.append(bar);
    });
  }
  if (choose) dragging(chart.node, () => place, xs, choose);
  return {
    node: chart.node,
    show(i, to) {
      [index, columns] = [i, to];
      const rows = choose ? [[told(i), to[i]]] : [[told(0), to[0]], [told(to.length - 1), to.at(-1)]];
      chart.say(rows.map(([when, shares]) => `${when}: ${names.map((name, k) => `${name} ${percent(shares[k])}`).join(", ")}.`).join(" "));
      chart.again();
    },
  };
}

/** One number by round, with a mark at the round that is shown. */
function courseChart(name, values, kind) {
  let index = 0;
  const chart = drawing(170, draw, { class: `chart ${kind}` });
  const y = span(values, { zero: true });
  const x = [1, Math.max(values.length, 2)];

  function draw(node, width, height) {
    const { layer, toX, toY } = axes(node, { width, height }, { x, y, xName: "round", yName: name, yTicks: 3, xStep: 1 });
    const seen = values.map((value, i) => i).filter((i) => isNumber(values[i]));
    path(layer, "course", seen.map((i) => toX(i + 1)), seen.map((i) => toY(values[i])));
    if (isNumber(values[index])) {
      layer.append(svg("circle", { class: "mixture", cx: toX(index + 1), cy: toY(values[index]), r: 6 }));
    }
  }
  return {
    node: chart.node,
    show(i) {
      index = i;
      chart.say(`${name} by round: ${brief(values[i])} in round ${i + 1}.`);
      chart.again();
    },
  };
}
