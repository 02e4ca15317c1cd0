// Quick search in ids: the ids of a block as one text in lower case, so that a million are searched at once.

export class IdText {
  #blocks = [];

  append(ids, first, n) {
    const starts = new Uint32Array(n + 1);
    const lowered = [];
    for (let i = 0; i < n; i++) {
      lowered.push(ids[first + i].toLowerCase());
      starts[i + 1] = starts[i] + lowered[i].length + 1;
    }
    this.#blocks.push({ first, starts, text: lowered.join("\n") });
  }

  // Marks the rows from `from` on whose id contains a text in lower case.
  mark(wanted, marks, from = 0) {
    for (const { first, starts, text } of this.#blocks) {
      if (first < from) continue;
      let row = 0;
      for (let at = text.indexOf(wanted); at >= 0; at = text.indexOf(wanted, starts[row])) {
        while (starts[row + 1] <= at) row++;
        if (at + wanted.length < starts[row + 1]) marks[first + row] = 1; // not across two ids
        row++;
        if (row === starts.length - 1) break;
      }
    }
  }
}
