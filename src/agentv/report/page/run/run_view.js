// The page: reads the run, builds the parts, and updates them when the state changes.

import { Detail } from "../case/detail.js";
import { element } from "../core/dom.js";
import { Facets, SearchBox } from "./filters.js";
import { count, moment } from "../core/format.js";
import { Rows } from "../data/rows.js";
import { RunState } from "./run_state.js";
import { Histogram, failureGroups, targetCards } from "./summary.js";
import { Table, resultCount } from "./table.js";
import { oneLine, visible } from "../core/text.js";

export const RUN = { name: "run", title: "Results", open, isOffered: () => true };

async function open({ source, state }) {
  const run = await source.run(state.get("run"));
  const head = await run.head();
  const page = new Page(head, new Rows(head), run, new RunState(state));
  await page.load();
  return page;
}

class Page {
  #found = null;
  #searched = "";
  #isClosed = false;
  #isRevealed = false;

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

  // Reads the first block of rows; the others follow while the page is shown.
  async load() {
    const blocks = this.source.blocks();
    const add = async () => {
      const { value, done } = await blocks.next();
      if (value) this.rows.append(value);
      return !done && !this.#isClosed;
    };
    if (!(await add())) return;
    const rest = async () => {
      for (let drawn = performance.now(); await add(); ) {
        if (performance.now() - drawn < REDRAW) continue;
        drawn = performance.now();
        this.#draw();
      }
      if (!this.#isClosed) this.#draw();
    };
    rest();
  }

  follow() {
    this.state.read();
    this.#draw();
    if (!this.#isRevealed && this.state.values.open !== null) this.table.reveal(this.state.values.open);
    this.#isRevealed = true;
  }

  close() {
    this.#isClosed = true;
    document.body.classList.remove("with-detail");
  }

  key(event) {
    const typing = event.target instanceof HTMLInputElement && event.target.type === "search";
    if (event.key === "/" && !typing) {
      this.search.focus();
      return true;
    }
    if (event.key === "Escape" && !typing && this.state.values.open !== null) {
      this.detail.close();
      return true;
    }
    return false;
  }

  #draw() {
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

  // Searches conversations, and shows matches as they are found.
  async #searchTexts({ search, answers }) {
    const wanted = answers ? search.trim() : "";
    if (wanted === this.#searched) return;
    this.#searched = wanted;
    this.#found = wanted ? new Set() : null;
    this.search.progress.textContent = "";
    if (!wanted) return;
    let drawn = performance.now();
    for await (const { rows, searched, total } of this.source.search(wanted)) {
      if (this.#searched !== wanted || this.#isClosed) return;
      for (const row of rows) this.#found.add(row);
      if (performance.now() - drawn < REDRAW) continue;
      drawn = performance.now();
      this.search.progress.textContent = `searched ${count(searched)} of ${count(total)} results`;
      this.#draw();
    }
    this.search.progress.textContent = "";
    this.#draw();
  }
}

const REDRAW = 400; // milliseconds between drawings while rows or matches arrive
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
  );
}

