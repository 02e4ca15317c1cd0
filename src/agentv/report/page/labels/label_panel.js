// The panel that labels the open answer: buttons with a key each, a score, a comment, progress and agreement.

import { Agreement } from "./agreement.js";
import { blindSections } from "./blind.js";
import { element, replaceChildren } from "../core/dom.js";
import { count } from "../core/format.js";
import { oneLine, visible } from "../core/text.js";

const KEYS = [
  ["p", "Label the answer as pass"],
  ["f", "Label the answer as fail"],
  ["s", "Score the answer from 0 to 1"],
  ["x", "Skip the answer"],
  ["c", "Write a comment"],
  ["u", "Undo the last label"],
  ["n", "Open the next unlabelled answer"],
];

const LONGEST_COMMENT = 10_000;
const NAMES = { pass: "pass", fail: "fail", skip: "skipped" };

export class LabelPanel {
  #row = null;
  #isLabelling = false;
  #saved = Promise.resolve(true);
  #shown = new Map(); // the saved texts that controls show

  // `open` opens a row; `idOf` returns the id of its case.
  constructor(labels, { open, idOf }) {
    this.labels = labels;
    this.open = open;
    this.idOf = idOf;
    this.keys = KEYS;
    this.blind = blindSections;
    this.start = this.#button("Label next", "n", () => this.openNext());
    this.given = element("p", { class: "given", role: "status" });
    this.problem = element("p", { class: "note", role: "alert" });
    this.message = element("p", { class: "note", role: "alert" });
    this.buttons = [
      this.#button("Pass", "p", () => this.#label({ label: "pass" })),
      this.#button("Fail", "f", () => this.#label({ label: "fail" })),
      this.#button("Score", "s", () => this.#focusScore()),
      this.#button("Skip", "x", () => this.#label({ label: "skip" })),
    ];
    this.undo = this.#button("Undo", "u", () => this.#undo());
    this.next = this.#button("Next", "n", () => this.openNext());
    this.score = element("input", {
      type: "text",
      inputmode: "decimal",
      class: "score",
      placeholder: "0–1",
      "aria-label": "Score from 0 to 1; Enter saves it",
      autocomplete: "off",
      onkeydown: (event) => this.#typed(event, () => this.#saveScore()),
    });
    this.comment = element("textarea", {
      rows: "1",
      placeholder: "Comment (c; Enter saves)",
      "aria-label": "Comment; Enter saves it, Shift and Enter start a new line",
      "aria-keyshortcuts": "c",
      maxlength: String(LONGEST_COMMENT),
      onkeydown: (event) => this.#typed(event, () => this.#saveComment()),
      onblur: (event) => this.root.contains(event.relatedTarget) || this.#saveComment(),
    });
    this.reveal = element("input", { type: "checkbox", onchange: () => labels.reveal(this.reveal.checked) });
    this.progress = element("span", { class: "label-progress" });
    this.agreement = new Agreement(labels);
    this.root = element(
      "section",
      { class: "labels", "aria-label": "Label" },
      element("div", { class: "line" }, this.progress, element("label", {}, this.reveal, "Show verdicts before labelling")),
      element("div", { class: "line" }, this.buttons.slice(0, 3), this.score, this.buttons.slice(3), this.undo, this.next),
      this.comment,
      this.given,
      this.problem,
      this.message,
      this.agreement.root,
    );
    labels.addEventListener("change", () => {
      this.#draw();
      this.agreement.follow();
    });
    this.#draw();
  }

  // Shows the label of a row; null without an open row.
  show(row) {
    const isOther = row !== this.#row;
    this.#row = row;
    if (isOther) this.message.textContent = "";
    this.#draw(isOther);
  }

