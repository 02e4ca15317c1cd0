// Renders conversations: messages by role, tool calls with input and output, files and images.

import { element } from "../core/dom.js";
import { duration } from "../core/format.js";
import { longText } from "../core/long_text.js";
import { asText, visible } from "../core/text.js";

const IMAGES = /^data:image\/(?:png|jpeg|gif|webp);base64,[A-Za-z0-9+/=]+$/;

// The input of the case as it was sent, then the answer.
export function conversation(row, result, testCase) {
  const input = row.prompt === null ? testCase.input : testCase.prompts?.find((prompt) => prompt.id === row.prompt)?.input;
  const answers = result.output_messages?.length
    ? result.output_messages
    : typeof result.candidate_answer === "string"
      ? [{ role: "assistant", content: result.candidate_answer }]
      : [];
  const inputs = (input ?? []).map((each) => message(each));
  // Later turns of the user are shown among the responses.
  const outputs = answers.map((each) => message(each, each.role === "user" ? "" : "answer"));
  if (!inputs.length) inputs.push(element("p", { class: "note" }, "The input is not stored in this file."));
  if (!outputs.length) outputs.push(element("p", { class: "note" }, "No answer."));
  return element("div", { class: "conversation" }, inputs, outputs);
}

function message(each, kind = "") {
  const role = [each.role, each.name].filter(Boolean).join(" · ");
  const calls = (each.tool_calls ?? []).map(toolCall);
  const answered = each.tool_calls?.some((call) => call.output !== undefined);
  return element(
    "div",
    { class: `message ${kind} ${/^(system|user|assistant|tool)$/.test(each.role) ? each.role : ""}` },
    element("p", { class: "role" }, visible(role || "message")),
    // Tool calls are shown before the text that follows from them.
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
    element("p", { class: "role" }, "tool call ", element("code", {}, visible(asText(call.tool ?? "a tool"))), took && ` · ${took}`),
    call.input !== undefined && longText(asText(call.input), "code"),
    call.output !== undefined && element("p", { class: "role" }, "output"),
    call.output !== undefined && longText(asText(call.output), "code"),
  );
}
