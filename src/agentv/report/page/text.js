// Text that models and users wrote, as text: what acts instead of being seen is written out. Knows no element.

// The same characters as agentv.report.text writes out, but for joiners that scripts need.
const ACTING =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g;

export const LONGEST = 20_000;

export function visible(text) {
  return text.replaceAll("\r\n", "\n").replace(ACTING, writtenOut).toWellFormed();
}

export function oneLine(text, longest) {
  const start = text.slice(0, 4 * longest);
  const line = visible(start.replace(/\s+/g, " ").trim());
  return line.length <= longest && start.length === text.length ? line : line.slice(0, longest - 1) + "…";
}

// Strings as they are, anything else as JSON: on one line where it is short, else indented.
export function asText(value) {
  if (typeof value === "string") return value;
  const line = JSON.stringify(value) ?? "";
  return line.length <= 72 ? line : JSON.stringify(value, null, 2);
}

// Every string inside a value, for search.
export function* stringsIn(value) {
  if (typeof value === "string") yield value;
  else if (value !== null && typeof value === "object") for (const item of Object.values(value)) yield* stringsIn(item);
}

function writtenOut(character) {
  const code = character.codePointAt(0);
  return code < 0x100 ? `\\x${code.toString(16).padStart(2, "0")}` : `\\u{${code.toString(16)}}`;
}
