// Renders the conversation: messages by role, tool calls on a time line, and the checks of each turn next to it.

import { plainText } from "./blocks.js";
import { evaluator } from "./evaluators.js";
import { compared } from "./reference.js";
import { timedCalls, timeline, toolCall } from "./timeline.js";
import { element } from "../core/dom.js";
import { firstEntries, onRequest } from "../core/first_entries.js";
import { count } from "../core/format.js";
import { longText } from "../core/long_text.js";
import { asText, oneLine, visible } from "../core/text.js";

const IMAGES = /^data:image\/(?:png|jpeg|gif|webp);base64,[A-Za-z0-9+/=]+$/;
const TURN = /^turn-(\d+)\./;
const MOST_MESSAGES = 120; // longer conversations show their start and end first
const SHOWN_ENDS = 40;

// The input of the case as it was sent, then the answers.
export function conversation(row, result, testCase) {
  const input = inputOf(row, testCase);
  const answers = answersOf(result);
  const times = timedCalls(answers, result.execution_metrics?.tool_durations);
  const checks = checksByMessage(answers, input, testCase, result);
  const inputs = firstEntries(input, (each) => message(each, { mayShowImages: true }), "messages");
  // Later turns of the user are shown among the responses.
  const outputs = answers.map((each, position) => () => [
    message(each, { kind: each.role === "user" ? "" : "answer", times }),
    ...(checks.get(position) ?? []),
  ]);
  if (!inputs.length) inputs.push(element("p", { class: "note" }, "The input is not stored in this run."));
  const shown = outputs.length ? shortened(outputs) : [element("p", { class: "note" }, "No answer.")];
  return element("div", { class: "conversation" }, timeline(times), inputs, shown);
}

// The evaluator results that belong to no turn of the conversation.
export function caseChecks(row, result, testCase) {
  const placed = new Set([...turnPlaces(answersOf(result), inputOf(row, testCase), testCase).keys()]);
  return (result.evaluator_results ?? []).filter((found) => !placed.has(turnOf(found)));
}

function inputOf(row, testCase) {
  const input = row.prompt === null ? testCase.input : testCase.prompts?.find((prompt) => prompt.id === row.prompt)?.input;
  return Array.isArray(input) ? input : input ? [{ role: "user", content: input }] : [];
}

function answersOf(result) {
  if (result.output_messages?.length) return result.output_messages;
  return typeof result.candidate_answer === "string" ? [{ role: "assistant", content: result.candidate_answer }] : [];
}

function turnOf(found) {
  const number = TURN.exec(found.name)?.[1];
  return number === undefined ? null : Number(number);
}

// The position of the last message of each turn's reply, by the number of the turn.
function turnPlaces(answers, input, testCase) {
  const turns = testCase.turns ?? [];
  const places = new Map();
  const replyEnd = (start) => {
    let end = start;
    while (end < answers.length && answers[end].role !== "user") end++;
    return end;
  };
  // The target answers the input itself unless it ends with a reply; then it is history before the first turn.
  let place = ["user", "tool"].includes(input.at(-1)?.role) ? replyEnd(0) : 0;
  for (const [position, turn] of turns.entries()) {
    const start = place + (Array.isArray(turn.input) ? turn.input.length : 1);
    if (start >= answers.length) break; // the conversation ended before this turn was answered
    place = replyEnd(start);
    places.set(position + 1, place - 1);
  }
  return places;
}

function checksByMessage(answers, input, testCase, result) {
  const checks = new Map();
  for (const [turn, place] of turnPlaces(answers, input, testCase)) {
    const found = (result.evaluator_results ?? []).filter((each) => turnOf(each) === turn);
    const expected = testCase.turns[turn - 1].expected_output?.at?.(-1)?.content ?? null;
    const shown = firstEntries(found, (each) => evaluator({ ...each, name: each.name.replace(TURN, "") }), "evaluators");
    if (expected !== null) shown.unshift(...compared(expected, plainText(answers[place].content)));
    if (!shown.length) continue;
    checks.set(place, [element("div", { class: "turn-checks" }, element("h4", {}, `Checks of turn ${turn}`), shown)]);
  }
  return checks;
}

// The start and the end of a long conversation; the messages between them on request.
function shortened(outputs) {
  if (outputs.length <= MOST_MESSAGES) return outputs.flatMap((make) => make());
  const between = outputs.slice(SHOWN_ENDS, -SHOWN_ENDS);
  const rest = onRequest(between, (make) => make(), { title: `Show the ${count(between.length)} messages between` });
  return [...outputs.slice(0, SHOWN_ENDS).flatMap((make) => make()), rest, ...outputs.slice(-SHOWN_ENDS).flatMap((make) => make())];
}

function message(each, { kind = "", times = timedCalls([each]), mayShowImages = false }) {
  const role = [each.role, each.name].filter(Boolean).map(asText).join(" · ");
  const calls = (Array.isArray(each.tool_calls) ? each.tool_calls : []).filter((call) => call !== null && typeof call === "object");
  const shown = firstEntries(calls, (call) => toolCall(call, times), "tool calls");
  const texts = content(each.content, mayShowImages);
  const answered = calls.some((call) => call.output !== undefined);
  return element(
    "div",
    { class: `message ${kind} ${/^(system|user|assistant|tool)$/.test(each.role) ? each.role : ""}` },
    element("p", { class: "role" }, visible(role || "message")),
    // Tool calls are shown before the text that follows from them.
    answered ? [...shown, ...texts] : [...texts, ...shown],
  );
}

function content(value, mayShowImages) {
  if (value === undefined || value === null) return [];
  if (typeof value === "string") return [longText(value)];
  if (Array.isArray(value)) return firstEntries(value, (each) => part(each, mayShowImages), "parts");
  return [longText(asText(value), "code")];
}

function part(each, mayShowImages) {
  if (typeof each === "string") return longText(each);
  if (each?.type === "text") return longText(asText(each.value ?? each.text ?? ""));
  if (each?.type === "image") return image(each, mayShowImages);
  if (each?.type === "file") {
    return element(
      "details",
      {},
      element("summary", {}, `${each.guideline ? "guideline" : "file"} ${visible(asText(each.value))}`),
      typeof each.text === "string" && longText(each.text, "code"),
    );
  }
  return longText(asText(each), "code");
}

// Only images of the dataset are shown, and only from the data of the page. Images in answers are text.
function image(each, mayShowImages) {
  const source = [each.data, each.value].find((value) => typeof value === "string" && IMAGES.test(value));
  const name = typeof each.value === "string" && !each.value.startsWith("data:") ? each.value : "image";
  if (source && mayShowImages) return element("img", { src: source, alt: visible(name), loading: "lazy" });
  return element("p", { class: "note" }, `image ${oneLine(asText(each.value ?? each.data ?? ""), 120)}`);
}
