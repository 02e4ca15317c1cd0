// Tool calls in time: when each started and how long it took, as far as the record has it.

import { filledLater } from "./blocks.js";
import { element } from "../core/dom.js";
import { count, duration } from "../core/format.js";
import { longText } from "../core/long_text.js";
import { asText, oneLine, visible } from "../core/text.js";

const MOST_LINES = 40;
const OPEN_CALLS = 5; // with more calls, each starts collapsed

// The calls of messages with their times. Calls in tool messages are results, and count only if there are no others.
export function timedCalls(messages, toolDurations = {}) {
  const calls = messages.filter((each) => each.role !== "tool").flatMap(callsOf);
  const found = (calls.length ? calls : messages.flatMap(callsOf)).map((call) => ({ call, ...namedCall(call), ...timeOf(call) }));
  addDurations(found, toolDurations ?? {});
  const timed = found.filter((each) => each.took !== null);
  const hasStarts = timed.length > 0 && timed.every((each) => each.start !== null);
  const first = hasStarts ? timed.reduce((earliest, each) => Math.min(earliest, each.start), Infinity) : 0;
  let moment = 0;
  for (const each of timed) {
    each.start = hasStarts ? each.start - first : moment;
    moment += each.took;
  }
  const end = timed.reduce((latest, each) => Math.max(latest, each.start + each.took), 0);
  found.forEach((each, position) => (each.number = position + 1));
  return { calls: found, end, hasStarts, byCall: new Map(found.map((each) => [each.call, each])) };
}

// The name and input of a call. Records of other tools may have `name` and `arguments`, or `function`.
function namedCall(call) {
  const own = call.function !== null && typeof call.function === "object" ? call.function : call;
  return { name: asText(own.tool ?? own.name ?? "a tool"), input: own.input ?? own.args ?? own.arguments, output: call.output };
}

function callsOf(message) {
  return Array.isArray(message.tool_calls) ? message.tool_calls.filter((call) => call !== null && typeof call === "object") : [];
}

function timeOf(call) {
  const start = Date.parse(call.timestamp);
  const isKnown = Number.isFinite(call.duration_ms) && call.duration_ms >= 0;
  return { start: Number.isNaN(start) ? null : start, took: isKnown ? call.duration_ms : null };
}

// Durations that the record stores by tool, for tools whose calls all have one.
function addDurations(found, durations) {
  for (const [tool, list] of Object.entries(durations)) {
    const calls = found.filter((each) => each.name === tool);
    if (!Array.isArray(list) || calls.length !== list.length || calls.some((each) => each.took !== null)) continue;
    calls.forEach((each, position) => (each.took = Number.isFinite(list[position]) ? list[position] : null));
  }
}

// An overview of the calls on one time line. A line leads to its call.
export function timeline({ calls, end, hasStarts }) {
  if (calls.length < 2) return null;
  const isTimed = end > 0;
  const line = (each) =>
    element(
      "li",
      {},
      element(
        "button",
        { type: "button", title: `Show call ${each.number}`, onclick: () => reveal(each.shown) },
        element("span", { class: "n" }, String(each.number)),
        element("code", {}, oneLine(each.name, 40)),
        isTimed && bar(each, end),
        isTimed && element("span", { class: "took" }, each.took === null ? "" : duration(each.took)),
      ),
    );
  const left = calls.length - MOST_LINES;
  return element(
    "div",
    { class: "timeline" },
    element("h4", {}, `Timeline of ${count(calls.length)} tool calls${isTimed ? `, ${duration(end)}` : ""}`),
    element("ol", {}, calls.slice(0, MOST_LINES).map(line)),
    left > 0 && element("p", { class: "note" }, `and ${count(left)} more`),
    isTimed && !hasStarts && element("p", { class: "note" }, "Start times are not stored: the calls are drawn one after another."),
    !isTimed && element("p", { class: "note" }, "The record has no times of tool calls."),
  );
}

function reveal(shown) {
  if (!shown?.isConnected) return;
  shown.open = true;
  shown.scrollIntoView({ block: "nearest" });
  shown.querySelector("summary").focus({ preventScroll: true });
}

function bar(each, end) {
  const at = (value) => `${((value / end) * 100).toFixed(2)}%`;
  const mark = each.took === null ? null : element("i", { style: { left: at(each.start), width: at(each.took) } });
  return element("span", { class: "time-track", "aria-hidden": "true" }, mark);
}

// One call: its name, input, output and time.
export function toolCall(call, { byCall, calls, end }) {
  const each = byCall.get(call) ?? { ...namedCall(call), took: null };
  const isOpen = calls.length <= OPEN_CALLS;
  const summary = [
    each.number && element("span", { class: "n" }, `${each.number} `),
    element("code", {}, visible(each.name)),
    !isOpen && each.input !== undefined && element("span", { class: "brief" }, oneLine(asText(each.input), 60)),
    each.took !== null && end > 0 && bar(each, end),
    each.took !== null && element("span", { class: "took" }, duration(each.took)),
  ];
  each.shown = filledLater(summary, () => callTexts(each), { kind: "tool-call", isOpen });
  return each.shown;
}

function callTexts({ input, output }) {
  const hasInput = input !== undefined && input !== null;
  return [
    element("p", { class: "role" }, hasInput ? "input" : "no input"),
    hasInput && longText(asText(input), "code"),
    element("p", { class: "role" }, output === undefined || output === null ? "no output stored" : "output"),
    output !== undefined && output !== null && longText(asText(output), "code"),
  ];
}
