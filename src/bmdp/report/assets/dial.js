// The dial: a slider for the budget, and all that follows from it.

const STAGES = new Map(); // what draws episodes, by environment
const PARTS = new Map(); // what fills the places of a kind

/** Draws the episodes of an environment: `make(data)` returns `{node, show(i)}`. */
function addStage(env, title, make) {
  STAGES.set(env, [title, make]);
}

/** Fills every `[data-KIND]`: `mount(host, data)`. */
function addPart(kind, mount) {
  PARTS.set(kind, mount);
}

/** How the budget lies to what the policy expects at a first state, in a sentence. */
function statusWords(data, i) {
  const { lower, upper, p_upper: p } = data.choices?.[i] ?? {};
  const spent = lower === undefined ? "It expects to just spend the budget." : "One choice is expected to just spend the budget.";
  const words = {
    TIGHT: lower !== upper && p > 0 ? "Two choices are mixed so that it expects to just spend the budget." : spent,
    SLACK: "More than can be used: the best paid is played.",
    INFEASIBLE: "Below what can be promised: the cheapest is played.",
  };
  return words[statusOf(data, i)] ?? "";
}
const statusOf = ({ choices, status }, i) => status?.[i] ?? choices?.[i].status;
const isPlayed = ({ realised }) => realised.cost.some(isNumber) || realised.reward.some(isNumber);

/** Whether the cost keeps to the budget, in a few words, and of what kind that is. */
function verdict(data, i) {
  const { budgets, realised, forecast } = data;
  const isOver = (cost) => cost - budgets[i] > 1e-5 * Math.max(...budgets.map(Math.abs)); // data have six digits
  const over = (cost) => {
    const text = fixed(cost - budgets[i], digitsOf(budgets) + 1);
    return `over by ${Number(text) ? text : brief(cost - budgets[i])}`;
  };
  const [paid, low] = [realised.cost[i], realised.cost_low[i]];
  const [foretold, least] = [forecast?.cost[i], forecast?.cost_low?.[i]];
  if (statusOf(data, i) === "INFEASIBLE") return ["cheapest is played", "some"];
  if (!isNumber(paid)) {
    if (isPlayed(data) || !isNumber(foretold)) return ["not measured", "plain"];
    if (!isOver(foretold)) return ["forecast only: kept", "plain"];
    const told = `forecast only: ${over(foretold)}`;
    return isOver(least ?? foretold) ? [told, "some"] : [`${told}, within noise`, "plain"];
  }
  if (!isOver(paid)) return ["budget kept", "good"];
  return isOver(low ?? paid) ? [over(paid), "bad"] : [`${over(paid)}, within noise`, "plain"];
}

/** The mixture as a bar of two parts, with what each does. */
function mixtureBar(digits) {
  const bar = html("div", { class: "mix-bar", "aria-hidden": "true" });
  const list = html("ul", { class: "mix-list" });
  return {
    node: html("div", { class: "mix" }, bar, list),
    show(frontier, choice) {
      const { lower, upper, p_upper: p } = choice;
      const label = (i) => frontier.labels?.[i] ?? `vertex ${i + 1} of ${frontier.costs.length}`;
      const parts = lower === upper ? [[lower, 1, choice.status === "SLACK" ? "high" : "low"]] : [[lower, 1 - p, "low"], [upper, p, "high"]];
      const seen = parts.filter(([, share]) => share > 0);
      bar.replaceChildren(
        ...seen.map(([, share, kind]) => {
          const part = html("span", { class: kind });
          part.style.flexGrow = share;
          return part;
        }),
      );
      list.replaceChildren(
        ...seen.map(([i, share, kind]) => {
          const values = `cost ${fixed(frontier.costs[i], digits)}, reward ${brief(frontier.rewards[i])}`;
          const when = share === 1 ? "Always" : `${percent(share)} of the time`;
          return html("li", { class: kind }, html("b", {}, `${when}: `), label(i), html("small", {}, values));
        }),
      );
    },
  };
}

/** Labels under the slider, as many as there is room for. */
function scaleMarks(budgets, digits) {
  const marks = html("div", { class: "scale", "aria-hidden": "true" });
  const last = Math.max(budgets.length - 1, 1);
  const every = Math.ceil(budgets.length / 11);
  const few = Math.ceil(budgets.length / 5);
  budgets.forEach((budget, i) => {
    const isHidden = (step) => i !== last && (i % step !== 0 || last - i < step);
    const kind = `${isHidden(every) ? " minor" : ""}${isHidden(few) ? " wide-only" : ""}`;
    const mark = html("span", { class: `at${kind}` }, Number(budget.toFixed(digits)).toString());
    mark.style.setProperty("--at", i / last);
    marks.append(mark);
  });
  return marks;
}

