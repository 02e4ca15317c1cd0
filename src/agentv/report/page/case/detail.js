// The detail view of a result: why it failed, the conversation, expected beside actual, evaluators, files, settings and data.

import { filledLater, section } from "./blocks.js";
import { caseChecks, conversation } from "./conversation.js";
import { evaluator, findings } from "./evaluators.js";
import { fileDiff } from "./file_diff.js";
import { reasons } from "./reasons.js";
import { reference } from "./reference.js";
import { targetSettings } from "./settings.js";
import { transformed } from "./transformed.js";
import { copyButton } from "../core/copy.js";
import { element, replaceChildren } from "../core/dom.js";
import { firstEntries } from "../core/first_entries.js";
import { count, duration, number, shellWord, usd } from "../core/format.js";
import { longText } from "../core/long_text.js";
import { badge } from "../core/badge.js";
import { oneLine, visible } from "../core/text.js";

const LONGEST_NAME = 1_000; // of a case, and of the command that runs it again

export class Detail {
  #open = null;
  #isBlind = false;

  constructor(rows, source, state, table) {
    this.rows = rows;
    this.source = source;
    this.state = state;
    this.table = table;
    this.panel = null; // for labels
    this.title = element("h2", { tabindex: "-1", id: "detail-title" });
    this.before = this.#button("Previous result", "↑", () => this.#step(-1));
    this.after = this.#button("Next result", "↓", () => this.#step(1));
    this.place = element("span", { class: "place" });
    this.body = element("div", { class: "body" });
    this.root = element(
      "aside",
      { class: "detail", "aria-labelledby": "detail-title", hidden: true },
      element(
        "header",
        {},
        element("div", { class: "bar" }, this.#button("Back to the results", "← Results", () => this.close(), "back"), this.before, this.after, this.place, this.#button("Close", "✕", () => this.close(), "close")),
        this.title,
      ),
      this.body,
    );
  }

  async show() {
    const { open } = this.state.values;
    const wanted = open !== null && open < this.rows.total ? open : null;
    this.root.hidden = wanted === null;
    document.body.classList.toggle("with-detail", wanted !== null);
    this.panel?.show(wanted);
    if (wanted === null) {
      this.#open = null;
      replaceChildren(this.body); // the next result is not shown with this one's title
      return;
    }
    this.#showPlace(wanted);
    const isBlind = this.rows.labels?.hides(wanted) ?? false;
    if (wanted === this.#open && isBlind === this.#isBlind) return;
    this.#open = wanted;
    this.#isBlind = isBlind;
    const row = this.rows.at(wanted);
    const found = await Promise.all([this.source.result(wanted), this.source.caseOf(wanted)]).catch((error) => this.#fail(wanted, error));
    if (!found) return;
    const [rest, testCase] = found;
    if (this.#open !== wanted || this.#isBlind !== isBlind) return; // another result was opened in the meantime
    const result = this.rows.record(wanted, rest ?? {});
    this.#showTitle(row);
    replaceChildren(this.body, ...(isBlind ? this.panel.blind : sections)(row, result, testCase ?? {}, { head: this.rows.head, others: this.#others(wanted) }));
    this.body.scrollTop = 0;
  }

  #showTitle({ id }) {
    replaceChildren(this.title, element("bdi", {}, oneLine(id, LONGEST_NAME)));
  }

  // The place of the result in the list, and whether there is another one before and after it.
  #showPlace(row) {
    const position = this.table.position(row);
    this.place.textContent = position < 0 ? "not in the filtered list" : `${count(position + 1)} of ${count(this.table.length)}`;
    this.before.disabled = this.table.neighbour(row, -1) === null;
    this.after.disabled = this.table.neighbour(row, 1) === null;
  }

  // Shows why a result cannot be read. It is read again when it is drawn again.
  #fail(wanted, error) {
    if (this.#open !== wanted) return null;
    this.#open = null;
    this.#showTitle(this.rows.at(wanted));
    replaceChildren(this.body, element("p", { class: "failed", role: "alert" }, `This result cannot be read: ${visible(error.message)}`));
    return null;
  }

  focus() {
    this.title.focus({ preventScroll: true });
  }

  close() {
    this.state.update({ open: null });
    this.table.focus();
  }

  // Another view is shown.
  leave() {
    document.body.classList.remove("with-detail");
  }

  #others(row) {
    const found = this.rows.others(row);
    if (!found.length) return null;
    const button = (other) => {
      const { target, prompt, trial, verdict, score } = this.rows.at(other);
      return element(
        "button",
        { type: "button", onclick: () => this.state.update({ open: other }) },
        badge(verdict),
        element("bdi", {}, oneLine([target, prompt, trial && `trial ${trial}`].filter(Boolean).join(", "), 60)),
        score !== null && element("span", { class: "number" }, number(score)),
      );
    };
    return section("other-results", "Other results of this case", element("div", { class: "others" }, firstEntries(found, button, "results")));
  }

  #step(by) {
    const next = this.table.neighbour(this.#open, by);
    if (next === null) return;
    this.state.update({ open: next });
    this.table.reveal(next);
  }

  #button(label, text, onclick, name = null) {
    return element("button", { type: "button", class: name, "aria-label": label, title: label, onclick }, text);
  }
}

function sections(row, result, testCase, { head, others }) {
  const checks = caseChecks(row, result, testCase);
  return [
    reasons(row, result),
    figures(row, result),
    others,
    section("talk", "Conversation", conversation(row, result, testCase)),
    transformed(result),
    reference(result, testCase),
    ownFindings(result),
    checks.length && section("evaluators", "Evaluators", firstEntries(checks, evaluator, "evaluators")),
    result.reasoning && section("reasoning", "Reasoning", longText(result.reasoning)),
    result.file_changes && section("files", "Changed files", fileDiff(result.file_changes)),
    targetSettings(row, head),
    commands(row, result, testCase, head),
    data(result, testCase),
  ].filter(Boolean);
}

const LIMITS = new Map([["length", "at the token limit"], ["max_tokens", "at the token limit"], ["max_turns", "at the turn limit"]]);

function figures(row, result) {
  const metrics = result.execution_metrics ?? {};
  const usage = metrics.token_usage;
  const pairs = [
    ["partial score", result.partial_score === undefined ? null : `${number(result.partial_score)} (not counted)`],
    ["target", row.target],
    ["dataset", row.dataset.name],
    ["prompt", row.prompt],
    ["trial", row.trial && String(row.trial)],
    ["time", row.duration === null ? null : duration(row.duration)],
    ["cost", row.cost === null ? null : usd(row.cost)],
    ["tokens", usage ? `${count(usage.input)} in, ${count(usage.output)} out${usage.cached ? `, ${count(usage.cached)} cached` : ""}` : null],
    ["cut off", LIMITS.get(metrics.stop_reason) ?? null],
    ["attempts", result.attempts > 1 ? String(result.attempts) : null],
    ["cached", result.cached ? "yes" : null],
    ["carried from", result.carried_from ?? null],
    ["conversation", result.conversation_id ?? null],
    ["turns", result.conversation ? String(result.conversation.turns) : null],
    ["ended", result.conversation?.ended ?? null],
  ].filter(([, value]) => value !== null);
  return element(
    "div",
    { class: "figures" },
    element("dl", {}, pairs.map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, element("bdi", {}, visible(value)))))),
    row.tags.length > 0 && element("p", { class: "tags" }, firstEntries(row.tags, (tag) => element("span", {}, oneLine(tag, 200)), "tags")),
  );
}

