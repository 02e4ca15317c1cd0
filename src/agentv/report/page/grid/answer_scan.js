// Finds the cases whose answers differ. Answers are stored apart from the rows, so that this reads all of them, in parts.

const CASES = 60; // read at a time
const MOST_ROWS = 300;
const REDRAW = 400; // milliseconds between drawings

export class AnswerScan {
  #isRunning = false;
  #next = 0;
  #different = new Set();

  // `changed` is called from time to time while cases are found, and at the end.
  constructor(combinations, source, changed) {
    this.combinations = combinations;
    this.source = source;
    this.changed = changed;
    this.isWanted = false;
    this.error = null;
  }

  has(number) {
    return this.#different.has(number);
  }

  // How many cases have been read so far.
  get searched() {
    return this.#next;
  }

  get isDone() {
    return this.#next >= this.combinations.cases.length;
  }

  // Reads the cases that have not been read. `isWanted` set to false stops it.
  async run() {
    if (this.#isRunning || this.error) return;
    this.#isRunning = true;
    try {
      for (let drawn = performance.now(); this.isWanted && !this.isDone; ) {
        await this.#readSome();
        if (performance.now() - drawn < REDRAW && !this.isDone) continue;
        drawn = performance.now();
        this.changed();
      }
    } catch (error) {
      this.error = error;
      this.changed();
    }
    this.#isRunning = false;
  }

  // Cases of which rows are still to come are read again later.
  restart() {
    this.#next = 0;
  }

  async #readSome() {
    const { columns, cases } = this.combinations;
    const most = Math.max(1, Math.min(CASES, Math.floor(MOST_ROWS / columns.length)));
    const numbers = [];
    for (let number = this.#next; number < cases.length && numbers.length < most; number++) numbers.push(number);
    const cells = numbers.map((number) => columns.map((column) => this.combinations.rowAt(number, column)).filter((row) => row >= 0));
    const found = await this.source.results(cells.flat());
    let position = 0;
    numbers.forEach((number, index) => {
      const answers = new Set(cells[index].map(() => answerText(found[position++])));
      if (answers.size > 1) this.#different.add(number);
      else this.#different.delete(number);
    });
    this.#next += numbers.length;
  }
}

// The answer of a record without space around it; null if there is none.
function answerText(rest) {
  const answer = rest?.candidate_answer;
  return typeof answer === "string" ? answer.trim() : null;
}
