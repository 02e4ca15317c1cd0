// A search box. Its text is applied shortly after the last letter.

import { element } from "./dom.js";

const PAUSE = 120; // milliseconds after the last letter

export class SearchBox {
  #timer = 0;

  // `apply` is called when there may be another text in `text`.
  constructor(apply, { label, placeholder, title = null }) {
    this.apply = apply;
    this.input = element("input", {
      type: "search",
      placeholder,
      "aria-label": label,
      title,
      "aria-keyshortcuts": "/",
      autocomplete: "off",
      spellcheck: "false",
      oninput: () => this.#later(),
    });
  }

  get text() {
    return this.input.value;
  }

  // Shows a text. Does not overwrite one that is being typed.
  show(text) {
    if (!this.#timer && document.activeElement !== this.input) this.input.value = text;
  }

  focus() {
    this.input.focus();
    this.input.select();
  }

  // Applies what was typed, without waiting for more.
  now() {
    this.stop();
    this.apply();
  }

  // Forgets what was typed and not applied yet.
  stop() {
    clearTimeout(this.#timer);
    this.#timer = 0;
  }

  #later() {
    this.stop();
    this.#timer = setTimeout(() => this.now(), PAUSE);
  }
}
