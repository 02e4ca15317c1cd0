// The state of the list of runs: search, filters, order, page and ticked runs, read from and written to the URL.

import { FILTERS } from "./run_entries.js";

export const COMPARED = 2; // runs that are compared at once

export class RunsState {
  #state;

  constructor(state) {
    this.#state = state;
    this.read();
  }

  update(changes, options) {
    const isFiltered = "search" in changes || "filters" in changes || "sort" in changes;
    Object.assign(this.values, isFiltered ? { page: 0 } : {}, changes);
    this.#state.update(this.#parameters(), options);
  }

  reset() {
    this.update({ search: "", filters: noFilters() });
  }

  // Ticks a run or removes its tick. A third tick replaces the oldest one, because two runs are compared.
  tick(id) {
    const { ticked } = this.values;
    this.update({ ticked: ticked.includes(id) ? ticked.filter((each) => each !== id) : [...ticked, id].slice(-COMPARED) });
  }

  get isFiltered() {
    const { search, filters } = this.values;
    return search !== "" || FILTERS.some((name) => filters[name] !== null);
  }

  read() {
    const state = this.#state;
    const sort = state.get("sort") ?? "-started";
    const page = Number(state.get("page") ?? 1);
    this.values = {
      search: state.get("search") ?? "",
      filters: Object.fromEntries(FILTERS.map((name) => [name, state.get(name)])),
      sort: sort.replace(/^-/, ""),
      descending: sort.startsWith("-"),
      page: Number.isInteger(page) && page > 0 ? page - 1 : 0,
      ticked: state.getAll("tick").slice(-COMPARED),
    };
  }

  #parameters() {
    const { search, filters, sort, descending, page, ticked } = this.values;
    const order = (descending ? "-" : "") + sort;
    return {
      search: search || null,
      ...filters,
      sort: order === "-started" ? null : order,
      page: page ? String(page + 1) : null,
      tick: ticked,
    };
  }
}

function noFilters() {
  return Object.fromEntries(FILTERS.map((name) => [name, null]));
}
