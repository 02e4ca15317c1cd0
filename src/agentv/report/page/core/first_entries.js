// Lists of any length: the first entries, and the rest on request, drawn in parts so that the page keeps responding.

import { element } from "./dom.js";
import { count } from "./format.js";

const MOST = 100;
const PART = 50; // entries that are inserted together
const BUSY = 40; // milliseconds until the page may respond, or as long as it took to do so before

// The elements of the first entries, and a button for all. `make(item, position)` returns an element or a list of them;
// `frame(button)` places the button where only some elements are allowed.
export function firstEntries(items, make, noun, { most = MOST, frame } = {}) {
  const shown = items.slice(0, most).flatMap((item, position) => make(item, position));
  if (items.length <= most) return shown;
  return [...shown, onRequest(items, make, { title: `Show all ${count(items.length)} ${noun}`, first: most, frame })];
}

// A button that draws the entries from `first` on in its place.
export function onRequest(items, make, { title, first = 0, frame = (button) => button }) {
  const button = element("button", { type: "button", class: "rest" }, title);
  const place = frame(button);
  button.addEventListener("click", () => {
    button.disabled = true;
    drawRest(place, items, make, first);
  });
  return place;
}

// Stops when the list is no longer shown.
async function drawRest(place, items, make, first) {
  let until = performance.now() + BUSY;
  for (let next = first; next < items.length && place.isConnected; next += PART) {
    place.before(...items.slice(next, next + PART).flatMap((item, position) => make(item, next + position)));
    const paused = performance.now();
    if (paused < until) continue;
    await new Promise((resume) => requestAnimationFrame(() => setTimeout(resume))); // after the browser has drawn
    const now = performance.now();
    until = now + Math.max(BUSY, now - paused);
  }
  place.remove();
}

// The frame of a button in a list of `li` elements.
export function listItem(button) {
  return element("li", { class: "more" }, button);
}
