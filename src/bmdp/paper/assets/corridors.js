// The map of corridors with ways on it, for the dial and for films.

const FIGURES = 0.2; // height of letters on the map, in cells

/** Colour of a way: from free to dear. */
const costColour = (share) => `color-mix(in oklab, var(--free), var(--dear) ${Math.round(100 * share)}%)`;

/**
 * The cells: gold where they pay, hatched where they cost, dark where there is a wall.
 *
 * Returns the SVG with a layer for ways, and one above what is written on the map.
 */
function corridorMap(layout) {
  const { columns, rows, cells, start } = layout;
  const most = Math.max(...cells.map((cell) => cell.reward), 1e-9);
  const hatch = svg(
    "pattern",
    { id: nextName("hatch"), width: 0.16, height: 0.16, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
    svg("rect", { class: "hatch", width: 0.05, height: 0.16 }),
  );
  const node = svg("svg", { class: "map", role: "img", viewBox: `0 0 ${columns} ${rows}` }, svg("defs", {}, hatch));
  const [ways, written, top] = [svg("g", { class: "ways" }), svg("g"), svg("g")];
  node.append(svg("rect", { class: "wall", width: columns, height: rows }));
  for (const cell of cells) {
    if (cell.kind === "wall") continue;
    const place = { x: cell.x, y: cell.y, width: 1, height: 1 };
    const floor = svg("rect", { class: "floor", ...place });
    const pay = Math.round(100 * Math.sqrt(Math.max(cell.reward, 0) / most));
    floor.style.fill = `color-mix(in oklab, var(--floor), var(--pay) ${pay}%)`;
    const told = `reward ${brief(cell.reward)}, cost ${fixed(cell.cost, 3)} a step`;
    node.append(svg("g", {}, svg("title", {}, told), floor));
    if (cell.cost > 0) node.append(svg("rect", { ...place, fill: `url(#${hatch.id})`, "pointer-events": "none" }));
    if (cell.reward > 0) {
      const text = { class: "pays", x: cell.x + 0.08, y: cell.y + 0.26, "font-size": FIGURES };
      written.append(svg("text", text, `+${Number(cell.reward.toFixed(1))}`));
    }
  }
  if (start) {
    const text = { class: "pays", x: start[0], y: start[1] + 0.4, "font-size": FIGURES, "text-anchor": "middle" };
    node.append(svg("circle", { class: "start", cx: start[0], cy: start[1], r: 0.16 }));
    written.append(svg("text", text, "start"));
  }
  node.append(ways, written, top);
  return { node, ways, top };
}

/** Legend of the map, with what the costs and rewards are. */
function mapKey(layout, most, more = []) {
  const short = (value) => String(Number(value.toFixed(3)));
  const range = (values) => {
    const [low, high] = [Math.min(...values), Math.max(...values)];
    return low === high ? short(low) : `${short(low)} to ${short(high)}`;
  };
  const paid = layout.cells.filter((cell) => cell.kind !== "wall" && cell.reward > 0).map((cell) => cell.reward);
  const dear = layout.cells.filter((cell) => cell.kind !== "wall" && cell.cost > 0).map((cell) => cell.cost);
  const entries = [];
  if (paid.length) entries.push(["m-pay", `pays ${range(paid)} a step`]);
  if (dear.length) entries.push(["m-cost", `costs ${range(dear)} a step`]);
  entries.push(["m-wall", "wall"], ["m-way", `way of an episode, by its cost: 0 to ${fixed(most)}`]);
  return key([...entries, ...more]);
}

/** Ways up to a time, each with a dot at its head. */
function wayLayer(layer) {
  let lines = [];
  function head({ x, y }, time) {
    const last = Math.min(Math.floor(time), x.length - 1);
    const share = last + 1 < x.length ? time - last : 0;
    const between = (v) => (share > 0 ? v[last] + share * (v[last + 1] - v[last]) : v[last]);
    const [atX, atY] = [between(x), between(y)];
    const xs = x.slice(0, last + 1);
    const ys = y.slice(0, last + 1);
    return { atX, atY, text: [...xs.map((v, i) => `${v.toFixed(3)},${ys[i].toFixed(3)}`), `${atX.toFixed(3)},${atY.toFixed(3)}`].join(" ") };
  }
  return {
    /** Takes other ways: `{x, y, share, text}`. */
    set(ways) {
      lines = ways.map((way) => {
        const colour = costColour(way.share);
        const line = svg("polyline", { class: "way" });
        const dot = svg("circle", { class: "head", r: 0.085 });
        line.style.stroke = dot.style.fill = colour;
        const group = svg("g", {}, svg("title", {}, way.text), line, dot);
        return { way, line, dot, group };
      });
      layer.replaceChildren(...lines.map(({ group }) => group));
    },
    draw(time, moved = null) {
      lines.forEach(({ way, line, dot }, i) => {
        const { atX, atY, text } = head(moved ? moved[i] : way, time);
        line.setAttribute("points", text);
        dot.setAttribute("cx", atX.toFixed(3));
        dot.setAttribute("cy", atY.toFixed(3));
      });
    },
    light(number) {
      lines.forEach(({ group }, i) => group.classList.toggle("dim", number !== null && i !== number));
    },
  };
}

const longer = (values, n) => [...values, ...Array(Math.max(n - values.length, 0)).fill(values.at(-1))];

/** Lets ways glide from where they were to where they are now. */
function gliding(layer) {
  let shown = [];
  let frame = 0;
  return function glide(ways, done) {
    cancelAnimationFrame(frame);
    const before = shown;
    shown = ways;
    const length = Math.max(...ways.map((way) => way.x.length), ...before.map((way) => way.x.length));
    if (still.matches || before.length !== ways.length) {
      layer.draw(length);
      return done();
    }
    const wide = (list) => list.map((way) => ({ x: longer(way.x, length), y: longer(way.y, length) }));
    const [from, to] = [wide(before), wide(ways)];
    const began = performance.now();
    const mix = (a, b, share) => a.map((v, i) => v + share * (b[i] - v));
    function tick(now) {
      const share = clamp((now - began) / 260, 0, 1);
      const eased = share * share * (3 - 2 * share);
      const between = to.map((way, i) => ({ x: mix(from[i].x, way.x, eased), y: mix(from[i].y, way.y, eased) }));
      layer.draw(length, between);
      if (share < 1) frame = requestAnimationFrame(tick);
      else done();
    }
    frame = requestAnimationFrame(tick);
  };
}

/** Where ways end: how many in each cell, and their mean cost. */
function endBadges(layer, ways) {
  const cells = new Map();
  for (const { x, y, cost } of ways) {
    const name = `${Math.floor(x.at(-1))},${Math.floor(y.at(-1))}`;
    cells.set(name, [...(cells.get(name) ?? []), cost]);
  }
  const texts = [...cells].map(([name, costs]) => {
    const [column, row] = name.split(",").map(Number);
    const plate = svg("rect", { x: column + 0.06, y: row + 0.7, width: 0.88, height: 0.25, rx: 0.1 });
    const place = { x: column + 0.5, y: row + 0.885, "font-size": 0.17, "text-anchor": "middle" };
    return svg("g", { class: "badge" }, plate, svg("text", place, `${costs.length} × ${fixed(mean(costs))}`));
  });
  layer.replaceChildren(...texts);
}

/** Costs of the episodes as stacked dots, with the budget and their mean. */
function costStrip(range, light) {
  let now = { ways: [], budget: 0 };
  let dots = [];
  const chart = drawing(92, draw, { class: "chart strip" });
  function draw(node, width, height) {
    const base = height - 34;
    const toX = scale(range, [12, width - 14]);
    const layer = svg("g");
    const line = svg("g", { class: "grid" }, svg("line", { x1: 12, x2: width - 14, y1: base + 5, y2: base + 5 }));
    for (const { value, text } of ticks(...range, clamp(Math.floor(width / 70), 2, 8))) {
      line.append(svg("text", { x: toX(value), y: base + 20, "text-anchor": "middle" }, text));
    }
    line.append(svg("text", { class: "name", x: width - 14, y: height - 2, "text-anchor": "end" }, "cost of each episode"));
    const stacks = new Map();
    const bins = now.ways.map(({ cost }) => Math.round(toX(cost) / 9));
    bins.forEach((bin) => stacks.set(bin, (stacks.get(bin) ?? 0) + 1));
    const step = Math.min(9, (base - 4) / Math.max(...stacks.values(), 1));
    const filled = new Map();
    dots = now.ways.map((way, i) => {
      const level = filled.get(bins[i]) ?? 0;
      filled.set(bins[i], level + 1);
      const place = { cx: bins[i] * 9, cy: base - level * step };
      const dot = svg("circle", { ...place, r: 4 }, svg("title", {}, way.text));
      dot.style.fill = costColour(way.share);
      dot.addEventListener("pointerenter", () => light(i));
      dot.addEventListener("pointerleave", () => light(null));
      layer.append(dot);
      return dot;
    });
    const asked = toX(clamp(now.budget, ...range));
    const average = toX(mean(now.ways.map(({ cost }) => cost)));
    const wedge = `${average},${base + 6} ${average - 5},${base + 14} ${average + 5},${base + 14}`;
    layer.append(svg("line", { class: "asked", x1: asked, x2: asked, y1: 2, y2: base + 5 }));
    layer.append(svg("polygon", { class: "average", points: wedge }));
    node.replaceChildren(line, layer);
  }
  return {
    node: chart.node,
    set(ways, budget) {
      now = { ways, budget };
      const costs = ways.map(({ cost }) => cost);
      chart.say(`Costs of ${ways.length} episodes: ${costs.map((c) => fixed(c)).join(", ")}; mean ${fixed(mean(costs))}.`);
      chart.again();
    },
  };
}

/** What the policy does on corridors: all stored ways at a budget. */
function corridorsStage(data) {
  const { layout, episodes, budgets, gamma = 1 } = data;
  const costs = episodes.map((list) => list.map((episode) => total(episode.cost, gamma)));
  const most = Math.max(...costs.flat(), 1e-9);
  const ways = episodes.map((list, i) =>
    list.map(({ x, y, reward }, k) => {
      const cost = costs[i][k];
      const text = `episode ${k + 1}: cost ${fixed(cost)}, reward ${brief(total(reward, gamma))}`;
      return { x, y, cost, text, share: cost / most };
    }),
  );
  const map = corridorMap(layout);
  const layer = wayLayer(map.ways);
  const badges = map.top;
  const glide = gliding(layer);
  const strip = costStrip(span([0, most, ...budgets], { zero: true, room: 0.02 }), layer.light);
  let index = 0;
  const steps = () => Math.max(...ways[index].map((way) => way.x.length)) - 1;
  const clock = player({
    name: "Play",
    length: steps,
    speed: 3,
    show(time) {
      badges.replaceChildren();
      layer.draw(time);
      if (time >= steps()) endBadges(badges, ways[index]);
    },
  });
  const told = html("p", { class: "told" });
  const bar = html("div", { class: "bar" }, clock.control, told);
  const legend = mapKey(layout, most, [["m-asked", "asked"], ["m-average", "mean of these episodes"]]);
  legend.append(html("li", {}, "“5 × 0.25”: 5 ways end here, at a mean cost of 0.25"));
  const node = html("div", { class: "stage" }, map.node, bar, strip.node, legend);
  return {
    node,
    show(i) {
      clock.stop();
      index = i;
      const free = ways[i].filter(({ cost }) => cost < 1e-9).length;
      const text = `${plural(ways[i].length, "episode", "episodes")}, ${free} of them without any cost`;
      told.textContent = `${text}; chance is the same at every budget.`;
      map.node.setAttribute("aria-label", `Map with ways at budget ${fixed(budgets[i])}. ${text}, the dearest ${fixed(Math.max(...costs[i]))}.`);
      badges.replaceChildren();
      layer.set(ways[i]);
      strip.set(ways[i], budgets[i]);
      glide(ways[i], () => endBadges(badges, ways[index]));
    },
  };
}

addStage("corridors", "What it does: ways on the map", corridorsStage);
