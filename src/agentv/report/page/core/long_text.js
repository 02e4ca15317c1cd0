// Texts of any length: the start, and the rest on request. Stays fast with a line of a million characters.

import { element, replaceChildren } from "./dom.js";
import { count } from "./format.js";
import { LONGEST, visible } from "./text.js";

const PIECE = 8_000;
const NARROWEST = 30; // characters in a line
const LINES = 8; // that fit

// Shows the start of a long text, and the rest on request.
export function longText(text, kind = "prose") {
  // Code that is taller than its place scrolls, which keys must be able to do.
  const mayScroll = kind === "code" && lineCount(text) > LINES;
  const made = element(kind === "code" ? "pre" : "p", { class: "text", dir: "auto", tabindex: mayScroll ? "0" : null });
  if (text.length <= LONGEST) {
    made.textContent = visible(text);
    return made;
  }
  made.textContent = visible(text.slice(0, LONGEST)) + "…";
  const rest = element("button", { type: "button", class: "rest" }, `Show all ${count(text.length)} characters`);
  const both = element("div", {}, made, rest);
  rest.addEventListener("click", () => {
    replaceChildren(made, pieces(visible(text)));
    replaceChildren(both, made);
  });
  return both;
}

// How many lines the start of a text takes at most.
function lineCount(text) {
  return text
    .split("\n", LINES + 1)
    .reduce((sum, line) => sum + Math.max(1, Math.ceil(line.length / NARROWEST)), 0);
}

// Splits text into blocks that the browser lays out when they scroll into view; one long line would block it for seconds.
function pieces(text) {
  const found = [];
  for (let start = 0; start < text.length; ) {
    const end = text.lastIndexOf("\n", start + PIECE) + 1;
    const stop = end > start && start + PIECE < text.length ? end : start + PIECE;
    found.push(element("span", { class: "piece" }, text.slice(start, stop)));
    start = stop;
  }
  return found;
}
