// The grid: the answers of every target, prompt and trial side by side, case by case.

import { Detail } from "../case/detail.js";
import { element } from "../core/dom.js";
import { count, plural } from "../core/format.js";
import { resultKey } from "../core/keys.js";
import { SearchBox } from "../core/search_box.js";
import { Rows } from "../data/rows.js";
import { runTitle } from "../run/headline.js";
import { AnswerScan } from "./answer_scan.js";
import { Combinations, hasSeveral } from "./combinations.js";
import { DIFFERENCES, GridState, ORDERS } from "./grid_state.js";
import { GridTable } from "./grid_table.js";

const REDRAW = 400; // milliseconds between drawings while rows arrive
const KEYS = [
  ["j ↓", "Next case"],
  ["k ↑", "Previous case"],
  ["l →", "Next column"],
  ["h ←", "Previous column"],
  ["Enter", "Open the result"],
  ["Esc", "Leave the search box; close the result"],
  ["/", "Search"],
];

const offered = new Map(); // whether a run has several results of a case, by its id

export const GRID = { name: "grid", title: "Grid", open, isOffered };

// Offered for a run with several targets, prompts or trials, which is known when one of its views was opened. While labels
// are collected, verdicts are hidden until an answer is labelled: the grid would show them.
function isOffered(source, state, opened) {
  const run = state.get("run");
  if (opened?.head?.summary) offered.set(run, hasSeveral(opened.head) && !opened.head.label);
  return offered.get(run) ?? state.get("view") === "grid";
}

async function open({ source, state }) {
  const run = await source.run(state.get("run"));
  const head = await run.head();
  const page = new GridPage(head, new Rows(head), run, new GridState(state));
  await page.load();
  return page;
}

class GridPage {
  #isClosed = false;
  #isRevealed = false;
  #isRead = false;
  #listed = "";

  constructor(head, rows, source, state) {
    this.head = head;
    this.run = source.id;
    this.rows = rows;
    this.source = source;
    this.state = state;
    this.keys = KEYS;
    this.title = `Grid · ${runTitle(head)}`;
    this.grid = new Combinations(rows);
    this.scan = new AnswerScan(this.grid, source, () => this.#draw());
    this.table = new GridTable(rows, this.grid, source, state);
    this.detail = new Detail(rows, source, state, this.table);
    this.search = new SearchBox(() => state.update({ search: this.search.text }), { label: "Search case ids", placeholder: "Search case ids  /" });
    this.differ = choice("Show", DIFFERENCES, (differ) => state.update({ differ }));
    this.order = choice("Order", ORDERS, (order) => state.update({ order }));
    this.status = element("p", { class: "count-line", role: "status" });
    const toolbar = element(
      "div",
      { class: "toolbar" },
      element("div", { class: "search", role: "search" }, this.search.input),
      element("div", { class: "grid-choices" }, this.differ.root, this.order.root),
      element("div", { class: "listing" }, this.status),
    );
    const banner = element("section", { class: "banner", "aria-label": "Run" }, element("div", {}, element("h1", {}, element("bdi", {}, runTitle(head)))));
    this.root = element("div", { class: "page grid-page" }, banner, element("main", {}, toolbar, this.table.root), this.detail.root);
  }

  // Reads the first block of rows; the others follow while the page is shown.
  async load() {
    const blocks = this.source.blocks();
    if (!this.head.live && !(await this.#add(blocks))) return;
    this.#loadRest(blocks).catch((error) => {
      this.status.textContent = `The rest of the results cannot be read: ${error.message}`;
    });
  }

  follow() {
    this.state.read();
    this.#draw();
    if (!this.#isRevealed && this.state.values.open !== null) this.table.reveal(this.state.values.open);
    this.#isRevealed = true;
  }

  close() {
    this.#isClosed = true;
    this.scan.isWanted = false;
    this.search.stop();
    this.detail.leave();
  }

  key(event) {
    return resultKey(event, { ...this, isOpen: this.state.values.open !== null });
  }

  async #add(blocks) {
    const { value, done } = await blocks.next();
    if (value) this.rows.append(value);
    this.#isRead ||= done;
    return !done && !this.#isClosed;
  }

  async #loadRest(blocks) {
    for (let drawn = performance.now(); await this.#add(blocks); ) {
      if (performance.now() - drawn < REDRAW) continue;
      this.#draw();
      drawn = performance.now();
    }
    if (this.#isClosed) return;
    this.scan.restart();
    this.#draw();
  }

  #draw() {
    if (this.#isClosed) return;
    const { search, differ, order } = this.state.values;
    this.grid.update();
    this.scan.isWanted = differ === "answers";
    if (this.scan.isWanted) this.scan.run();
    const cases = this.#cases(search.trim().toLowerCase(), differ, order);
    const list = JSON.stringify([search, differ, order]);
    this.table.show(cases, list === this.#listed, this.#isRead ? "No matching cases." : "Reading results…");
    this.#listed = list;
    this.status.textContent = this.#summary(cases.length, differ);
    this.search.show(search);
    this.differ.select.value = differ;
    this.order.select.value = order;
    this.detail.show();
  }

  #cases(wanted, differ, order) {
    const { grid, scan, rows } = this;
    const id = (number) => rows.columns.id[grid.cases[number]];
    let cases = Array.from(grid.cases.keys());
    if (wanted) cases = cases.filter((number) => id(number).toLowerCase().includes(wanted));
    if (differ === "verdicts") cases = cases.filter((number) => grid.hasDifferentVerdicts(number));
    if (differ === "answers") cases = cases.filter((number) => scan.has(number));
    if (order === "id") cases.sort((a, b) => (id(a) < id(b) ? -1 : id(a) > id(b) ? 1 : a - b));
    if (order === "disagreement") {
      const rank = new Map(cases.map((number) => [number, grid.disagreement(number)]));
      cases.sort((a, b) => rank.get(b) - rank.get(a) || a - b);
    }
    return cases;
  }

  #summary(shown, differ) {
    const total = this.grid.cases.length;
    const cases = plural(total, "case");
    const scanned = differ === "answers" && !this.scan.isDone ? `compared the answers of ${count(this.scan.searched)}` : null;
    return [
      shown === total ? cases : `${count(shown)} of ${cases}`,
      this.scan.error && differ === "answers" ? `answers cannot be read: ${this.scan.error.message}` : scanned,
      this.grid.repeated ? `${count(this.grid.repeated)} repeated results; the last ones are shown` : null,
      this.#isRead ? null : `reading results: ${count(this.rows.total)}`,
    ].filter(Boolean).join(" · ");
  }
}

function choice(label, choices, chosen) {
  const select = element(
    "select",
    { onchange: () => chosen(select.value) },
    Object.entries(choices).map(([value, title]) => element("option", { value }, title)),
  );
  return { select, root: element("label", { class: "grid-choice" }, `${label} `, select) };
}
