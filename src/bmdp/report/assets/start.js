// What happens when the page is opened.

function mountTheme(control) {
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const root = document.documentElement;
  const isDark = () => (root.dataset.theme ?? (dark.matches ? "dark" : "light")) === "dark";
  const paint = () => {
    control.textContent = isDark() ? "☀ Light" : "☾ Dark";
    control.setAttribute("aria-label", isDark() ? "Use light colours" : "Use dark colours");
  };
  control.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    paint();
  });
  dark.addEventListener("change", paint);
  control.hidden = false;
  paint();
}

/** Draws all of a kind; one that cannot be drawn says so, and does not keep others from it. */
function mountAll(kind, mount) {
  for (const host of document.querySelectorAll(`[data-${kind}]`)) {
    try {
      mount(host, JSON.parse(document.getElementById(host.dataset[kind]).textContent));
    } catch (error) {
      console.error(error);
      host.hidden = false;
      host.replaceChildren(html("p", {}, `This ${kind} could not be drawn: ${error.message}`));
    }
  }
}

mountTheme(document.getElementById("theme"));
addPart("dial", mountDial);
for (const [kind, mount] of PARTS) mountAll(kind, mount);
