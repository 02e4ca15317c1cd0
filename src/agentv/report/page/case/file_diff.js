// Changed files: a unified diff in colour, by file. Long files are collapsed, and their lines are created when opened.

import { filledLater } from "./blocks.js";
import { element } from "../core/dom.js";
import { firstEntries } from "../core/first_entries.js";
import { count, plural } from "../core/format.js";
import { longText } from "../core/long_text.js";
import { visible } from "../core/text.js";

const OPEN_LINES = 60; // longer diffs of a file start collapsed
const MOST_LINES = 2_000; // shown before a button
const LONGEST_LINE = 2_000;

export function fileDiff(text) {
  const { files, notes } = parsedDiff(text);
  if (!files.length) return [longText(text, "code")];
  const total = (name) => files.reduce((sum, file) => sum + file[name], 0);
  return [
    element("p", { class: "note" }, `${plural(files.length, "file")} changed, `, changes(total("added"), total("removed"))),
    ...firstEntries(files, fileBlock, "files"),
    notes.length > 0 && element("div", { class: "note" }, longText(notes.join("\n"))),
  ];
}

// Splits a diff into files with their lines and the notes between them. Does not use the DOM.
function parsedDiff(text) {
  const files = [];
  const notes = [];
  let file = null;
  let left = { "-": 0, "+": 0 }; // lines that the hunk still has
  const start = (name, state = "changed") => files.push((file = { name, state, lines: [], added: 0, removed: 0 }));
  const lines = text.replace(/\n$/, "").split("\n");
  lines.forEach((line, position) => {
    const inHunk = left["-"] > 0 || left["+"] > 0;
    if (inHunk && /^[-+ ]/.test(line)) return addLine(file, line, left);
    if (inHunk && line === "") return addLine(file, " ", left); // some tools strip the blank of an empty line
    const hunk = /^@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@/.exec(line);
    const git = /^diff --git (?:"?a\/.*?"? )?"?b\/(.*?)"?$/.exec(line);
    if (git) start(git[1]);
    else if (line.startsWith("--- ") && lines[position + 1]?.startsWith("+++ ")) {
      if (file === null || file.lines.length) start("");
      if (line === "--- /dev/null") file.state = "new";
      else file.name ||= plainName(line.slice(4));
    } else if (line.startsWith("+++ ") && lines[position - 1]?.startsWith("--- ")) {
      if (line === "+++ /dev/null") file.state = "deleted";
      else file.name = plainName(line.slice(4));
    } else if (hunk && file) {
      left = { "-": Number(hunk[1] ?? 1), "+": Number(hunk[2] ?? 1) };
      file.lines.push(["hunk", line]);
    } else if (file && /^(new|deleted) file mode/.test(line)) file.state = line.split(" ")[0];
    else if (file && /^(rename|old mode|new mode|similarity|index|Binary files|\\ No newline)/.test(line)) file.lines.push(["note", line]);
    else if (line !== "") notes.push(line.replace(/^# /, ""));
  });
  return { files, notes };
}

function addLine(file, line, left) {
  const kind = { "+": "added", "-": "removed", " ": "same" }[line[0]];
  if (kind !== "added") left["-"]--;
  if (kind !== "removed") left["+"]--;
  if (kind !== "same") file[kind]++;
  file.lines.push([kind, line]);
}

function plainName(text) {
  return text.replace(/\t.*$/, "").replace(/^"?[ab]\//, "").replace(/"$/, "");
}

function fileBlock(file) {
  const summary = [
    element("bdi", { class: "path" }, visible(file.name || "file")),
    file.state !== "changed" && element("span", { class: "state" }, file.state),
    changes(file.added, file.removed),
  ];
  return filledLater(summary, () => codeLines(file.lines), { kind: "file-diff", isOpen: file.lines.length <= OPEN_LINES });
}

function codeLines(lines) {
  const shown = firstEntries(lines, codeLine, "lines", { most: MOST_LINES });
  return element("pre", { class: "lines", tabindex: "0", "aria-label": "Changed lines" }, shown);
}

function codeLine([kind, text]) {
  const line = visible(text.slice(0, LONGEST_LINE)) + (text.length > LONGEST_LINE ? `… ${count(text.length - LONGEST_LINE)} more characters` : "");
  return element({ added: "ins", removed: "del" }[kind] ?? "span", { class: `line ${kind}` }, `${line}\n`);
}

function changes(added, removed) {
  return element(
    "span",
    { class: "changes" },
    element("span", { class: "added" }, `+${count(added)}`),
    " ",
    element("span", { class: "removed" }, `−${count(removed)}`),
  );
}