/** A number with its name, and what it means below. */
function tile(name, kind) {
  const value = html("dd", { class: "value" });
  const note = html("dd", { class: "note" });
  return {
    node: html("div", { class: `tile ${kind}` }, html("dt", {}, name), value, note),
    set(text, more) {
      value.textContent = text;
      note.textContent = more;
    },
  };
}

/** The numbers at a budget: asked, paid and earned where it was played, and what was foretold. */
function tilesOf(data, digits) {
  const { budgets, realised, forecast, choices } = data;
  const cost = (value) => fixed(value, digits + 1);
  const ends = (of, name, i, say) => {
    const [low, high] = [of[`${name}_low`]?.[i], of[`${name}_high`]?.[i]];
    return isNumber(low) && isNumber(high) ? `95 %: ${say(low)} to ${say(high)}` : "";
  };
  const made = [[tile("Asked", "t-asked"), (i) => [fixed(budgets[i], digits), "expected cost allowed"]]];
  if (isPlayed(data)) {
    made.push([tile("Realised cost", "t-realised"), (i) => [cost(realised.cost[i]), ends(realised, "cost", i, cost)]]);
    made.push([tile("Realised reward", "t-realised"), (i) => [brief(realised.reward[i]), ends(realised, "reward", i, brief)]]);
    if (forecast) made.push([tile("Forecast", "t-forecast"), (i) => [brief(forecast.reward[i]), `reward, at cost ${cost(forecast.cost[i])}`]]);
    else if (choices) made.push([tile("Promised", "t-promised"), (i) => [brief(choices[i].reward), `reward, at cost ${cost(choices[i].cost)}`]]);
  } else if (forecast) {
    made.push([tile("Forecast cost", "t-forecast"), (i) => [cost(forecast.cost[i]), ends(forecast, "cost", i, cost) || "not played"]]);
    made.push([tile("Forecast reward", "t-forecast"), (i) => [brief(forecast.reward[i]), ends(forecast, "reward", i, brief) || "not played"]]);
  }
  return {
    node: html("dl", { class: "tiles" }, ...made.map(([one]) => one.node)),
    show: (i) => made.forEach(([one, told]) => one.set(...told(i))),
  };
}

/** What is expected at a state, which can be chosen where there are several. */
function stateView(data, digits, picture) {
  const states = data.states ?? (data.frontier ? [{ name: "", frontier: data.frontier, choices: data.choices }] : []);
  const mixture = mixtureBar(digits);
  const name = nextName("state");
  const select = html("select", { id: name }, ...states.map((state, i) => html("option", { value: i }, state.name)));
  let [index, chosen] = [0, 0];
  const paint = () => mixture.show(states[chosen].frontier, states[chosen].choices[index]);
  select.addEventListener("change", () => {
    chosen = Number(select.value);
    picture.go({ ...states[chosen], isStart: chosen === 0 });
    paint();
  });
  const field = states.length > 1 ? html("p", { class: "field" }, html("label", { for: name }, "At"), select) : null;
  const told = data.words && html("p", { class: "caption" }, data.words);
  return {
    field,
    node: states.length ? html("div", {}, ...[mixture.node, told].filter(Boolean)) : null,
    show(i) {
      index = i;
      if (states.length) paint();
    },
  };
}

/** How often each action is taken: by budget, and by step at the budget that is chosen. */
function deedsView({ actions, budgets }, digits, select) {
  const { names, by_budget: byBudget, by_step: byStep, steps } = actions;
  const charts = [];
  const view = (title, chart) => html("div", { class: "view" }, html("h4", {}, title), chart.node);
  const whole = sharesChart(
    { names, xs: budgets, xName: "budget asked for", yName: "% of decisions", told: (i) => `budget ${fixed(budgets[i], digits)}` },
    select,
  );
  charts.push(view("By budget", whole));
  const single = steps && sharesChart({ names, xs: steps, xName: "step", yName: "% of episodes", told: (i) => `step ${steps[i]}` });
  if (single) charts.push(view("Step by step, at this budget", single));
  const legend = key(names.map((name, k) => [`s${k}`, name]));
  return {
    node: html(
      "div",
      { class: "deeds" },
      html("h4", {}, "Which actions it takes"),
      actions.source ? html("p", { class: "caption" }, actions.source) : null,
      html("div", { class: "pair" }, ...charts),
      legend,
    ),
    show(i) {
      whole.show(i, byBudget);
      single?.show(i, byStep[i]);
    },
  };
}

