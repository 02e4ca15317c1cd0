// Figures with a sign, in the same way as agentv.report.figures, and sentences with code in them.

import { element } from "../core/dom.js";
import { number } from "../core/format.js";
import { visible } from "../core/text.js";

export function signed(value) {
  if (value === null || value === undefined) return "–";
  const text = number(Math.abs(value));
  return Number(text) === 0 ? text : `${value < 0 ? "−" : "+"}${text}`;
}

export function signedInterval(bounds) {
  return bounds ? `${signed(bounds[0])} to ${signed(bounds[1])}` : "–";
}

// The parts of a sentence; a part in backquotes is code.
export function sentence(text) {
  return visible(text)
    .split(/`([^`]+)`/)
    .map((part, place) => (place % 2 ? element("code", {}, part) : part));
}

// The word for a kind of case.
export function kindWord(kind) {
  return kind === "unscored" ? "not scored" : kind;
}
