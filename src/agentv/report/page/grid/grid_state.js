// The state of the grid: the filter, the search, the order and the open result, read from and written to the URL.

export const DIFFERENCES = { "": "All cases", verdicts: "Verdicts differ", answers: "Answers differ" };
export const ORDERS = { "": "Order of the run", disagreement: "Most disagreement first", id: "By case id" };

export class GridState {
  #state;

  constructor(state) {
    this.#state = state;
    this.read();
  }

  read() {
    const known = (name, choices) => (Object.hasOwn(choices, this.#state.get(name) ?? "") ? (this.#state.get(name) ?? "") : "");
    const open = this.#state.get("open");
    this.values = {
      search: this.#state.get("search") ?? "",
      differ: known("differ", DIFFERENCES),
      order: known("order", ORDERS),
      open: open !== null && /^\d+$/.test(open) ? Number(open) : null,
    };
  }

  // Applies changes and writes them to the URL. The back button closes a result.
  update(changes) {
    const isStep = this.values.open === null && (changes.open ?? null) !== null;
    Object.assign(this.values, changes);
    const { search, differ, order, open } = this.values;
    this.#state.update({ search: search || null, differ: differ || null, order: order || null, open: open === null ? null : String(open) }, { isStep });
  }
}