/** What the marks of the main chart mean. */
function legendOf(data) {
  const { states, frontier, truth, forecast, baselines = [] } = data;
  const entries = [["m-asked", "asked"]];
  if (frontier) entries.push(["m-predicted", states ? "expected at this state" : "predicted at the start"], ["m-mixture", "mixture that is played"]);
  if (forecast) entries.push(["m-foretold", "forecast"]);
  if (isPlayed(data)) entries.push(["m-realised", "realised, 95 % interval"]);
  if (truth) entries.push(["m-truth", "true frontier"]);
  baselines.forEach(({ name, costs, rewards, is_far: isFar }, i) => {
    if (costs.length > 1) return entries.push(["m-baseline", name]);
    const far = isFar ? `, off the chart: cost ${brief(costs[0])}, reward ${brief(rewards[0])}` : "";
    entries.push([i % 2 ? "m-triangle" : "m-square", name + far]);
  });
  return key(entries);
}

function mountDial(host, data) {
  const { budgets, realised, forecast, gamma = 1 } = data;
  const digits = digitsOf(budgets);
  const name = nextName("budget");
  const shown = html("output", { class: "big", for: name });
  const last = budgets.length - 1;
  const range = html("input", { type: "range", id: name, min: 0, max: last, step: 1, value: 0 });
  const chip = html("span", { class: "chip" });
  const status = html("p", { class: "status" });
  const spoken = html("p", { class: "unseen", role: "status", "aria-live": "polite" });
  const heading = html("h3", { id: `${name}-title` }, data.title ?? "The dial");
  host.setAttribute("aria-labelledby", heading.id);

  const tiles = tilesOf(data, digits);
  const picture = frontierChart(data, select);
  const honesty = honestyChart(data, select);
  const state = stateView(data, digits, picture);
  const deeds = data.actions ? deedsView(data, digits, select) : null;
  const [stageName, makeStage] = STAGES.get(data.env) ?? [null, null];
  const stage = makeStage && data.episodes?.every((list) => list.length > 0) ? makeStage(data) : null;

  function select(i) {
    range.value = i;
    const [word, kind] = verdict(data, i);
    const asked = fixed(budgets[i], digits);
    const cost = (value) => fixed(value, digits + 1);
    shown.textContent = asked;
    range.setAttribute("aria-valuetext", `budget ${asked}`);
    chip.textContent = word;
    chip.className = `chip ${kind}`;
    status.textContent = statusWords(data, i);
    const [low, high] = [realised.cost_low[i], realised.cost_high[i]];
    const between = isNumber(low) && isNumber(high) ? ` (${cost(low)} to ${cost(high)})` : "";
    const told = isPlayed(data)
      ? `Realised: cost ${cost(realised.cost[i])}${between}, reward ${brief(realised.reward[i])}.`
      : forecast && `Forecast: cost ${cost(forecast.cost[i])}, reward ${brief(forecast.reward[i])}.`;
    spoken.textContent = [`Budget ${asked}.`, status.textContent, told].filter(Boolean).join(" ");
    for (const view of [tiles, state, picture, honesty, deeds, stage]) view?.show(i);
  }

  const control = html(
    "div",
    { class: "control" },
    html("div", { class: "control-head" }, html("label", { for: name }, "Budget"), shown, chip),
    range,
    scaleMarks(budgets, digits),
  );
  const hint = [
    "Move the slider, or drag on a chart: one policy, and what it does at each budget.",
    gamma < 1 ? `Costs and rewards are discounted by ${gamma} a step.` : "",
    forecast?.source ? `Forecast: ${forecast.source}.` : "",
  ];
  const view = (title, kind, ...children) => html("div", { class: `view ${kind}` }, html("h4", {}, title), ...children);
  const honest = [isPlayed(data) ? ["m-realised", "realised, 95 % interval"] : null, forecast ? ["m-foretold", "forecast"] : null, ["m-truth", "as asked"]];
  const layout = stage ? `of-stage of-${data.env.replace(/[^\w-]/g, "-")}` : state.node ? "of-none" : "of-none without-mixture";
  const parts = [
    heading,
    html("p", { class: "caption" }, hint.filter(Boolean).join(" ")),
    control,
    status,
    spoken,
    html(
      "div",
      { class: `views ${layout}` },
      stage && view(stageName, "v-stage", stage.node),
      tiles.node,
      view("Reward against cost", "v-frontier", state.field, picture.node, legendOf(data)),
      state.node && view(data.states ? "Its decision there" : "Its first decision", "v-mixture", state.node),
      view("Does the dial tell the truth?", "v-honesty", honesty.node, key(honest.filter(Boolean))),
    ),
    deeds?.node,
  ];
  host.append(...parts.filter(Boolean));
  range.addEventListener("input", () => select(Number(range.value)));
  host.hidden = false;
  select(Math.floor(last / 2));
}