// Findings of the record that none of its evaluators has. Tests and results of other tools may have no evaluators.
function ownFindings(result) {
  const own = (key) => {
    const listed = new Set((result.evaluator_results ?? []).flatMap((found) => found[key] ?? []));
    return (result[key] ?? []).filter((text) => !listed.has(text));
  };
  const lists = [findings("hit", own("hits")), findings("miss", own("misses"))].filter(Boolean);
  return lists.length && section("own-findings", "Findings", ...lists);
}

function commands(row, result, testCase, head) {
  const path = testCase.dataset_path || row.dataset.path;
  const again = path ? commandAgain(row, path, head.again) : null;
  const reason = head.again?.reason;
  return section(
    "again",
    "Run this case again",
    reason && element("p", { class: "note" }, `No command runs this result again: ${visible(reason)}.`),
    again && element("div", { class: "command" }, element("code", {}, oneLine(again, LONGEST_NAME)), copyButton("Copy command", again)),
    again && row.prompt !== null && element("p", { class: "note" }, "The command runs all prompts of the case."),
    again && path.startsWith("..") && element("p", { class: "note" }, "Paths are relative to the folder where the run was started."),
    path && testCase.line && element("p", { class: "note" }, `Defined in ${visible(path)}:${testCase.line}`),
    element(
      "p",
      { class: "copies" },
      typeof result.candidate_answer === "string" && copyButton("Copy answer", result.candidate_answer),
      copyButton("Copy link", () => location.href),
    ),
  );
}

// The command that runs a case again, with the options of the run; null if there is none. Stored answers have no target to call.
function commandAgain(row, path, { command, options, is_rescored: isRescored }) {
  if (!command) return null;
  const target = isRescored ? [] : ["--target", row.target];
  return [...command, path, "--case", row.id, ...target, ...options].map(shellWord).join(" ");
}

function data(result, testCase) {
  const block = (title, value) =>
    filledLater(title, () => {
      const text = JSON.stringify(value, null, 2);
      return [longText(text, "code"), copyButton("Copy JSON", text)];
    });
  return section("data", "Data", block("Record", result), testCase.id !== undefined && block("Case", testCase));
}
