// The data embedded in the page: base64 blocks that are unpacked on demand.
// A class with the same five methods can replace it, for example one that fetches from a server.

const KEPT = 48;

export class EmbeddedRun {
  #blocks = { rows: [], results: [], cases: [] };
  #unpacked = new Map();

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

  // The columns of the table, for all rows.
  async columns(total) {
    const columns = {};
    const parts = await Promise.all(this.#blocks.rows.map((block) => unpack(block.node)));
    for (const name of Object.keys(parts[0] ?? {})) {
      columns[name] = new Array(total);
      let row = 0;
      for (const part of parts) {
        const values = part[name];
        let moment = 0;
        for (let i = 0; i < part.n; i++) {
          // A column with equal values in a block is stored as one value.
          const value = Array.isArray(values) ? values[i] : values;
          // Timestamps are stored as the time since the previous row.
          columns[name][row++] = name === "ended" && value !== null ? (moment += value) : value;
        }
      }
    }
    return columns;
  }

  async result(row) {
    return this.#item("results", row);
  }

  async case(position) {
    return position < 0 ? null : this.#item("cases", position);
  }

  // Yields all "results" or "cases" block by block, without caching them.
  async *batches(kind) {
    for (const block of this.#blocks[kind]) yield { first: block.first, items: await unpack(block.node) };
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
