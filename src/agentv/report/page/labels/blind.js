// What is shown of an answer before it is labelled: no scores, verdicts, reasons or targets, as in `agentv judge label`.

import { section } from "../case/blocks.js";
import { conversation } from "../case/conversation.js";
import { reference } from "../case/reference.js";
import { element } from "../core/dom.js";
import { longText } from "../core/long_text.js";
import { asText } from "../core/text.js";

export function blindSections(row, result, testCase) {
  const { evaluator_results, hits, misses, reasoning, score, verdict, ...unjudged } = result;
  const hidden = { ...row, verdict: "unscored", score: null };
  const isCompared = (testCase.expected_output?.at(-1)?.content ?? null) !== null;
  return [
    element("p", { class: "note" }, "The verdict is hidden until the answer is labelled."),
    reference(unjudged, testCase),
    !isCompared && section("answer", "Answer", longText(asText(result.candidate_answer ?? ""))),
    section("talk", "Conversation", conversation(hidden, { ...unjudged, hits: [], misses: [], evaluator_results: [] }, testCase)),
  ].filter(Boolean);
}
