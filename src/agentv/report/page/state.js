// The state of the view: search, filters, order and the open result. Stored in the URL, so that links restore it.

export const FACETS = ["verdict", "target", "dataset", "evaluator", "error", "tag"];

const EMPTY = () => ({
  search: "",
  answers: false,
  facets: Object.fromEntries(FACETS.map((name) => [name, new Set()])),
  scores: null,
  sort: "order",
  descending: false,
  open: null,
});

export class State extends EventTarget {
  #values = EMPTY();

  constructor() {
    super();
    this.#read();
    addEventListener("hashchange", () => {
      if (this.#hash() === location.hash.slice(1)) return;
      this.#read();
      this.dispatchEvent(new Event("change"));
    });
  }

  get values() {
    return this.#values;
  }

  // Applies changes, writes them to the URL, and notifies listeners.
  update(changes) {
    Object.assign(this.#values, changes);
    this.#write();
    this.dispatchEvent(new Event("change"));
  }

  toggle(facet, value) {
    const chosen = new Set(this.#values.facets[facet]);
    if (!chosen.delete(value)) chosen.add(value);
    this.update({ facets: { ...this.#values.facets, [facet]: chosen } });
  }

  reset() {
    const { open, sort, descending } = this.#values;
    this.update({ ...EMPTY(), open, sort, descending });
  }

  get isFiltered() {
    const { search, facets, scores } = this.#values;
    return search !== "" || scores !== null || FACETS.some((name) => facets[name].size > 0);
  }

  #hash() {
    const { search, answers, facets, scores, sort, descending, open } = this.#values;
    const parameters = new URLSearchParams();
    if (search) parameters.set("search", search);
    if (answers) parameters.set("answers", "1");
    for (const name of FACETS) for (const value of facets[name]) parameters.append(name, value);
    if (scores) parameters.set("scores", scores.join("-"));
    if (sort !== "order" || descending) parameters.set("sort", (descending ? "-" : "") + sort);
    if (open !== null) parameters.set("open", String(open));
    return parameters.toString();
  }

  #write() {
    const hash = this.#hash();
    // Replace the history entry, so that each typed letter does not add one.
    history.replaceState(null, "", hash ? `#${hash}` : location.pathname + location.search);
  }

  #read() {
    const parameters = new URLSearchParams(location.hash.slice(1));
    const values = EMPTY();
    values.search = parameters.get("search") ?? "";
    values.answers = parameters.has("answers");
    for (const name of FACETS) values.facets[name] = new Set(parameters.getAll(name));
    const scores = (parameters.get("scores") ?? "").split("-").map(Number);
    if (scores.length === 2 && scores.every(Number.isFinite)) values.scores = scores;
    const sort = parameters.get("sort") ?? "order";
    values.descending = sort.startsWith("-");
    values.sort = sort.replace(/^-/, "");
    const open = parameters.get("open");
    if (open !== null && /^\d+$/.test(open)) values.open = Number(open);
    this.#values = values;
  }
}
