// A comparison in one file.

import { EmbeddedBlocks } from "./blocks.js";

export class EmbeddedComparison {
  #blocks;

  constructor(root) {
    this.#blocks = new EmbeddedBlocks(root);
  }

  async comparison() {
    return this;
  }

  async head() {
    return this.#blocks.only("head");
  }

  // Yields the cases as columns.
  async *blocks() {
    for await (const { data } of this.#blocks.each("rows")) yield data;
  }

  // The records of a case in both runs; null if the file does not contain them.
  async pair(row) {
    return this.#blocks.item("pairs", row);
  }
}
