// Word-by-word difference of two texts. Skips texts that are too long or too different.

const MOST_CELLS = 1_000_000;
const LEAST_COMMON = 0.25;

// Returns a list of [kind, text] with the kinds "same", "removed" and "added"; null if a difference is not useful.
export function difference(before, after) {
  if (before === after) return null;
  const left = words(before);
  const right = words(after);
  if (left.length * right.length > MOST_CELLS) return null;
  const parts = walk(left, right, lengths(left, right));
  const common = parts.reduce((sum, [kind, text]) => (kind === "same" && text.trim() ? sum + text.length : sum), 0);
  return common < LEAST_COMMON * Math.max(before.length, after.length) ? null : parts;
}

function words(text) {
  return text.match(/\s+|[\p{L}\p{N}_]+|[^\s\p{L}\p{N}_]/gu) ?? [];
}

function lengths(left, right) {
  const width = right.length + 1;
  const table = new Uint16Array((left.length + 1) * width);
  for (let i = left.length - 1; i >= 0; i--) {
    for (let j = right.length - 1; j >= 0; j--) {
      table[i * width + j] =
        left[i] === right[j]
          ? table[(i + 1) * width + j + 1] + 1
          : Math.max(table[(i + 1) * width + j], table[i * width + j + 1]);
    }
  }
  return table;
}

function walk(left, right, table) {
  const width = right.length + 1;
  const parts = [];
  const add = (kind, text) => {
    const last = parts.at(-1);
    if (last && last[0] === kind) last[1] += text;
    else parts.push([kind, text]);
  };
  let i = 0;
  let j = 0;
  while (i < left.length || j < right.length) {
    if (i < left.length && j < right.length && left[i] === right[j]) {
      add("same", left[i++]);
      j++;
    } else if (j >= right.length || (i < left.length && table[(i + 1) * width + j] >= table[i * width + j + 1])) {
      add("removed", left[i++]);
    } else {
      add("added", right[j++]);
    }
  }
  return parts;
}