  // Handles the keys of the panel. Returns whether it used the key.
  key({ key }) {
    if (key === "n") return this.openNext(), true;
    if (this.labels.progress === null) return false;
    if (key === "u") return this.#undo(), true;
    if (this.#row === null || !this.labels.hasAnswer(this.#row)) return false;
    if (key === "c") return this.comment.focus(), true;
    const button = { p: 0, f: 1, s: 2, x: 3 }[key];
    if (button === undefined) return false;
    this.buttons[button].click();
    return true;
  }

  async openNext() {
    await this.labels.loaded;
    if (this.labels.progress === null) return;
    const { next } = this.labels.progress;
    if (next === null) this.#tell("All answers are labelled.");
    else if (next === this.#row) this.#tell("This is the next unlabelled answer. Skip it with x.");
    else this.open(next);
  }

  #draw(isOther = false) {
    const entry = this.#row === null ? null : this.labels.of(this.#row);
    this.reveal.checked = this.labels.isRevealed;
    this.progress.textContent = progressText(this.labels.progress);
    this.problem.textContent = this.labels.problem ? visible(`The labels cannot be read: ${this.labels.problem.message}`) : "";
    const given = entry?.label ?? null;
    const hasAnswer = this.#row === null || this.labels.hasAnswer(this.#row);
    const { progress } = this.labels;
    for (const control of [...this.buttons, this.score, this.comment]) control.disabled = !hasAnswer || progress === null;
    const isDone = progress !== null && progress.next === null;
    this.start.disabled = this.next.disabled = isDone;
    this.start.firstChild.textContent = isDone ? "All labelled" : "Label next";
    this.buttons.forEach((button, position) => {
      const pressed = ["pass", "fail", null, "skip"][position];
      if (pressed) button.setAttribute("aria-pressed", String(given === pressed && (entry.score ?? null) === null));
    });
    this.#fill(this.score, String(entry?.score ?? ""), isOther);
    this.#fill(this.comment, entry?.comment ?? "", isOther);
    replaceChildren(this.given, hasAnswer ? givenText(entry, progress?.labeller) : "This result has no answer to label.");
  }

  // Shows what is saved, unless something else was typed in the meantime.
  #fill(control, saved, isOther) {
    const isTyped = document.activeElement === control || control.value !== (this.#shown.get(control) ?? "");
    if (!isOther && isTyped && control.value !== saved) return;
    control.value = saved;
    this.#shown.set(control, saved);
  }

  #focusScore() {
    this.score.focus();
    this.score.select();
  }

  // Enter saves what was typed; Escape restores what is saved.
  #typed(event, save) {
    event.stopPropagation();
    if (event.key === "Escape") {
      this.#draw(true);
      this.buttons[0].focus();
    } else if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      save();
      this.buttons[0].focus();
    }
  }

  #saveScore() {
    const text = this.score.value.trim().replace(",", ".");
    const score = Number(text);
    if (!/^(\d+\.?\d*|\.\d+)$/.test(text) || score > 1) return this.#tell("A score is a number from 0 to 1, such as 0.7.");
    return this.#label({ score });
  }

  // A comment is saved with the label that the answer has, or as a note without one.
  #saveComment() {
    if (this.#row === null) return;
    const { label = null, score = null, comment = "" } = this.labels.of(this.#row) ?? {};
    if (this.comment.value !== comment) this.#save({ label, score });
  }

  // Saves a label, then opens the next unlabelled answer. A key that is pressed twice labels one answer.
  async #label(entry) {
    if (this.#isLabelling) return;
    this.#isLabelling = true;
    if (await this.#save(entry)) {
      const { next } = this.labels.progress;
      if (next !== null) this.open(next);
    }
    this.#isLabelling = false;
  }

  #save(entry) {
    const row = this.#row;
    const comment = this.comment.value.toWellFormed();
    return this.#change(() => this.labels.save(row, this.idOf(row), { ...entry, comment }));
  }

  // Takes back what this page saved last; on a new page, the label of the open answer.
  async #undo() {
    await this.#saved;
    const { last } = this.labels;
    if (last === null && !this.labels.isLabelled(this.#row)) return this.#tell("Nothing to undo.");
    if (last === null) return this.#save({});
    if (await this.#change(() => this.labels.undo())) this.open(last);
  }

  // Writes to the label file, one change after the other. Returns whether it is saved.
  #change(write) {
    this.#saved = this.#saved.then(() => this.#tryWrite(write));
    return this.#saved;
  }

  async #tryWrite(write) {
    try {
      await write();
      this.message.textContent = "";
      return true;
    } catch (error) {
      this.#tell(["Not saved", error.message, error.hint].filter(Boolean).join(": "));
      return false;
    }
  }

  #tell(text) {
    this.message.textContent = visible(text);
  }

  #button(title, key, onclick) {
    const [, text] = KEYS.find(([name]) => name === key);
    return element("button", { type: "button", title: text, "aria-keyshortcuts": key, onclick }, title, " ", element("kbd", { "aria-hidden": "true" }, key));
  }
}

function progressText(progress) {
  if (progress === null) return "Reading the answers…";
  const { labeller, answers, labelled, skipped } = progress;
  const who = labeller ? ` by ${oneLine(labeller, 40)}` : "";
  return `${count(labelled)} of ${count(answers)} labelled${who}${skipped ? `, ${count(skipped)} skipped` : ""}`;
}

function givenText(entry, labeller) {
  if (entry === null || entry.label === null) return [];
  const score = (each) => (each.score === null ? "" : ` (score ${each.score})`);
  const text = (name, each) =>
    element(
      "span",
      {},
      element("bdi", {}, oneLine(name || "No name", 40)),
      `: ${NAMES[each.label]}${score(each)}${each.comment ? ": " : ""}`,
      each.comment && element("bdi", {}, oneLine(each.comment, 200)),
    );
  const picked = entry.drawn === "chosen" && element("span", {}, "Picked, not drawn: left out when the judge is calibrated, until its turn comes.");
  return [text(labeller || "You", entry), ...entry.others.map((each) => text(each.labeller, each)), picked];
}
