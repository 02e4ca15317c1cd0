// The data embedded in the page: base64 blocks that are unpacked on demand. data/served.js has the same methods.

import { stringsIn } from "../core/text.js";
import { EmbeddedBlocks } from "./blocks.js";

export class EmbeddedSource {
  constructor(root) {
    this.only = new EmbeddedRun(root);
  }

  async run() {
    return this.only;
  }
}

class EmbeddedRun {
  #blocks;
  #caseOf = []; // the position of the case of each row

  constructor(root) {
    this.#blocks = new EmbeddedBlocks(root);
  }

  // The run, its figures, and the names that rows refer to by number.
  async head() {
    return this.#blocks.only("head");
  }

  // Yields the blocks of rows.
  async *blocks() {
    this.#caseOf = [];
    for await (const { first, data: block } of this.#blocks.each("rows")) {
      for (let i = 0; i < block.n; i++) this.#caseOf.push(Array.isArray(block.case) ? block.case[i] : block.case);
      yield { first, ...block };
    }
  }

  async result(row) {
    return this.#blocks.item("results", row);
  }

  async results(rows) {
    return Promise.all(rows.map((row) => this.result(row)));
  }

  async caseOf(row) {
    const position = this.#caseOf[row] ?? -1;
    return position < 0 ? null : this.#blocks.item("cases", position);
  }

  // Yields the rows whose answers, findings or inputs contain a text, block by block, without keeping blocks.
  async *search(text) {
    const wanted = text.toLowerCase();
    const contains = (item) => {
      for (const each of stringsIn(item)) if (each.toLowerCase().includes(wanted)) return true;
      return false;
    };
    const rowsOf = new Map(); // of each case
    this.#caseOf.forEach((position, row) => {
      if (!rowsOf.has(position)) rowsOf.set(position, []);
      rowsOf.get(position).push(row);
    });
    const total = this.#caseOf.length;
    for (const kind of ["results", "cases"]) {
      for await (const { first, data: items } of this.#blocks.each(kind)) {
        const found = items.flatMap((item, i) =>
          !contains(item) ? [] : kind === "results" ? [first + i] : (rowsOf.get(first + i) ?? []),
        );
        yield { rows: found, searched: kind === "results" ? first + items.length : total, total };
      }
    }
  }
}
