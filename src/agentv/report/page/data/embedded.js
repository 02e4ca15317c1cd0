// The data embedded in the page: base64 blocks that are unpacked on demand. data/served.js has the same methods.

import { stringsIn } from "../core/text.js";

const KEPT = 48;

export class EmbeddedSource {
  constructor(root) {
    this.only = new EmbeddedRun(root);
  }

  async run() {
    return this.only;
  }
}

class EmbeddedRun {
  #blocks = { rows: [], results: [], cases: [] };
  #unpacked = new Map();
  #caseOf = []; // the position of the case of each row

  constructor(root) {
    for (const block of root.querySelectorAll("script[data-block]")) {
      const list = (this.#blocks[block.dataset.block] ??= []);
      list.push({ first: Number(block.dataset.first ?? 0), node: block });
    }
  }

  // The run, its figures, and the names that rows refer to by number.
  async head() {
    return unpack(this.#blocks.head[0].node);
  }

  // Yields the blocks of rows.
  async *blocks() {
    this.#caseOf = [];
    for (const { first, node } of this.#blocks.rows) {
      const block = await unpack(node);
      for (let i = 0; i < block.n; i++) this.#caseOf.push(Array.isArray(block.case) ? block.case[i] : block.case);
      yield { first, ...block };
    }
  }

  async result(row) {
    return this.#item("results", row);
  }

  async results(rows) {
    return Promise.all(rows.map((row) => this.result(row)));
  }

  async caseOf(row) {
    const position = this.#caseOf[row] ?? -1;
    return position < 0 ? null : this.#item("cases", position);
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
      for (const { first, node } of this.#blocks[kind]) {
        const items = await unpack(node);
        const found = items.flatMap((item, i) =>
          !contains(item) ? [] : kind === "results" ? [first + i] : (rowsOf.get(first + i) ?? []),
        );
        yield { rows: found, searched: kind === "results" ? first + items.length : total, total };
      }
    }
  }

  async #item(kind, position) {
    const blocks = this.#blocks[kind];
    let low = 0;
    let high = blocks.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (blocks[middle].first <= position) low = middle;
      else high = middle - 1;
    }
    const block = blocks[low];
    if (!block) return null;
    return (await this.#kept(`${kind}${low}`, block))[position - block.first] ?? null;
  }

  #kept(key, block) {
    const found = this.#unpacked.get(key) ?? unpack(block.node);
    this.#unpacked.delete(key);
    this.#unpacked.set(key, found); // least recently used blocks are dropped first
    if (this.#unpacked.size > KEPT) this.#unpacked.delete(this.#unpacked.keys().next().value);
    return found;
  }
}

async function unpack(node) {
  const bytes = fromBase64(node.textContent);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  return new Response(stream).json();
}

function fromBase64(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = binary.charCodeAt(i);
  return bytes;
}
