// The search in conversations: marks rows as matches are found.

import { count } from "../core/format.js";

const REDRAW = 400; // milliseconds between drawings while matches arrive

export class TextSearch {
  #wanted = "";

  // `found` is null without a search. `changed` is called when there are more matches.
  constructor(source, progress, changed) {
    this.source = source;
    this.progress = progress;
    this.changed = changed;
    this.found = null;
    this.isSearching = false;
  }

  // Starts to search if another text is wanted.
  follow({ search, answers }) {
    const wanted = answers ? search.trim() : "";
    if (wanted === this.#wanted) return;
    this.#wanted = wanted;
    this.found = wanted ? new Uint8Array(1024) : null;
    this.isSearching = wanted !== "";
    this.progress.textContent = wanted ? "searching…" : "";
    if (wanted) this.#search(wanted).catch((error) => (this.progress.textContent = `The search failed: ${error.message}`));
  }

  stop() {
    this.#wanted = null;
  }

  async #search(wanted) {
    let drawn = performance.now();
    for await (const { rows, searched, total } of this.source.search(wanted)) {
      if (this.#wanted !== wanted) return;
      this.#mark(rows, total);
      if (performance.now() - drawn < REDRAW) continue;
      this.progress.textContent = `searched ${count(searched)} of ${count(total)} results`;
      this.changed();
      drawn = performance.now();
    }
    if (this.#wanted !== wanted) return;
    this.progress.textContent = "";
    this.isSearching = false;
    this.changed();
  }

  #mark(rows, total) {
    const most = rows.reduce((last, row) => Math.max(last, row + 1), total);
    if (most > this.found.length) {
      const larger = new Uint8Array(2 * most);
      larger.set(this.found);
      this.found = larger;
    }
    for (const row of rows) this.found[row] = 1;
  }
}
