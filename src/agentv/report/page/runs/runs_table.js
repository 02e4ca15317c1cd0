// The table of runs: a group of lines for each run, one page at a time. Lines that did not change are kept.

import { element, replaceChildren } from "../core/dom.js";
import { NONE, count, interval, moment, number, percent, usd } from "../core/format.js";
import { own } from "../core/lookup.js";
import { oneLine, visible } from "../core/text.js";
import { ProgressBar, isRunning, progressFacts } from "./live.js";
import { STATES, titleOf, total } from "./run_entries.js";
import { sparkline } from "./sparkline.js";

export const PAGE = 100;

const MOST_TARGETS = 6;
const COLUMNS = [
  { name: "tick", title: "Compare", hidden: true },
  { name: "title", title: "Run", sorted: true },
  { name: "state", title: "State", sorted: true },
  { name: "mean", title: "Mean", sorted: true, note: "95 % interval" },
  { name: "history", title: "Earlier runs" },
  { name: "passed", title: "Passed", sorted: true },
  { name: "errors", title: "Errors", sorted: true },
  { name: "cost", title: "Cost", sorted: true },
  { name: "started", title: "Started (UTC)", sorted: true },
  { name: "commit", title: "Commit", sorted: true },
];

export class RunsTable {
  #state;
  #address;
  #lines = new Map(); // the drawn group of each run: { root, stamp, link, box }
  #headers = new Map();

