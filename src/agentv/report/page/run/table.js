// The table of results.

import { answerStart } from "../case/blocks.js";
import { element, replaceChildren } from "../core/dom.js";
import { count, plural } from "../core/format.js";
import { LongList, RowList, mark } from "../core/long_list.js";
import { oneLine } from "../core/text.js";
import { RowTexts } from "../data/row_texts.js";
import { reasonOf } from "../data/rows.js";
import { cell, fittingColumns, template } from "./table_columns.js";

const ROW_HEIGHT = 38;
const NARROW = 34; // rem
const LONGEST_REASON = 240;

export class Table extends RowList {
  #rows;
  #state;
  #reasons;
  shown = new Uint32Array(0);
  #columns = { shown: [], beside: [] };
  #headed = null;

  constructor(rows, source, state) {
    super();
    this.#rows = rows;
    this.#state = state;
    this.#reasons = new RowTexts(source, (row, rest) => reasonText(rows, row, rest), () => [...this.list.drawn].forEach((drawn) => this.#fillReason(drawn)));
    this.header = element("div", { class: "row header", role: "row", "aria-rowindex": "1" });
    this.list = new LongList({
      label: "Results",
      titles: this.header,
      height: ROW_HEIGHT,
      draw: () => this.draw(),
      fit: () => this.#fit(),
      click: (event) => this.#click(event),
      focus: () => this.current < 0 && this.move(this.list.top),
    });
    const reset = element("button", { type: "button", onclick: () => state.reset() }, "Show all");
    this.empty = element("p", { class: "empty", hidden: true }, "No matching results. ", reset);
    this.root = element("section", { class: "table", "aria-label": "Results" }, this.list.root, this.empty);
  }

  // Shows rows in an order. While rows arrive, `keepsPlace` keeps the row that the reader looks at where it is.
  show(rows, keepsPlace) {
    const current = this.shown[this.current];
    const anchor = keepsPlace ? this.#anchor() : null;
    this.shown = rows;
    this.current = current === undefined ? -1 : rows.indexOf(current);
    this.list.length = rows.length;
    this.empty.hidden = rows.length > 0 || this.#rows.total === 0;
    if (!keepsPlace) this.list.scrollTo(0);
    else if (anchor) this.#restore(anchor);
    this.#fit();
  }

  // Moves to another row or opens one. Returns whether it used the key.
  key(event) {
    const steps = this.list.steps(event.key);
    if (steps !== undefined) {
      const isFirst = this.current < 0 && Number.isFinite(steps);
      this.focus();
      this.move(isFirst ? this.list.top : Math.max(0, this.current) + steps);
      if (this.#state.values.open !== null) this.#openCurrent();
      return true;
    }
    if (event.key !== "Enter" && event.key !== " ") return false;
    if (this.current < 0) this.move(this.list.top);
    return this.#openCurrent();
  }

  // Chooses the columns for the width and the values of the run.
  #fit() {
    const rem = parseFloat(getComputedStyle(document.documentElement).fontSize);
    const width = this.list.root.clientWidth / rem;
    const isNarrow = width < NARROW;
    this.#columns = fittingColumns(this.#rows, isNarrow ? width + 2 : width - 2.5); // a narrow table has no bars
    this.root.classList.toggle("narrow", isNarrow);
    this.root.style.setProperty("--columns", template(this.#columns.shown, isNarrow));
    this.#drawHeader();
    this.list.clear();
    this.draw();
  }

  // A header that has not changed keeps its focus.
  #drawHeader() {
    const { sort, descending } = this.#state.values;
    const key = JSON.stringify([this.#columns.shown.map((column) => column.name), sort, descending]);
    if (key !== this.#headed) replaceChildren(this.header, this.#columns.shown.map((column) => this.#header(column)));
    this.#headed = key;
  }

  #header({ name, title, isUnsorted }) {
    const { sort, descending } = this.#state.values;
    const label = isUnsorted ? title : element("button", { type: "button", onclick: () => this.#sort(name) }, title);
    const order = sort !== name ? null : descending ? "descending" : "ascending";
    return element("div", { class: `cell ${name}`, role: "columnheader", "aria-sort": order }, label);
  }

  // Cycles through ascending, descending and the worst results first.
  #sort(name) {
    const { sort, descending } = this.#state.values;
    if (sort !== name) this.#state.update({ sort: name, descending: false });
    else if (!descending) this.#state.update({ descending: true });
    else this.#state.update({ sort: "worst", descending: false });
    [...this.header.children].find((each) => each.classList.contains(name))?.querySelector("button")?.focus();
  }

  // The row that the reader looks at, and its distance from the top of the window; null at the untouched beginning.
  #anchor() {
    const { scrolled } = this.list;
    const position = this.list.drawnAt(this.current) ? this.current : scrolled > 0 ? this.list.top : -1;
    return position < 0 ? null : { row: this.shown[position], distance: position * ROW_HEIGHT - scrolled };
  }

  #restore({ row, distance }) {
    const position = this.position(row);
    if (position >= 0) this.list.scrollTo(position * ROW_HEIGHT - distance);
  }

  draw() {
    const [first, last] = this.list.draw(
      (position) => this.#line(position),
      ({ line, row }, position) => mark(line, position === this.current, row === this.#state.values.open),
    );
    this.list.activate(this.list.drawnAt(this.current)?.line);
    this.#reasons.want(Array.from(this.shown.subarray(first, last)));
  }

  #line(position) {
    const row = this.shown[position];
    const shown = this.#rows.at(row);
    const line = element(
      "div",
      { class: this.#rows.labels?.hides(row) ? "row blind" : "row", role: "row", id: `row-${position}`, "aria-rowindex": String(position + 2), "data-position": String(position) },
      this.#columns.shown.map((column) => cell(column, shown, this.#columns.beside)),
    );
    this.#fillReason({ line, row });
    return { line, row };
  }

  #fillReason({ line, row }) {
    const place = line.querySelector(".why");
    const reason = this.#reasons.of(row);
    if (!place || !reason) return;
    place.textContent = reason.text;
    place.classList.toggle("answer", reason.isAnswer);
  }

  #click(event) {
    const line = event.target.closest(".row");
    if (!line) return;
    this.current = Number(line.dataset.position);
    this.#openCurrent();
  }

  #openCurrent() {
    const row = this.shown[this.current];
    if (row === undefined) return false;
    this.#state.update({ open: row });
    return true;
  }
}

// Why a result did not pass, or its answer if it did.
function reasonText(rows, row, rest) {
  const isPass = rows.columns.verdict[row] === 0;
  const reason = isPass ? "" : reasonOf(rows.record(row, rest));
  return { text: reason ? oneLine(reason, LONGEST_REASON) : answerStart(rest), isAnswer: !reason };
}

export function resultCount(shown, total) {
  const results = plural(total, "result");
  return shown === total ? results : `${count(shown)} of ${results}`;
}
