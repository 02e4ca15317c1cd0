// The cases of a run and its combinations of target, prompt and trial: which result is in which cell. Does not use the DOM.

import { grown } from "../data/columns.js";
import { VERDICTS } from "../data/rows.js";

const MOST = 100_000; // more than any number of prompts or trials

export class Combinations {
  #byKey = new Map();
  #byCase = new Map(); // for each dataset, the number of each case by its id
  #read = 0;

  constructor(rows) {
    this.rows = rows;
    this.columns = []; // in the order of the page
    this.cases = []; // the first row of each
    this.repeated = 0; // results of a job that has another one; the last one is shown
  }

  // Adds the rows that were read since the last time.
  update() {
    const before = this.columns.length;
    for (; this.#read < this.rows.total; this.#read++) this.#add(this.#read);
    if (this.columns.length > before) this.#sort();
  }

  // The row in a cell; -1 if the combination was not run.
  rowAt(number, column) {
    return number < column.rows.length ? column.rows[number] : -1;
  }

  // How much the results of a case differ: first by the number of different verdicts, then by the range of scores.
  disagreement(number) {
    const { verdict, score } = this.rows.columns;
    const seen = new Set();
    let low = Infinity;
    let high = -Infinity;
    for (const column of this.columns) {
      const row = this.rowAt(number, column);
      if (row < 0) continue;
      seen.add(verdict[row]);
      if (Number.isNaN(score[row])) continue;
      low = Math.min(low, score[row]);
      high = Math.max(high, score[row]);
    }
    return Math.max(0, seen.size - 1) * 2 + Math.max(0, high - low);
  }

  hasDifferentVerdicts(number) {
    const { verdict } = this.rows.columns;
    let first = -1;
    for (const column of this.columns) {
      const row = this.rowAt(number, column);
      if (row < 0) continue;
      if (first < 0) first = verdict[row];
      else if (verdict[row] !== first) return true;
    }
    return false;
  }

  // Sorts the columns by target, as the run lists them, then by prompt and trial. Results arrive in any order.
  #sort() {
    const { summary, targets } = this.rows.head;
    const planned = new Map(Object.keys(summary.targets).map((name, position) => [name, position]));
    const rank = ({ target }) => planned.get(targets[target]) ?? planned.size + target;
    this.columns.sort((a, b) => rank(a) - rank(b) || a.prompt - b.prompt || a.trial - b.trial);
  }

  #add(row) {
    const number = this.#caseOf(row);
    const column = this.#columnOf(row);
    while (number >= column.rows.length) {
      const held = column.rows.length;
      column.rows = grown(column.rows, 2 * held).fill(-1, held);
    }
    if (column.rows[number] >= 0) this.repeated++;
    column.rows[number] = row;
    const { score, verdict } = this.rows.columns;
    if (VERDICTS[verdict[row]] === "error") column.errors++;
    if (Number.isNaN(score[row])) return;
    column.scored++;
    column.sum += score[row];
  }

  #caseOf(row) {
    const { id, dataset } = this.rows.columns;
    let numbers = this.#byCase.get(dataset[row]);
    if (!numbers) this.#byCase.set(dataset[row], (numbers = new Map()));
    let number = numbers.get(id[row]);
    if (number === undefined) {
      number = this.cases.push(row) - 1;
      numbers.set(id[row], number);
    }
    return number;
  }

  #columnOf(row) {
    const { target, prompt, trial } = this.rows.columns;
    const key = (target[row] * MOST + prompt[row] + 1) * MOST + trial[row];
    let column = this.#byKey.get(key);
    if (!column) {
      const codes = { target: target[row], prompt: prompt[row], trial: trial[row] };
      column = { ...codes, rows: new Int32Array(256).fill(-1), scored: 0, sum: 0, errors: 0 };
      this.#byKey.set(key, column);
      this.columns.push(column);
    }
    return column;
  }
}

// Whether a run has several results of a case: of several targets, prompts or trials.
export function hasSeveral(head) {
  const targets = Object.values(head.summary.targets);
  return Math.max(targets.length, head.targets.length) > 1 || targets.some((target) => target.jobs > target.cases);
}