  // `address` returns the link of a run.
  constructor(state, address) {
    this.#state = state;
    this.#address = address;
    this.head = element(
      "thead",
      { role: "rowgroup" },
      element("tr", { role: "row" }, COLUMNS.map((column) => this.#header(column))),
    );
    this.table = element("table", { class: "runs-table", role: "table", "aria-label": "Runs" }, this.head);
    this.root = element("div", { class: "runs-scroller" }, this.table);
  }

  // Shows one page of runs. `progress` has the last progress of running evals by id.
  show(runs, entries, progress) {
    const { sort, descending, ticked } = this.#state.values;
    for (const [name, cell] of this.#headers) {
      if (name === sort) cell.setAttribute("aria-sort", descending ? "descending" : "ascending");
      else cell.removeAttribute("aria-sort");
    }
    this.table.classList.toggle("without-commits", !entries.runs.some((run) => run.git_commit));
    const focused = this.focused;
    const groups = runs.map((run) => this.#group(run, entries, isRunning(run) ? progress.get(run.id) : undefined));
    for (const [id, { box, root }] of this.#lines) {
      if (!runs.some((run) => run.id === id)) this.#lines.delete(id);
      box.checked = ticked.includes(id);
      root.classList.toggle("ticked", box.checked);
    }
    if (!isSame([...this.table.children].slice(1), groups)) replaceChildren(this.table, this.head, groups);
    if (focused !== null && this.focused !== focused) this.focus(focused);
  }

  // The id of the run that has the focus; null if none has.
  get focused() {
    return document.activeElement?.closest?.("tbody[data-id]")?.dataset.id ?? null;
  }

  focus(id) {
    const line = this.#lines.get(id);
    line?.link.focus();
    line?.root.scrollIntoView({ block: "nearest" });
  }

  #header({ name, title, sorted, note, hidden }) {
    const label = sorted ? element("button", { type: "button", onclick: () => this.#sort(name) }, title) : title;
    const cell = element(
      "th",
      { class: `col-${name}`, role: "columnheader", scope: "col" },
      hidden ? element("span", { class: "unseen" }, label) : label,
      note && element("small", {}, note),
    );
    if (sorted) this.#headers.set(name, cell);
    return cell;
  }

  // Figures and times begin with the highest, names with the first.
  #sort(name) {
    const { sort, descending } = this.#state.values;
    const isText = name === "title" || name === "state";
    this.#state.update({ sort: name, descending: sort === name ? !descending : !isText });
  }

  #group(run, entries, progress) {
    const targets = Object.entries(run.targets);
    const histories = targets.map(([target]) => entries.meansUpTo(run, target));
    const stamp = JSON.stringify([run, histories, progress]);
    const known = this.#lines.get(run.id);
    if (known?.stamp === stamp) return known.root;
    const made = this.#made(run, targets, histories, progress);
    made.stamp = stamp;
    if (known) known.root.replaceWith(made.root);
    this.#lines.set(run.id, made);
    return made.root;
  }

  #made(run, targets, histories, progress) {
    const title = titleOf(run);
    const link = element("a", { href: this.#address(run) }, element("bdi", {}, oneLine(title, 160)));
    const box = element("input", {
      type: "checkbox",
      "aria-label": `Compare ${oneLine(title, 80)}, ${oneLine(run.name, 80)}`,
      onchange: () => this.#state.tick(run.id),
    });
    const isOne = targets.length === 1;
    const figures = isOne ? figureCells(targets[0][1], histories[0]) : sumCells(run, progress);
    const line = row(
      cell("tick", element("label", {}, box)),
      cell("title", link, names(run)),
      cell("state", stateOf(run, progress)),
      ...figures,
      cell("started", run.started_at ? startText(run.started_at) : NONE),
      cell("commit", run.git_commit ? element("code", {}, oneLine(run.git_commit, 200).slice(0, 8)) : NONE),
    );
    const parts = isOne ? [] : targets.slice(0, MOST_TARGETS).map(([name, found], i) => targetRow(name, found, histories[i]));
    const root = element("tbody", { role: "rowgroup", "data-id": run.id, class: `run ${run.state}` }, line, parts);
    const hidden = isOne ? 0 : targets.length - parts.length;
    if (hidden > 0) root.append(row(cell("tick"), cell("title part", `and ${count(hidden)} more targets`)));
    return { root, link, box };
  }
}

function row(...cells) {
  return element("tr", { role: "row" }, cells);
}

function cell(name, ...children) {
  const column = COLUMNS.find((each) => name.startsWith(each.name));
  const isHeader = name.startsWith("title");
  return element(
    isHeader ? "th" : "td",
    { class: `col-${name}`, role: isHeader ? "rowheader" : "cell", scope: isHeader ? "row" : null, "data-title": column.title },
    children.flat(),
  );
}

function names(run) {
  const chips = run.tags.map((tag) => element("span", { class: "chip" }, element("bdi", {}, oneLine(tag, 40))));
  return element(
    "span",
    { class: "names" },
    element("bdi", { class: "name", title: visible(run.path ?? run.name) }, oneLine(run.name, 80)),
    run.experiment && element("span", { class: "chip experiment", title: "Experiment" }, element("bdi", {}, oneLine(run.experiment, 40))),
    chips,
  );
}

function targetRow(name, figures, means) {
  return row(
    cell("tick"),
    cell("title part", element("bdi", { title: visible(name) }, oneLine(name, 80))),
    cell("state"),
    ...figureCells(figures, means),
    cell("started"),
    cell("commit"),
  );
}

function figureCells(target, means) {
  return [
    cell("mean", number(target.mean), target.ci95 && element("small", {}, interval(target.ci95))),
    cell("history", sparkline(means) ?? ""),
    cell("passed", target.scored ? [percent(target.pass_rate), element("small", {}, `of ${count(target.scored)} scored`)] : NONE),
    cell("errors", errorText(target.errors), done(target) ? element("small", {}, ` of ${count(done(target))}`) : null),
    cell("cost", usd(target.cost_usd)),
  ];
}

// The jobs of a target that have a result.
function done({ scored, errors, unscored }) {
  return (scored ?? 0) + (errors ?? 0) + (unscored ?? 0);
}

// The figures of a run with no or several targets; those of a running eval come from its progress.
function sumCells(run, progress) {
  const errors = progress?.errors ?? total(run, "errors");
  const cost = progress?.cost_usd ?? total(run, "cost_usd");
  const jobs = progress?.done ?? run.done;
  return [
    cell("mean"),
    cell("history"),
    cell("passed"),
    cell("errors", errors === null ? "" : errorText(errors), errors !== null && jobs ? element("small", {}, ` of ${count(jobs)}`) : null),
    cell("cost", cost === null ? "" : usd(cost)),
  ];
}

function errorText(errors) {
  return element("span", { class: errors ? "some" : "none" }, count(errors ?? 0));
}

function startText(text) {
  return moment(text).replace(" UTC", "");
}

function stateOf(run, progress) {
  const state = progress?.state ?? run.state;
  const badge = element("span", { class: `run-state ${state}` }, own(STATES, state) ?? oneLine(state, 20));
  if (isRunning({ state })) {
    const bar = new ProgressBar();
    const found = { done: run.done, jobs: run.jobs, ...progress };
    bar.show(found.done, found.jobs);
    return [badge, bar.root, element("small", {}, progressFacts(found).join(" · "))];
  }
  if (state === "unfinished" && run.jobs) return [badge, element("small", {}, `${count(run.done ?? 0)} of ${count(run.jobs)} done`)];
  if (state === "unreadable" && run.problem) {
    return [badge, element("small", { title: visible(run.problem) }, oneLine(run.problem, 160))];
  }
  return badge;
}

function isSame(before, after) {
  return before.length === after.length && after.every((each, position) => each === before[position]);
}
