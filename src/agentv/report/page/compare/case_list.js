// The list of cases: filters, search, order, and the rows that are visible.

import { element, replaceChildren } from "../core/dom.js";
import { count, number, plural } from "../core/format.js";
import { LongList, RowList, mark } from "../core/long_list.js";
import { oneLine, visible } from "../core/text.js";
import { FILTERS, ORDERS } from "./case_columns.js";
import { kindWord, signed } from "./figures.js";

const ROW_HEIGHT = 36;
const HIDDEN = ["", "", "", "hidden"]; // until the answers are labelled

export class CaseList extends RowList {
  #key = null;

  // With `isBlind`, outcomes are hidden, and neither filters nor the order reveal them.
  constructor(columns, state, { open, isBlind }) {
    super();
    this.columns = columns;
    this.state = state;
    this.open = open;
    this.isBlind = isBlind;
    this.chips = element("div", { class: "chips", role: "group", "aria-label": "Show" });
    this.search = element("input", {
      type: "search",
      placeholder: "Search for a case",
      "aria-label": "Search for a case by id or dataset",
      oninput: () => this.state.update({ find: this.search.value || null }),
    });
    this.order = element(
      "select",
      { "aria-label": "Order", hidden: isBlind, onchange: () => this.state.update({ order: this.order.value === "loss" ? null : this.order.value }) },
      Object.entries(ORDERS).map(([name, title]) => element("option", { value: name }, title)),
    );
    this.status = element("p", { class: "count-line", role: "status" });
    this.list = new LongList({ label: "Cases", titles: header(), height: ROW_HEIGHT, draw: () => this.draw() });
    this.empty = element("p", { class: "empty", hidden: true }, "No case matches.");
    this.root = element(
      "section",
      { class: "pair-list", "aria-label": "Cases" },
      element("div", { class: "pair-tools" }, this.chips, element("div", { class: "pair-find" }, this.search, this.order, this.status)),
      (columns.head.limits ?? []).map((text) => element("p", { class: "limit" }, visible(text))),
      this.list.root,
      this.empty,
    );
  }

  get values() {
    const { state, isBlind } = this;
    const chosen = (name, values, usual) => (!isBlind && Object.hasOwn(values, state.get(name)) ? state.get(name) : usual);
    return {
      filter: chosen("show", FILTERS, "all"),
      find: state.get("find") ?? "",
      order: chosen("order", ORDERS, isBlind ? "id" : "loss"),
      open: state.get("case"),
    };
  }

  // Shows the cases that the parameters of the address select.
  follow() {
    const { filter, find, order } = this.values;
    const key = JSON.stringify([filter, find, order, this.columns.total]);
    if (key !== this.#key) {
      const current = this.shown[this.current];
      this.#key = key;
      this.shown = this.columns.matching(filter, find, order);
      this.current = current === undefined ? -1 : this.shown.indexOf(current);
      this.list.length = this.shown.length;
      this.list.clear();
      this.empty.hidden = this.shown.length > 0 || this.columns.total < this.#expected;
      this.#drawTools(filter, order, find);
    }
    this.draw();
  }

  // The place of a case in the list, such as "3 of 12".
  place(row) {
    const position = this.position(row);
    return position < 0 ? "not in the filtered list" : `${count(position + 1)} of ${count(this.shown.length)}`;
  }

  focusSearch() {
    this.search.focus();
    this.search.select();
  }

  // Keys while the search is typed.
  searchKey(event) {
    if (event.target !== this.search || !["Escape", "Enter", "ArrowDown"].includes(event.key)) return false;
    this.focus();
    if (event.key !== "Escape" && this.shown.length) this.move(0);
    return true;
  }

  key(event, opened) {
    const steps = this.list.steps(event.key);
    if (steps !== undefined) {
      if (opened !== null && !["j", "k"].includes(event.key) && event.target.closest?.(".case-panel")) return false; // scrolls
      const from = opened === null ? this.current : this.shown.indexOf(opened);
      this.move(from < 0 ? 0 : from + steps);
      // A button that was clicked before would take the next Enter.
      if (opened !== null) this.#openCurrent();
      else this.focus();
      return true;
    }
    if (event.key === "Enter" && opened === null && this.current >= 0) {
      this.#openCurrent();
      return true;
    }
    return false;
  }

