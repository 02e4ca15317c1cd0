// The results of evaluators: scores, findings, and the calls of the judge with prompt and reply.

import { errorBlock, filledLater, plainMessage } from "./blocks.js";
import { element } from "../core/dom.js";
import { listItem, firstEntries } from "../core/first_entries.js";
import { count, duration, number, usd } from "../core/format.js";
import { longText } from "../core/long_text.js";
import { asText, oneLine, visible } from "../core/text.js";
import { badge } from "../core/badge.js";

export function evaluator(found) {
  const details = found.details === undefined || found.details === null ? null : asText(found.details);
  return element(
    "div",
    { class: "evaluator" },
    element(
      "p",
      { class: "line" },
      badge(found.error ? "error" : (found.verdict ?? "unscored")),
      element("bdi", { class: "name" }, visible(found.name)),
      found.type !== found.name && element("span", { class: "type" }, visible(found.type)),
      element("span", { class: "score" }, found.error ? "not scored" : number(found.score)),
      found.weight !== 1 && element("span", { class: "type" }, `weight ${found.weight}`),
    ),
    found.error && errorBlock(found.error),
    findings("hit", found.hits),
    findings("miss", found.misses),
    found.reasoning && longText(found.reasoning),
    details && filledLater("Details", () => longText(details, "code")),
    judgeCalls(found.evaluator_provider_request),
    firstEntries(found.evaluator_results ?? [], evaluator, "evaluators"),
  );
}

export function findings(kind, texts) {
  if (!texts?.length) return null;
  const word = kind === "hit" ? "met" : "missed";
  return element(
    "ul",
    { class: `findings ${kind}` },
    firstEntries(texts, (text) => element("li", { dir: "auto" }, element("span", { class: "unseen" }, `${word}: `), oneLine(text, 2000)), "findings", { frame: listItem }),
  );
}

// The judge's prompt and reply of each call. Other tools store their requests in forms of their own.
function judgeCalls(request) {
  if (!request) return null;
  if (!Array.isArray(request.calls)) return filledLater("Judge prompt", () => longText(asText(request), "code"));
  const shown = (call, position) => filledLater(callTitle(call, position, request.calls.length), () => judgeCall(call));
  const calls = firstEntries(request.calls, shown, "calls");
  const left = request.calls_left_out;
  return [calls, left && element("p", { class: "note" }, `${count(left)} more calls are not stored in the record.`)].flat();
}

function callTitle(call, position, total) {
  const which = total > 1 ? `Judge call ${position + 1} of ${total}` : "Judge prompt and reply";
  return [which, call.model ?? call.target, call.error && "failed"].filter(Boolean).map((each) => oneLine(asText(each), 80)).join(" · ");
}

function judgeCall(call) {
  const usage = call.token_usage;
  const facts = [
    `target ${asText(call.target ?? "unknown")}`,
    usage && `${count(usage.input)} tokens in, ${count(usage.output)} out`,
    typeof call.cost_usd === "number" && usd(call.cost_usd),
    typeof call.duration_ms === "number" && duration(call.duration_ms),
    call.cached && "from the cache",
    call.attempts > 1 && `${call.attempts} attempts`,
  ].filter(Boolean);
  const { messages = [], reply, error, tool_calls, token_usage, cost_usd, duration_ms, ...settings } = call;
  return element(
    "div",
    { class: "judge-call" },
    element("p", { class: "role" }, visible(facts.join(" · "))),
    call.messages_of !== undefined && element("p", { class: "note" }, `Continues the prompt of call ${call.messages_of + 1}.`),
    messages.length > 0 && element("h4", {}, "Judge prompt"),
    firstEntries(messages, plainMessage, "messages"),
    tool_calls && [element("h4", {}, "Judge tool calls"), longText(asText(tool_calls), "code")],
    error && errorBlock({ stage: "evaluator", ...error }),
    reply !== undefined && [element("h4", {}, "Judge reply"), longText(asText(reply))],
    filledLater("Judge settings", () => longText(asText(settings), "code")),
  );
}
