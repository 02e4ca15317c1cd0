// The title of a run, its first line (how many results passed, failed and errored, and the cost), and its facts.

import { element, replaceChildren } from "../core/dom.js";
import { count, moment, shortUsd } from "../core/format.js";
import { oneLine, visible } from "../core/text.js";
import { VERDICTS } from "../data/rows.js";
import { skippedJobs } from "./summary.js";

const WORDS = { pass: ["passed"], borderline: ["borderline"], fail: ["failed"], error: ["error", "errors"], unscored: ["not scored"] };

// The names of the datasets, targets and prompts of a run. Until its figures are known, those of its rows.
function titleParts(head) {
  const planned = Object.keys(head.summary.targets);
  const targets = planned.length ? planned : head.targets;
  const prompts = new Set(Object.values(head.summary.targets).flatMap((target) => Object.keys(target.prompts ?? {})));
  if (!prompts.size) for (const prompt of head.prompts) prompts.add(prompt);
  const datasets = head.datasets.length ? [...new Set(head.datasets.map(({ name }) => name))].filter(Boolean) : head.run.datasets;
  return [together(datasets, "datasets"), together(targets, "targets"), together([...prompts], "prompts")].filter(Boolean);
}

export function runTitle(head) {
  return titleParts(head).join(" · ") || head.run.id;
}

function together(names, word) {
  if (names.length > 2) return `${count(names.length)} ${word}`;
  return names.map((name) => oneLine(name, 48)).join(" and ");
}

export class Headline {
  constructor(state, rows) {
    this.state = state;
    this.rows = rows;
    this.title = element("h1", {});
    this.counts = element("p", { class: "counts", role: "group", "aria-label": "Results by verdict" });
    this.facts = element("p", { class: "facts" });
    this.root = element("section", { class: "banner", "aria-label": "Run" }, element("div", {}, this.title, this.counts), this.facts);
  }

  // Shows the title and the facts of a run. Returns whether they have changed.
  describe(head) {
    const [first, ...others] = titleParts(head);
    const found = facts(head);
    const described = JSON.stringify([first, others, found]);
    if (described === this.described) return false;
    this.described = described;
    this.name = runTitle(head);
    replaceChildren(
      this.title,
      element("bdi", {}, first ?? oneLine(head.run.id, 60)),
      others.map((text) => element("span", {}, " · ", element("bdi", {}, text))),
    );
    replaceChildren(this.facts, found.map((fact) => element("span", { title: visible(fact) }, oneLine(fact, 160))));
    return true;
  }

  // `matching` are the counts of verdicts that match the other filters. They may be hidden while labels are collected. The
  // cost is shown when all results are known.
  show(head, matching, { isHidden = false, isPartial = false } = {}) {
    const chosen = this.state.values.facets.verdict;
    const { verdicts } = this.rows;
    const buttons = VERDICTS.flatMap((verdict, code) =>
      verdicts[code] || chosen.has(verdict) ? [this.#button(verdict, verdicts[code], matching.get(verdict) ?? 0, chosen)] : [],
    );
    const targets = Object.values(head.summary.targets);
    const skipped = targets.reduce((sum, target) => sum + target.skipped, 0);
    const cost = isPartial ? null : totalCost(targets);
    const focused = document.activeElement?.dataset?.verdict;
    replaceChildren(
      this.counts,
      isHidden ? [] : buttons,
      isPartial ? [] : skippedJobs(skipped, head.run.not_needed, head.run.lost).map(([word, n]) => element("span", {}, `${count(n)} ${word}`)),
      cost !== null && element("span", { title: "Cost of the targets and judges" }, shortUsd(cost)),
    );
    if (focused) this.counts.querySelector(`[data-verdict="${focused}"]`)?.focus();
  }

  #button(verdict, n, matching, chosen) {
    const [one, many] = WORDS[verdict];
    const word = n === 1 ? one : (many ?? one);
    const isPart = matching !== n;
    return element(
      "button",
      {
        type: "button",
        class: `tally ${verdict}`,
        "data-verdict": verdict,
        "aria-pressed": String(chosen.has(verdict)),
        title: "Show only these results",
        onclick: () => this.state.toggle("verdict", verdict),
      },
      element("strong", {}, isPart ? `${count(matching)} of ${count(n)}` : count(n)),
      ` ${word}`,
    );
  }
}

function totalCost(targets) {
  const known = targets.flatMap((target) => [target.cost_usd, target.judge_cost_usd]).filter((cost) => typeof cost === "number");
  return known.length ? known.reduce((sum, cost) => sum + cost, 0) : null;
}

// A running eval has a line of its own for its progress.
function facts({ run, notes, live }) {
  return [
    run.started_at ? moment(run.started_at) : null,
    run.git_commit ? `commit ${run.git_commit.slice(0, 10)}` : null,
    !live && !run.lost && run.done + run.not_needed < run.jobs ? `${count(run.done)} of ${count(run.jobs)} jobs done` : null,
    run.lost ? `damaged: ${count(run.lost)} of ${count(run.jobs)} records are missing (agentv runs check ${run.id})` : null,
    run.id,
    ...(notes ?? []),
  ].filter(Boolean);
}
