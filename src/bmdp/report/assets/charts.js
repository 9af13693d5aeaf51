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
  let low = Math.min(...all);
  let high = Math.max(...all);
  if (zero || (low > 0 && low < 0.35 * high)) low = Math.min(low, 0);
  const extra = (high - low || Math.abs(high) || 1) * room;
  high += extra;
  return [low < 0 || !(zero || low === 0) ? low - extra : low, high];
}

function path(layer, name, xs, ys) {
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

/** Frontier at the start, the true one, the mixture and what came of it. */
function frontierChart(data, choose) {
  const { frontier, truth, budgets, choices, realised } = data;
  const costs = [...frontier.costs, ...budgets, ...realised.cost_high, ...(truth?.costs ?? [])];
  const rewards = [...frontier.rewards, ...realised.reward_low, ...realised.reward_high, ...(truth?.rewards ?? [])];
  const x = span(costs, { zero: true, room: 0.02 });
  const y = span(rewards);
  let index = 0;
  let place = null;
  const chart = drawing(290, draw, { class: "chart frontier-chart" });

  function draw(node, width, height) {
    place = axes(node, { width, height }, { x, y, xName: "expected cost", yName: "expected reward" });
    const { layer, toX, toY, top, bottom } = place;
    const map = (curve) => [curve.costs.map(toX), curve.rewards.map(toY)];
    if (truth) path(layer, "truth", ...map(truth));
    const [xs, ys] = map(frontier);
    path(layer, "predicted", xs, ys);
    xs.forEach((cx, i) => layer.append(svg("circle", { class: "vertex", cx, cy: ys[i], r: 3.5 })));
    const [choice, asked] = [choices[index], toX(budgets[index])];
    layer.append(svg("line", { class: "asked", x1: asked, x2: asked, y1: top, y2: bottom }));
    const ends = [choice.lower, choice.upper];
    path(layer, "chosen", ends.map((i) => xs[i]), ends.map((i) => ys[i]));
    for (const i of new Set(ends)) layer.append(svg("circle", { class: "end", cx: xs[i], cy: ys[i], r: 6 }));
    layer.append(svg("circle", { class: "mixture", cx: toX(choice.cost), cy: toY(choice.reward), r: 9 }));
    const at = (name) => (isNumber(realised[name][index]) ? realised[name][index] : null);
    if (at("cost") !== null && at("reward") !== null) {
      const [cx, cy] = [toX(at("cost")), toY(at("reward"))];
      const across = { left: bound("cost_low", toX), right: bound("cost_high", toX) };
      cross(layer, { x: cx, y: cy, low: bound("reward_low", toY), high: bound("reward_high", toY), ...across });
      layer.append(svg("polygon", { class: "realised", points: diamond(cx, cy, 6.5) }));
    }
  }
  function bound(name, map) {
    return isNumber(realised[name][index]) ? map(realised[name][index]) : null;
  }
  dragging(chart.node, () => place, budgets, choose);
  return {
    node: chart.node,
    show(i) {
      index = i;
      const c = choices[i];
      chart.say(
        `Frontier at the start: reward ${brief(frontier.rewards[0])} at cost ${fixed(frontier.costs[0])} up to ` +
          `${brief(frontier.rewards.at(-1))} at ${fixed(frontier.costs.at(-1))}. At budget ${fixed(budgets[i])} the mixture ` +
          `promises cost ${fixed(c.cost)} and reward ${brief(c.reward)}; realised are cost ${fixed(realised.cost[i])} ` +
          `and reward ${brief(realised.reward[i])}.`,
      );
      chart.again();
    },
  };
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

/** Asked against realised cost: on the diagonal the dial tells the truth. */
function honestyChart({ budgets, realised }, choose) {
  const costs = [...budgets, ...realised.cost, ...realised.cost_high];
  const range = span(costs, { zero: true, room: 0.03 });
  let index = 0;
  let place = null;
  const chart = drawing(216, draw, { class: "chart" });

  function draw(node, width, height) {
    const names = { xName: "asked budget", yName: "realised cost", yTicks: 4 };
    place = axes(node, { width, height }, { x: range, y: range, ...names });
    const { layer, toX, toY, top, bottom } = place;
    path(layer, "truth", range.map(toX), range.map(toY));
    budgets.forEach((budget, i) => {
      const [low, high] = [realised.cost_low[i], realised.cost_high[i]];
      if (!isNumber(low) || !isNumber(high)) return;
      layer.append(svg("line", { class: "whisker", x1: toX(budget), x2: toX(budget), y1: toY(low), y2: toY(high) }));
    });
    const seen = budgets.map((budget, i) => i).filter((i) => isNumber(realised.cost[i]));
    path(layer, "course", seen.map((i) => toX(budgets[i])), seen.map((i) => toY(realised.cost[i])));
    const asked = toX(budgets[index]);
    layer.append(svg("line", { class: "asked", x1: asked, x2: asked, y1: top, y2: bottom }));
    if (isNumber(realised.cost[index])) {
      layer.append(svg("polygon", { class: "realised", points: diamond(asked, toY(realised.cost[index]), 7) }));
    }
  }
  dragging(chart.node, () => place, budgets, choose);
  return {
    node: chart.node,
    show(i) {
      index = i;
      chart.say(`Asked against realised cost: at budget ${fixed(budgets[i])} the cost is ${fixed(realised.cost[i], 3)}.`);
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