  // The number of cases that can be listed.
  get #expected() {
    const { head } = this.columns;
    return head.listed ?? head.total;
  }

  #openCurrent() {
    const row = this.shown[this.current];
    if (row !== undefined) this.open(row);
  }

  draw() {
    const { open } = this.values;
    this.list.draw(
      (position) => this.#line(position),
      ({ line, row }, position) => mark(line, position === this.current, String(row) === open),
    );
    this.list.activate(this.list.drawnAt(this.current)?.line);
  }

  #line(position) {
    const item = this.columns.at(this.shown[position]);
    const further = [item.target, item.prompt].filter(Boolean).join(", ");
    const outcome = this.isBlind ? HIDDEN : [changeText(item), scoreText(item, 1, item.before), scoreText(item, 2, item.after), kindWord(item.kind)];
    const line = element(
      "div",
      {
        class: this.isBlind ? "pair-row" : `pair-row ${item.kind.split(" ")[0]}`,
        role: "row",
        id: `pair-${position}`,
        "aria-rowindex": String(position + 2),
        onclick: () => {
          this.current = position;
          this.open(item.row);
        },
      },
      element("span", { role: "gridcell", class: "change" }, outcome[0]),
      element(
        "span",
        { role: "gridcell", class: "name", title: visible(item.id) },
        element("bdi", {}, oneLine(item.id, 200) || "(no id)"),
        further && element("small", {}, oneLine(further, 60)),
      ),
      element("span", { role: "gridcell", class: "dataset" }, element("bdi", {}, oneLine(item.dataset, 80))),
      element("span", { role: "gridcell", class: "score" }, outcome[1]),
      element("span", { role: "gridcell", class: "score" }, outcome[2]),
      element("span", { role: "gridcell", class: "kind" }, outcome[3]),
    );
    return { line, row: item.row };
  }

  #drawTools(filter, order, find) {
    const chip = ([name, [title]]) => {
      const n = this.columns.countOf(name);
      if (this.isBlind && name !== "all") return null;
      if (!n && name !== "all" && name !== filter) return null;
      return element(
        "button",
        {
          type: "button",
          "aria-pressed": String(name === filter),
          "data-filter": name,
          onclick: () => this.state.update({ show: name === "all" ? null : name }),
        },
        `${title} `,
        element("span", { class: "count" }, count(n)),
      );
    };
    const focused = document.activeElement?.dataset?.filter;
    replaceChildren(this.chips, Object.entries(FILTERS).map(chip));
    if (focused) this.chips.querySelector(`[data-filter="${CSS.escape(focused)}"]`)?.focus();
    this.order.value = order;
    if (document.activeElement !== this.search) this.search.value = find;
    const { total } = this.columns;
    this.status.textContent =
      total < this.#expected
        ? `Reading cases: ${count(total)} of ${count(this.#expected)}`
        : this.shown.length < total
          ? `${count(this.shown.length)} of ${count(total)} cases`
          : plural(total, "case");
  }
}

function header() {
  const titles = [["change", "Change"], ["name", "Case"], ["dataset", "Dataset"], ["score", "A"], ["score", "B"], ["kind", "Outcome"]];
  return element("div", { class: "pair-row", role: "row" }, titles.map(([name, title]) => element("span", { class: name, role: "columnheader" }, title)));
}

function changeText(item) {
  return item.change === null ? "–" : item.change === 0 ? "0" : signed(item.change);
}

// The score in a run; an error if the case has one and no score there.
function scoreText(item, bit, score) {
  if (score !== null) return item.errors & bit ? `${number(score)} *` : number(score);
  if (item.kind === (bit === 1 ? "only in B" : "only in A")) return "";
  return item.errors & bit ? "error" : "–";
}
