// A clock that can be played, and a row of episodes to choose from.

/**
 * A play button and a clock from 0 to `length`.
 *
 * `show(time)` draws. With reduced motion the clock goes in whole units instead of gliding.
 * `speed` is in units a second.
 */
function player({ name, length, speed, show, unit = 1 }) {
  let time = 0;
  let begun = null;
  let frame = 0;
  const icon = html("span", { "aria-hidden": "true" });
  const word = html("span");
  const control = html("button", { type: "button", class: "button play" }, icon, word);

  function paint() {
    icon.textContent = frame ? "❚❚" : "►";
    word.textContent = frame ? "Pause" : name;
  }
  function stop() {
    cancelAnimationFrame(frame);
    frame = 0;
    paint();
  }
  function seek(to) {
    time = clamp(to, 0, length());
    show(time);
  }
  function tick(now) {
    begun ??= { now, time };
    const at = begun.time + ((now - begun.now) / 1000) * speed;
    seek(still.matches ? begun.time + Math.floor((at - begun.time) / unit) * unit : at);
    if (time >= length()) stop();
    else frame = requestAnimationFrame(tick);
  }
  function play() {
    if (time >= length()) time = 0;
    begun = null;
    show(time);
    frame = requestAnimationFrame(tick);
    paint();
  }
  control.addEventListener("click", () => (frame ? stop() : play()));
  paint();
  return { control, stop, seek, time: () => time, isPlaying: () => frame !== 0 };
}

/** Buttons for the stored episodes: each says how it ended; `choose(number)` is called. */
function picker(noun, choose) {
  const list = html("div", { class: "picks", role: "group", "aria-label": `Stored ${noun}s` });
  let buttons = [];
  let chosen = 0;
  const paint = () => buttons.forEach((b, i) => b.setAttribute("aria-pressed", String(i === chosen)));
  function pick(number) {
    chosen = number;
    paint();
    choose(chosen);
  }
  const step = (by) => () => pick((chosen + by + buttons.length) % buttons.length);
  const next = button(`Next ${noun}`, step(1), { class: "button next" });
  const previous = button("‹", step(-1), { "aria-label": `Previous ${noun}` });
  const bar = html("div", { class: "bar" }, previous, next, list);

  /** Shows other episodes: `{mark, kind, text}` of each. The chosen number stays. */
  function set(ends) {
    chosen = clamp(chosen, 0, Math.max(ends.length - 1, 0));
    buttons = ends.map(({ mark, kind, text }, i) =>
      button(mark, () => pick(i), {
        class: `pick ${kind}`,
        "aria-label": `${noun} ${i + 1}: ${text}`,
        title: `${i + 1}: ${text}`,
      }),
    );
    list.replaceChildren(...buttons);
    paint();
    return chosen;
  }
  return { bar, set };
}
