// The list of runs: filters, order, pages, live progress, and two ticked runs to compare.

import { element, replaceChildren } from "../core/dom.js";
import { count, plural } from "../core/format.js";
import { isTyping } from "../core/keys.js";
import { own } from "../core/lookup.js";
import { SearchBox } from "../core/search_box.js";
import { oneLine } from "../core/text.js";
import { ConnectionLine } from "./live.js";
import { FILTERS, RunEntries, STATES, byStart, titleOf } from "./run_entries.js";
import { COMPARED, RunsState } from "./runs_state.js";
import { PAGE, RunsTable } from "./runs_table.js";

export const RUNS = {
  name: "runs",
  title: "Runs",
  open,
  isOffered: (source) => source.runs !== undefined,
};

const KEYS = [
  ["j ↓", "Next run"],
  ["k ↑", "Previous run"],
  ["Enter", "Open the run"],
  ["x", "Tick the run to compare it"],
  ["c", "Compare the two ticked runs"],
  ["/", "Search"],
  ["Esc", "Leave the search box, or remove the ticks"],
];

const TITLES = { dataset: "Dataset", target: "Target", experiment: "Experiment", tag: "Tag", state: "State" };
const STEPS = { j: 1, ArrowDown: 1, k: -1, ArrowUp: -1 };

async function open({ source, state, shell }) {
  const view = new RunsView(source, new RunsState(state), shell);
  await view.load();
  return view;
}

class RunsView {
  keys = KEYS;
  #entries = new RunEntries([]);
  #shown = [];
  #current = null; // the id of the run that the keys are at
  #reading = null;
  #isStale = false;
  #stops;

