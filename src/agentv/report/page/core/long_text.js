// Texts of any length: the start, and the rest on request. Stays fast with a line of a million characters.

import { element, replaceChildren } from "./dom.js";
import { count } from "./format.js";
import { LONGEST, visible } from "./text.js";

const PIECE = 8_000;
const SCROLLED_LINES = 15;

// Shows the start of a long text, and the rest on request.
export function longText(text, kind = "prose") {
  // Code that is taller than its place scrolls, which keys must be able to do.
  const mayScroll = kind === "code" && (text.length > 700 || text.split("\n", SCROLLED_LINES + 1).length > SCROLLED_LINES);
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
