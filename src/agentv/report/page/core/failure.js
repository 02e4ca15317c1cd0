// Why something cannot be shown: the message, the detail, and what to do, as a link if another view is meant.

import { element } from "./dom.js";
import { visible } from "./text.js";

export function failureLines(error, shell) {
  const hint = error.hint && visible(error.hint);
  return [
    element("p", {}, visible(error.message)),
    error.detail && element("p", {}, visible(error.detail)),
    hint && element("p", { class: "note" }, error.view ? element("a", { href: shell.address(error.view) }, hint) : hint),
  ];
}
