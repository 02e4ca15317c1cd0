// The cells of the grid: a line for each case, a column for each target, prompt and trial. Only visible cells exist as
// elements.

import { answerStart } from "../case/blocks.js";
import { badge } from "../core/badge.js";
import { element, replaceChildren } from "../core/dom.js";
import { count, number, plural } from "../core/format.js";
import { LongList, mark, nearest } from "../core/long_list.js";
import { oneLine, visible } from "../core/text.js";
import { RowTexts } from "../data/row_texts.js";

const LINE = 96; // pixels
const LEAST_WIDTH = 13; // rem, of a column
const CASE_WIDTH = { wide: 15, narrow: 8.5 }; // rem
const NARROW = 34; // rem

export class GridTable {
  #rows;
  #grid;
  #state;
  #texts;
  #list;
  #shown = new Uint32Array(0); // the numbers of cases
  #current = { position: -1, column: 0 };
  #widths = { first: 0, column: 0 };
  #headed = "";

  constructor(rows, combinations, source, state) {
    this.#rows = rows;
    this.#grid = combinations;
    this.#state = state;
    this.#texts = new RowTexts(source, (row, rest) => answerStart(rest), () => this.#fill());
    this.header = element("div", { class: "grid-line grid-head", role: "row", "aria-rowindex": "1" });
    this.#list = new LongList({
      label: "Answers by case and target",
      titles: this.header,
      height: LINE,
      draw: () => this.#draw(),
      fit: () => this.#fit(),
      click: (event) => this.#click(event),
      focus: () => this.#current.position < 0 && this.#move(this.#list.top, 0),
    });
    this.scroller = this.#list.root;
    this.empty = element("p", { class: "empty", hidden: true });
    this.root = element("section", { class: "table", "aria-label": "Grid" }, this.scroller, this.empty);
  }

  // Shows cases, by their numbers. `keepsPlace` while rows arrive.
  show(cases, keepsPlace, emptyText) {
    const current = this.#shown[this.#current.position];
    this.#shown = cases;
    this.#current.position = current === undefined ? -1 : cases.indexOf(current);
    this.empty.hidden = cases.length > 0;
    this.empty.textContent = emptyText;
    if (!keepsPlace) this.#list.scrollTo(0);
    this.#fit();
  }

  get length() {
    return this.#shown.length;
  }

  // The position of the case of a row among the shown ones.
  position(row) {
    return this.#place(row).position;
  }

  // The row of the same column in the next or previous case that has one; null at the ends.
  neighbour(row, step) {
    const { position, column } = this.#place(row);
    if (position < 0 || !column) return null;
    for (let at = position + step; at >= 0 && at < this.#shown.length; at += step) {
      const found = this.#grid.rowAt(this.#shown[at], column);
      if (found >= 0) return found;
    }
    return null;
  }

  reveal(row) {
    const { position, column } = this.#place(row);
    if (position >= 0 && column) this.#move(position, this.#grid.columns.indexOf(column));
  }

  focus() {
    this.#list.focus();
  }

  // Moves to another cell or opens one. Returns whether it used the key.
  key(event) {
    const lines = this.#list.steps(event.key);
    const columns = { ArrowRight: 1, ArrowLeft: -1, l: 1, h: -1 }[event.key];
    if (lines !== undefined || columns !== undefined) {
      const { position, column } = this.#current;
      const isFirst = position < 0 && Number.isFinite(lines ?? 0);
      this.focus();
      this.#move(isFirst ? this.#list.top : Math.max(0, position) + (lines ?? 0), column + (isFirst ? 0 : (columns ?? 0)));
      if (this.#state.values.open !== null) this.#openCurrent();
      return true;
    }
    if (event.key !== "Enter" && event.key !== " ") return false;
    if (this.#current.position < 0) this.#move(this.#list.top, 0);
    return this.#openCurrent();
  }

  #place(row) {
    if (row === null || row >= this.#rows.total) return { position: -1, column: null };
    const { target, prompt, trial } = this.#rows.columns;
    const column = this.#grid.columns.find((each) => each.target === target[row] && each.prompt === prompt[row] && each.trial === trial[row]);
    return { position: column ? this.#shown.findIndex((number) => this.#grid.rowAt(number, column) === row) : -1, column };
  }

  #fit() {
    const rem = parseFloat(getComputedStyle(document.documentElement).fontSize);
    const width = this.scroller.clientWidth;
    const columns = Math.max(1, this.#grid.columns.length);
    const first = rem * (width < NARROW * rem ? CASE_WIDTH.narrow : CASE_WIDTH.wide);
    const column = Math.max(LEAST_WIDTH * rem, Math.floor((width - first) / columns));
    this.#widths = { first, column };
    this.scroller.setAttribute("aria-colcount", String(columns + 1));
    const hasErrors = this.#grid.columns.some((each) => each.errors > 0);
    const lines = 2 + Number(hasErrors) + Number(this.#rows.mostTrials > 1) + Number(this.#rows.head.prompts.length > 0);
    const sizes = { "--first": `${first}px`, "--column": `${column}px`, "--whole": `${first + columns * column}px`, "--lines": lines };
    for (const [name, value] of Object.entries(sizes))
      this.scroller.style.setProperty(name, value);
    this.#list.length = this.#shown.length;
    this.#headed = "";
    this.#list.clear();
    if (this.#current.position >= 0) this.#revealColumn();
    this.#draw();
  }

  #revealColumn() {
    const { first, column } = this.#widths;
    const view = Math.max(column, this.scroller.clientWidth - first);
    this.scroller.scrollLeft = nearest(this.#current.column * column, column, this.scroller.scrollLeft, view);
  }

  // The first and last column that can be seen.
  #visibleColumns() {
    const { first, column } = this.#widths;
    const start = Math.max(0, Math.floor(this.scroller.scrollLeft / column));
    const end = Math.ceil((this.scroller.scrollLeft + this.scroller.clientWidth - first) / column) + 1;
    return [start, Math.min(this.#grid.columns.length, Math.max(end, start + 1))];
  }

  #draw() {
    const [start, end] = this.#visibleColumns();
    this.#drawHeader(start, end);
    const wanted = [];
    this.#list.draw(
      (position) => this.#line(position),
      (drawn, position) => wanted.push(...this.#drawCells(drawn, position, start, end)),
    );
    this.#list.activate(this.#list.drawnAt(this.#current.position)?.cells.get(this.#current.column));
    this.#texts.want(wanted);
  }

  #drawHeader(start, end) {
    const key = `${start} ${end}`;
    if (key === this.#headed) return;
    this.#headed = key;
    const columns = this.#grid.columns.slice(start, end);
    replaceChildren(
      this.header,
      element("div", { class: "grid-case", role: "columnheader", "aria-colindex": "1" }, "Case"),
      columns.map((column, offset) => this.#headerCell(column, start + offset)),
    );
  }

  #headerCell(column, position) {
    const { head } = this.#rows;
    const { columns } = this.#grid;
    const names = [column.prompt < 0 ? null : head.prompts[column.prompt], this.#rows.mostTrials > 1 ? `trial ${column.trial}` : null];
    const target = head.targets[column.target];
    const isNew = position > 0 && columns[position - 1].target !== column.target;
    return element(
      "div",
      { class: `grid-cell${isNew ? " new-target" : ""}`, role: "columnheader", "aria-colindex": String(position + 2), style: this.#left(position) },
      element("strong", { title: visible(target) }, element("bdi", {}, oneLine(target, 60))),
      names.filter(Boolean).map((name) => element("span", { class: "further", title: visible(name) }, element("bdi", {}, oneLine(name, 60)))),
      element("span", { class: "column-mean" }, columnMean(column)),
      column.errors > 0 && element("span", { class: "column-errors" }, plural(column.errors, "error")),
    );
  }

  #left(position) {
    return { left: `${this.#widths.first + position * this.#widths.column}px` };
  }

  #line(position) {
    const attributes = { class: "grid-line", role: "row", "aria-rowindex": String(position + 2) };
    return { line: element("div", attributes, this.#caseCell(this.#shown[position])), cells: new Map() };
  }

  // Draws the cells of a line from a column to another, and returns their rows.
  #drawCells({ line, cells }, position, start, end) {
    for (const [column, cell] of cells) {
      if (column >= start && column < end) continue;
      cell.remove();
      cells.delete(column);
    }
    const rows = [];
    for (let column = start; column < end; column++) {
      const row = this.#grid.rowAt(this.#shown[position], this.#grid.columns[column]);
      if (row >= 0) rows.push(row);
      if (!cells.has(column)) {
        const next = [...cells.keys()].filter((other) => other > column).sort((a, b) => a - b)[0];
        const cell = this.#cell(position, column, row);
        line.insertBefore(cell, cells.get(next) ?? null); // in the order of the columns
        cells.set(column, cell);
      }
      const isCurrent = position === this.#current.position && column === this.#current.column;
      mark(cells.get(column), isCurrent, row >= 0 && row === this.#state.values.open);
    }
    return rows;
  }

  #caseCell(number) {
    const { id, dataset, tags } = this.#rows.at(this.#grid.cases[number]);
    const further = [this.#rows.head.datasets.length > 1 ? dataset.name : null, ...tags].filter(Boolean).join(", ");
    return element(
      "div",
      { class: "grid-case", role: "rowheader", "aria-colindex": "1", title: visible(id) },
      element("bdi", {}, oneLine(id, 120)),
      further && element("span", { class: "further" }, oneLine(further, 60)),
    );
  }

  #cell(position, column, row) {
    const attributes = { role: "gridcell", id: `cell-${position}-${column}`, "aria-colindex": String(column + 2), "data-place": `${position} ${column}`, style: this.#left(column) };
    if (row < 0) return element("div", { ...attributes, class: "grid-cell absent" }, "not run");
    const { verdict, score, error } = this.#rows.at(row);
    const cell = element(
      "div",
      { ...attributes, class: `grid-cell ${verdict}`, "data-row": String(row) },
      element("p", { class: "grid-verdict" }, badge(verdict), element("span", { class: "number" }, score === null ? (error ?? "") : number(score))),
      element("p", { class: "grid-answer", dir: "auto" }),
    );
    this.#fillCell(cell, row);
    return cell;
  }

  #fill() {
    for (const { cells } of this.#list.drawn) for (const cell of cells.values()) if (cell.dataset.row) this.#fillCell(cell, Number(cell.dataset.row));
  }

  #fillCell(cell, row) {
    const text = this.#texts.of(row);
    if (text !== undefined) cell.querySelector(".grid-answer").textContent = text;
  }

  #click(event) {
    const cell = event.target.closest(".grid-cell");
    if (!cell) return;
    const [position, column] = cell.dataset.place.split(" ").map(Number);
    this.#current = { position, column };
    this.#draw();
    this.#openCurrent();
  }

  #move(position, column) {
    const last = this.#shown.length - 1;
    if (last < 0) return;
    const at = Math.max(0, Math.min(last, position));
    const side = Math.max(0, Math.min(this.#grid.columns.length - 1, column));
    this.#current = { position: at, column: side };
    this.#list.reveal(at);
    this.#revealColumn();
    this.#draw();
  }

  #openCurrent() {
    const { position, column } = this.#current;
    const row = position < 0 ? -1 : this.#grid.rowAt(this.#shown[position], this.#grid.columns[column]);
    if (row < 0) return false;
    this.#state.update({ open: row });
    return true;
  }
}

function columnMean({ scored, sum }) {
  return scored ? `mean ${number(sum / scored)}, n = ${count(scored)}` : "not scored";
}
