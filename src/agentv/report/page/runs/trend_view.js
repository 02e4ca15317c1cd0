// The trend of one series of runs with the same datasets and target: a chart, what changed, and a table.

import { element, replaceChildren } from "../core/dom.js";
import { NONE, count, fixed, interval, moment, number, plural } from "../core/format.js";
import { isTyping } from "../core/keys.js";
import { oneLine } from "../core/text.js";
import { ConnectionLine } from "./live.js";
import { RunEntries } from "./run_entries.js";
import { trendChart } from "./trend_chart.js";

export const TREND = {
  name: "trend",
  title: "Trend",
  open,
  isOffered: (source) => source.trend !== undefined,
};

const KEYS = [
  ["j →", "Next run"],
  ["k ←", "Previous run"],
  ["Enter", "Open the run"],
];

const MARGINS = 44; // left and right of the chart
const AT_ONCE = 200; // runs that are drawn until more are asked for
const STEPS = { j: 1, ArrowRight: 1, k: -1, ArrowLeft: -1 };

async function open({ source, state, shell }) {
  const view = new TrendView(source, state, shell);
  await view.load();
  return view;
}

class TrendView {
  keys = KEYS;
  #entries = new RunEntries([]);
  #series = null;
  #key = null;
  #most = AT_ONCE;
  #stops;

  constructor(source, state, shell) {
    this.source = source;
    this.state = state;
    this.shell = shell;
    const events = source.events();
    this.connection = new ConnectionLine(events);
    this.#stops = [this.connection.close, events.on("runs", () => this.#reload())];
    this.select = element("select", { "aria-label": "Dataset and target", onchange: () => this.state.update({ series: this.select.value }, { isStep: true }) });
    this.status = element("p", { class: "count-line", role: "status" });
    this.axis = element("div", {});
    this.chart = element("div", { class: "chart-scroller" });
    this.notes = element("ol", { class: "trend-notes" });
    this.table = element("div", { class: "trend-table" });
    this.chooser = element("label", { class: "filter" }, element("span", {}, "Dataset and target"), this.select);
    this.root = element(
      "main",
      { class: "trend" },
      element("h1", { class: "unseen" }, "Trend"),
      element("div", { class: "runs-toolbar" }, this.chooser, this.status),
      this.connection.root,
      element("div", { class: "chart" }, this.axis, this.chart),
      this.notes,
      this.table,
    );
    this.observer = new ResizeObserver(() => this.#drawChart());
    this.observer.observe(this.root);
  }

  async load() {
    this.#entries = new RunEntries((await this.source.runs()).runs);
    this.#key = null; // figures may have changed
  }

  async #reload() {
    try {
      await this.load();
      this.follow();
    } catch (error) {
      this.status.textContent = `The list of runs cannot be read: ${error.message}`;
    }
  }

  follow() {
    const choices = this.#entries.series;
    const chosen = this.#chosen(choices);
    const option = ({ key, datasets, target, runs }) =>
      element("option", { value: key }, `${oneLine(titled(datasets, target), 90)} (${count(runs.length)})`);
    replaceChildren(this.select, choices.map(option));
    this.chooser.hidden = !chosen;
    if (!chosen) return this.#say("No run has a mean score yet, so there is no trend to show.");
    this.select.value = chosen.key;
    if (chosen.key !== this.#key) this.#read(chosen);
  }

  close() {
    this.observer.disconnect();
    for (const stop of this.#stops) stop();
  }

  key(event) {
    if (!(event.key in STEPS) || isTyping(event.target)) return false;
    const points = [...this.chart.querySelectorAll("a.point")];
    if (!points.length) return false;
    const from = points.indexOf(document.activeElement);
    const position = from < 0 ? points.length - 1 : from + STEPS[event.key];
    points[Math.max(0, Math.min(points.length - 1, position))].focus();
    return true;
  }

  // The series in the URL; else one of the run in the URL; else the first with several runs.
  #chosen(choices) {
    const wanted = this.state.get("series");
    const run = this.state.get("run");
    return (
      choices.find(({ key }) => key === wanted) ??
      choices.find(({ runs }) => run !== null && runs.some(({ id }) => id === run)) ??
      choices.find(({ runs }) => runs.length > 1) ??
      choices[0]
    );
  }

  async #read({ key, datasets, target }) {
    this.#key = key;
    this.status.textContent = "Comparing runs…";
    let found;
    try {
      found = (await this.source.trend(datasets, target)).series;
    } catch (error) {
      if (this.#key === key) this.#say(`The trend cannot be shown: ${error.message}`);
      return;
    }
    if (this.#key !== key) return; // another series was chosen in the meantime
    this.#series = found;
    if (!found) this.#say("No run of this series has a mean score any more.");
    else this.#draw();
  }

  #say(text) {
    this.#series = null;
    this.status.textContent = text;
    for (const part of [this.axis, this.chart, this.notes, this.table]) replaceChildren(part);
  }

  get #drawnRuns() {
    return this.#series.runs.slice(-this.#most);
  }

