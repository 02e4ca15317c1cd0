// The dialog that lists the keys of a view. `Esc` closes it.

import { element, replaceChildren } from "./dom.js";

export class HelpDialog {
  constructor() {
    this.list = element("dl", {});
    this.root = element(
      "dialog",
      { class: "help", "aria-labelledby": "help-title", onclick: (event) => event.target === this.root && this.root.close() },
      element(
        "div",
        {},
        element("h2", { id: "help-title" }, "Keyboard shortcuts"),
        this.list,
        element("form", { method: "dialog" }, element("button", { type: "submit" }, "Close")),
      ),
    );
  }

  get isOpen() {
    return this.root.open;
  }

  // `keys` are pairs: the names of keys, and what they do.
  show(keys) {
    replaceChildren(
      this.list,
      keys.flatMap(([names, text]) => [
        element("dt", {}, names.split(" ").map((name) => element("kbd", {}, name))),
        element("dd", {}, text),
      ]),
    );
    this.root.showModal();
  }
}
