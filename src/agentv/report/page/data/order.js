// Rows sorted by a key: ascending, rows without a value last, equal ones in the order of the run. Does not use the DOM.

import { grown } from "./columns.js";

const FEW = 2_000; // sorted by comparing
const DIGIT = 16; // bits per pass of the radix sort
const PREFIX = 6; // characters of a string that fit into a number

export class Order {
  #key;
  #rows = new Uint32Array(0);
  #descending = null;

  // `key` has `add(from, to)`, `sort(from, to)` → rows, `compare(a, b)` and `isAbsent(row)`.
  constructor(key) {
    this.#key = key;
  }

  // The first `total` rows in their order. New rows are merged into those that are sorted already.
  rows(total, isDescending) {
    const from = this.#rows.length;
    if (total > from) {
      this.#key.add(from, total);
      this.#rows = merged(this.#rows, this.#key.sort(from, total), this.#key.compare);
      this.#descending = null;
    }
    if (!isDescending) return this.#rows;
    return (this.#descending ??= reversed(this.#rows, this.#key));
  }
}

// A key of numbers: `valueOf(row)`, NaN if it is absent.
export class NumberKey {
  #values = new Float64Array(1024);

  constructor(valueOf) {
    this.valueOf = valueOf;
    this.compare = (a, b) => this.#values[a] - this.#values[b] || 0; // Infinity - Infinity is NaN
  }

  add(from, to) {
    if (to > this.#values.length) this.#values = grown(this.#values, Math.max(to, 2 * this.#values.length));
    for (let row = from; row < to; row++) {
      const value = this.valueOf(row);
      this.#values[row] = Number.isNaN(value) ? Infinity : value;
    }
  }

  sort(from, to) {
    return sortedByNumber(range(from, to), this.#values);
  }

  isAbsent(row) {
    return this.#values[row] === Infinity;
  }
}

export class TextKey {
  constructor(texts) {
    this.texts = texts;
    this.compare = (a, b) => (texts[a] < texts[b] ? -1 : texts[a] > texts[b] ? 1 : 0);
  }

  add() {}

  sort(from, to) {
    const rows = range(from, to);
    sortByText(rows, this.texts, this.compare);
    return rows;
  }

  isAbsent() {
    return false;
  }
}

function range(from, to) {
  const rows = new Uint32Array(to - from);
  for (let i = 0; i < rows.length; i++) rows[i] = from + i;
  return rows;
}

// Radix sort of rows by numbers, from the lowest bits to the highest.
function sortedByNumber(rows, values) {
  if (rows.length < FEW) return rows.sort((a, b) => values[a] - values[b] || a - b);
  const digits = sortableBits(rows, values);
  const buckets = 1 << DIGIT;
  let order = range(0, rows.length);
  for (const digit of digits) {
    const starts = new Uint32Array(buckets + 1);
    for (const value of digit) starts[value + 1]++;
    if (starts[digit[0] + 1] === rows.length) continue; // all are equal
    for (let bucket = 0; bucket < buckets; bucket++) starts[bucket + 1] += starts[bucket];
    const next = new Uint32Array(rows.length);
    for (const position of order) next[starts[digit[position]]++] = position;
    order = next;
  }
  return order.map((position) => rows[position]);
}

// The bits of numbers as four lists of digits, changed so that they sort as the numbers do.
function sortableBits(rows, values) {
  const view = new DataView(new ArrayBuffer(8));
  const digits = Array.from({ length: 64 / DIGIT }, () => new Uint16Array(rows.length));
  for (let i = 0; i < rows.length; i++) {
    view.setFloat64(0, values[rows[i]] + 0); // -0 + 0 is 0
    const isNegative = view.getUint8(0) >= 128;
    for (let digit = 0; digit < digits.length; digit++) {
      const bits = view.getUint16(6 - 2 * digit);
      digits[digit][i] = isNegative ? ~bits : digit === digits.length - 1 ? bits | 0x8000 : bits;
    }
  }
  return digits;
}

// Sorts rows by text in place: by the characters after the common prefix, then each group of equal ones further.
function sortByText(rows, texts, compare) {
  if (rows.length < FEW) return void rows.sort((a, b) => compare(a, b) || a - b);
  const start = commonPrefix(rows, texts);
  const keys = new Float64Array(rows.length);
  for (let i = 0; i < rows.length; i++) keys[i] = prefixNumber(texts[rows[i]], start);
  const positions = sortedByNumber(range(0, rows.length), keys);
  rows.set(positions.map((position) => rows[position]));
  for (let first = 0; first < rows.length; ) {
    let end = first + 1;
    while (end < rows.length && keys[positions[end]] === keys[positions[first]]) end++;
    if (end - first > 1) sortGroup(rows.subarray(first, end), texts, compare);
    first = end;
  }
}

// Sorts rows whose keys are equal. If all texts are equal, they are in order already.
function sortGroup(rows, texts, compare) {
  const isSame = rows.every((row) => texts[row] === texts[rows[0]]);
  if (!isSame) sortByText(rows, texts, compare);
}

function commonPrefix(rows, texts) {
  const one = texts[rows[0]];
  let length = one.length;
  for (const row of rows) {
    const text = texts[row];
    length = Math.min(length, text.length);
    let same = 0;
    while (same < length && text.charCodeAt(same) === one.charCodeAt(same)) same++;
    length = same;
    if (!length) break;
  }
  return length;
}

// A number that grows with the text. Characters above 254 are equal in it.
function prefixNumber(text, start) {
  let number = 0;
  for (let i = start; i < start + PREFIX; i++) number = number * 256 + (i < text.length ? Math.min(255, text.charCodeAt(i) + 1) : 0);
  return number;
}

function merged(left, right, compare) {
  if (!left.length) return right;
  const rows = new Uint32Array(left.length + right.length);
  let i = 0;
  let j = 0;
  for (let at = 0; at < rows.length; at++)
    rows[at] = j === right.length || (i < left.length && compare(left[i], right[j]) <= 0) ? left[i++] : right[j++];
  return rows;
}

// Rows in descending order: absent values stay last, equal ones in the order of the run.
function reversed(rows, key) {
  const result = new Uint32Array(rows.length);
  let end = rows.length;
  while (end > 0 && key.isAbsent(rows[end - 1])) end--;
  result.set(rows.subarray(end), end);
  for (let at = 0; end > 0; ) {
    let first = end - 1;
    while (first > 0 && key.compare(rows[first - 1], rows[end - 1]) === 0) first--;
    result.set(rows.subarray(first, end), at);
    at += end - first;
    end = first;
  }
  return result;
}
