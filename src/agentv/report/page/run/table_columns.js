// The columns of the table of results: which ones a run needs, which ones fit, and their cells.

import { badge } from "../core/badge.js";
import { element } from "../core/dom.js";
import { duration, number, usd } from "../core/format.js";
import { oneLine, visible } from "../core/text.js";

// `least` is the width in rem below which a column is left out, in the order of `rank`: the highest first.
const COLUMNS = [
  { name: "verdict", title: "Verdict", width: "6.2rem", least: 6.2, rank: 0 },
  { name: "label", title: "Label", width: "4.4rem", least: 4.4, rank: 0.5, isUnsorted: true, isUsed: ({ labels }) => labels !== null },
  { name: "id", title: "Case", width: "minmax(7rem, 1.1fr)", least: 9, rank: 0 },
  { name: "target", title: "Target", width: "minmax(5rem, 0.5fr)", least: 6, rank: 2, isUsed: ({ head }) => head.targets.length > 1 },
  { name: "prompt", title: "Prompt", width: "minmax(5rem, 0.5fr)", least: 6, rank: 3, isUsed: ({ head }) => head.prompts.length > 1 },
  { name: "dataset", title: "Dataset", width: "minmax(5rem, 0.5fr)", least: 6, rank: 4, isUsed: ({ head }) => head.datasets.length > 1 },
  { name: "trial", title: "Trial", width: "3.6rem", least: 3.6, rank: 5, isUsed: ({ mostTrials }) => mostTrials > 1 },
  { name: "score", title: "Score", width: "7.5rem", least: 7.5, rank: 0 },
  { name: "why", title: "Reason", width: "minmax(8rem, 2fr)", least: 11, rank: 1, isUnsorted: true },
  { name: "duration", title: "Time", width: "4.6rem", least: 4.6, rank: 6, isUsed: ({ values }) => values.duration > 0 },
  { name: "cost", title: "Cost", width: "4.6rem", least: 4.6, rank: 7, isUsed: ({ values }) => values.cost > 0 },
];
const GAP = 0.9;
const NAMES = { target: (row) => row.target, prompt: (row) => row.prompt, dataset: (row) => row.dataset.name, trial: (row) => row.trial && `trial ${row.trial}` };

// The columns that have values and fit into a width in rem; and the names that do not fit, shown beside the case.
export function fittingColumns(rows, width) {
  const used = COLUMNS.filter((column) => column.isUsed?.(rows) ?? true);
  const shown = [...used];
  while (shown.reduce((sum, column) => sum + column.least + GAP, 0) > width) {
    const last = shown.reduce((worst, column) => (column.rank > worst.rank ? column : worst));
    if (last.rank === 0) break;
    shown.splice(shown.indexOf(last), 1);
  }
  return { shown, beside: used.filter((column) => column.name in NAMES && !shown.includes(column)) };
}

export function template(columns, isNarrow) {
  return columns.map(({ name, width }) => (isNarrow && name === "score" ? "3.4rem" : width)).join(" ");
}

// The cell of a column, except for the reason, which the table fills in.
export function cell({ name }, row, beside) {
  const make = (...children) => element("div", { class: `cell ${name}`, role: "gridcell" }, ...children);
  switch (name) {
    case "verdict":
      return make(badge(row.verdict));
    case "label":
      return make(row.label && badge(row.label));
    case "id":
      return caseCell(row, beside);
    case "score":
      return make(...scoreBar(row));
    case "why":
      return element("div", { class: "cell why", role: "gridcell", dir: "auto" });
    case "duration":
      return make(duration(row.duration));
    case "cost":
      return make(usd(row.cost));
    case "trial":
      return make(String(row.trial));
    default:
      return make(element("bdi", { title: visible(NAMES[name](row) ?? "") }, oneLine(NAMES[name](row) ?? "", 80)));
  }
}

function caseCell(row, beside) {
  const further = beside.map(({ name }) => NAMES[name](row)).filter(Boolean).join(", ");
  return element(
    "div",
    { class: "cell id", role: "gridcell", title: visible(row.id) },
    element("bdi", {}, oneLine(row.id, 200)),
    further && element("span", { class: "further" }, oneLine(further, 60)),
  );
}

function scoreBar(row) {
  if (row.score === null) return [element("span", { class: "none" }, oneLine(row.error ?? "not scored", 40))];
  const width = `${(row.score * 100).toFixed(1)}%`;
  return [
    element("span", { class: "number" }, number(row.score)),
    element("span", { class: `bar ${row.verdict}`, "aria-hidden": "true" }, element("i", { style: { width } })),
  ];
}
