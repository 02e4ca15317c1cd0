// The view of a run: reads its rows, builds the parts, and updates them when the state changes or rows arrive.

import { Detail } from "../case/detail.js";
import { element, replaceChildren } from "../core/dom.js";
import { failureLine } from "../core/failure.js";
import { count } from "../core/format.js";
import { isTyping, resultKey } from "../core/keys.js";
import { Rows } from "../data/rows.js";
import { Filters, OrderBox, SearchBar } from "./filters.js";
import { Headline } from "./headline.js";
import { LiveLine } from "../runs/live.js";
import { RunState } from "./run_state.js";
import { Histogram, failureGroups, targetCards } from "./summary.js";
import { Table, resultCount } from "./table.js";
import { TextSearch } from "./text_search.js";

export const RUN = { name: "run", title: "Results", open, isOffered: () => true };

const REDRAW = 400; // milliseconds between drawings while rows arrive
const REFRESH = 2_000; // milliseconds between questions for new figures
const KEYS = [
  ["j ↓", "Next result"],
  ["k ↑", "Previous result"],
  ["Enter", "Open the result"],
  ["Esc", "Leave the search box; close the result"],
  ["/", "Search"],
  ["g Home", "First result"],
  ["G End", "Last result"],
];

async function open({ source, state, shell }) {
  const run = await source.run(state.get("run"));
  const head = await run.head();
  const live = source.events ? new LiveLine(source.events(), run.id) : null;
  const page = new Page(head, new Rows(head), run, new RunState(state), { live, shell });
  live?.follow((isRunning) => page.resume(isRunning));
  await page.load();
  return page;
}

class Page {
  #isClosed = false;
  #isRevealed = false;
  #isRead = false;
  #failure = null;
  #drawing = 0;
  #known = 0; // the number of rows that are known to follow
  #filtered = null;
  #refreshed = performance.now();

