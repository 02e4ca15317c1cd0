// The frame of the page: navigation between views, keys, and the view that the URL names.

import { element, replaceChildren } from "./dom.js";
import { failureLines } from "./failure.js";
import { HelpDialog } from "./help.js";
import { isTyping } from "./keys.js";
import { State } from "./state.js";
import { themeButton } from "./theme.js";

const KEYS = [
  ["?", "Show this list"],
  ["Tab", "Go to the next control"],
];

// Opens the view that the URL names. `views` are `{name, title, open(context), isOffered(source, state, opened)}`. An opened
// view has `root`, `follow()`, `key(event)` → whether it used the key, `close()`, and optionally `title`, `keys`, the
// `head` of its run, and `run`, its id; `isOffered` gets null while a view is being opened.
export async function start(root, source, views) {
  const shell = new Shell(source, views);
  replaceChildren(root, shell.root);
  await shell.follow();
  shell.state.addEventListener("change", () => shell.follow());
  shell.state.addEventListener("fill", () => shell.stay());
  source.events?.().on("replaced", ({ id }) => shell.reopen(id));
  addEventListener("keydown", (event) => shell.key(event));
  document.documentElement.dataset.ready = "true";
}

class Shell {
  #opened = null;
  #opening = null;
  #route = null;

  constructor(source, views) {
    this.source = source;
    this.views = views;
    this.state = new State();
    this.links = element("nav", { "aria-label": "Views" });
    this.place = element("div", { class: "view" }, element("p", { class: "opening", role: "status" }, "Opening…"));
    this.help = new HelpDialog();
    const brand = element("span", { class: "brand" }, "agentv");
    const help = element("button", { type: "button", "aria-label": "Keyboard shortcuts", title: "Keyboard shortcuts (?)", onclick: () => this.#showHelp() }, "?");
    this.root = element("div", { class: "shell" }, element("header", { class: "top" }, brand, this.links, help, themeButton()), this.place, this.help.root);
  }

  // The address of a view with some parameters.
  address(view, parameters = {}) {
    return `#${new URLSearchParams({ view, ...parameters })}`;
  }

  // A view knows more of its run than when it was opened: other views may be offered.
  showTitle(title) {
    document.title = `${title} · agentv`;
    if (this.#opened) this.#drawLinks(this.#view, this.#opened);
  }

  async follow() {
    const { state } = this;
    const view = this.#view;
    if (this.#routeOf(view) === this.#route) return this.#opened?.follow();
    const opening = (this.#opening = {});
    this.#route = this.#routeOf(view);
    this.#opened?.close();
    this.#opened = null;
    this.#drawLinks(view, null);
    let opened;
    try {
      opened = await view.open({ source: this.source, state, shell: this });
    } catch (error) {
      opened = failed(error, this);
    }
    if (this.#opening !== opening) return opened.close(); // another view was opened in the meantime
    this.#opened = opened;
    // Without a run in the address, the newest one is shown. A link to it must not show a later one.
    if (opened.run && state.get("run") === null) state.fill({ run: opened.run });
    this.#drawLinks(view, opened);
    replaceChildren(this.place, opened.root);
    this.showTitle(opened.title ?? view.title);
    opened.follow();
  }

  // Opens the view of a run again, because the run was replaced.
  reopen(run) {
    if (this.#opened?.run !== run) return;
    this.#route = null;
    this.state.update({ open: null });
  }

  // The open view has completed the address.
  stay() {
    this.#route = this.#routeOf(this.#view);
    this.#drawLinks(this.#view, this.#opened);
  }

  get #view() {
    return this.views.find((each) => each.name === this.state.get("view")) ?? this.views[0];
  }

  #routeOf(view) {
    return JSON.stringify([view.name, this.state.get("run"), this.state.getAll("runs"), this.state.get("pool")]);
  }

  key(event) {
    // An open dialog or list handles its own keys.
    if (event.ctrlKey || event.metaKey || event.altKey || this.help.isOpen || document.querySelector(":popover-open")) return;
    if (event.key === "?" && !isTyping(event.target)) this.#showHelp();
    else if (!this.#opened?.key(event)) return;
    event.preventDefault();
  }

  #showHelp() {
    this.help.show([...(this.#opened?.keys ?? []), ...KEYS]);
  }

  #drawLinks(current, opened) {
    const run = this.state.get("run");
    const offered = this.views.filter((view) => view.isOffered(this.source, this.state, opened));
    const link = (view) =>
      element(
        "a",
        { href: this.address(view.name, run === null ? {} : { run }), "aria-current": view === current ? "page" : null },
        view.title,
      );
    replaceChildren(this.links, offered.length > 1 ? offered.map(link) : []);
  }
}

function failed(error, shell) {
  const root = element(
    "main",
    { class: "failed" },
    element("h1", {}, "This view cannot be opened"),
    element("div", { role: "alert" }, failureLines(error, shell)),
  );
  return { root, follow() {}, key: () => false, close() {} };
}
