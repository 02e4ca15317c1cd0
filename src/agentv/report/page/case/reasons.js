// The top of the case: the verdict, the first reason, and the evaluators that did not pass. Short enough to need no scrolling.

import { errorBlock } from "./blocks.js";
import { element } from "../core/dom.js";
import { firstEntries } from "../core/first_entries.js";
import { number } from "../core/format.js";
import { reasonOf } from "../data/rows.js";
import { oneLine, visible } from "../core/text.js";
import { badge } from "../core/badge.js";

const MOST_EVALUATORS = 5;
const MOST_MISSES = 3;
const LONGEST_REASON = 600;

const TITLES = {
  pass: "Passed",
  borderline: "Why it is borderline",
  fail: "Why it failed",
  error: "Why there is no score",
  unscored: "Not scored",
};

export function reasons(row, result) {
  const failing = (result.evaluator_results ?? []).filter((found) => found.error || (found.verdict && found.verdict !== "pass"));
  const reason = row.verdict === "pass" ? "" : row.verdict === "unscored" ? "No evaluator scored this case." : reasonOf(result) || "The record has no reason.";
  // A reason that the list below repeats is shown only there.
  const names = failing.map((found) => found.name).join(", ");
  const isListed = reason === names || failing.some((found) => [...(found.misses ?? []), found.reasoning, found.error?.message].includes(reason));
  return element(
    "section",
    { class: `reasons ${row.verdict}`, "aria-label": TITLES[row.verdict] },
    element(
      "p",
      { class: "headline" },
      badge(row.verdict),
      element("strong", {}, TITLES[row.verdict]),
      result.score !== null && result.score !== undefined && element("span", { class: "score" }, `score ${number(result.score)}`),
    ),
    result.error?.suspicious && element("p", { class: "note" }, "The answer may have caused this error."),
    result.error ? errorText(result.error) : !isListed && reason && element("p", { class: "reason", dir: "auto" }, shortText(reason)),
    failing.length > 0 && element("ul", { class: "failing" }, worstFirst(failing).slice(0, MOST_EVALUATORS).map((found) => line(found, result))),
    failing.length > MOST_EVALUATORS && element("p", { class: "note" }, `and ${failing.length - MOST_EVALUATORS} more evaluators, listed below`),
    firstEntries(result.warnings ?? [], (text) => element("p", { class: "note" }, `Warning: ${oneLine(text, LONGEST_REASON)}`), "warnings"),
  );
}

// A long message scrolls, so that the rest stays in sight.
function errorText(error) {
  if (error.message.length <= LONGEST_REASON) return errorBlock(error);
  return element("div", { class: "scrolled", tabindex: "0", role: "group", "aria-label": "Error" }, errorBlock(error));
}

// Errors first, then by score.
function worstFirst(failing) {
  const rank = (found) => (found.error ? -1 : (found.score ?? 0));
  return failing.toSorted((a, b) => rank(a) - rank(b));
}

function line(found, result) {
  const notes = found.error
    ? [found.error.message].filter((text) => !result.error?.message.includes(text))
    : found.misses?.length
      ? found.misses
      : [found.reasoning ?? deepestMiss(found)].filter(Boolean);
  return element(
    "li",
    {},
    element(
      "p",
      { class: "line" },
      badge(found.error ? "error" : found.verdict),
      element("bdi", { class: "name" }, visible(found.name)),
      element("span", { class: "score" }, found.error ? "not scored" : number(found.score)),
    ),
    notes.slice(0, MOST_MISSES).map((text) => element("p", { class: "miss", dir: "auto" }, shortText(text))),
    notes.length > MOST_MISSES && element("p", { class: "note" }, `and ${notes.length - MOST_MISSES} more, listed below`),
  );
}

// The first miss among the members of a composite.
function deepestMiss(found) {
  for (const member of found.evaluator_results ?? []) {
    if (!member.error && (!member.verdict || member.verdict === "pass")) continue;
    const text = member.error?.message ?? member.misses?.[0] ?? member.reasoning ?? deepestMiss(member);
    if (text) return `${member.name}: ${text}`;
  }
  return null;
}

function shortText(text) {
  return visible(text.trim().slice(0, LONGEST_REASON)) + (text.trim().length > LONGEST_REASON ? "…" : "");
}
