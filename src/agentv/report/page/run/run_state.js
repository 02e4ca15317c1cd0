// The state of the run view: search, filters, order and the open result, read from and written to the URL.

import { FACETS } from "../data/rows.js";

const NAMES = Object.keys(FACETS);
const DEFAULT_SORT = "worst";

const EMPTY = () => ({
  search: "",
  answers: false,
  facets: Object.fromEntries(NAMES.map((name) => [name, new Set()])),
  scores: null,
  sort: DEFAULT_SORT,
  descending: false,
  open: null,
});

export class RunState {
  #state;

  constructor(state) {
    this.#state = state;
    this.values = EMPTY();
    this.read();
  }

  // Applies changes, writes them to the URL, and notifies the page.
  update(changes) {
    // The back button of the browser closes a result.
    const isStep = this.values.open === null && (changes.open ?? null) !== null;
    Object.assign(this.values, changes);
    this.#state.update(this.#parameters(), { isStep });
  }

  toggle(facet, value) {
    const chosen = new Set(this.values.facets[facet]);
    if (!chosen.delete(value)) chosen.add(value);
    this.update({ facets: { ...this.values.facets, [facet]: chosen } });
  }

  reset() {
    const { open, sort, descending } = this.values;
    this.update({ ...EMPTY(), open, sort, descending });
  }

  get isFiltered() {
    const { search, facets, scores } = this.values;
    return search !== "" || scores !== null || NAMES.some((name) => facets[name].size > 0);
  }

  // Takes over the parameters of the URL.
  read() {
    const parameters = this.#state;
    const values = EMPTY();
    values.search = parameters.get("search") ?? "";
    values.answers = parameters.get("answers") !== null;
    for (const name of NAMES) values.facets[name] = new Set(parameters.getAll(name));
    const scores = (parameters.get("scores") ?? "").split("-").map(Number);
    if (scores.length === 2 && scores.every(Number.isFinite)) values.scores = scores;
    const sort = parameters.get("sort") ?? DEFAULT_SORT;
    values.descending = sort.startsWith("-");
    values.sort = sort.replace(/^-/, "");
    const open = parameters.get("open");
    if (open !== null && /^\d+$/.test(open)) values.open = Number(open);
    this.values = values;
  }

  #parameters() {
    const { search, answers, facets, scores, sort, descending, open } = this.values;
    return {
      search: search || null,
      answers: answers ? "1" : null,
      ...Object.fromEntries(NAMES.map((name) => [name, [...facets[name]]])),
      scores: scores ? scores.join("-") : null,
      sort: sort !== DEFAULT_SORT || descending ? (descending ? "-" : "") + sort : null,
      open: open === null ? null : String(open),
    };
  }
}
