// Text from models and users. Escapes invisible and control characters. Does not use the DOM.

// The same characters as in agentv.report.figures.visible, without joiners that some scripts need.
export const INVISIBLE =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g;

export const LONGEST = 20_000;

export function visible(text) {
  return text.replaceAll("\r\n", "\n").replace(INVISIBLE, escapeCharacter).toWellFormed();
}

export function oneLine(text, longest) {
  const start = text.slice(0, 4 * longest);
  const line = visible(start.replace(/\s+/g, " ").trim());
  return line.length <= longest && start.length === text.length ? line : line.slice(0, longest - 1) + "…";
}

// Returns strings unchanged, other values as JSON: on one line if short, else indented.
export function asText(value) {
  if (typeof value === "string") return value;
  const line = JSON.stringify(value) ?? "";
  return line.length <= 72 ? line : JSON.stringify(value, null, 2);
}

// Yields every string in a value, for the search.
export function* stringsIn(value) {
  if (typeof value === "string") yield value;
  else if (value !== null && typeof value === "object") for (const item of Object.values(value)) yield* stringsIn(item);
}

function escapeCharacter(character) {
  const code = character.codePointAt(0);
  return code < 0x100 ? `\\x${code.toString(16).padStart(2, "0")}` : `\\u{${code.toString(16)}}`;
}
