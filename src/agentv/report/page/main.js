// The page: reads the run, builds the parts, and updates them when the state changes.

import { Detail } from "./detail.js";
import { element, replaceChildren } from "./dom.js";
import { Facets, SearchBox } from "./filters.js";
import { count, moment } from "./format.js";
import { Rows } from "./rows.js";
import { State } from "./state.js";
import { Histogram, failureGroups, targetCards } from "./summary.js";
import { Table, resultCount } from "./table.js";
import { oneLine, stringsIn, visible } from "./text.js";
import { themeButton } from "./theme.js";

export async function start(root, source) {
  const head = await source.head();
  const rows = new Rows(head, await source.columns(head.total));
  const state = new State();
  const page = new Page(head, rows, source, state);
  replaceChildren(root, page.root);
  page.follow();
  state.addEventListener("change", () => page.follow());
  addEventListener("keydown", (event) => page.key(event));
  if (state.values.open !== null) page.table.reveal(state.values.open);
  document.documentElement.dataset.ready = "true";
}

class Page {
  #found = null;
  #searched = "";

  constructor(head, rows, source, state) {
    this.rows = rows;
    this.source = source;
    this.state = state;
    this.table = new Table(rows, source, state);
    this.detail = new Detail(rows, source, state, this.table);
    this.histogram = new Histogram(state);
    this.facets = new Facets(state, rows);
    this.search = new SearchBox(state);
    this.status = element("p", { class: "count-line", role: "status" });
    this.root = element(
      "div",
      { class: "page" },
      banner(head),
      element(
        "div",
        { class: "sidebar" },
        element("section", { class: "targets", "aria-label": "Figures" }, targetCards(head)),
        failureGroups(head),
        this.histogram.root,
        this.facets.root,
      ),
      element("main", {}, element("div", { class: "toolbar" }, this.search.root, this.status), this.table.root),
      this.detail.root,
    );
    this.table.root.addEventListener("opened", () => this.detail.focus());
  }

  follow() {
    const { values } = this.state;
    this.#searchTexts(values);
    const shown = this.rows.matching(values, this.#found);
    this.histogram.show(this.rows.histogram(shown));
    this.facets.show(shown, this.#found);
    this.status.textContent = resultCount(shown.length, this.rows.total);
    this.table.show(this.rows.sorted(shown, values.sort, values.descending));
    this.search.follow();
    this.detail.show();
  }

  key(event) {
    const typing = event.target instanceof HTMLInputElement && event.target.type === "search";
    if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey) {
      event.preventDefault();
      this.search.focus();
    } else if (event.key === "Escape" && !typing && this.state.values.open !== null) {
      this.detail.close();
    }
  }

  // Searches all results and cases block by block, and shows matches as they are found.
  async #searchTexts({ search, answers }) {
    const wanted = answers ? search.trim().toLowerCase() : "";
    if (wanted === this.#searched) return;
    this.#searched = wanted;
    this.#found = wanted ? new Set() : null;
    this.search.progress.textContent = "";
    if (!wanted) return;
    const ofCase = new Map();
    this.rows.columns.case.forEach((position, row) => {
      if (position < 0) return; // a results file without cases
      if (!ofCase.has(position)) ofCase.set(position, []);
      ofCase.get(position).push(row);
    });
    const rowsOf = { results: (position) => [position], cases: (position) => ofCase.get(position) ?? [] };
    let drawn = performance.now();
    for (const kind of ["results", "cases"]) {
      for await (const { first, items } of this.source.batches(kind)) {
        if (this.#searched !== wanted) return;
        items.forEach((item, i) => {
          for (const text of stringsIn(item))
            if (text.toLowerCase().includes(wanted)) return rowsOf[kind](first + i).forEach((row) => this.#found.add(row));
        });
        if (performance.now() - drawn > 400) {
          drawn = performance.now();
          this.search.progress.textContent = `searched ${count(first + items.length)} ${kind === "results" ? "answers" : "inputs"}`;
          this.follow();
        }
      }
    }
    this.search.progress.textContent = "";
    this.follow();
  }
}

const MOST_HEADLINES = 3; // the cards have the figures of all targets

function banner(head) {
  const run = head.run;
  const facts = [
    ...head.headlines.slice(0, MOST_HEADLINES),
    run.datasets.length === 1 ? run.datasets[0] : run.datasets.length ? `${count(run.datasets.length)} datasets` : null,
    run.started_at ? moment(run.started_at) : null,
    run.git_commit ? `commit ${run.git_commit.slice(0, 10)}` : null,
    run.done + run.spared < run.jobs ? `unfinished: ${count(run.done)} of ${count(run.jobs)} jobs` : null,
  ].filter(Boolean);
  return element(
    "header",
    { class: "banner" },
    element("h1", {}, element("span", {}, "Run "), element("bdi", { title: visible(run.id) }, oneLine(run.id, 60))),
    element("p", {}, facts.map((fact) => element("span", {}, oneLine(fact, 160)))),
    themeButton(),
  );
}

