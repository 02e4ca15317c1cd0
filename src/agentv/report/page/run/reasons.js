// The reasons of visible rows, which are stored apart from the rows: fetched together, and kept.

import { oneLine } from "../core/text.js";
import { reasonOf } from "../data/rows.js";

const KEPT = 5_000;
const PAUSE = 40; // milliseconds; rows that are only scrolled past are not fetched

export class Reasons {
  #kept = new Map();
  #wanted = [];
  #timer = 0;

  // `filled` is called when reasons have arrived.
  constructor(rows, source, filled) {
    this.rows = rows;
    this.source = source;
    this.filled = filled;
  }

  // The reason of a row, or its answer if it passed; undefined if it is not known yet.
  of(row) {
    return this.#kept.get(row);
  }

  // Fetches the reasons of rows, unless others are asked for soon.
  want(rows) {
    this.#wanted = rows.filter((row) => !this.#kept.has(row));
    clearTimeout(this.#timer);
    if (this.#wanted.length) this.#timer = setTimeout(() => this.#load(this.#wanted), PAUSE);
  }

  async #load(rows) {
    const found = await this.source.results(rows).catch(() => []); // tried again when the rows are drawn again
    found.forEach((rest, position) => rest && this.#kept.set(rows[position], this.#reason(rows[position], rest)));
    for (const row of this.#kept.keys()) {
      if (this.#kept.size <= KEPT) break;
      this.#kept.delete(row);
    }
    this.filled();
  }

  #reason(row, rest) {
    const isPass = this.rows.columns.verdict[row] === 0;
    const reason = isPass ? "" : reasonOf(this.rows.record(row, rest));
    return { text: oneLine(reason || (rest.candidate_answer ?? ""), 240), isAnswer: !reason };
  }
}