  constructor(source, state, shell) {
    this.source = source;
    this.state = state;
    this.shell = shell;
    this.events = source.events();
    this.connection = new ConnectionLine(this.events);
    this.#stops = [
      this.connection.close,
      this.events.on("runs", () => this.#reload()),
      this.events.on("progress", () => this.#draw()),
    ];
    this.table = new RunsTable(state, (run) => shell.address("run", { run: run.id }));
    this.search = new SearchBox(() => state.update({ search: this.search.text }), {
      label: "Search runs",
      placeholder: "Search runs",
      title: "Search in names, datasets, targets, prompts, experiments, tags and commits",
    });
    this.selects = new Map(FILTERS.map((name) => [name, element("select", { "aria-label": TITLES[name], onchange: () => this.#filter(name) })]));
    this.status = element("p", { class: "count-line", role: "status" });
    this.pages = element("nav", { class: "pages", "aria-label": "Pages" });
    this.compareBar = element("div", { class: "compare-bar", role: "region", "aria-label": "Ticked runs" });
    this.empty = element("div", { class: "no-runs" });
    this.root = element(
      "main",
      { class: "runs" },
      element("h1", { class: "unseen" }, "Runs"),
      element("div", { class: "runs-toolbar", role: "search" }, this.search.input, this.#labelled(), this.status),
      this.connection.root,
      this.table.root,
      this.empty,
      this.pages,
      this.compareBar,
    );
  }

  // Reads the list. Requests during a request are answered by one more.
  async load() {
    if (this.#reading) {
      this.#isStale = true;
      return this.#reading;
    }
    this.#reading = this.#read().finally(() => (this.#reading = null));
    return this.#reading;
  }

  async #reload() {
    try {
      await this.load();
      this.#draw();
    } catch (error) {
      this.status.textContent = `The list of runs cannot be read: ${error.message}`;
    }
  }

  async #read() {
    do {
      this.#isStale = false;
      const { runs } = await this.source.runs();
      this.#entries = new RunEntries(runs);
    } while (this.#isStale);
  }

  follow() {
    this.state.read();
    this.#draw();
  }

  close() {
    for (const stop of this.#stops) stop();
  }

  key(event) {
    if (event.key === "Escape") return this.#escape(event.target);
    if (event.target === this.search.input && event.key === "ArrowDown") return this.#move(1);
    if (isTyping(event.target)) return false;
    if (event.key in STEPS) return this.#move(STEPS[event.key]);
    if (event.key === "/") return this.search.focus(), true;
    if (event.key === "Enter") return this.#enter(event);
    if (event.key === "x") return this.#tick();
    if (event.key === "c") return this.#compare();
    return false;
  }

  #escape(target) {
    if (isTyping(target)) {
      target.blur();
      return true;
    }
    if (!this.state.values.ticked.length) return false;
    this.state.update({ ticked: [] });
    return true;
  }

  #move(step) {
    if (!this.#shown.length) return false;
    const from = this.#shown.findIndex((run) => run.id === (this.table.focused ?? this.#current));
    const first = this.state.values.page * PAGE;
    const position = from < 0 ? first : Math.max(0, Math.min(this.#shown.length - 1, from + step));
    const page = Math.floor(position / PAGE);
    this.#current = this.#shown[position].id;
    if (page !== this.state.values.page) this.state.update({ page });
    this.table.focus(this.#current);
    return true;
  }

  // The run that has the focus or had it last; else the first one on this page.
  #here() {
    const id = this.table.focused ?? this.#current;
    const isShown = this.#shown.some((run) => run.id === id);
    return isShown ? id : (this.#shown[this.state.values.page * PAGE]?.id ?? null);
  }

  // A link or button that has the focus is activated by the browser.
  #enter(event) {
    const id = this.#here();
    if (event.target !== document.body || id === null) return false;
    location.hash = this.shell.address("run", { run: id });
    return true;
  }

  #tick() {
    const id = this.#here();
    if (id === null) return false;
    this.#current = id;
    this.state.tick(id);
    return true;
  }

  #compare() {
    const runs = this.#ticked();
    if (runs.length === COMPARED) location.hash = comparison(runs);
    return runs.length === COMPARED;
  }

  // The ticked runs, oldest first: the older one is the baseline.
  #ticked() {
    const runs = this.state.values.ticked.map((id) => this.#entries.byId.get(id)).filter(Boolean);
    return runs.sort(byStart);
  }

  #filter(name) {
    this.state.update({ filters: { ...this.state.values.filters, [name]: this.selects.get(name).value || null } });
  }

  #labelled() {
    this.filters = new Map(
      FILTERS.map((name) => [name, element("label", { class: "filter" }, element("span", {}, TITLES[name]), this.selects.get(name))]),
    );
    this.reset = element("button", { type: "button", onclick: () => this.state.reset() }, "Show all");
    return [...this.filters.values(), this.reset];
  }

  #draw() {
    const { values } = this.state;
    const total = this.#entries.runs.length;
    this.#shown = this.#entries.matching(values);
    const pages = Math.max(1, Math.ceil(this.#shown.length / PAGE));
    values.page = Math.min(values.page, pages - 1);
    const first = values.page * PAGE;
    this.search.show(values.search);
    for (const name of FILTERS) this.#fill(name, values.filters[name]);
    this.reset.hidden = !this.state.isFiltered;
    const runs = plural(total, "run");
    this.status.textContent = this.#shown.length === total ? runs : `${count(this.#shown.length)} of ${runs}`;
    this.table.root.hidden = !this.#shown.length;
    this.table.show(this.#shown.slice(first, first + PAGE), this.#entries, this.events.progress);
    replaceChildren(this.empty, this.#shown.length ? [] : total ? "No matching runs." : noRuns());
    replaceChildren(this.pages, pages > 1 ? this.#pageButtons(values.page, pages) : []);
    replaceChildren(this.compareBar, this.#chosen());
  }

  // A filter that cannot exclude a run is hidden.
  #fill(name, chosen) {
    const values = this.#entries.values(name);
    if (chosen !== null && !values.some(([value]) => value === chosen)) values.push([chosen, 0]);
    const total = this.#entries.runs.length;
    this.filters.get(name).hidden = chosen === null && values.every(([, runs]) => runs === total);
    const stamp = JSON.stringify(values);
    const select = this.selects.get(name);
    if (select.dataset.stamp !== stamp) {
      const option = ([value, runs]) =>
        element("option", { value }, `${oneLine(name === "state" ? (own(STATES, value) ?? value) : value, 60)} (${count(runs)})`);
      replaceChildren(select, element("option", { value: "" }, "all"), values.map(option));
      select.dataset.stamp = stamp;
    }
    select.value = chosen ?? "";
  }

  #pageButtons(page, pages) {
    const button = (title, to) =>
      element("button", { type: "button", disabled: to < 0 || to >= pages, onclick: () => this.#turn(to) }, title);
    const last = Math.min(this.#shown.length, (page + 1) * PAGE);
    return [
      button("Previous", page - 1),
      element("span", {}, `${count(page * PAGE + 1)} to ${count(last)} of ${count(this.#shown.length)}`),
      button("Next", page + 1),
    ];
  }

  #turn(page) {
    this.#current = null;
    this.state.update({ page }, { isStep: true });
    this.table.root.scrollTop = 0;
  }

  #chosen() {
    const runs = this.#ticked();
    if (!runs.length) return [];
    const name = (run) => element("bdi", { class: "name" }, `${oneLine(titleOf(run), 80)} (${oneLine(run.name, 60)})`);
    const clear = element("button", { type: "button", onclick: () => this.state.update({ ticked: [] }) }, "Remove ticks");
    if (runs.length < COMPARED) return [element("p", {}, name(runs[0]), " is ticked. Tick another run to compare them."), clear];
    return [
      element("p", {}, "Baseline: ", name(runs[0]), ". Compared with it: ", name(runs[1]), "."),
      element("a", { class: "primary", href: comparison(runs), "aria-keyshortcuts": "c" }, "Compare these two runs"),
      clear,
    ];
  }
}

function comparison(runs) {
  return `#${new URLSearchParams([["view", "compare"], ...runs.map((run) => ["runs", run.id])])}`;
}

function noRuns() {
  return [
    element("p", {}, "There are no runs yet. Make one, and it appears here while it runs:"),
    element("p", {}, element("code", {}, "agentv eval DATASET --target TARGET")),
    element("p", { class: "note" }, "To start with an example project: ", element("code", {}, "agentv init")),
  ];
}
