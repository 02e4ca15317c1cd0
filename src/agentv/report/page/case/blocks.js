// Parts that several sections of the case use: sections, errors, messages as text, and details that are filled when opened.

import { element } from "../core/dom.js";
import { longText } from "../core/long_text.js";
import { asText, visible } from "../core/text.js";

export function section(kind, title, ...children) {
  return element("section", { class: kind, "data-section": kind }, element("h3", {}, title), ...children);
}

// Details whose content is created when they are opened: most never are.
export function filledLater(title, content) {
  return element(
    "details",
    {
      ontoggle: ({ target }) => {
        if (target.open && target.childElementCount === 1) target.append(...[content()].flat());
      },
    },
    element("summary", {}, title),
  );
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

// The text of a message's content; parts that are not text as JSON.
export function plainText(content) {
  if (content === undefined || content === null) return "";
  if (!Array.isArray(content)) return asText(content);
  const text = (part) => (typeof part === "string" ? part : part?.type === "text" ? asText(part.value ?? part.text ?? "") : asText(part));
  return content.map(text).join("\n");
}
