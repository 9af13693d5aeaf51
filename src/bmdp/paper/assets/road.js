// Drives on the two-way road, seen from above; the camera follows the ego car.

const DECISIONS = {
  left: ["↖", "to the oncoming lane"],
  idle: ["–", "goes on"],
  right: ["↘", "to its own lane"],
  faster: ["»", "faster"],
  slower: ["«", "slower"],
};
const ORDER = Object.keys(DECISIONS); // as the environment numbers them

function decision(action, names = ORDER) {
  const name = typeof action === "number" ? names[action] : String(action);
  const [glyph, text] = DECISIONS[name] ?? [name.slice(0, 1), name];
  return { glyph, text };
}

/** One value of a car at a time between frames. */
function between(values, place) {
  const low = clamp(Math.floor(place), 0, values.length - 1);
  const high = Math.min(low + 1, values.length - 1);
  return values[low] + (values[high] - values[low]) * (place - low);
}

const isCrashed = (car, place) => Boolean(car.crashed?.[Math.floor(place + 1e-6)]);
const ego = (episode) => episode.cars.find((car) => car.ego) ?? episode.cars[0];

/** The strip of the road with cars in true proportions. */
function roadView(layout, { height, metres, thick }) {
  const { lane_width: lane = 4, n_lanes: lanes = 2, length = 800 } = layout; // m
  const { car_length: long = 5, car_width: wide = 2 } = layout;
  const [top, bottom] = [-lane / 2, (lanes - 0.5) * lane];
  const node = svg("svg", { class: "road", role: "img", width: "100%", height });
  const from = -400;
  const band = { x: from, y: top, width: length + 800, height: bottom - top };
  node.append(svg("rect", { class: "asphalt", ...band }));
  const rule = (name, y, dash) => svg("line", { class: name, x1: from, x2: from + band.width, y1: y, y2: y, "stroke-dasharray": dash });
  node.append(rule("edge", top + 0.25, "none"), rule("edge", bottom - 0.25, "none"));
  for (let i = 1; i < lanes; i += 1) node.append(rule("dash", top + i * lane, "4 6"));
  const trail = svg("polyline", { class: "trail" });
  const fleet = svg("g");
  node.append(trail, fleet);
  let width = 0;
  let middle = 0;
  function aim() {
    if (!width) return;
    const seen = metres(width);
    const tall = (seen * height) / width;
    const centre = (top + bottom) / 2;
    node.setAttribute("viewBox", `${middle - 0.3 * seen} ${centre - tall / 2} ${seen} ${tall}`);
  }
  new ResizeObserver(([entry]) => {
    width = entry.contentRect.width;
    aim();
  }).observe(node);
  let cars = [];
  return {
    node,
    set(episode) {
      const self = ego(episode);
      trail.setAttribute("points", self.x.map((x, i) => `${x},${self.y[i]}`).join(" "));
      cars = episode.cars.map((car) => {
        const against = Math.cos(car.heading[0]) < 0;
        const kind = car.ego ? "ego" : against ? "oncoming" : "ahead";
        const box = (name, x, length, width) =>
          svg("rect", { class: name, x: x * thick, y: (-width / 2) * thick, width: length * thick, height: width * thick, rx: (width / 5) * thick });
        const body = box("body", -long / 2, long, wide);
        const glass = box("glass", 0.07 * long, 0.22 * long, 0.8 * wide);
        return { car, kind, shape: svg("g", {}, body, glass) };
      });
      fleet.replaceChildren(...cars.map(({ shape }) => shape));
    },
    draw(place) {
      for (const { car, kind, shape } of cars) {
        const [x, y] = [between(car.x, place), between(car.y, place)];
        const turn = (between(car.heading, place) * 180) / Math.PI;
        shape.setAttribute("transform", `translate(${x.toFixed(2)} ${y.toFixed(2)}) rotate(${turn.toFixed(1)})`);
        shape.setAttribute("class", `car ${kind}${isCrashed(car, place) ? " crashed" : ""}`);
        if (car.ego) middle = x;
      }
      aim();
    },
  };
}

/** What the policy decided, second by second; costs are coloured. */
function decisionBar(seek) {
  const list = html("ol", { class: "decisions", "aria-label": "Decisions" });
  let items = [];
  return {
    node: list,
    set(episode, names) {
      const seconds = episode.action.length;
      items = episode.action.map((action, i) => {
        const { glyph, text } = decision(action, names);
        const cost = episode.cost[i];
        const kind = cost >= 0.5 ? "bad" : cost > 0 ? "some" : "none";
        const title = `decision ${i + 1}: ${text}, reward ${brief(episode.reward[i])}, cost ${fixed(cost, 3)}`;
        const item = html("li", { class: kind, title }, html("span", { "aria-hidden": "true" }, glyph), html("span", { class: "unseen" }, title));
        item.addEventListener("click", () => seek(i / seconds));
        return item;
      });
      list.replaceChildren(...items);
    },
    mark(number) {
      items.forEach((item, i) => item.classList.toggle("now", i === number));
    },
  };
}

