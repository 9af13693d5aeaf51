// The dial: a slider for the budget, and all that follows from it.

const STAGES = {
  corridors: ["What it does: ways on the map", corridorsStage],
  "slot-filling": ["What it does: the dialogue", dialogueStage],
  "two-way": ["What it does: the drive", roadStage],
};
const WORDS = {
  TIGHT: "Two choices are mixed so that the budget is just spent.",
  SLACK: "More than can be used: the best paid is played.",
  INFEASIBLE: "Below what can be promised: the cheapest is played.",
};

/** Whether the realised cost keeps to the budget, in a few words, and of what kind that is. */
function verdict(data, i) {
  const { budgets, realised, choices } = data;
  if (choices[i].status === "INFEASIBLE") return ["cheapest is played", "some"];
  if (!isNumber(realised.cost[i])) return ["not measured", "plain"];
  const over = realised.cost[i] - budgets[i];
  const low = realised.cost_low[i] ?? realised.cost[i];
  if (over <= 0.0005) return ["budget kept", "good"];
  return low > budgets[i] ? [`over by ${fixed(over, 3)}`, "bad"] : ["within noise", "plain"];
}

/** The mixture as a bar of two parts, with what each does. */
function mixtureBar(frontier) {
  const bar = html("div", { class: "mix-bar", "aria-hidden": "true" });
  const list = html("ul", { class: "mix-list" });
  const label = (i) => frontier.labels?.[i] ?? `vertex ${i + 1} of ${frontier.costs.length}`;
  return {
    node: html("div", { class: "mix" }, bar, list),
    show(choice) {
      const { lower, upper, p_upper: p } = choice;
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
          const values = `cost ${fixed(frontier.costs[i])}, reward ${brief(frontier.rewards[i])}`;
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

function mountDial(host, data) {
  const { budgets, choices, realised, frontier, gamma = 1 } = data;
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

  const tiles = {
    asked: tile("Asked", "t-asked"),
    cost: tile("Realised cost", "t-realised"),
    reward: tile("Realised reward", "t-realised"),
    promised: tile("Promised", "t-promised"),
  };
  const picture = frontierChart(data, select);
  const honesty = honestyChart(data, select);
  const mixture = mixtureBar(frontier);
  const [stageName, makeStage] = STAGES[data.env] ?? [null, null];
  const stage = makeStage && data.episodes.every((list) => list.length > 0) ? makeStage(data) : null;

  function select(i) {
    range.value = i;
    const choice = choices[i];
    const [word, kind] = verdict(data, i);
    const asked = fixed(budgets[i], digits);
    const interval = (low, high, say) => (isNumber(low) && isNumber(high) ? `${say(low)} to ${say(high)}` : "");
    const cost = (v) => fixed(v, 3);
    const between = interval(realised.cost_low[i], realised.cost_high[i], cost);
    shown.textContent = asked;
    range.setAttribute("aria-valuetext", `budget ${asked}`);
    chip.textContent = word;
    chip.className = `chip ${kind}`;
    status.textContent = WORDS[choice.status] ?? choice.status;
    spoken.textContent =
      `Budget ${asked}. ${status.textContent} ` +
      `Realised: cost ${cost(realised.cost[i])}${between ? ` (${between})` : ""}, reward ${brief(realised.reward[i])}.`;
    tiles.asked.set(asked, "expected cost allowed");
    tiles.cost.set(cost(realised.cost[i]), between && `95 %: ${between}`);
    const rewards = interval(realised.reward_low[i], realised.reward_high[i], brief);
    tiles.reward.set(brief(realised.reward[i]), rewards && `95 %: ${rewards}`);
    tiles.promised.set(brief(choice.reward), `reward, at cost ${cost(choice.cost)}`);
    mixture.show(choice);
    for (const view of [picture, honesty, stage]) view?.show(i);
  }

  const control = html(
    "div",
    { class: "control" },
    html("div", { class: "control-head" }, html("label", { for: name }, "Budget"), shown, chip),
    range,
    scaleMarks(budgets, digits),
  );
  const discount = gamma < 1 ? ` Costs and rewards are discounted by ${gamma} a step.` : "";
  const hint = "Move the slider, or drag on either chart: one policy, and what it does at each budget.";
  const marks = [["m-predicted", "predicted at the start"], data.truth ? ["m-truth", "true frontier"] : null];
  const legend = [...marks, ["m-asked", "asked"], ["m-mixture", "mixture that is played"], ["m-realised", "realised, 95 % interval"]];
  const view = (title, kind, ...children) => html("div", { class: `view ${kind}` }, html("h4", {}, title), ...children);
  const honest = [["m-realised", "realised, 95 % interval"], ["m-truth", "as asked"]];
  host.append(
    heading,
    html("p", { class: "caption" }, hint + discount),
    control,
    status,
    spoken,
    html(
      "div",
      { class: `views ${stage ? `of-${data.env}` : "of-none"}` },
      stage && view(stageName, "v-stage", stage.node),
      html("dl", { class: "tiles" }, ...Object.values(tiles).map((made) => made.node)),
      view("Reward against cost", "v-frontier", picture.node, key(legend.filter(Boolean))),
      view("Its first decision", "v-mixture", mixture.node),
      view("Does the dial tell the truth?", "v-honesty", honesty.node, key(honest)),
    ),
  );
  range.addEventListener("input", () => select(Number(range.value)));
  host.hidden = false;
  select(Math.floor(last / 2));
}
