// The figures of a run: the mean of each target with its interval and details, and the histogram of scores.

import { element, replaceChildren } from "../core/dom.js";
import { listItem, firstEntries } from "../core/first_entries.js";
import { frontierChart } from "../core/frontier.js";
import { count, interval, number, percent, percentInterval, plural } from "../core/format.js";
import { own } from "../core/lookup.js";
import { BINS } from "../data/rows.js";
import { oneLine, visible } from "../core/text.js";

const MOST_CARDS = 50;
const CARD = 214; // the least width of a card
const LEAST_FOR_A_BAR = 5; // results; the interval of fewer is too wide to be useful

export function targetCards(head) {
  const targets = Object.entries(head.summary.targets);
  const cards = firstEntries(targets, ([name, target]) => card(name, target, head, targets.length > 1), "targets", { most: MOST_CARDS });
  return [cards, head.frontier && frontierCard(head.frontier)].flat();
}

function frontierCard(frontier) {
  return element("article", { class: "card", "aria-label": "Cost and quality" }, element("h2", {}, "Cost and quality"), frontierChart(frontier, CARD));
}

// The numbers of jobs without a result: those that early stopping saved, and others. `lost` if the run is damaged.
export function skippedJobs(skipped, notNeeded, lost) {
  return [[lost ? "missing" : "not run", skipped - notNeeded], ["not needed", notNeeded]].filter(([, n]) => n > 0);
}

// The groups of results that did not pass.
export function failureGroups(head) {
  const [title, ...groups] = head.failures;
  if (!groups.length) return null;
  return element(
    "details",
    { class: "failures", open: groups.length < 6 },
    element("summary", {}, `Failure groups: ${title}`),
    element("ul", {}, firstEntries(groups, (text) => element("li", {}, oneLine(text, 400)), "groups", { frame: listItem })),
  );
}

// With several targets, details are collapsed.
function card(name, target, head, isShort) {
  const rest = [
    facts(own(head.facts, name) ?? []),
    ...(own(head.remarks, name) ?? []).map(([kind, text]) => element("p", { class: "early" }, `${kind}: ${text}`)),
    parts("Evaluators", target.evaluators),
    parts("Prompts", target.prompts),
  ];
  const early = own(head.early, name);
  return element(
    "article",
    { class: "card", "aria-label": `Target ${visible(name)}` },
    element("h2", {}, element("bdi", { title: visible(name) }, oneLine(name, 60))),
    ...leading(target),
    early && element("p", { class: "early" }, oneLine(early, 400)),
    isShort ? element("details", {}, element("summary", {}, brief(target)), rest) : rest,
  );
}

// The mean, its interval and the pass rate.
function leading(target) {
  if (!target.scored) return [element("p", { class: "mean" }, element("span", {}, "no scored results"))];
  const range = target.pass_rate_ci95 ? ` (${percentInterval(target.pass_rate_ci95)})` : "";
  const basis = target.ci95 ? `mean, 95 % interval ${interval(target.ci95)}` : "mean score";
  return [
    element(
      "p",
      { class: "mean" },
      element("strong", {}, number(target.mean)),
      element("span", {}, basis, target.early_stop?.biased && "; biased: the run stopped early"),
    ),
    track(target.mean, target.ci95),
    element("p", { class: "rate" }, element("strong", {}, percent(target.pass_rate)), ` of ${count(target.scored)} passed${range}`),
  ];
}

function brief(target) {
  return `${count(target.scored)} of ${count(target.jobs)} scored${errorNote(target)}`;
}

function errorNote({ errors }) {
  return errors ? `, ${plural(errors, "error")}` : "";
}

function facts(pairs) {
  return element("dl", {}, pairs.map(([label, text]) => [element("dt", {}, label), element("dd", {}, text)]).flat());
}

function parts(title, found) {
  const entries = Object.entries(found ?? {});
  if (!entries.length) return null;
  return element(
    "table",
    { class: "parts" },
    element("caption", {}, title),
    element(
      "tbody",
      {},
      firstEntries(entries, partRow, title.toLowerCase(), { frame: (button) => element("tr", {}, element("td", { colspan: "4" }, button)) }),
    ),
  );
}

function partRow([name, each]) {
  const basis = `n = ${count(each.n)}${errorNote(each)}`;
  return element(
    "tr",
    { title: `${visible(name)}: ${number(each.mean)} (95 % interval ${interval(each.ci95)}, ${basis})` },
    element("th", { scope: "row" }, element("bdi", {}, oneLine(name, 40))),
    element("td", { class: "number" }, number(each.mean)),
    element("td", {}, each.n >= LEAST_FOR_A_BAR && track(each.mean, each.ci95)),
    element("td", { class: "n" }, basis),
  );
}

// Draws a mean and its interval on a scale from 0 to 1.
function track(mean, bounds) {
  if (mean === null || mean === undefined) return null;
  const at = (value) => `${(value * 100).toFixed(2)}%`;
  const [low, high] = bounds ?? [mean, mean];
  return element(
    "span",
    { class: "track", role: "img", "aria-label": `${number(mean)}, 95 % interval ${interval(bounds)}` },
    element("i", { class: "range", style: { left: at(low), width: at(high - low) } }),
    element("i", { class: "point", style: { left: at(mean) } }),
  );
}

export class Histogram {
  constructor(state) {
    this.state = state;
    this.caption = element("figcaption", {});
    this.bars = element("div", { class: "bars", role: "group", "aria-label": "Scores from 0 to 1; select a bar to filter" });
    this.root = element(
      "figure",
      { class: "histogram" },
      this.caption,
      this.bars,
      element("div", { class: "axis", "aria-hidden": "true" }, ["0", "0.5", "1"].map((text) => element("span", {}, text))),
    );
  }

  show({ bins, scored }) {
    this.root.hidden = scored === 0 && this.state.values.scores === null;
    const most = Math.max(1, ...bins.map((bin) => bin[0] + bin[1] + bin[2]));
    const chosen = this.state.values.scores;
    replaceChildren(this.caption, "Scores", element("span", {}, `n = ${count(scored)}`));
    replaceChildren(this.bars, bins.map((bin, position) => this.#bar(bin, position, most, chosen)));
  }

  #bar([passes, borderline, failures], position, most, chosen) {
    const total = passes + borderline + failures;
    const range = `${(position / BINS).toFixed(2)} to ${((position + 1) / BINS).toFixed(2)}`;
    const pressed = chosen !== null && position >= chosen[0] && position < chosen[1];
    // Every bin that is not empty is visible.
    const height = total ? Math.max(3, (total / most) * 100) : 0;
    const part = (kind, n) => n > 0 && element("i", { class: kind, style: { "flex-grow": String(n) } });
    return element(
      "button",
      {
        type: "button",
        title: `${range}: ${count(total)}`,
        "aria-label": `Scores from ${range}: ${count(total)}`,
        "aria-pressed": String(pressed),
        onclick: () => this.state.update({ scores: pressed ? null : [position, position + 1] }),
      },
      element(
        "span",
        { style: { height: `${height}%` } },
        part("pass", passes),
        part("borderline", borderline),
        part("fail", failures),
      ),
    );
  }
}
