// Parts that several sections of the case use: sections, errors, messages as text, and details that are filled when opened.

import { element } from "../core/dom.js";
import { longText } from "../core/long_text.js";
import { asText, oneLine, visible } from "../core/text.js";

const LONGEST_START = 280; // characters of an answer in a line or a cell

export function section(kind, title, ...children) {
  return element("section", { class: kind, "data-section": kind }, element("h3", {}, title), ...children);
}

// Details whose content is created when they are opened: most never are.
export function filledLater(summary, content, { kind = null, isOpen = false } = {}) {
  const fill = () => details.childElementCount === 1 && details.append(...[content()].flat().filter(Boolean));
  const attributes = { class: kind, open: isOpen, ontoggle: () => details.open && fill() };
  const details = element("details", attributes, element("summary", {}, summary));
  if (isOpen) fill();
  return details;
}

export function errorBlock(error) {
  return element(
    "div",
    { class: "message error" },
    element("p", { class: "role" }, visible([...new Set([error.class, error.stage])].join(" · "))),
    longText(asText(error.message ?? "")),
  );
}

// A message as text, without images or timelines.
export function plainMessage(each) {
  return element(
    "div",
    { class: "message" },
    element("p", { class: "role" }, visible(asText(each.role ?? "message"))),
    longText(plainText(each.content)),
  );
}

// The start of the answer, or of the last message of a record without one; the message of an error.
export function answerStart(record) {
  if (record.error) return oneLine(record.error.message, LONGEST_START);
  const last = record.output_messages?.at(-1);
  const answer = record.candidate_answer ?? (last ? plainText(last.content) : null);
  return typeof answer === "string" ? oneLine(answer, LONGEST_START) || "empty answer" : "no answer";
}

// The text of a message's content; parts that are not text as JSON.
export function plainText(content) {
  if (content === undefined || content === null) return "";
  if (!Array.isArray(content)) return asText(content);
  const text = (part) => (typeof part === "string" ? part : part?.type === "text" ? asText(part.value ?? part.text ?? "") : asText(part));
  return content.map(text).join("\n");
}
