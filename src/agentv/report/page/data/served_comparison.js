// A comparison that the server computes. The same methods as a comparison in a file.

import { get } from "./request.js";

export class ServedComparison {
  #parameters;

  // `names` are ids of runs, each with an optional target or prompt after a colon; `pooled` those of runs that are
  // pooled with the first if they are equal to it.
  constructor(names, isAllowed, pooled = []) {
    this.runs = names.map((name) => name.split(":")[0]);
    if (this.runs.length === 1) this.runs.push(this.runs[0]); // its targets are compared
    this.isPooled = pooled.length > 0;
    this.#parameters = new URLSearchParams([
      ...names.map((name) => ["runs", name]),
      ...pooled.map((id) => ["pooled", id]),
      ...(isAllowed ? [["anyway", "1"]] : []),
    ]);
  }

  // `onProgress` receives the number of cases read so far; if it returns false, the page was left.
  async head(onProgress = () => true) {
    for (;;) {
      const head = await get(`/api/compare?${this.#parameters}&progress=1`);
      this.#parameters.set("key", head.key); // a running eval may go on in the meantime
      if (head.kind !== "progress") return head;
      if (onProgress(head.read) === false) return null;
    }
  }

  // Yields the cases as columns.
  async *blocks() {
    for (let first = 0; ; ) {
      const block = await get(`/api/compare/rows?${this.#parameters}&first=${first}`);
      first += block.n;
      if (block.n) yield block;
      if (!block.n || first >= block.total) return;
    }
  }

  // The records of a case in both runs, and the case itself.
  async pair(row) {
    return get(`/api/compare/case?${this.#parameters}&row=${row}`);
  }
}
