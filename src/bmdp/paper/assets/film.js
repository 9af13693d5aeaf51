// Films: exploration, round by round.

function mountFilm(host, data) {
  const { rounds, layout } = data;
  const heading = html("h3", {}, data.title ?? "Exploration");
  const name = nextName("round");
  const range = html("input", { type: "range", id: name, min: 0, max: rounds.length - 1, step: 1, value: 0 });
  const shown = html("output", { class: "big", for: name });
  const sentence = html("p", { class: "sentence", role: "status", "aria-live": "polite" });
  const charts = [
    courseChart("mean reward", rounds.map((round) => round.reward), "of-reward"),
    courseChart("mean cost", rounds.map((round) => round.cost), "of-cost"),
  ];
  const hasMap = Boolean(layout?.cells) && rounds.some((round) => round.episodes?.length);
  const most = Math.max(...rounds.flatMap((round) => (round.episodes ?? []).map((episode) => episode.cost)), 1e-9);
  const map = hasMap ? corridorMap(layout) : null;
  const ghosts = svg("g", { class: "ghosts", "aria-hidden": "true" });
  map?.ways.before(ghosts);
  const layer = map && wayLayer(map.ways);

  function show(time) {
    const i = Math.round(time);
    const round = rounds[i];
    range.value = i;
    shown.textContent = `${i + 1} of ${rounds.length}`;
    range.setAttribute("aria-valuetext", `round ${i + 1} of ${rounds.length}`);
    const epsilon = isNumber(round.epsilon) ? `, ${percent(round.epsilon)} of decisions random` : "";
    const text =
      `Round ${i + 1}: ${plural(round.n_episodes, "episode", "episodes")}${epsilon}; ` +
      `mean reward ${brief(round.reward)}, mean cost ${fixed(round.cost, 3)}.`;
    if (sentence.textContent !== text) {
      sentence.textContent = text;
      paint(i);
    }
  }
  function paint(i) {
    charts.forEach((chart) => chart.show(i));
    if (!layer) return;
    const episodes = rounds[i].episodes;
    layer.set(
      episodes.map(({ x, y, cost, budget }) => {
        const text = `budget ${fixed(budget)}, cost ${fixed(cost)}`;
        return { x, y, cost, text, share: clamp(cost / most, 0, 1) };
      }),
    );
    layer.draw(Infinity);
    const before = rounds.slice(0, i).flatMap((round) => round.episodes);
    ghosts.replaceChildren(
      ...before.map(({ x, y }) => svg("polyline", { points: x.map((v, k) => `${v},${y[k]}`).join(" ") })),
    );
    map.node.setAttribute("aria-label", `Map with ${episodes.length} ways of round ${i + 1}; ${sentence.textContent}`);
  }

  const clock = player({ name: "Play", length: () => rounds.length - 1, speed: 1.25, show: (time) => show(Math.floor(time + 1e-6)) });
  range.addEventListener("input", () => {
    clock.stop();
    clock.seek(Number(range.value));
  });
  const control = html(
    "div",
    { class: "control" },
    html("div", { class: "control-head" }, html("label", { for: name }, "Round"), shown, clock.control),
    range,
  );
  const marks = hasMap ? [mapKey(layout, most)] : [];
  const stage = map && html("div", { class: "view v-stage" }, map.node, ...marks);
  const side = html("div", { class: "view v-frontier" }, ...charts.map((chart) => chart.node));
  const told = "Each line is an episode of the round; faint ones are of the rounds before.";
  host.append(heading, html("p", { class: "caption" }, hasMap ? told : ""), control, sentence);
  host.append(html("div", { class: "views" }, stage, side));
  host.hidden = false;
  clock.seek(0);
}

addPart("film", mountFilm);
