// Texts of visible rows, such as reasons or answers, which are stored apart from the rows: fetched together, and kept.

const KEPT = 5_000;
const PAUSE = 40; // milliseconds; rows that are only scrolled past are not fetched

export class RowTexts {
  #kept = new Map();
  #wanted = [];
  #timer = 0;

  // `describe(row, fields)` returns the text from the stored fields of a record. `filled` is called when texts have arrived.
  constructor(source, describe, filled) {
    this.source = source;
    this.describe = describe;
    this.filled = filled;
  }

  // The text of a row; undefined if it is not known yet.
  of(row) {
    return this.#kept.get(row);
  }

  // Fetches the texts of rows, unless others are asked for soon.
  want(rows) {
    this.#wanted = rows.filter((row) => !this.#kept.has(row));
    clearTimeout(this.#timer);
    if (this.#wanted.length) this.#timer = setTimeout(() => this.#load(this.#wanted), PAUSE);
  }

  async #load(rows) {
    const found = await this.source.results(rows).catch(() => []); // tried again when the rows are drawn again
    found.forEach((rest, position) => rest && this.#kept.set(rows[position], this.describe(rows[position], rest)));
    for (const row of this.#kept.keys()) {
      if (this.#kept.size <= KEPT) break;
      this.#kept.delete(row);
    }
    this.filled();
  }
}
