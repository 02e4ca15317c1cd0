// The cases of a comparison as columns, their filters and orders. Does not use the DOM.

import { own } from "../core/lookup.js";

const COLUMNS = ["id", "dataset", "target", "prompt", "kind", "before", "after", "change", "errors"];

// The filters of the list: a title, and whether a case with this kind, these errors and this change belongs to it.
export const FILTERS = {
  all: ["All", () => true],
  losses: ["Losses", (kind) => kind === "loss"],
  gains: ["Gains", (kind) => kind === "gain"],
  ties: ["Ties", (kind) => kind === "tie"],
  errors: ["Errors", (kind, errors) => errors > 0],
  unscored: ["Not scored", (kind) => kind === "unscored"],
  unpaired: ["Not paired", (kind) => kind === "other input" || kind.startsWith("only in")],
};

export const ORDERS = {
  loss: "Largest loss first",
  gain: "Largest gain first",
  id: "Case id",
};

export class CaseColumns {
  #values = Object.fromEntries(COLUMNS.map((name) => [name, []]));
  #sorted = new Map();

  constructor(head) {
    this.head = head;
    this.total = 0;
  }

  append(block) {
    for (const name of COLUMNS) {
      const list = this.#values[name];
      const value = block[name];
      for (let i = 0; i < block.n; i++) list.push(Array.isArray(value) ? value[i] : value);
    }
    this.total += block.n;
    this.#sorted.clear();
  }

  at(row) {
    const found = Object.fromEntries(COLUMNS.map((name) => [name, this.#values[name][row]]));
    return { row, ...found, kind: this.head.kinds[found.kind] };
  }

  rowOf(id) {
    const row = this.#values.id.indexOf(id);
    return row < 0 ? null : row;
  }

  // The number of cases that a filter shows, of all cases of the comparison.
  countOf(name) {
    const { counts, kinds, total } = this.head;
    if (name === "all") return total;
    if (name === "errors") return counts.errors;
    return kinds.reduce((sum, kind) => sum + (FILTERS[name][1](kind, 0) ? counts[kind] : 0), 0);
  }

  matching(filter, search, order) {
    const isShown = (own(FILTERS, filter) ?? FILTERS.all)[1];
    const wanted = search.trim().toLowerCase();
    const { kind, errors, id, dataset } = this.#values;
    return this.#ordered(order).filter(
      (row) =>
        isShown(this.head.kinds[kind[row]], errors[row]) &&
        (!wanted || id[row].toLowerCase().includes(wanted) || dataset[row].toLowerCase().includes(wanted)),
    );
  }

  #ordered(order) {
    if (!this.#sorted.has(order)) this.#sorted.set(order, this.#sort(order));
    return this.#sorted.get(order);
  }

  // Cases arrive with the largest changes first, so that an order by change only needs to separate losses and gains.
  #sort(order) {
    const rows = Array.from({ length: this.total }, (_, row) => row);
    const { change, id } = this.#values;
    if (order === "id") return rows.sort((a, b) => (id[a] < id[b] ? -1 : id[a] > id[b] ? 1 : a - b));
    const losses = rows.filter((row) => change[row] < 0);
    const gains = rows.filter((row) => change[row] > 0);
    const unknown = rows.filter((row) => change[row] === null);
    const unchanged = rows.filter((row) => change[row] === 0);
    return (order === "gain" ? [gains, unknown, losses, unchanged] : [losses, unknown, gains, unchanged]).flat();
  }
}
