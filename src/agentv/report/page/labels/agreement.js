// How often labellers agree with each other and with the judge, fetched when it is opened.

import { element, replaceChildren } from "../core/dom.js";
import { count, interval, number, percent } from "../core/format.js";
import { oneLine, visible } from "../core/text.js";

export class Agreement {
  #isStale = true;

  constructor(labels) {
    this.labels = labels;
    this.body = element("div", { class: "agreement" });
    this.root = element("details", { ontoggle: () => this.#show() }, element("summary", {}, "Agreement"), this.body);
  }

  // Labels have changed: the figures are fetched again if they are shown.
  follow() {
    this.#isStale = true;
    this.#show();
  }

  async #show() {
    if (!this.root.open || !this.#isStale) return;
    this.#isStale = false;
    try {
      const { labeller, pairs, judge } = await this.labels.agreement();
      replaceChildren(this.body, table([judgeRow(labeller, judge), ...pairs.map(pairRow)]), notes(judge));
    } catch (error) {
      replaceChildren(this.body, element("p", { class: "note", role: "alert" }, visible(error.message)));
    }
  }
}

function table(rows) {
  const heads = ["Between", "Same label", "Cohen's κ"].map((title) => element("th", { scope: "col" }, title));
  return element("table", {}, element("thead", {}, element("tr", {}, heads)), element("tbody", {}, rows));
}

function judgeRow(labeller, { n, agreed, kappa }) {
  return row(`${labeller || "You"} and the judge`, n, agreed, kappa);
}

function pairRow({ labellers, n, agreed, kappa }) {
  return row(labellers.map((name) => name || "no name").join(" and "), n, agreed, kappa);
}

function row(names, n, agreed, kappa) {
  const share = n ? `${count(agreed)} of ${count(n)} (${percent(agreed / n)})` : "no answer has both";
  const cells = [share, kappaText(kappa)].map((text) => element("td", {}, text));
  return element("tr", {}, element("th", { scope: "row" }, element("bdi", {}, oneLine(names, 80))), cells);
}

function kappaText(kappa) {
  if (!kappa) return "–";
  const text = kappa.ci95 ? `${number(kappa.value)}, 95 %: ${interval(kappa.ci95)}` : `${number(kappa.value)}, too few for an interval`;
  return text.replaceAll("-", "−");
}

function notes({ picked, warnings }) {
  const texts = [...warnings, picked ? `${count(picked)} picked ${picked === 1 ? "answer" : "answers"} left out of the figures of the judge` : null];
  return texts.filter(Boolean).map((text) => element("p", { class: "note" }, visible(text)));
}
