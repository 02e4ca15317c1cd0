// Blocks of compressed JSON in a page, which are unpacked on demand.

const KEPT = 48;

export class EmbeddedBlocks {
  #blocks = {};
  #unpacked = new Map();

  constructor(root) {
    for (const block of root.querySelectorAll("script[data-block]")) {
      const list = (this.#blocks[block.dataset.block] ??= []);
      list.push({ first: Number(block.dataset.first ?? 0), node: block });
    }
  }

  // The data of a kind with one block.
  async only(kind) {
    return unpack(this.#blocks[kind][0].node);
  }

  // Yields the blocks of a kind, without keeping them.
  async *each(kind) {
    for (const { first, node } of this.#blocks[kind] ?? []) yield { first, data: await unpack(node) };
  }

  // The item with a number, from the block that contains it; null if there is none.
  async item(kind, position) {
    const blocks = this.#blocks[kind] ?? [];
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
