// The labels that one person gave to the answers of a run. Does not use the DOM.

// What the filter of the table calls a row, by its code.
const LISTS = [["unlabelled"], ["labelled"], ["labelled", "disagrees with the judge"], ["skipped"]];

const UNANSWERED = -1; // or not known yet
const UNLABELLED = 0;
const LABELLED = 1;
const DISAGREES = 2;
const SKIPPED = 3;
const PASS = 0; // the first of the verdicts

export class RunLabels extends EventTarget {
  #source;
  #verdicts;
  #entries = new Map(); // by row
  #unanswered = new Set();
  #codes = new Int8Array(0);
  #done = []; // what this page wrote, for undo
  #isStale = false;
  #loading = null;
  #stops;

  // `verdicts` returns the codes of the judge's verdicts by row. Other programs may write labels, and a run may grow.
  constructor(source, verdicts, events) {
    super();
    this.#source = source;
    this.#verdicts = verdicts;
    this.progress = null; // until the labels are loaded
    this.problem = null; // why they cannot be read
    this.isRevealed = false;
    this.lists = LISTS;
    this.loaded = this.#load(); // reading the answers of a large run takes a while
    this.#stops = [
      events.on("labels", () => this.#load()),
      events.on("progress", ({ id }) => id === source.id && this.#load()),
    ];
  }

  close() {
    for (const stop of this.#stops) stop();
  }

  // Reads the labels, once more if they change meanwhile.
  #load() {
    this.#isStale = true;
    return (this.#loading ??= this.#read().finally(() => (this.#loading = null)));
  }

  async #read() {
    while (this.#isStale) {
      this.#isStale = false;
      const found = await this.#source.labels().catch((error) => ({ error }));
      if (!this.#isStale) this.#replace(found);
    }
  }

  #replace({ error = null, entries, unanswered, ...progress }) {
    this.problem = error;
    if (error !== null) return this.dispatchEvent(new Event("change"));
    this.#unanswered = new Set(unanswered);
    this.#entries = new Map(entries.flatMap((entry) => entry.rows.map((row) => [row, entry])));
    this.#take(progress);
  }

  of(row) {
    return this.#entries.get(row) ?? null;
  }

  hasAnswer(row) {
    return !this.#unanswered.has(row);
  }

  isLabelled(row) {
    return (this.of(row)?.label ?? null) !== null;
  }

  // Whether the judge's findings are hidden: until the answer is labelled.
  hides(row) {
    return !this.isRevealed && !this.isLabelled(row) && this.hasAnswer(row);
  }

  // Whether figures are hidden: until all answers are labelled, because they reveal verdicts.
  get hidesFigures() {
    return !this.isRevealed && !this.isComplete;
  }

  get isComplete() {
    return this.progress?.next === null;
  }

  reveal(isRevealed) {
    this.isRevealed = isRevealed;
    this.dispatchEvent(new Event("change"));
  }

  // Saves a label or a score with a comment. The answer's earlier state is kept for undo.
  async save(row, id, { label = null, score = null, comment = "" }) {
    const before = this.of(row);
    await this.#post(row, id, score === null ? { label, comment } : { score, comment });
    this.#done.push({ row, id, before });
  }

  // The row that this page labelled last; null if there is none.
  get last() {
    return this.#done.at(-1)?.row ?? null;
  }

  // Restores the earlier state of the answer that was labelled last.
  async undo() {
    const { row, id, before } = this.#done.at(-1);
    const { label = null, score = null, comment = "" } = before ?? {};
    await this.#post(row, id, score === null ? { label, comment } : { score, comment });
    this.#done.pop();
  }

  async agreement() {
    return this.#source.labelAgreement();
  }

  // The code of each row for the filter; they refer to `lists`.
  codes(total) {
    if (this.#codes.length !== total) {
      const verdicts = this.#verdicts();
      this.#codes = new Int8Array(total).fill(this.progress === null ? UNANSWERED : UNLABELLED);
      for (const row of this.#unanswered) this.#codes[row] = UNANSWERED;
      for (const [row, entry] of this.#entries) if (row < total) this.#codes[row] = codeOf(entry, verdicts[row]);
    }
    return this.#codes;
  }

  async #post(row, id, entry) {
    const { rows, label, score, comment, drawn, others, ...progress } = await this.#source.label({ row, id, ...entry });
    for (const each of rows) this.#entries.set(each, { rows, label, score, comment, drawn, others });
    if (this.#loading) this.#isStale = true; // what is being read may be older
    this.#take(progress);
  }

  #take(progress) {
    this.progress = { ...this.progress, ...progress };
    this.#codes = new Int8Array(0);
    this.dispatchEvent(new Event("change"));
  }
}

function codeOf({ label }, verdict) {
  if (label === null) return UNLABELLED;
  if (label === "skip") return SKIPPED;
  const hasVerdict = verdict < 3;
  return hasVerdict && (label === "pass") !== (verdict === PASS) ? DISAGREES : LABELLED;
}
