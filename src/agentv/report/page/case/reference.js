// What the case expects beside what was answered, with the words that differ marked.

import { plainText, section } from "./blocks.js";
import { difference } from "../core/diff.js";
import { element } from "../core/dom.js";
import { longText } from "../core/long_text.js";
import { asText, LONGEST, visible } from "../core/text.js";

export function reference(result, testCase) {
  const messages = testCase.expected_output ?? [];
  const last = messages.at(-1);
  const calls = messages.flatMap((each) => each.tool_calls ?? []);
  const hasContent = last?.content !== undefined && last.content !== null;
  if (!testCase.expected_outcome && !hasContent && !calls.length) return null;
  return section(
    "expected",
    "Expected and actual",
    testCase.expected_outcome && labelled("Expected outcome (criteria)", longText(asText(testCase.expected_outcome))),
    hasContent && compared(last.content, result.candidate_answer),
    calls.length > 0 && labelled("Reference tool calls", longText(asText(calls), "code")),
    messages.length > 1 && element("p", { class: "note" }, `The reference has ${messages.length} messages; the last one is shown.`),
  );
}

// Shows two texts side by side; stacked where there is no room.
export function sideBySide(left, right) {
  const isData = left.isData || right.isData;
  const isShort = left.text.length <= LONGEST && right.text.length <= LONGEST;
  const parts = isShort ? difference(visible(left.text), visible(right.text)) : null;
  const side = ({ title, text }, skipped) =>
    labelled(title, parts === null ? longText(text, isData ? "code" : "prose") : marked(parts, skipped, isData));
  return element("div", { class: "side-by-side" }, side(left, "added"), side(right, "removed"));
}

// An expected content beside the answer to it.
export function compared(content, answer) {
  const isData = typeof content !== "string" && !Array.isArray(content);
  const expected = plainText(content);
  if (typeof answer !== "string") return [labelled("Reference answer", longText(expected, isData ? "code" : "prose"))];
  const actual = isData ? formatted(answer) : answer;
  return [
    sideBySide({ title: "Reference answer", text: expected, isData }, { title: "Answer", text: actual }),
    expected === actual && element("p", { class: "note" }, "The answer is identical to the reference."),
  ].filter(Boolean);
}

// An answer that is JSON, written like the reference.
function formatted(answer) {
  try {
    return asText(JSON.parse(answer));
  } catch {
    return answer;
  }
}

function marked(parts, skipped, isData) {
  const names = { removed: "del", added: "ins", same: "span" };
  const shown = parts.filter(([kind]) => kind !== skipped);
  return element(isData ? "pre" : "p", { dir: "auto", class: "text" }, shown.map(([kind, text]) => element(names[kind], {}, text)));
}

function labelled(title, content) {
  return element("div", { class: "labelled" }, element("h4", {}, title), content);
}
