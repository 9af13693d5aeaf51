"use strict";
// Elements, numbers as text, scales. Everything from data goes in as text.

const SVG = "http://www.w3.org/2000/svg";
const still = window.matchMedia("(prefers-reduced-motion: reduce)");

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child !== null));
  return node;
}

/** An HTML element with attributes and children; text stays text. */
function html(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

/** The same for SVG. */
function svg(name, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

function button(label, does, attributes = {}) {
  const made = html("button", { type: "button", class: "button", ...attributes }, label);
  made.addEventListener("click", does);
  return made;
}

const clamp = (value, low, high) => Math.min(Math.max(value, low), high);
const isNumber = (value) => typeof value === "number" && Number.isFinite(value);
const known = (values) => values.filter(isNumber);
const mean = (values) => values.reduce((sum, value) => sum + value, 0) / Math.max(values.length, 1);
const plural = (n, word, words) => `${n} ${n === 1 ? word : words}`;

/** A number with a fixed count of digits, or a dash where there is none. */
function fixed(value, digits = 2) {
  if (!isNumber(value)) return "–";
  const text = value.toFixed(digits);
  return Number(text) === 0 ? (0).toFixed(digits) : text.replace("-", "−");
}

/** A number with about three digits that matter. */
function brief(value) {
  if (!isNumber(value)) return "–";
  const size = Math.abs(value);
  if (size === 0) return fixed(0);
  return size >= 1e-4 ? fixed(value, clamp(2 - Math.floor(Math.log10(size)), 0, 5)) : value.toPrecision(2).replaceAll("-", "−");
}

/** As many digits as budgets need to be told apart: two at least, but for large ones. */
function digitsOf(values) {
  const wide = Math.max(...values.map(Math.abs));
  const enough = (digits) => values.every((v) => Math.abs(v - Number(v.toFixed(digits))) < 1e-4 * wide);
  let digits = wide >= 100 ? 0 : wide >= 10 ? 1 : 2;
  while (digits < 8 && !enough(digits)) digits += 1;
  return digits;
}

let names = 0;
/** A name for an element that no other has. */
const nextName = (word) => `${word}-${(names += 1)}`;

function percent(share) {
  if (share > 0 && share < 0.01) return "under 1 %";
  if (share < 1 && share > 0.99) return "over 99 %";
  return `${Math.round(100 * share)} %`;
}

/** Discounted sum, as budgets count costs. */
function total(values, gamma) {
  let sum = 0;
  let weight = 1;
  for (const value of values) {
    sum += weight * value;
    weight *= gamma;
  }
  return sum;
}

/** A function that maps one interval to another, with its inverse. */
function scale([low, high], [from, to]) {
  const slope = (to - from) / (high - low || 1);
  const map = (value) => from + (value - low) * slope;
  map.back = (place) => low + (place - from) / slope;
  return map;
}

/** Round numbers within an interval, no closer to each other than `least`. */
function ticks(low, high, count, least = 0) {
  const rough = Math.max((high - low || 1) / Math.max(count, 1), least);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * ([1, 2, 5, 10].find((m) => m * power >= rough * 0.999) ?? 10);
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; i += 1) found.push(i * step);
  const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
  return found.map((value) => ({ value, text: fixed(value, digits) }));
}

/** An SVG that is drawn again at every width of its place, so that letters keep their size. */
function drawing(height, draw, attributes = {}) {
  const node = svg("svg", { role: "img", height, width: "100%", ...attributes });
  let width = 0;
  const again = () => {
    if (width > 0) draw(node, width, height);
  };
  new ResizeObserver(([entry]) => {
    const found = Math.floor(entry.contentRect.width);
    if (found > 0 && found !== width) {
      width = found;
      node.setAttribute("viewBox", `0 0 ${width} ${height}`);
      again();
    }
  }).observe(node);
  return { node, again, say: (text) => node.setAttribute("aria-label", text) };
}

/** A list of what the marks of a picture mean: pairs of a class and a text. */
function key(entries) {
  const items = entries.map(([mark, text]) =>
    html("li", {}, html("span", { class: `mark ${mark}`, "aria-hidden": "true" }), text),
  );
  return html("ul", { class: "key" }, ...items);
}
