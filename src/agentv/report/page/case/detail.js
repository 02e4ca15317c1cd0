// The detail view of a result: conversation, expected output, evaluators, and the command to run the case again.

import { conversation } from "./conversation.js";
import { copyButton } from "../core/copy.js";
import { difference } from "../core/diff.js";
import { element, replaceChildren } from "../core/dom.js";
import { count, duration, number, shellWord, usd } from "../core/format.js";
import { longText } from "../core/long_text.js";
import { badge } from "../core/badge.js";
import { asText, oneLine, visible } from "../core/text.js";

export class Detail {
  #open = null;

  constructor(rows, source, state, table) {
    this.rows = rows;
    this.source = source;
    this.state = state;
    this.table = table;
    this.title = element("h2", { tabindex: "-1", id: "detail-title" });
    this.before = this.#button("Previous result", "↑", () => this.#step(-1));
    this.after = this.#button("Next result", "↓", () => this.#step(1));
    this.place = element("span", { class: "place" });
    this.body = element("div", { class: "body" });
    this.root = element(
      "aside",
      { class: "detail", "aria-labelledby": "detail-title", hidden: true, onkeydown: (event) => this.#key(event) },
      element(
        "header",
        {},
        element("div", { class: "bar" }, this.before, this.after, this.place, this.#button("Close", "✕", () => this.close())),
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
    if (wanted === null) {
      this.#open = null;
      return;
    }
    const position = this.table.position(wanted);
    this.place.textContent = position < 0 ? "not in the filtered list" : `${count(position + 1)} of ${count(this.table.length)}`;
    this.before.disabled = this.table.neighbour(wanted, -1) === null || position < 0;
    this.after.disabled = this.table.neighbour(wanted, 1) === null || position < 0;
    if (wanted === this.#open) return;
    this.#open = wanted;
    const row = this.rows.at(wanted);
    const [rest, testCase] = await Promise.all([this.source.result(wanted), this.source.caseOf(wanted)]);
    if (this.#open !== wanted) return; // another result was opened in the meantime
    const result = this.rows.record(wanted, rest ?? {});
    this.title.replaceChildren(element("bdi", {}, visible(row.id)));
    replaceChildren(this.body, ...sections(row, result, testCase ?? {}, this.#others(wanted)));
    this.body.scrollTop = 0;
  }

  focus() {
    this.title.focus({ preventScroll: true });
  }

  close() {
    this.state.update({ open: null });
    this.table.focus();
  }

  #others(row) {
    const found = this.rows.others(row);
    if (!found.length) return null;
    const button = (other) =>
      element(
        "button",
        { type: "button", onclick: () => this.state.update({ open: other.row }) },
        badge(other.verdict),
        element("bdi", {}, oneLine([other.target, other.prompt, other.trial > 1 ? `trial ${other.trial}` : null].filter(Boolean).join(", "), 60)),
        other.score === null ? null : element("span", { class: "number" }, number(other.score)),
      );
    return section("Other results of this case", element("div", { class: "others" }, found.map(button)));
  }

  #step(by) {
    const next = this.table.neighbour(this.#open, by);
    if (next === null) return;
    this.state.update({ open: next });
    this.table.reveal(next);
  }

  #key(event) {
    if (event.key === "Escape") this.close();
  }

  #button(label, text, onclick) {
    return element("button", { type: "button", "aria-label": label, title: label, onclick }, text);
  }
}

function sections(row, result, testCase, others) {
  return [
    figures(row, result),
    others,
    result.error && section("Error", errorBlock(result.error)),
    section("Conversation", conversation(row, result, testCase)),
    expected(result, testCase),
    ownFindings(result),
    result.evaluator_results?.length && section("Evaluators", result.evaluator_results.map(evaluator)),
    result.reasoning && section("Reasoning", longText(result.reasoning)),
    result.file_changes && section("Changed files", longText(result.file_changes, "code")),
    commands(row, result, testCase),
    data(result, testCase),
  ].filter(Boolean);
}

function figures(row, result) {
  const metrics = result.execution_metrics ?? {};
  const usage = metrics.token_usage;
  const pairs = [
    ["score", result.score === null || result.score === undefined ? null : number(result.score)],
    ["partial score", result.partial_score === undefined ? null : `${number(result.partial_score)} (not counted)`],
    ["target", row.target],
    ["dataset", row.dataset.name],
    ["prompt", row.prompt],
    ["trial", row.trial > 1 ? String(row.trial) : null],
    ["time", row.duration === null ? null : duration(row.duration)],
    ["cost", row.cost === null ? null : usd(row.cost)],
    ["tokens", usage ? `${count(usage.input)} in, ${count(usage.output)} out${usage.cached ? `, ${count(usage.cached)} cached` : ""}` : null],
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
    badge(row.verdict),
    element("dl", {}, pairs.map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, element("bdi", {}, visible(value)))))),
    row.tags.length > 0 && element("p", { class: "tags" }, row.tags.map((tag) => element("span", {}, visible(tag)))),
  );
}

function errorBlock(error) {
  return element(
    "div",
    { class: "message error" },
    element("p", { class: "role" }, `${error.class} · ${error.stage}`),
    longText(error.message),
  );
}

function expected(result, testCase) {
  const messages = testCase.expected_output ?? [];
  if (!testCase.expected_outcome && !messages.length) return null;
  const content = messages.at(-1)?.content;
  const reference = content === undefined ? null : asText(content);
  const answer = result.candidate_answer;
  const parts = reference !== null && typeof answer === "string" ? difference(visible(reference), visible(answer)) : null;
  return section(
    "Expected",
    testCase.expected_outcome && element("p", { class: "outcome", dir: "auto" }, visible(testCase.expected_outcome)),
    reference !== null && longText(reference, typeof content === "string" ? "prose" : "code"),
    messages.at(-1)?.tool_calls && longText(asText(messages.at(-1).tool_calls), "code"),
    answer === reference && reference !== null && element("p", { class: "note" }, "The answer is identical."),
    parts && element("details", { class: "difference", open: true }, element("summary", {}, "Difference: expected output → answer"), differenceBlock(parts)),
  );
}

function differenceBlock(parts) {
  const names = { removed: "del", added: "ins", same: "span" };
  return element("p", { dir: "auto", class: "text" }, parts.map(([kind, text]) => element(names[kind], {}, text)));
}

function evaluator(found) {
  const verdict = found.error ? "error" : (found.verdict ?? "unscored");
  const details = found.details === undefined ? null : asText(found.details);
  return element(
    "div",
    { class: "evaluator" },
    element(
      "p",
      { class: "line" },
      badge(verdict),
      element("bdi", { class: "name" }, visible(found.name)),
      found.type !== found.name && element("span", { class: "type" }, visible(found.type)),
      element("span", { class: "score" }, found.error ? "not scored" : number(found.score)),
      found.weight !== 1 && element("span", { class: "type" }, `weight ${found.weight}`),
    ),
    found.error && errorBlock(found.error),
    findings("hit", found.hits),
    findings("miss", found.misses),
    found.reasoning && longText(found.reasoning),
    details && element("details", {}, element("summary", {}, "Details"), longText(details, "code")),
    found.evaluator_provider_request &&
      element("details", {}, element("summary", {}, "Judge prompt"), longText(asText(found.evaluator_provider_request), "code")),
    found.evaluator_results?.map(evaluator),
  );
}

// Findings of the record that none of its evaluators has. Tests and results of other tools may have no evaluators.
function ownFindings(result) {
  const own = (key) => {
    const listed = new Set((result.evaluator_results ?? []).flatMap((found) => found[key] ?? []));
    return (result[key] ?? []).filter((text) => !listed.has(text));
  };
  const lists = [findings("hit", own("hits")), findings("miss", own("misses"))].filter(Boolean);
  return lists.length && section("Findings", ...lists);
}

function findings(kind, texts) {
  if (!texts?.length) return null;
  const word = kind === "hit" ? "met" : "missed";
  return element(
    "ul",
    { class: `findings ${kind}` },
    texts.map((text) => element("li", { dir: "auto" }, element("span", { class: "unseen" }, `${word}: `), oneLine(text, 2000))),
  );
}

function commands(row, result, testCase) {
  const path = testCase.dataset_path || row.dataset.path;
  const again = path
    ? ["agentv", "eval", path, "--case", row.id, "--target", row.target].map(shellWord).join(" ")
    : null;
  return section(
    "Run this case again",
    again && element("div", { class: "command" }, element("code", {}, visible(again)), copyButton("Copy command", again)),
    path && testCase.line && element("p", { class: "note" }, `Defined in ${visible(path)}:${testCase.line}`),
    element(
      "p",
      { class: "copies" },
      typeof result.candidate_answer === "string" && copyButton("Copy answer", result.candidate_answer),
      copyButton("Copy link", () => location.href),
    ),
  );
}

function data(result, testCase) {
  const record = JSON.stringify(result, null, 2);
  const block = (title, text) =>
    element(
      "details",
      {
        ontoggle: (event) => {
          // Filled on demand: most are never opened.
          if (event.target.open && event.target.childElementCount === 1)
            event.target.append(longText(text, "code"), copyButton("Copy JSON", text));
        },
      },
      element("summary", {}, title),
    );
  return section("Data", block("Record", record), testCase.id !== undefined && block("Case", JSON.stringify(testCase, null, 2)));
}

function section(title, ...children) {
  return element("section", {}, element("h3", {}, title), ...children);
}
