// The runs of the list: titles, filters, order, and the earlier runs of the same series. Does not use the DOM.

import { own } from "../core/lookup.js";

export const FILTERS = ["dataset", "target", "experiment", "tag", "state"];
export const STATES = {
  running: "running",
  finished: "finished",
  unfinished: "unfinished",
  foreign: "from another tool",
  unreadable: "unreadable",
};

const MOST_EARLIER = 24;

const VALUES = {
  dataset: (run) => run.datasets,
  target: targetNames,
  experiment: (run) => (run.experiment ? [run.experiment] : []),
  tag: (run) => run.tags,
  state: (run) => [run.state],
};

// What each column is sorted by. Without a value, a run is last in both directions.
const SORTED_BY = {
  title: (run) => titleOf(run).toLowerCase(),
  state: (run) => Object.keys(STATES).indexOf(run.state),
  mean: (run) => most(run, "mean"),
  passed: (run) => most(run, "pass_rate"),
  errors: (run) => total(run, "errors"),
  cost: (run) => total(run, "cost_usd"),
  started: startOf,
  commit: (run) => run.git_commit,
};

// Fills in what the server leaves out, so that every run has all fields.
export function completeRun(run) {
  return {
    started_at: null,
    jobs: null,
    done: null,
    exit_code: null,
    git_commit: null,
    experiment: null,
    problem: "",
    ...run,
    name: run.name || run.run_id,
    tags: run.tags ?? [],
    datasets: run.datasets ?? [],
    targets: run.targets ?? {},
    target_names: run.target_names ?? [],
    prompts: run.prompts ?? [],
  };
}

// The targets with figures; before there are any, those of the settings.
export function targetNames(run) {
  const names = Object.keys(run.targets);
  return names.length ? names : run.target_names;
}

// Names the dataset, the target and the prompt of a run.
export function titleOf(run) {
  const parts = [
    several(run.datasets, "datasets"),
    several(targetNames(run), "targets"),
    several(run.prompts, "prompts"),
  ].filter(Boolean);
  return parts.join(" · ") || run.name;
}

export function seriesKey(datasets, target) {
  return JSON.stringify([[...datasets].sort(), target]);
}

export class RunEntries {
  #series = new Map(); // the runs with a mean by datasets and target, oldest first

  constructor(runs) {
    this.runs = runs.map(completeRun);
    this.byId = new Map(this.runs.map((run) => [run.id, run]));
    for (const run of [...this.runs].sort(byStart)) {
      for (const [target, figures] of Object.entries(run.targets)) {
        if (typeof figures.mean !== "number") continue;
        const key = seriesKey(run.datasets, target);
        if (!this.#series.has(key)) this.#series.set(key, { key, datasets: [...run.datasets].sort(), target, runs: [] });
        this.#series.get(key).runs.push(run);
      }
    }
  }

  // The series with the newest runs first.
  get series() {
    return [...this.#series.values()].sort((a, b) => byStart(b.runs.at(-1), a.runs.at(-1)));
  }

  // The means of a run and of earlier runs with the same datasets and target, oldest first; the run itself is last.
  meansUpTo(run, target) {
    const runs = this.#series.get(seriesKey(run.datasets, target))?.runs ?? [];
    const position = runs.indexOf(run);
    if (position < 0) return [];
    return runs.slice(Math.max(0, position - MOST_EARLIER), position + 1).map((each) => each.targets[target].mean);
  }

  // The values of a filter, most frequent first, with the number of runs of each.
  values(filter) {
    const counts = new Map();
    for (const run of this.runs) for (const value of VALUES[filter](run)) counts.set(value, (counts.get(value) ?? 0) + 1);
    return [...counts].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1));
  }

  // The runs that match the search and all filters, in the order of a column.
  matching({ search, filters, sort, descending }) {
    const words = search.toLowerCase().split(/\s+/).filter(Boolean);
    const chosen = Object.entries(filters).filter(([, value]) => value !== null);
    const found = this.runs.filter(
      (run) =>
        chosen.every(([name, value]) => VALUES[name](run).includes(value)) &&
        (!words.length || contains(textOf(run), words)),
    );
    const value = own(SORTED_BY, sort) ?? SORTED_BY.started;
    const keys = new Map(found.map((run) => [run, value(run)]));
    return found.sort((a, b) => compared(keys.get(a), keys.get(b), descending) || byStart(b, a));
  }
}

function several(names, kind) {
  return names.length > 2 ? `${names.length.toLocaleString("en")} ${kind}` : names.join(", ");
}

function textOf(run) {
  const names = [...run.datasets, ...targetNames(run), ...run.prompts, ...run.tags];
  return [run.name, run.run_id, run.experiment ?? "", run.git_commit ?? "", ...names].join("\n").toLowerCase();
}

function contains(text, words) {
  return words.every((word) => text.includes(word));
}

function known(run, name) {
  return Object.values(run.targets)
    .map((figures) => figures[name])
    .filter((value) => typeof value === "number");
}

function most(run, name) {
  const values = known(run, name);
  return values.length ? Math.max(...values) : null;
}

export function total(run, name) {
  const values = known(run, name);
  return values.length ? values.reduce((sum, value) => sum + value, 0) : null;
}

export function byStart(a, b) {
  return compared(startOf(a) ?? 0, startOf(b) ?? 0, false) || compared(a.run_id, b.run_id, false);
}

// When a run started, in milliseconds; null if the time is not known.
function startOf(run) {
  const found = Date.parse(run.started_at ?? "");
  return Number.isNaN(found) ? null : found;
}

function compared(a, b, descending) {
  const isMissing = (value) => value === null || value === undefined;
  if (isMissing(a) || isMissing(b)) return Number(isMissing(a)) - Number(isMissing(b));
  if (a === b) return 0;
  return a < b === descending ? 1 : -1;
}
