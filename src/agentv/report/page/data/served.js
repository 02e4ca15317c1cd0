// Data from the server, fetched on demand. The same methods as the data embedded in a file, and more.

import { ServerEvents } from "./events.js";
import { answer, failure, get, persistently, post } from "./request.js";
import { ServedComparison } from "./served_comparison.js";

const KEPT = 2_000;
const AT_ONCE = 500; // rows in a request
const WAIT = 100; // milliseconds between questions for rows that have not been read or written yet

export class ServedSource {
  #runs = new Map();
  #events = null;
  #ahead = null;

  // The runs that the server lists. A list that was read ahead is used once.
  async runs() {
    const found = this.#ahead ?? get("/api/runs");
    this.#ahead = null;
    return found;
  }

  // Reads the list before a view is chosen.
  async runsAhead() {
    this.#ahead = get("/api/runs");
    return this.#ahead;
  }

  // A run by its id; the first one without an id.
  async run(id) {
    const wanted = id ?? (await this.runs()).runs[0]?.id;
    if (wanted === undefined) throw new Error("There are no runs yet");
    if (!this.#runs.has(wanted)) this.#runs.set(wanted, new ServedRun(wanted, () => this.#forget(wanted)));
    return this.#runs.get(wanted);
  }

  // The files of a run were replaced by those of another one.
  #forget(id) {
    this.#runs.delete(id);
    this.events().send("replaced", { id });
  }

  // The means over time of the runs with these datasets and this target.
  async trend(datasets, target) {
    const parameters = new URLSearchParams([...datasets.map((name) => ["dataset", name]), ["target", target]]);
    return get(`/api/trend?${parameters}`);
  }

  // The comparison of two or more runs, or of the targets of one; `isAllowed` ignores that the measure changed.
  async comparison({ runs, pooled = [], isAllowed = false }) {
    return new ServedComparison(runs, isAllowed, pooled);
  }

  // Events of the server: the list of runs changed, or a running eval made progress.
  events() {
    return (this.#events ??= new ServerEvents("/api/events"));
  }
}

class ServedRun {
  #kept = new Map();
  #waiting = null;
  #version = null; // of the files that rows were read from
  #replaced;

  // `replaced` is called when the run turns out to be another one.
  constructor(id, replaced) {
    this.id = id;
    this.#replaced = replaced;
    this.address = `/api/runs/${encodeURIComponent(id)}`;
  }

  // The run and its figures. The names that rows refer to come with the blocks of rows.
  async head() {
    const head = await get(`${this.address}/head`);
    return { ...head, targets: [], datasets: [], prompts: [], errors: [], tagSets: [], evaluatorSets: [] };
  }

  // Yields blocks of rows from one on until the run is complete.
  async *blocks(from = 0) {
    for (let first = from; ; ) {
      const block = await persistently(`${this.address}/rows?first=${first}`);
      if (first && block.version !== this.#version) return this.#replaced();
      if (block.version !== this.#version) this.#kept.clear();
      this.#version = block.version;
      first += block.n;
      if (block.n) yield block;
      if (block.complete && first >= block.total) return;
      if (!block.n) await new Promise((resume) => setTimeout(resume, WAIT));
    }
  }

  // The fields of a record that are not in the rows. Requests of the same moment are sent together.
  result(row) {
    const found = this.#kept.get(row);
    if (found) return found;
    if (!this.#waiting || this.#waiting.rows.size >= AT_ONCE) this.#waiting = this.#later();
    const promise = this.#waiting.then((results) => results.get(row) ?? null);
    this.#waiting.rows.add(row);
    this.#kept.set(row, promise);
    promise.catch(() => this.#kept.delete(row)); // asked for again
    if (this.#kept.size > KEPT) this.#kept.delete(this.#kept.keys().next().value);
    return promise;
  }

  async results(rows) {
    return Promise.all(rows.map((row) => this.result(row)));
  }

  async caseOf(row) {
    return this.#ask(`case?row=${row}`);
  }

  // What belongs to rows that were read before: not if the run was replaced since.
  async #ask(path) {
    const response = await answer(`${this.address}/${path}`);
    const version = response.headers.get("Agentv-Version") ?? this.#version;
    if (version === this.#version) return response.json();
    this.#replaced();
    throw new Error("The run was replaced by another one");
  }

  // The labels of the person who uses the page.
  async labels() {
    return get(this.#labels);
  }

  async label(entry) {
    return post(this.#labels, entry);
  }

  async labelAgreement() {
    return get(`${this.#labels}/agreement`);
  }

  get #labels() {
    return `/api/labels/${encodeURIComponent(this.id)}`;
  }

  // Yields the rows whose texts contain a text, as the server finds them.
  async *search(text) {
    const response = await answer(`${this.address}/search?text=${encodeURIComponent(text)}`);
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    try {
      for (let rest = ""; ; ) {
        const { done, value } = await reader.read();
        if (done) return;
        const lines = (rest + value).split("\n");
        rest = lines.pop();
        for (const line of lines.filter(Boolean)) {
          const found = JSON.parse(line);
          if (found.error) throw failure(found.error);
          yield found;
        }
      }
    } finally {
      reader.cancel(); // the server stops to search
    }
  }

  #later() {
    const rows = new Set();
    const promise = Promise.resolve().then(async () => {
      this.#waiting = null;
      const wanted = [...rows];
      const found = [];
      // The server sends large records in several answers.
      while (found.length < wanted.length) found.push(...(await this.#ask(`results?rows=${wanted.slice(found.length).join(",")}`)));
      return new Map(wanted.map((row, position) => [row, found[position]]));
    });
    promise.rows = rows;
    return promise;
  }
}
