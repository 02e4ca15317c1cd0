// One case in both runs: answers side by side, evaluators, and tool calls with the first divergence.

import { errorBlock, plainMessage } from "../case/blocks.js";
import { findings } from "../case/evaluators.js";
import { badge } from "../core/badge.js";
import { difference } from "../core/diff.js";
import { element, replaceChildren } from "../core/dom.js";
import { firstEntries } from "../core/first_entries.js";
import { duration, number, usd } from "../core/format.js";
import { longText } from "../core/long_text.js";
import { LONGEST, oneLine, visible } from "../core/text.js";
import { kindWord, sentence, signed } from "./figures.js";
import { trajectory } from "./trajectory.js";

const LETTERS = ["A", "B"];

export class CasePanel {
  #row = null;
  #isBlind = false;
  #found = null;

  // `isHidden(sides)` returns whether the verdicts of a case are hidden.
  constructor(source, columns, shell, { close, step, isHidden }) {
    this.isHidden = isHidden;
    this.source = source;
    this.columns = columns;
    this.shell = shell;
    this.back = button("Back to the results", "← Results", close, "back");
    this.close = button("Close the case", "✕", close, "close");
    this.before = button("Previous case", "↑", () => step(-1));
    this.after = button("Next case", "↓", () => step(1));
    this.place = element("span", { class: "place" });
    this.title = element("h2", { id: "case-title", tabindex: "-1" });
    this.body = element("div", { class: "case-body", tabindex: "0", role: "region", "aria-label": "Both results of the case" });
    this.root = element(
      "section",
      { class: "case-panel", "aria-labelledby": "case-title", hidden: true },
      element("header", {}, element("div", { class: "steps" }, this.back, this.before, this.after, this.place, this.close), this.title),
      this.body,
    );
  }

