// The verdict of a comparison, its figures, what changed, and why cases became worse.

import { copyButton } from "../core/copy.js";
import { element } from "../core/dom.js";
import { count, interval, number, percent } from "../core/format.js";
import { frontierChart } from "../core/frontier.js";
import { visible } from "../core/text.js";
import { sentence, signed, signedInterval } from "./figures.js";

const MOST_GROUPS = 20;

// The sentence that `agentv compare` prints, and the means behind it.
export function verdict(head, { compareAnyway } = {}) {
  const { text, answer, commands, advice } = head.verdict;
  const kind = answer === "better" ? "better" : answer === "worse" ? "worse" : commands ? "open" : "unsure";
  return element(
    "header",
    { class: `verdict ${kind}` },
    element("h1", {}, sentence(text)),
    head.margin && element("p", { class: "margin" }, sentence(head.margin)),
    commands && remedy(commands, advice, compareAnyway),
    head.notes.length > 0 && element("ul", { class: "notes" }, head.notes.map((note) => element("li", {}, sentence(note)))),
    head.kind === "comparison" && figures(head),
  );
}

function remedy(commands, advice, compareAnyway) {
  const [first, ...rest] = advice;
  return element(
    "div",
    { class: "remedy" },
    element("p", {}, sentence(first)),
    commands.map((command) => element("div", { class: "command" }, element("code", {}, visible(command)), copyButton("Copy command", command))),
    rest.map((line) => element("p", {}, sentence(line))),
    compareAnyway && element("button", { type: "button", onclick: compareAnyway }, "Compare anyway"),
  );
}

function figures(head) {
  const { runs, summary, pass_rate: passes } = head.data;
  const [a, b] = runs;
  return element(
    "dl",
    { class: "compare-figures" },
    side("A", a, runs),
    side("B", b, runs),
    figure("Difference", signed(summary.mean_delta), summary.n ? `95 % ${signedInterval(summary.ci95)}, n = ${count(summary.n)}` : "no case was scored in both"),
    passes &&
      figure(
        "Pass rate",
        `${percent(passes.mean_before)} → ${percent(passes.mean_after)}`,
        `${signed(passes.mean_delta)}, 95 % ${signedInterval(passes.ci95)}, n = ${count(passes.n)}`,
      ),
    outcomes(summary, head.outcomes),
  );
}

function side(letter, run, runs) {
  const named = runs[0].label === runs[1].label ? run.path : run.label;
  const errors = run.errors ? `; ${count(run.errors)} of ${count(run.records)} ${run.records === 1 ? "result" : "results"} errored (not scored)` : "";
  return element(
    "div",
    { class: "side" },
    element("dt", {}, `${letter} `, element("bdi", { title: visible(run.path) }, visible(named)), element("span", {}, ` · ${visible(run.targets.join(", "))}`)),
    element("dd", {}, element("strong", {}, number(run.mean?.value)), ` 95 % ${interval(run.mean?.ci95)}`),
    element("dd", { class: "note" }, `${count(run.mean?.n ?? 0)} of ${count(run.cases)} ${run.cases === 1 ? "case" : "cases"}${errors}`),
  );
}

function figure(name, value, further) {
  return element("div", {}, element("dt", {}, name), element("dd", {}, element("strong", {}, value)), element("dd", { class: "note" }, further));
}

function outcomes({ wins, losses, ties }, text) {
  const part = (kind, n) => n > 0 && element("i", { class: kind, style: { "flex-grow": String(n) } });
  return element(
    "div",
    {},
    element("dt", {}, "Cases"),
    element("dd", {}, element("span", { class: "outcome-bar", "aria-hidden": "true" }, part("loss", losses), part("tie", ties), part("gain", wins))),
    element("dd", { class: "note" }, visible(text)),
  );
}

// Everything beside the list of cases. `openCase` opens the case with an id; with `isBlind`, no verdicts and figures.
export function overview(head, { openCase, isBlind }) {
  if (isBlind) return element("div", { class: "compare-side" }, whatChanged(head.what_changed));
  return element(
    "div",
    { class: "compare-side" },
    whatChanged(head.what_changed),
    head.regressions && regressions(head.regressions, openCase),
    head.left_out.length > 0 && section("Not in the figures", element("ul", { class: "remarks" }, head.left_out.map((text) => element("li", {}, visible(text))))),
    [...head.tables, head.runs].map(foldedTable),
    head.method.length > 0 && folded("Method", head.method.map((text) => element("p", {}, visible(text)))),
  );
}

function whatChanged(found) {
  return found.map(({ title, changes }) =>
    section(
      title,
      changes.length > 0 &&
        element(
          "ul",
          { class: "remarks" },
          changes.map((change) =>
            element(
              "li",
              { class: change.is_measure ? "measure" : null },
              visible(change.text),
              change.diff && element("details", { open: changes.length === 1 }, element("summary", {}, "Difference"), diffBlock(change.diff)),
            ),
          ),
        ),
    ),
  );
}

// A unified diff with coloured lines.
function diffBlock(text) {
  const kinds = { "+": "ins", "-": "del" };
  const lines = visible(text)
    .split("\n")
    .filter((line) => !/^(---|\+\+\+) [AB]?$/.test(line));
  return element("pre", { class: "text diff" }, lines.flatMap((line) => [element(kinds[line[0]] ?? "span", {}, line), "\n"]));
}

function regressions(found, openCase) {
  const example = (id) => element("button", { type: "button", class: "example", onclick: () => openCase(id) }, element("bdi", {}, visible(id)));
  return section(
    found.title,
    found.divergences.length > 0 && element("ul", { class: "remarks" }, found.divergences.map((text) => element("li", {}, sentence(text)))),
    found.headline && element("p", {}, visible(found.headline)),
    element(
      "ul",
      { class: "remarks groups" },
      found.groups
        .slice(0, MOST_GROUPS)
        .map((group) => element("li", {}, element("strong", {}, count(group.count)), ` ${visible(group.cause)} `, group.examples.map(example))),
      found.groups.length > MOST_GROUPS && element("li", {}, `and ${count(found.groups.length - MOST_GROUPS)} smaller groups`),
    ),
  );
}

function section(title, ...children) {
  return element("section", {}, element("h2", {}, visible(title)), ...children);
}

function folded(title, ...children) {
  return element("details", { class: "folded" }, element("summary", {}, visible(title)), ...children);
}

// A remark in parentheses after the title is shown with the table.
function foldedTable(found) {
  const [, title, remark] = /^(.*?)(?: \((.*)\))?$/s.exec(found.title);
  return folded(title, remark && element("p", { class: "note" }, visible(remark)), table(found));
}

function table({ title, head, rows }) {
  return element(
    "div",
    { class: "wide", tabindex: "0", role: "region", "aria-label": visible(title) },
    element(
      "table",
      {},
      element("thead", {}, element("tr", {}, head.map((text) => (text ? element("th", { scope: "col" }, visible(text)) : element("td", {}))))),
      element("tbody", {}, rows.map(([name, ...cells]) => element("tr", {}, element("th", { scope: "row" }, visible(name)), cells.map((text) => element("td", {}, visible(text)))))),
    ),
  );
}

// The page of three or more runs.
export function matrix(head) {
  return element(
    "div",
    { class: "matrix" },
    verdict(head),
    element("p", { class: "note" }, visible(head.basis)),
    head.tables.map((each) => section(each.title, table(each))),
    head.frontier && section(head.frontier.table.title, frontierChart(head.frontier), table(head.frontier.table)),
    whatChanged(head.what_changed),
  );
}
