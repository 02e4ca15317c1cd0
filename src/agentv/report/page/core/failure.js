// Why something cannot be shown: the message, the detail, and what to do, as a link if another view is meant.

import { element } from "./dom.js";
import { visible } from "./text.js";

export function failureLines(error, shell) {
  return [
    element("p", {}, visible(error.message)),
    error.detail && element("p", {}, visible(error.detail)),
    error.hint && element("p", { class: "note" }, hint(error, shell)),
  ];
}

// The same in one line.
export function failureLine(error, shell) {
  const text = [error.message, error.detail].filter(Boolean).join(". ");
  return element("span", {}, visible(text), error.hint && ". ", error.hint && hint(error, shell));
}

function hint({ hint, view }, shell) {
  return view ? element("a", { href: shell.address(view) }, visible(hint)) : visible(hint);
}