  async show(row, list) {
    this.root.hidden = row === null;
    if (row === null) {
      this.#row = null;
      replaceChildren(this.body); // the next case is not shown with these answers
      return;
    }
    this.place.textContent = list.place(row);
    this.before.disabled = list.neighbour(row, -1) === null;
    this.after.disabled = list.neighbour(row, 1) === null;
    if (row === this.#row) return;
    this.#row = row;
    this.#found = null;
    const item = this.columns.at(row);
    if (!this.body.hasChildNodes()) this.#showTitle(item);
    const found = await this.source.pair(row).catch((error) => ({ error }));
    if (this.#row !== row) return; // another case was opened in the meantime
    this.#found = found;
    this.#showTitle(item);
    this.#draw(item);
    this.body.scrollTop = 0;
  }

  #showTitle({ id }) {
    replaceChildren(this.title, element("bdi", {}, oneLine(id, 1_000) || "(no id)"));
  }

  // Draws the case again if its verdicts are hidden no longer, or again.
  refresh() {
    if (this.#row !== null && this.#found && this.isHidden(this.#found.sides) !== this.#isBlind) this.#draw(this.columns.at(this.#row));
  }

  #draw(item) {
    const found = this.#found;
    this.#isBlind = this.isHidden(found?.sides);
    const shown = found?.sides && this.#isBlind ? withoutVerdicts(found) : found;
    const intro = this.#isBlind ? hiddenFacts(item) : facts(item, shown);
    replaceChildren(this.body, intro, shown?.sides ? this.#sections(shown) : missing(shown));
  }

  focus() {
    this.title.focus({ preventScroll: true });
  }

  #sections(pair) {
    const [first, second] = pair.sides.map((side) => side?.record ?? null);
    const link = (place) => {
      const side = pair.sides[place];
      const run = this.source.runs?.[place];
      if (place === 0 && this.source.isPooled) return null; // the row is one of several runs
      return side && run && element("a", { href: this.shell.address("run", { run, open: String(side.row) }) }, `Full result in ${LETTERS[place]}`);
    };
    return [
      pair.reason && section("Why", longText(pair.reason)),
      section("Answers", answers(first, second, [link(0), link(1)])),
      pair.trajectory && section("Tool calls", trajectory(pair.trajectory, pair.divergence)),
      evaluators(first, second),
      input(pair.case),
    ].filter(Boolean);
  }
}

// The case as it is shown before its answers are labelled.
function withoutVerdicts(pair) {
  const sides = pair.sides.map((side) => {
    if (!side) return side;
    const { score, verdict, hits, misses, reasoning, evaluator_results, ...record } = side.record;
    return { ...side, trials: [], record: { ...record, isBlind: true } };
  });
  return { ...pair, reason: null, sides };
}

function missing(found) {
  const text = found?.error
    ? `The case cannot be read. ${[found.error.message, found.error.detail, found.error.hint].filter(Boolean).join(". ")}`
    : "The answers of this case are not in this file. Open the runs with `agentv view`, or print the case with `agentv compare A B --case ID`.";
  return element("p", { class: "note" }, sentence(text));
}

function hiddenFacts(item) {
  return element("div", { class: "case-facts" }, element("p", {}, "The verdicts are hidden until the answers are labelled."), nameLine(item));
}

function nameLine(item) {
  const names = [item.dataset, item.target, item.prompt].filter(Boolean).join(" · ");
  return names && element("p", { class: "note" }, visible(names));
}

function facts(item, pair) {
  const change =
    item.change === null
      ? { unscored: `No score in ${unscoredSides(item)}`, "other input": "The input differs: not paired" }[item.kind] ?? `The case is ${item.kind}`
      : `${number(item.before)} → ${number(item.after)} (${signed(item.change)})`;
  return element(
    "div",
    { class: "case-facts" },
    element("p", {}, element("span", { class: `outcome-word ${item.kind.split(" ")[0]}` }, kindWord(item.kind)), element("strong", {}, change)),
    nameLine(item),
    pair?.sides?.map((side, place) => side && trials(side, LETTERS[place])),
  );
}

function unscoredSides(item) {
  return [item.before === null && "A", item.after === null && "B"].filter(Boolean).join(" and ");
}

// The scores of all results of the case, if there are several; the one whose answer is shown is marked.
function trials(side, letter) {
  if (side.trials.length < 2) return null;
  const more = side.more ? `, and ${side.more} more` : "";
  return element(
    "p",
    { class: "trials" },
    `${letter}, ${side.trials.length + side.more} results: `,
    side.trials.flatMap((each) => [
      element("span", { class: each.row === side.row ? "shown" : null, title: each.row === side.row ? "Shown below" : null }, each.score === null ? each.verdict : number(each.score)),
      " ",
    ]),
    more,
  );
}

function answers(first, second, links) {
  const texts = [first, second].map((record) => (typeof record?.candidate_answer === "string" ? record.candidate_answer : null));
  const isShort = texts.every((text) => text !== null && text.length <= LONGEST);
  const parts = isShort ? difference(visible(texts[0]), visible(texts[1])) : null;
  const columns = [first, second].map((record, place) =>
    element(
      "div",
      { class: "answer-side" },
      element("p", { class: "role" }, `${LETTERS[place]} `, record && !record.isBlind && badge(verdictOf(record)), record && ` ${metrics(record)}`, links[place] && " ", links[place]),
      answer(record, texts[place], parts?.filter(([kind]) => kind !== (place ? "removed" : "added"))),
    ),
  );
  const isSame = texts[0] !== null && texts[0] === texts[1];
  return [element("div", { class: "answers" }, columns), isSame && element("p", { class: "note" }, "Both answers are identical.")];
}

function answer(record, text, parts) {
  if (!record) return element("p", { class: "note" }, "The run does not have this case.");
  const error = record.error && errorBlock(record.error);
  if (text === null) return error ?? element("p", { class: "note" }, "No stored answer.");
  const names = { removed: "del", added: "ins", same: "span" };
  const marked = parts ? element("p", { class: "text", dir: "auto" }, parts.map(([kind, part]) => element(names[kind], {}, part))) : longText(text);
  return [error, marked].filter(Boolean);
}

function verdictOf(record) {
  return record.verdict ?? (record.status === "error" ? "error" : "unscored");
}

function metrics(record) {
  const { duration_ms: time, cost_usd: cost } = record.execution_metrics ?? {};
  const shown = [record.score ?? null, time ?? null, cost ?? null];
  const formats = [number, duration, usd];
  return shown.map((value, place) => (value === null ? null : formats[place](value))).filter(Boolean).join(" · ");
}

// The scores of each evaluator in both runs, those that changed first, with what they found.
function evaluators(first, second) {
  const lists = [first, second].map((record) => new Map((record?.evaluator_results ?? []).map((found) => [found.name, found])));
  const names = [...new Set([...lists[0].keys(), ...lists[1].keys()])];
  if (!names.length) return null;
  const rows = names.map((name) => ({ name, sides: lists.map((list) => list.get(name) ?? null) }));
  const change = ({ sides: [a, b] }) => (typeof a?.score === "number" && typeof b?.score === "number" ? b.score - a.score : null);
  rows.sort((a, b) => Math.abs(change(b) ?? 0) - Math.abs(change(a) ?? 0));
  return section("Evaluators", firstEntries(rows, (row) => evaluator(row, change(row)), "evaluators"));
}

function evaluator({ name, sides }, change) {
  const scores = sides.map((found) => (found === null ? "–" : found.error ? "error" : number(found.score)));
  return element(
    "div",
    { class: "evaluator" },
    element(
      "p",
      { class: "line" },
      element("bdi", { class: "name" }, visible(name)),
      element("span", { class: "score" }, `${scores[0]} → ${scores[1]}`),
      element("span", { class: `delta ${change > 0 ? "gain" : change < 0 ? "loss" : ""}` }, change === null ? "" : signed(change)),
    ),
    element("div", { class: "answers" }, sides.map((found, place) => element("div", { class: "answer-side", "data-side": LETTERS[place] }, evidence(found)))),
  );
}

function evidence(found) {
  if (!found) return element("p", { class: "note" }, "Not scored by this evaluator.");
  return [
    found.error && element("p", { class: "note" }, visible(found.error.message)),
    findings("hit", found.hits),
    findings("miss", found.misses),
    found.reasoning && longText(found.reasoning),
  ].filter(Boolean);
}

function input(testCase) {
  const messages = testCase?.input ?? [];
  const expected = testCase?.expected_output?.at(-1)?.content;
  if (!messages.length) return null;
  return section(
    "Case",
    messages.map(plainMessage),
    testCase.expected_outcome && plainMessage({ role: "expected outcome", content: testCase.expected_outcome }),
    expected !== undefined && plainMessage({ role: "expected output", content: expected }),
  );
}

function section(title, ...children) {
  return element("section", {}, element("h3", {}, title), ...children);
}

function button(label, text, onclick, name = null) {
  return element("button", { type: "button", class: name, "aria-label": label, title: label, onclick }, text);
}
