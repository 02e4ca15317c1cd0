// The search box and the lists of filters. Each value shows how many rows it matches together with the other filters.

import { element, replaceChildren } from "../core/dom.js";
import { count } from "../core/format.js";
import { own } from "../core/lookup.js";
import { SearchBox } from "../core/search_box.js";
import { BINS } from "../data/rows.js";
import { oneLine, visible } from "../core/text.js";

const MOST_LISTED = 60;
// The number of values from which on a list is useful.
const LISTS = {
  target: { title: "Target", least: 2 },
  prompt: { title: "Prompt", least: 2 },
  dataset: { title: "Dataset", least: 2 },
  evaluator: { title: "Failed evaluator", least: 1 },
  error: { title: "Error class", least: 1 },
  tag: { title: "Tag", least: 2 },
  label: { title: "Label", least: 1 },
};
const ORDERS = {
  worst: "Worst first",
  order: "Run order",
  id: "By case",
  score: "Lowest score first",
  "-score": "Highest score first",
  "-duration": "Slowest first",
  "-cost": "Most expensive first",
};

// The search in the columns, or also in conversations.
export class SearchBar {
  constructor(state) {
    this.state = state;
    this.box = new SearchBox(() => this.#apply(), { label: "Search in ids, targets, tags and error classes", placeholder: "Search cases  /" });
    this.answers = element("input", { type: "checkbox", onchange: () => this.box.now() });
    this.progress = element("span", { class: "progress", role: "status" });
    const label = element("label", {}, this.answers, "also in conversations");
    this.root = element("div", { class: "search", role: "search" }, this.box.input, label, this.progress);
    this.follow();
  }

  follow() {
    const { search, answers } = this.state.values;
    this.box.show(search);
    this.answers.checked = answers;
  }

  #apply() {
    this.state.update({ search: this.box.text, answers: this.answers.checked });
  }
}

// The order of the rows, as a list to choose from.
export class OrderBox {
  constructor(state, rows) {
    this.state = state;
    this.rows = rows;
    this.root = element("select", { "aria-label": "Order of results", onchange: () => this.#choose() });
  }

  show() {
    const { sort, descending } = this.state.values;
    const chosen = `${descending ? "-" : ""}${sort}`;
    const { duration, cost } = this.rows.values;
    const offered = Object.keys(ORDERS).filter((name) => (name !== "-duration" || duration) && (name !== "-cost" || cost));
    const names = offered.includes(chosen) ? offered : [...offered, chosen];
    const text = (name) => own(ORDERS, name) ?? `By ${name.replace("-", "")}${name.startsWith("-") ? ", reversed" : ""}`;
    const options = names.map((name) => element("option", { value: name, selected: name === chosen }, text(name)));
    if (this.root.value !== chosen || this.root.options.length !== names.length) replaceChildren(this.root, options);
  }

  #choose() {
    const { value } = this.root;
    this.state.update({ sort: value.replace("-", ""), descending: value.startsWith("-") });
  }
}

export class Filters {
  #counts = {};

  constructor(state, rows) {
    this.state = state;
    this.rows = rows;
    this.lists = Object.keys(LISTS).map((name) => this.#list(name));
    this.scores = element("button", { type: "button", class: "chosen", onclick: () => state.update({ scores: null }) });
    this.reset = element("button", { type: "button", onclick: () => state.reset() }, "Show all");
    this.root = element("div", { class: "filters", role: "group", "aria-label": "Filters" }, this.lists.map(({ button }) => button), this.scores, this.reset, this.lists.map(({ box }) => box));
  }

  // `counts` are the rows that match each value together with the filters of the other facets.
  show(counts) {
    this.#counts = counts;
    const { scores, facets } = this.state.values;
    this.reset.hidden = !this.state.isFiltered;
    this.scores.hidden = scores === null;
    if (scores) replaceChildren(this.scores, `Score ${(scores[0] / BINS).toFixed(2)} to ${(scores[1] / BINS).toFixed(2)} ✕`);
    for (const list of this.lists) {
      const chosen = [...facets[list.name]];
      list.button.hidden = this.rows.variety(list.name) < LISTS[list.name].least && !chosen.length;
      list.button.classList.toggle("chosen", chosen.length > 0);
      const { title } = LISTS[list.name];
      const values = chosen.length === 0 ? "" : `: ${chosen.length === 1 ? oneLine(chosen[0], 24) : count(chosen.length)}`;
      list.button.textContent = title + values;
      list.button.setAttribute("aria-label", `Filter by ${title}${values}`);
      if (list.box.matches(":popover-open")) this.#fill(list);
    }
  }

  // A button, and the list that it opens below itself.
  #list(name) {
    const id = `filter-${name}`;
    const values = element("ul", {});
    const box = element("div", { id, class: "facet", popover: "auto", role: "group", "aria-label": LISTS[name].title, onbeforetoggle: (event) => event.newState === "open" && this.#open(list) }, values);
    const button = element("button", { type: "button", class: "opens", popovertarget: id }, LISTS[name].title);
    const list = { name, values, box, button };
    return list;
  }

  #open(list) {
    this.#fill(list);
    const { left, bottom } = list.button.getBoundingClientRect();
    list.box.style.setProperty("top", `${bottom + 4}px`);
    list.box.style.setProperty("left", `min(${left}px, 100vw - 19rem)`);
  }

  #fill({ name, values }) {
    const chosen = this.state.values.facets[name];
    const counts = new Map(this.#counts[name]);
    for (const value of chosen) if (!counts.has(value)) counts.set(value, 0);
    const entries = [...counts].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1));
    const listed = entries.slice(0, MOST_LISTED);
    const focused = document.activeElement?.dataset?.value;
    replaceChildren(
      values,
      listed.map(([value, n]) => this.#option(name, value, n, chosen.has(value))),
      entries.length === 0 && element("li", { class: "more" }, "No values in the results that match."),
      entries.length > listed.length && element("li", { class: "more" }, `and ${count(entries.length - listed.length)} more; use the search`),
    );
    if (focused) values.querySelector(`[data-value="${CSS.escape(focused)}"]`)?.focus();
  }

  #option(name, value, n, isChecked) {
    const box = element("input", {
      type: "checkbox",
      "data-value": `${name}:${value}`,
      "aria-label": `${oneLine(value, 60)}: ${count(n)}`,
      onchange: () => this.state.toggle(name, value),
    });
    box.checked = isChecked;
    return element(
      "li",
      {},
      element("label", { title: visible(value) }, box, element("bdi", {}, oneLine(value, 60)), element("span", { class: "count" }, count(n))),
    );
  }
}
