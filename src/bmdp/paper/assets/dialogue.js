// Dialogues of slot-filling as a chat, with the budget that is held at each turn.

const OUTCOMES = {
  success: { mark: "✓", kind: "good", text: "all slots right" },
  hangup: { mark: "✕", kind: "bad", text: "the user hung up" },
  neither: { mark: "·", kind: "plain", text: "no turns left" },
};

function outcomeOf({ lines }) {
  const act = lines.at(-1)?.act;
  if (act === "hang_up") return OUTCOMES.hangup;
  return act === "success" ? OUTCOMES.success : OUTCOMES.neither;
}

/** The budget that is held, as a number and as a bar. */
function held(budget, most) {
  const bar = html("span", { class: "held-bar", "aria-hidden": "true" }, html("span"));
  bar.firstChild.style.width = `${100 * clamp(budget / most, 0, 1)}%`;
  return html("span", { class: "held" }, `holds ${fixed(budget)}`, bar);
}

function bubble(line, most) {
  const signs = [];
  if (line.reward > 0) signs.push(html("span", { class: "sign good" }, `+${brief(line.reward)}`));
  if (line.cost > 0) signs.push(html("span", { class: "sign bad" }, `cost ${fixed(line.cost)}`));
  if (line.who === "end") return html("li", { class: "line end" }, html("span", {}, line.text), ...signs);
  const speaker = line.who === "system" ? "System" : "User";
  const said = html("p", { class: "said" }, html("span", { class: "unseen" }, `${speaker}: `), line.text, ...signs);
  const budget = line.who === "system" && isNumber(line.budget) ? held(line.budget, most) : null;
  return html("li", { class: `line ${line.who}` }, said, budget);
}

/** What the policy says at a budget. */
function dialogueStage(data) {
  const { episodes, budgets } = data;
  const most = Math.max(...budgets, 1e-9);
  const chat = html("ol", { class: "chat" });
  const box = html("div", { class: "chat-box", tabindex: "0", role: "region" }, chat);
  const summary = html("p", { class: "told", role: "status" });
  let index = 0;

  function draw(number) {
    const episode = episodes[index][number];
    if (!episode) return;
    const lines = episode.lines.map((line) => bubble(line, most));
    lines.forEach((line, i) => line.style.setProperty("--turn", i));
    chat.replaceChildren(...lines);
    box.scrollTop = 0;
    box.setAttribute("aria-label", `Dialogue ${number + 1} at budget ${fixed(budgets[index])}`);
    const turns = episode.lines.filter((line) => line.who === "system").length;
    summary.textContent =
      `Dialogue ${number + 1} of ${episodes[index].length}: ${plural(turns, "turn", "turns")}, ` +
      `${outcomeOf(episode).text}; reward ${brief(episode.reward)}, cost ${fixed(episode.cost)}.`;
  }
  const picks = picker("dialogue", draw);
  const meaning = key(Object.values(OUTCOMES).map(({ kind, text }) => [`m-${kind}`, text]));
  const node = html("div", { class: "stage" }, picks.bar, summary, box, meaning);
  return {
    node,
    show(i) {
      index = i;
      draw(picks.set(episodes[i].map(outcomeOf)));
    },
  };
}

addStage("slot-filling", "What it does: the dialogue", dialogueStage);