  constructor(head, rows, source, state, { live, shell }) {
    this.head = head;
    this.run = source.id;
    this.rows = rows;
    this.source = source;
    this.state = state;
    this.live = live;
    this.shell = shell;
    this.keys = KEYS;
    this.panel = null; // for labels
    this.headline = new Headline(state, rows);
    this.table = new Table(rows, source, state);
    this.detail = new Detail(rows, source, state, this.table);
    this.histogram = new Histogram(state);
    this.filters = new Filters(state, rows);
    this.headline.describe(head);
    this.order = new OrderBox(state, rows);
    this.search = new SearchBar(state);
    this.texts = new TextSearch(source, this.search.progress, () => this.#draw());
    this.status = element("p", { class: "count-line", role: "status" });
    this.reading = element("p", { class: "reading", role: "status" });
    this.partial = element("p", { class: "note", role: "status" });
    this.figures = element("section", { class: "targets", "aria-label": "Figures" });
    this.failures = element("div", {});
    const toolbar = element("div", { class: "toolbar" }, this.search.root, this.filters.root, element("div", { class: "listing" }, this.reading, this.status, this.order.root));
    this.root = element(
      "div",
      { class: "page" },
      this.headline.root,
      element("main", {}, live?.root, toolbar, this.table.root),
      element("aside", { class: "sidebar", "aria-label": "Figures and failure groups" }, this.partial, this.figures, this.histogram.root, this.failures),
      this.detail.root,
    );
    this.#known = head.live ? head.total : Math.max(head.total, head.run.done);
    this.#showFigures();
  }

  // Lets a person label results: marks and a filter in the table, and a panel in the detail view.
  addLabels(labels, panel) {
    this.rows.labels = labels;
    this.panel = this.detail.panel = panel;
    this.keys = [...KEYS, ...panel.keys];
    this.status.before(panel.start);
    this.detail.root.querySelector("header").append(panel.root);
    labels.addEventListener("change", () => {
      this.#showFigures();
      this.#draw();
    });
    this.#showFigures();
  }

  get title() {
    return this.headline.name;
  }

  // Reads the first block of rows; the others follow while the page is shown.
  async load() {
    const blocks = this.source.blocks();
    const first = this.#add(blocks);
    const rest = async () => {
      const hasMore = await first;
      if (this.root.isConnected) this.#draw(); // the view was opened before its first rows
      if (hasMore) await this.#loadRest(blocks);
    };
    rest().catch((error) => this.#fail(error));
    await Promise.race([first, pause(REDRAW)]); // a run that has just started has no rows yet
  }

  // Reads on when a run that was complete may have been resumed.
  async resume(isRunning) {
    if (!this.#isRead || this.#isClosed) return;
    this.#isRead = false;
    this.#failure = null;
    Object.assign(this.head, { live: isRunning, complete: false });
    await this.#loadRest(this.source.blocks(this.rows.total)).catch((error) => this.#fail(error));
  }

  // Shows why the rest of the rows cannot be read. Tried again when the list of runs changes.
  #fail(error) {
    this.#failure = error;
    this.#isRead = true;
    this.#showReading();
  }

  #showReading() {
    const isReading = !this.#isRead && this.rows.total < this.#known;
    const progress = isReading ? `Reading results: ${count(this.rows.total)} of ${count(this.#known)}` : null;
    replaceChildren(this.reading, this.#failure ? failureLine(this.#failure, this.shell) : progress);
  }

  follow() {
    this.state.read();
    this.#draw();
    if (!this.#isRevealed && this.state.values.open !== null) this.table.reveal(this.state.values.open);
    this.#isRevealed = true;
  }

  close() {
    this.#isClosed = true;
    this.texts.stop();
    this.search.box.stop();
    this.live?.close();
    this.rows.labels?.close();
    this.detail.leave();
  }

  key(event) {
    if (!isTyping(event.target) && this.panel?.key(event)) return true;
    return resultKey(event, { search: this.search.box, table: this.table, detail: this.detail, isOpen: this.state.values.open !== null });
  }

  async #add(blocks) {
    const { value, done } = await blocks.next();
    if (value) this.rows.append(value);
    this.#known = Math.max(this.#known, this.rows.total, value?.total ?? 0);
    this.#isRead ||= done;
    return !done && !this.#isClosed;
  }

  async #loadRest(blocks) {
    while (await this.#add(blocks)) this.#drawSoon();
    if (this.#isClosed) return;
    this.#draw();
    // A server reads the figures after the rows.
    while (this.head.complete === false && !this.#isClosed) {
      await pause(REDRAW);
      await this.#refresh();
    }
  }

  // Draws the rows that have arrived, and others that arrive until then.
  #drawSoon() {
    this.#drawing ||= setTimeout(() => {
      this.#drawing = 0;
      if (this.#isClosed) return;
      this.#draw();
      if (this.head.live) this.#refresh().catch(() => {}); // the line above the results shows a lost connection
    }, REDRAW);
  }

  // Takes over new figures. The names that rows refer to come with the rows.
  async #refresh() {
    if (this.head.live && performance.now() - this.#refreshed < REFRESH) return this.#drawSoon();
    this.#refreshed = performance.now();
    const { targets, datasets, prompts, errors, tagSets, evaluatorSets, ...figures } = await this.source.head();
    Object.assign(this.head, figures);
    if (this.#isClosed) return;
    this.#showFigures();
    this.#draw();
  }

  #showFigures() {
    const isHidden = this.rows.labels?.hidesFigures ?? false;
    replaceChildren(this.figures, isHidden ? [] : targetCards(this.head));
    replaceChildren(this.failures, isHidden ? null : failureGroups(this.head));
  }

  // Shows how many results the figures cover while they are read: rows arrive first.
  #showPart() {
    const { total } = this.rows;
    const covered = this.head.covers ?? total;
    this.partial.textContent = this.rows.labels?.hidesFigures
      ? "Figures are hidden until all answers are labelled."
      : covered < total
        ? `The figures are of the first ${count(covered)} of ${count(total)} results; reading the rest.`
        : "";
  }

  #draw() {
    const { values } = this.state;
    this.texts.follow(values);
    const { rows, counts, bins, scored } = this.rows.select(values, this.texts.found);
    if (this.headline.describe(this.head)) this.shell.showTitle(this.title);
    const isHidden = this.rows.labels?.hidesFigures ?? false;
    this.headline.show(this.head, counts.verdict, { isHidden, isPartial: isPartial(this.head) });
    this.histogram.show({ bins, scored: isHidden ? 0 : scored });
    this.#showPart();
    this.filters.show(counts);
    this.order.show();
    this.status.textContent = this.#countText(rows.length);
    this.#showReading();
    this.table.show(rows, this.#isSameList(values));
    this.search.follow();
    this.detail.show();
  }

  #countText(shown) {
    if (!this.#isRead && !this.rows.total) return "";
    return resultCount(shown, this.rows.total) + (this.texts.isSearching ? " so far" : "");
  }

  // Whether filters and order are those of the last drawing: then only rows were added, or a result was opened.
  #isSameList({ search, answers, facets, scores, sort, descending }) {
    const key = JSON.stringify([search, answers, Object.values(facets).map((chosen) => [...chosen]), scores, sort, descending]);
    const isSame = key === this.#filtered;
    this.#filtered = key;
    return isSame;
  }
}

// Whether the figures are of a part of the results.
function isPartial({ covers }) {
  return typeof covers === "number";
}

function pause(milliseconds) {
  return new Promise((resume) => setTimeout(resume, milliseconds));
}
