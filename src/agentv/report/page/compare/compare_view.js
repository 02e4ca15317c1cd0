// The comparison of two runs: the verdict, what changed, the cases by change, and one case side by side.

import { element, replaceChildren } from "../core/dom.js";
import { failureLines } from "../core/failure.js";
import { count } from "../core/format.js";
import { isControl, isTyping } from "../core/keys.js";
import { CaseColumns } from "./case_columns.js";
import { CaseList } from "./case_list.js";
import { CasePanel } from "./case_panel.js";
import { Chooser } from "./chooser.js";
import { matrix, overview, verdict } from "./verdict.js";

export const COMPARE = {
  name: "compare",
  title: "Compare",
  open,
  isOffered: (source) => Boolean(source.comparison),
};

const KEYS = [
  ["j ↓", "Next case"],
  ["k ↑", "Previous case"],
  ["Enter", "Open the case"],
  ["Esc", "Close the case, or leave the search"],
  ["/", "Search for a case"],
];

async function open(context) {
  const page = new ComparePage(context);
  page.load();
  return page;
}

class ComparePage {
  #isClosed = false;
  #latest = null;
  #list = null;
  #labels = null;

  // `labelsOf(runs)` returns the labels of runs on a page that collects them, and otherwise null.
  constructor({ source, state, shell, labelsOf = () => null }) {
    this.source = source;
    this.labelsOf = labelsOf;
    this.state = state;
    this.shell = shell;
    this.keys = KEYS;
    this.chooser = source.runs ? new Chooser(source, state) : null;
    this.body = element("div", { class: "compare-body" });
    this.root = element("main", { class: "compare" }, this.chooser?.root, this.body);
  }

  // Compares the runs; a comparison of large runs takes a while.
  async load() {
    this.#list = null;
    const own = (this.#latest = {});
    const isLeft = () => this.#isClosed || this.#latest !== own;
    try {
      const runs = this.chooser ? await this.chooser.load() : [];
      if (isLeft()) return;
      if (runs.length && !this.state.getAll("runs").length) this.state.fill({ runs });
      if (this.chooser && !runs.length) return this.#say("Choose two runs to compare, or two targets of one run.");
      this.#say("Comparing…");
      const pooled = this.chooser?.pooled(runs) ?? [];
      const found = await this.source.comparison({ runs, pooled, isAllowed: this.state.get("anyway") === "1" });
      const head = await found.head((read) => {
        if (!isLeft() && read) this.#say(`Reading cases: ${count(read)}`);
        return !isLeft();
      });
      const labels = head && (await this.labelsOf(found.runs));
      if (isLeft()) return labels?.close();
      this.#labels?.close();
      this.#labels = labels;
      document.title = `${head.data.runs.map((run) => run.label).join(" → ")} · agentv`;
      await (head.kind === "matrix" ? this.#showMatrix(head) : this.#show(found, head));
    } catch (error) {
      if (!isLeft()) this.#fail(error);
    }
  }

  #showMatrix(head) {
    const draw = () => replaceChildren(this.body, this.#labelled(!this.#isBlind && matrix(head)));
    this.#labels?.addEventListener("change", draw);
    draw();
  }

  async #show(found, head) {
    const columns = new CaseColumns(head);
    const draw = () => {
      this.#build(found, columns);
      this.follow();
    };
    let isBlind = this.#isBlind;
    this.#labels?.addEventListener("change", () => {
      if (isBlind !== this.#isBlind) draw();
      else this.#list.panel.refresh();
      isBlind = this.#isBlind;
    });
    draw();
    let drawn = performance.now();
    for await (const block of found.blocks()) {
      if (this.#isClosed) return;
      columns.append(block);
      if (block.first > 0 && performance.now() - drawn < REDRAW) continue;
      drawn = performance.now();
      this.follow();
    }
    this.follow();
  }

  // Whether figures and verdicts are hidden, except those of labelled cases.
  get #isBlind() {
    return this.#labels?.hidesFigures ?? false;
  }

  #build(found, columns) {
    const { head } = columns;
    const isBlind = this.#isBlind;
    const isHidden = (sides) => this.#labels?.hides(sides) ?? false;
    const panel = new CasePanel(found, columns, this.shell, { close: () => this.#open(null), step: (by) => this.#step(by), isHidden });
    const list = new CaseList(columns, this.state, { open: (row) => this.#open(row), isBlind });
    this.#list = { columns, panel, list };
    replaceChildren(
      this.body,
      this.#labelled(!isBlind && verdict(head, { compareAnyway: this.chooser && (() => this.#allow()) })),
      element("div", { class: "compare-main" }, overview(head, { openCase: (id) => this.#openId(id), isBlind }), list.root, panel.root),
    );
  }

  // The line about hidden verdicts above a part of the page, on a page that collects labels.
  #labelled(part) {
    return this.#labels ? element("div", {}, this.#labels.root, part) : part;
  }

  follow() {
    if (!this.#list) return;
    const { columns, list, panel } = this.#list;
    list.follow();
    const wanted = this.#opened;
    this.root.classList.toggle("with-case", wanted !== null);
    panel.show(wanted !== null && wanted < columns.total ? wanted : null, list);
  }

  close() {
    this.#isClosed = true;
    this.#labels?.close();
  }

  key(event) {
    if (!this.#list) return false;
    const { list, panel } = this.#list;
    if (isTyping(event.target)) return list.searchKey(event);
    if (event.key === "Escape" && this.#opened !== null) return this.#open(null), true;
    if (event.key === "/") return list.focusSearch(), true;
    if (event.key === "Enter" && isControl(event.target)) return false;
    const isReading = panel.root.contains(event.target);
    if (!list.key(event, this.#opened)) return false;
    if (event.key === "Enter" || isReading) panel.focus();
    return true;
  }

  get #opened() {
    const value = this.state.get("case");
    return value !== null && /^\d{1,9}$/.test(value) ? Number(value) : null;
  }

  #open(row) {
    const isStep = row !== null && this.#opened === null; // the back button closes a case
    this.state.update({ case: row === null ? null : String(row) }, { isStep });
    if (row !== null) this.#list.list.reveal(row);
    else this.#list.list.focus();
  }

  #openId(id) {
    const row = this.#list.columns.rowOf(id);
    if (row !== null) this.#open(row);
  }

  #step(by) {
    const next = this.#list.list.neighbour(this.#opened, by);
    if (next !== null) this.#open(next);
  }

  #allow() {
    this.state.update({ anyway: "1" });
    this.load();
  }

  #say(text) {
    replaceChildren(this.body, element("p", { class: "opening", role: "status" }, text));
  }

  #fail(error) {
    replaceChildren(this.body, element("div", { class: "failed", role: "alert" }, failureLines(error, this.shell)));
  }
}

const REDRAW = 400; // milliseconds between drawings while cases arrive
