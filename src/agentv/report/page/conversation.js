// Messages as people read them: who said what, tool calls with what went in and came out, files and images.

import { element, replaceChildren } from "./dom.js";
import { count, duration } from "./format.js";
import { asText, LONGEST, visible } from "./text.js";

const PIECE = 8_000;
const IMAGES = /^data:image\/(?:png|jpeg|gif|webp);base64,[A-Za-z0-9+/=]+$/;

// The input of the case as it was sent, then the answer.
export function conversation(row, result, asked) {
  const input = row.prompt === null ? asked.input : asked.prompts?.find((prompt) => prompt.id === row.prompt)?.input;
  const answers = result.output_messages?.length
    ? result.output_messages
    : typeof result.candidate_answer === "string"
      ? [{ role: "assistant", content: result.candidate_answer }]
      : [];
  const asking = (input ?? []).map((each) => message(each));
  // Later turns of a user stand among the answers.
  const answering = answers.map((each) => message(each, each.role === "user" ? "" : "answer"));
  if (!asking.length) asking.push(element("p", { class: "note" }, "The question is not part of this file."));
  if (!answering.length) answering.push(element("p", { class: "note" }, "There is no answer."));
  return element("div", { class: "conversation" }, asking, answering);
}

function message(each, kind = "") {
  const role = [each.role, each.name].filter(Boolean).join(" · ");
  const calls = (each.tool_calls ?? []).map(toolCall);
  const answered = each.tool_calls?.some((call) => call.output !== undefined);
  return element(
    "div",
    { class: `message ${kind} ${/^(system|user|assistant|tool)$/.test(each.role) ? each.role : ""}` },
    element("p", { class: "role" }, visible(role || "message")),
    // What calls gave stands before the text that was made of it.
    answered ? [...calls, ...content(each.content)] : [...content(each.content), ...calls],
  );
}

function content(value) {
  if (value === undefined || value === null) return [];
  if (typeof value === "string") return [longText(value)];
  if (Array.isArray(value)) return value.map(part);
  return [longText(asText(value), "code")];
}

function part(each) {
  if (typeof each === "string") return longText(each);
  if (each?.type === "text") return longText(asText(each.value));
  if (each?.type === "image") return image(each);
  if (each?.type === "file") {
    return element(
      "details",
      { class: "file" },
      element("summary", {}, `${each.guideline ? "guideline" : "file"} ${visible(asText(each.value))}`),
      typeof each.text === "string" && longText(each.text, "code"),
    );
  }
  return longText(asText(each), "code");
}

function image(each) {
  const source = [each.data, each.value].find((value) => typeof value === "string" && IMAGES.test(value));
  const name = typeof each.value === "string" && !each.value.startsWith("data:") ? each.value : "image";
  if (!source) return element("p", { class: "note" }, `image ${visible(name)}`);
  return element("img", { src: source, alt: visible(name), loading: "lazy" });
}

function toolCall(call) {
  const took = typeof call.duration_ms === "number" ? duration(call.duration_ms) : null;
  return element(
    "div",
    { class: "tool-call" },
    element("p", { class: "role" }, "calls ", element("code", {}, visible(asText(call.tool ?? "a tool"))), took && ` · ${took}`),
    call.input !== undefined && longText(asText(call.input), "code"),
    call.output !== undefined && element("p", { class: "role" }, "gets"),
    call.output !== undefined && longText(asText(call.output), "code"),
  );
}

// Text of any length: the beginning at once, the rest when it is asked for.
export function longText(text, kind = "prose") {
  const made = element(kind === "code" ? "pre" : "p", { class: "text", dir: "auto" });
  if (text.length <= LONGEST) {
    made.textContent = visible(text);
    return made;
  }
  made.textContent = visible(text.slice(0, LONGEST)) + "…";
  const rest = element("button", { type: "button", class: "rest" }, `Show all ${count(text.length)} characters`);
  const both = element("div", {}, made, rest);
  rest.addEventListener("click", () => {
    replaceChildren(made, pieces(visible(text)));
    replaceChildren(both, made);
  });
  return both;
}

// Blocks that a browser lays out as they come into view: a megabyte on one line would hold it up for seconds.
function pieces(text) {
  const found = [];
  for (let start = 0; start < text.length; ) {
    const end = text.lastIndexOf("\n", start + PIECE) + 1;
    const stop = end > start && start + PIECE < text.length ? end : start + PIECE;
    found.push(element("span", { class: "piece" }, text.slice(start, stop)));
    start = stop;
  }
  return found;
}
