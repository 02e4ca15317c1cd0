// The search box and the facets. Each value shows how many rows it matches together with the other filters.

import { element, replaceChildren } from "../core/dom.js";
import { count } from "../core/format.js";
import { VERDICTS } from "../data/rows.js";
import { FACETS } from "./run_state.js";
import { oneLine, visible } from "../core/text.js";

const MOST_LISTED = 60;
const TITLES = {
  verdict: "Verdict",
  target: "Target",
  dataset: "Dataset",
  evaluator: "Failed evaluator",
  error: "Error class",
  tag: "Tag",
};

export class SearchBox {
  #waiting = 0;

  constructor(state) {
    this.state = state;
    this.input = element("input", {
      type: "search",
      placeholder: "Search cases",
      "aria-label": "Search in ids, targets, tags and error classes",
      "aria-keyshortcuts": "/",
      autocomplete: "off",
      spellcheck: "false",
      oninput: () => this.#later(),
    });
    this.answers = element("input", {
      type: "checkbox",
      onchange: () => this.#now(),
    });
    this.progress = element("span", { class: "progress", role: "status" });
    this.root = element(
      "div",
      { class: "search", role: "search" },
      this.input,
      element("label", {}, this.answers, "also in conversations"),
      this.progress,
    );
    this.follow();
  }

  follow() {
    const { search, answers } = this.state.values;
    // Do not overwrite text that is being typed.
    if (!this.#waiting && document.activeElement !== this.input) this.input.value = search;
    this.answers.checked = answers;
  }

  focus() {
    this.input.focus();
    this.input.select();
  }

  #later() {
    clearTimeout(this.#waiting);
    this.#waiting = setTimeout(() => this.#now(), 120);
  }

  #now() {
    clearTimeout(this.#waiting);
    this.#waiting = 0;
    this.state.update({ search: this.input.value, answers: this.answers.checked });
  }
}

export class Facets {
  constructor(state, rows) {
    this.state = state;
    this.rows = rows;
    this.lists = new Map(FACETS.map((name) => [name, element("ul", {})]));
    this.groups = new Map(
      FACETS.map((name) => [
        name,
        element("fieldset", { class: "facet" }, element("legend", {}, TITLES[name]), this.lists.get(name)),
      ]),
    );
    this.reset = element("button", { type: "button", class: "reset", onclick: () => state.reset() }, "Show all");
    this.root = element(
      "section",
      { class: "facets", "aria-label": "Filters" },
      element("header", {}, element("h2", {}, "Filters"), this.reset),
      [...this.groups.values()],
    );
  }

  // `shown` are the rows that match all filters; `found` are the rows that match a search in conversations.
  show(shown, found) {
    const { values } = this.state;
    this.reset.hidden = !this.state.isFiltered;
    for (const name of FACETS) {
      const chosen = values.facets[name];
      const rows = chosen.size ? this.rows.matching(values, found, name) : shown;
      const counts = this.rows.counts(name, rows);
      for (const value of chosen) if (!counts.has(value)) counts.set(value, 0);
      const entries = ordered(name, counts);
      // Hide a facet with a single value.
      this.groups.get(name).hidden = entries.length < (name === "evaluator" || name === "error" ? 1 : 2) && !chosen.size;
      const listed = entries.slice(0, MOST_LISTED);
      const focused = document.activeElement?.dataset?.value;
      replaceChildren(
        this.lists.get(name),
        listed.map(([value, n]) => this.#option(name, value, n, chosen.has(value))),
        entries.length > listed.length &&
          element("li", { class: "more" }, `and ${count(entries.length - listed.length)} more; use the search`),
      );
      if (focused) this.lists.get(name).querySelector(`[data-value="${CSS.escape(focused)}"]`)?.focus();
    }
  }

  #option(name, value, n, checked) {
    const box = element("input", {
      type: "checkbox",
      "data-value": `${name}:${value}`,
      "aria-label": `${oneLine(value, 60)}: ${count(n)}`,
      onchange: () => this.state.toggle(name, value),
    });
    box.checked = checked;
    return element(
      "li",
      {},
      element(
        "label",
        { title: visible(value) },
        box,
        name === "verdict" && element("i", { class: `dot ${value}` }),
        element("bdi", {}, oneLine(value, 60)),
        element("span", { class: "count" }, count(n)),
      ),
    );
  }
}

function ordered(name, counts) {
  const entries = [...counts];
  if (name === "verdict") return entries.sort((a, b) => VERDICTS.indexOf(a[0]) - VERDICTS.indexOf(b[0]));
  return entries.sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1));
}
