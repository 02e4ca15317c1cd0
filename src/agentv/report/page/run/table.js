// The table of results. Only visible rows exist as elements.

import { element, replaceChildren } from "../core/dom.js";
import { count, duration, number, usd } from "../core/format.js";
import { reasonOf } from "../data/rows.js";
import { oneLine, visible } from "../core/text.js";

const ROW_HEIGHT = 38;
const SPARE = 8;
const TALLEST = 8_000_000; // taller elements lose precision in browsers

const COLUMNS = [
  { name: "verdict", title: "Verdict" },
  { name: "id", title: "Case" },
  { name: "target", title: "Target" },
  { name: "score", title: "Score" },
  { name: "why", title: "Reason", unsorted: true },
  { name: "duration", title: "Time" },
  { name: "cost", title: "Cost" },
];

export class Table {
  #rows;
  #source;
  #state;
  #shown = [];
  #current = -1;
  #drawn = new Map();
  #frame = 0;
  #headers = new Map();

  constructor(rows, source, state) {
    this.#rows = rows;
    this.#source = source;
    this.#state = state;
    this.header = element("div", { class: "row header", role: "row" }, COLUMNS.map((column) => this.#header(column)));
    this.spacer = element("div", { class: "spacer", role: "rowgroup" });
    this.scroller = element(
      "div",
      {
        class: "scroller",
        role: "grid",
        tabindex: "0",
        "aria-label": "Results",
        onscroll: () => this.#schedule(),
        onkeydown: (event) => this.#key(event),
        onfocus: () => this.#current < 0 && this.#shown.length && this.#move(this.#top()),
      },
      element("div", { role: "rowgroup", class: "head" }, this.header),
      this.spacer,
    );
    this.empty = element("p", { class: "empty", hidden: true }, "No matching results. ", this.#reset());
    this.root = element("section", { class: "table", "aria-label": "Results" }, this.scroller, this.empty);
    new ResizeObserver(() => this.#schedule()).observe(this.scroller);
  }

  show(rows) {
    const open = this.#shown[this.#current];
    this.#shown = rows;
    this.#current = open === undefined ? -1 : rows.indexOf(open);
    this.scroller.setAttribute("aria-rowcount", String(rows.length + 1));
    this.spacer.style.setProperty("height", `${Math.min(rows.length * ROW_HEIGHT, TALLEST)}px`);
    this.empty.hidden = rows.length > 0;
    const { sort, descending } = this.#state.values;
    for (const [name, cell] of this.#headers) {
      if (name === sort) cell.setAttribute("aria-sort", descending ? "descending" : "ascending");
      else cell.removeAttribute("aria-sort");
    }
    this.#clear();
    this.#draw();
  }

  // Returns the row before or after another in the displayed order; null at the ends.
  neighbour(row, step) {
    return this.#shown[this.#shown.indexOf(row) + step] ?? null;
  }

  position(row) {
    return this.#shown.indexOf(row);
  }

  get length() {
    return this.#shown.length;
  }

  reveal(row) {
    const position = this.#shown.indexOf(row);
    if (position >= 0) this.#move(position);
  }

  focus() {
    this.scroller.focus({ preventScroll: true });
  }

  #header(column) {
    const label = column.unsorted
      ? column.title
      : element("button", { type: "button", onclick: () => this.#sort(column.name) }, column.title);
    const cell = element("div", { class: `cell ${column.name}`, role: "columnheader" }, label);
    if (!column.unsorted) this.#headers.set(column.name, cell);
    return cell;
  }

  #reset() {
    return element("button", { type: "button", onclick: () => this.#state.reset() }, "Show all");
  }

  // Cycles through ascending, descending and the original order.
  #sort(name) {
    const { sort, descending } = this.#state.values;
    if (sort !== name) this.#state.update({ sort: name, descending: false });
    else if (!descending) this.#state.update({ descending: true });
    else this.#state.update({ sort: "order", descending: false });
  }

  // If the list is taller than the tallest element, a pixel of the scroll bar is more than a pixel of the list.
  get #scale() {
    const view = this.#view();
    const real = this.#shown.length * ROW_HEIGHT - view;
    return real <= TALLEST - view ? 1 : real / (TALLEST - view);
  }

  #view() {
    return Math.max(ROW_HEIGHT, this.scroller.clientHeight - this.header.offsetHeight);
  }

  #top() {
    return Math.floor((this.scroller.scrollTop * this.#scale) / ROW_HEIGHT);
  }

  #schedule() {
    if (this.#frame) return;
    this.#frame = requestAnimationFrame(() => {
      this.#frame = 0;
      this.#draw();
    });
  }

  #clear() {
    for (const line of this.#drawn.values()) line.remove();
    this.#drawn.clear();
  }

  #draw() {
    const scrolled = this.scroller.scrollTop;
    const offset = scrolled * this.#scale - scrolled;
    const top = this.#top();
    const first = Math.max(0, top - SPARE);
    const last = Math.min(this.#shown.length, top + Math.ceil(this.#view() / ROW_HEIGHT) + SPARE);
    for (const [position, line] of this.#drawn) {
      if (position < first || position >= last) {
        line.remove();
        this.#drawn.delete(position);
      }
    }
    for (let position = first; position < last; position++) {
      let line = this.#drawn.get(position);
      if (!line) {
        line = this.#line(position);
        this.#drawn.set(position, line);
        this.spacer.append(line);
      }
      line.style.setProperty("top", `${position * ROW_HEIGHT - offset}px`);
      line.classList.toggle("current", position === this.#current);
      line.classList.toggle("open", this.#shown[position] === this.#state.values.open);
      line.setAttribute("aria-selected", String(position === this.#current));
    }
    const active = this.#drawn.get(this.#current);
    if (active) this.scroller.setAttribute("aria-activedescendant", active.id);
    else this.scroller.removeAttribute("aria-activedescendant");
  }

  #line(position) {
    const row = this.#rows.at(this.#shown[position]);
    const why = element("div", { class: "cell why", role: "gridcell", dir: "auto" });
    this.#fillWhy(why, row);
    const further = [row.prompt, row.trial > 1 ? `trial ${row.trial}` : null].filter(Boolean).join(", ");
    return element(
      "div",
      {
        class: "row",
        role: "row",
        id: `row-${position}`,
        "aria-rowindex": String(position + 2),
        onclick: () => {
          this.#current = position;
          this.#state.update({ open: row.row });
        },
      },
      element("div", { class: "cell verdict", role: "gridcell" }, badge(row.verdict)),
      element(
        "div",
        { class: "cell id", role: "gridcell", title: visible(row.id) },
        element("bdi", {}, oneLine(row.id, 200)),
        further && element("span", { class: "further" }, oneLine(further, 60)),
      ),
      element("div", { class: "cell target", role: "gridcell" }, element("bdi", {}, oneLine(row.target, 80))),
      element("div", { class: "cell score", role: "gridcell" }, ...scoreBar(row)),
      why,
      element("div", { class: "cell duration", role: "gridcell" }, duration(row.duration)),
      element("div", { class: "cell cost", role: "gridcell" }, usd(row.cost)),
    );
  }

  // The reason is in the packed results and is filled in later.
  async #fillWhy(cell, row) {
    // Do not unpack rows that are only scrolled past.
    await new Promise((resume) => setTimeout(resume, 30));
    if (!cell.isConnected) return;
    const rest = await this.#source.result(row.row);
    if (!rest) return;
    const reason = row.verdict === "pass" ? "" : reasonOf(this.#rows.record(row.row, rest));
    replaceChildren(cell, oneLine(reason || (rest.candidate_answer ?? ""), 240));
    cell.classList.toggle("answer", !reason);
  }

  #move(position) {
    const last = this.#shown.length - 1;
    if (last < 0) return;
    this.#current = Math.max(0, Math.min(last, position));
    const view = this.#view();
    const top = this.scroller.scrollTop * this.#scale;
    const start = this.#current * ROW_HEIGHT;
    let wanted = top;
    if (start < top) wanted = start;
    else if (start + ROW_HEIGHT > top + view) wanted = start + ROW_HEIGHT - view;
    if (wanted !== top) this.scroller.scrollTop = wanted / this.#scale;
    this.#draw();
  }

  #key(event) {
    if (event.target !== this.scroller || event.ctrlKey || event.metaKey || event.altKey) return;
    const page = Math.max(1, Math.floor(this.#view() / ROW_HEIGHT) - 1);
    const moves = {
      ArrowDown: 1,
      ArrowUp: -1,
      j: 1,
      k: -1,
      PageDown: page,
      PageUp: -page,
      Home: -Infinity,
      End: Infinity,
    };
    if (event.key in moves) {
      event.preventDefault();
      this.#move(this.#current < 0 ? this.#top() : this.#current + moves[event.key]);
      if (this.#state.values.open !== null) this.#openCurrent();
    } else if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      this.#openCurrent(true);
    }
  }

  #openCurrent(focus = false) {
    const row = this.#shown[this.#current];
    if (row === undefined) return;
    this.#state.update({ open: row });
    if (focus) this.root.dispatchEvent(new Event("opened", { bubbles: true }));
  }
}

export function badge(verdict) {
  return element("span", { class: `badge ${verdict}` }, verdict);
}

function scoreBar(row) {
  if (row.score === null) return [element("span", { class: "none" }, row.error ?? "not scored")];
  const width = `${(row.score * 100).toFixed(1)}%`;
  return [
    element("span", { class: "number" }, number(row.score)),
    element("span", { class: `bar ${row.verdict}`, "aria-hidden": "true" }, element("i", { style: { width } })),
  ];
}

export function resultCount(shown, total) {
  const results = `${count(total)} ${total === 1 ? "result" : "results"}`;
  return shown === total ? results : `${count(shown)} of ${results}`;
}
