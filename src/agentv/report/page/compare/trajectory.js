// The tool calls of a case in both runs, aligned. The first difference is marked.

import { element } from "../core/dom.js";
import { firstEntries, listItem } from "../core/first_entries.js";
import { count } from "../core/format.js";
import { longText } from "../core/long_text.js";
import { asText, visible } from "../core/text.js";
import { sentence } from "./figures.js";

const BEFORE = 3; // equal steps that are shown before the first difference
const SIGNS = { same: "=", arguments: "~", "only in A": "−", "only in B": "+" };
const WORDS = { same: "the same", arguments: "other arguments", "only in A": "only in A", "only in B": "only in B" };

export function trajectory({ steps }, divergence) {
  const first = steps.findIndex((step) => step.kind !== "same");
  const start = Math.max(0, first - BEFORE);
  const listed = (part, from) =>
    element("ol", { class: "steps-of-tools" }, firstEntries(part, (step, place) => line(step, from + place, from + place === first), "steps", { frame: listItem }));
  return [
    element("p", { class: "divergence" }, sentence(divergence.slice(0, 1).toUpperCase() + divergence.slice(1))),
    start > 0 &&
      element(
        "details",
        {},
        element("summary", {}, `${count(start)} equal ${start === 1 ? "step" : "steps"} before`),
        listed(steps.slice(0, start), 0),
      ),
    listed(steps.slice(start), start),
  ];
}

function line(step, place, isFirst) {
  return element(
    "li",
    { class: `step ${step.kind.split(" ").join("-").toLowerCase()}${isFirst ? " first" : ""}` },
    element("p", { class: "step-name" }, element("span", { class: "sign", "aria-hidden": "true" }, SIGNS[step.kind]), `${count(place + 1)}. `, element("code", {}, visible(step.tool)), element("span", { class: "note" }, ` ${WORDS[step.kind]}`), isFirst && element("strong", { class: "mark" }, "First difference")),
    step.kind === "same"
      ? call(step.before)
      : element("div", { class: "answers" }, element("div", { class: "answer-side", "data-side": "A" }, step.kind !== "only in B" && call(step.before)), element("div", { class: "answer-side", "data-side": "B" }, step.kind !== "only in A" && call(step.after))),
  );
}

function call(value) {
  return value === undefined || value === null ? element("p", { class: "note" }, "No arguments.") : longText(asText(value), "code");
}