/** What the car does at a budget. */
function roadStage(data) {
  const { episodes, budgets, layout = {}, gamma = 1 } = data;
  const near = roadView(layout, { height: 132, thick: 1, metres: (width) => clamp(width / 7.5, 52, 150) });
  const far = roadView(layout, { height: 34, thick: 1.6, metres: (width) => clamp(width / 2.2, 170, 420) });
  far.node.setAttribute("aria-hidden", "true");
  const names = layout.actions ?? ORDER;
  const told = html("dl", { class: "gauges" });
  const range = html("input", { type: "range", min: 0, max: 1, step: 0.001, value: 0, "aria-label": "Time of the drive" });
  let [index, number] = [0, 0];
  const episode = () => episodes[index][number];
  const duration = () => (ego(episode()).x.length - 1) * episode().dt;

  function show(time) {
    const drive = episode();
    const self = ego(drive);
    const place = time / drive.dt;
    const seconds = duration() / Math.max(drive.action.length, 1);
    const turn = clamp(Math.floor(time / seconds + 1e-6), 0, drive.action.length - 1);
    const paid = time >= duration() - 1e-6 ? drive.action.length : turn;
    near.draw(place);
    far.draw(place);
    decisions.mark(turn);
    range.value = duration() ? time / duration() : 0;
    range.setAttribute("aria-valuetext", `${fixed(time, 1)} seconds`);
    const last = Math.min(Math.floor(place), self.x.length - 2);
    const speed = Math.hypot(self.x[last + 1] - self.x[last], self.y[last + 1] - self.y[last]) / drive.dt;
    const crashed = isCrashed(self, place);
    gauges({
      time: `${fixed(time, 1)} s`,
      speed: crashed ? "crashed" : `${fixed(speed, 0)} m/s`,
      "cost so far": fixed(total(drive.cost.slice(0, paid), gamma)),
      "reward so far": fixed(total(drive.reward.slice(0, paid), gamma)),
      "budget held": fixed(drive.budget[Math.min(paid, drive.budget.length - 1)]),
    });
  }
  function gauges(values) {
    const pairs = Object.entries(values).map(([name, text]) => html("div", {}, html("dt", {}, name), html("dd", {}, text)));
    told.replaceChildren(...pairs);
  }
  const clock = player({ name: "Drive", length: duration, speed: 1, show });
  const decisions = decisionBar((share) => {
    clock.stop();
    clock.seek(share * duration());
  });
  range.addEventListener("input", () => {
    clock.stop();
    clock.seek(Number(range.value) * duration());
  });

  function end(drive) {
    const crash = isCrashed(ego(drive), ego(drive).x.length - 1);
    const left = drive.cost.filter((cost) => cost > 0 && cost < 0.5).length;
    if (crash) return { mark: "✕", kind: "bad", text: "crash" };
    return left ? { mark: "↖", kind: "some", text: `${plural(left, "second", "seconds")} on the oncoming lane` } : { mark: "✓", kind: "good", text: "stays on its own lane" };
  }
  function take(chosen) {
    const at = clock.time();
    number = chosen;
    const { text } = end(episode());
    near.set(episode());
    far.set(episode());
    decisions.set(episode(), names);
    near.node.setAttribute(
      "aria-label",
      `Drive ${chosen + 1} at budget ${fixed(budgets[index])}: ${fixed(duration(), 0)} seconds, ${text}; ` +
        `cost ${fixed(total(episode().cost, gamma))}, reward ${fixed(total(episode().reward, gamma))}.`,
    );
    clock.seek(at);
  }
  const picks = picker("drive", (chosen) => {
    clock.stop();
    take(chosen);
    clock.seek(0);
  });
  const time = html("div", { class: "time" }, clock.control, range, decisions.node);
  const entries = [["m-ego", "our car"], ["m-ahead", "cars ahead"], ["m-oncoming", "oncoming"], ["m-crash", "crashed"]];
  const meaning = [...entries, ["m-trail", "way of our car"]];
  const node = html("div", { class: "stage" }, picks.bar, near.node, far.node, time, told, key(meaning));
  return {
    node,
    show(i) {
      index = i;
      take(picks.set(episodes[i].map(end)));
    },
  };
}

addStage("two-way", "What it does: the drive", roadStage);
