// Columns that grow by blocks of rows. Numbers are in typed arrays; an unknown number is NaN. Does not use the DOM.

const CODES = ["verdict", "target", "dataset", "prompt", "error", "tags", "missed", "trial", "case"];
const NUMBERS = ["score", "duration", "cost", "input", "output", "cached", "ended"];

export class Columns {
  #capacity;

  constructor(capacity) {
    this.#capacity = Math.max(1024, capacity);
    this.id = [];
    for (const name of CODES) this[name] = new Int32Array(this.#capacity);
    for (const name of NUMBERS) this[name] = new Float64Array(this.#capacity);
  }

  // Writes `n` rows from a position on. A column with equal values is given as one value.
  write(first, n, block) {
    this.#reserve(first + n);
    for (let i = 0; i < n; i++) this.id.push(Array.isArray(block.id) ? block.id[i] : block.id);
    for (const name of CODES) this.#write(this[name], block[name], first, n, -1);
    for (const name of NUMBERS) this.#write(this[name], block[name], first, n, NaN);
    sumUp(this.ended, first, n);
  }

  #write(column, values, first, n, absent) {
    if (!Array.isArray(values)) column.fill(values ?? absent, first, first + n);
    else for (let i = 0; i < n; i++) column[first + i] = values[i] ?? absent;
  }

  #reserve(total) {
    if (total <= this.#capacity) return;
    this.#capacity = Math.max(total, 2 * this.#capacity);
    for (const name of [...CODES, ...NUMBERS]) this[name] = grown(this[name], this.#capacity);
  }
}

export function grown(array, capacity) {
  const larger = new array.constructor(capacity);
  larger.set(array);
  return larger;
}

export function known(value) {
  return Number.isNaN(value) ? null : value;
}

// Timestamps are stored as the time since the previous row of the block.
function sumUp(column, first, n) {
  let moment = 0;
  for (let row = first; row < first + n; row++) if (!Number.isNaN(column[row])) column[row] = moment += column[row];
}