  #draw() {
    const { runs } = this.#series;
    this.status.textContent = summary(this.#series);
    this.#drawChart();
    const notes = notesOf(this.#series);
    replaceChildren(this.notes, notes.map(({ id, text }) => element("li", { "data-run": id }, text)));
    const hidden = runs.length - this.#drawnRuns.length;
    replaceChildren(this.table, runTable(this.#drawnRuns, notes, this.#address), hidden > 0 && this.#moreButton(hidden));
  }

  #drawChart() {
    if (!this.#series) return;
    const numbers = new Map();
    notesOf(this.#series).forEach(({ id }, position) => numbers.set(id, [...(numbers.get(id) ?? []), position + 1]));
    const focused = document.activeElement?.getAttribute("data-run");
    const width = this.root.clientWidth - MARGINS;
    const options = { notes: numbers, address: this.#address, current: this.state.get("run"), width };
    const { axis, chart } = trendChart(this.#drawnRuns, options);
    replaceChildren(this.axis, axis);
    replaceChildren(this.chart, chart);
    this.chart.scrollLeft = this.chart.scrollWidth; // the newest runs
    if (focused) this.chart.querySelector(`a[data-run="${CSS.escape(focused)}"]`)?.focus();
  }

  #address = (run) => this.shell.address("run", { run: run.id });

  #moreButton(hidden) {
    const more = () => {
      this.#most += AT_ONCE;
      this.#draw();
    };
    const text = `Show ${count(Math.min(hidden, AT_ONCE))} of ${count(hidden)} older runs`;
    return element("p", {}, element("button", { type: "button", onclick: more }, text));
  }
}

function titled(datasets, target) {
  return `${datasets.join(", ") || "no dataset"} · ${target}`;
}

function summary({ runs, changes, shared_cases }) {
  const all = plural(runs.length, "run");
  if (runs.length === 1) return all;
  const shared = shared_cases ? plural(shared_cases, "case") : "no case";
  const found = changes.length ? plural(changes.length, "change of level", "changes of level") : "no change of level shown";
  return `${all}, ${found}; the last run shares ${shared} with earlier ones`;
}

// The reasons of changes and breaks, oldest first, each with the id of the first run after it.
function notesOf({ runs, changes }) {
  const levels = new Map(changes.map((change) => [change.position, change]));
  return runs.flatMap((run, position) => {
    const texts = [];
    if (levels.has(position)) texts.push(levelText(levels.get(position)));
    if (run.other_measures) {
      texts.push(`Measure changed: ${plural(run.other_measures, "case")} asked or scored differently than before. They count as new cases.`);
    }
    if (run.is_unread) texts.push("Not compared with the other runs, because its results cannot be read.");
    return texts.map((text) => ({ id: run.id, text: `${oneLine(run.name, 80)}: ${text}` }));
  });
}

function levelText({ before, after, cases: shared, p_value }) {
  const direction = after > before ? "up" : "down";
  const p = p_value < 0.001 ? "p < 0.001" : `p = ${fixed(p_value, 3)}`;
  return `The level went ${direction} from ${number(before)} to ${number(after)} on ${plural(shared, "shared case")} (${p}).`;
}

function runTable(runs, notes, address) {
  const titles = ["Started (UTC)", "Run", "Mean", "95 % interval", "Scored", "Errors", "Commit", "Note"];
  const line = (run) =>
    element(
      "tr",
      {},
      element("td", {}, run.started_at ? moment(run.started_at).replace(" UTC", "") : NONE),
      element("th", { scope: "row" }, element("a", { href: address(run) }, element("bdi", {}, oneLine(run.name, 80)))),
      element("td", { class: "number" }, number(run.mean)),
      element("td", { class: "number" }, interval(run.ci95)),
      element("td", { class: "number" }, count(run.scored)),
      element("td", { class: "number" }, count(run.errors)),
      element("td", {}, run.git_commit ? element("code", {}, oneLine(run.git_commit, 200).slice(0, 8)) : NONE),
      element("td", {}, notes.flatMap(({ id }, position) => (id === run.id ? [String(position + 1)] : [])).join(", ")),
    );
  return element(
    "table",
    { "aria-label": "Runs of this trend, newest first" },
    element("thead", {}, element("tr", {}, titles.map((title) => element("th", { scope: "col" }, title)))),
    element("tbody", {}, [...runs].reverse().map(line)),
  );
}
