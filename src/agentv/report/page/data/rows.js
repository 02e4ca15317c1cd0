// The rows of a run: filtering, counting and sorting. A million rows are filtered at once. Does not use the DOM.

import { Columns, known } from "./columns.js";
import { IdText } from "./id_text.js";
import { NumberKey, Order, TextKey } from "./order.js";

export const VERDICTS = ["pass", "borderline", "fail", "error", "unscored"];
export const BINS = 20;
// The filters with a list of values, and their columns.
export const FACETS = {
  verdict: "verdict",
  target: "target",
  prompt: "prompt",
  dataset: "dataset",
  evaluator: "missed",
  error: "error",
  tag: "tags",
  label: null, // not a column of the run
};

const WORST = [6, 4, 2, 0, 8]; // the rank of each verdict when the worst results come first; a score is added
const COUNTED = ["score", "duration", "cost"];
const NO_BIN = BINS;

export class Rows {
  #ids = new IdText();
  #orders = new Map();
  #variety = new Map();
  #search = { text: "", marks: new Uint8Array(0), total: 0 };

  constructor(head) {
    this.total = 0;
    this.head = head;
    this.columns = new Columns(head.total ?? 0);
    this.verdicts = VERDICTS.map(() => 0); // how many rows have each
    this.values = Object.fromEntries(COUNTED.map((name) => [name, 0])); // how many rows have a value
    this.mostTrials = 1;
    this.labels = null; // the labels of a person, on a page that collects them
  }

  // Adds a block of rows. A served block also has the names that its rows are the first to refer to.
  append({ n, names = {}, first, total, complete, ...block }) {
    for (const [list, entries] of Object.entries(names)) for (const entry of entries) this.head[list].push(entry);
    const { columns } = this;
    columns.write(this.total, n, block);
    this.#ids.append(columns.id, this.total, n);
    for (let row = this.total; row < this.total + n; row++) {
      this.verdicts[columns.verdict[row]]++;
      if (columns.trial[row] > this.mostTrials) this.mostTrials = columns.trial[row];
      for (const name of COUNTED) if (!Number.isNaN(columns[name][row])) this.values[name]++;
    }
    this.total += n;
  }

  // A row as the table shows it. `trial` is null in a run without repeated trials.
  at(row) {
    const { columns, head } = this;
    return {
      row,
      id: columns.id[row],
      verdict: VERDICTS[columns.verdict[row]],
      score: known(columns.score[row]),
      target: head.targets[columns.target[row]],
      dataset: head.datasets[columns.dataset[row]],
      prompt: columns.prompt[row] < 0 ? null : head.prompts[columns.prompt[row]],
      trial: this.mostTrials > 1 ? columns.trial[row] : null,
      duration: known(columns.duration[row]),
      cost: known(columns.cost[row]),
      tags: head.tagSets[columns.tags[row]],
      error: columns.error[row] < 0 ? null : head.errors[columns.error[row]],
      label: this.labels?.of(row)?.label ?? null,
    };
  }

  // The rows of the same case with other targets, prompts and trials.
  others(row) {
    const { id, dataset } = this.columns;
    const found = [];
    for (let other = 0; other < this.total; other++)
      if (dataset[other] === dataset[row] && other !== row && id[other] === id[row]) found.push(other);
    const order = ["target", "prompt", "trial"];
    const by = (one, two) => order.reduce((result, name) => result || this.columns[name][one] - this.columns[name][two], 0);
    return found.sort(by);
  }

  // Restores a record from the columns and the fields that are stored separately.
  record(row, rest) {
    const { columns } = this;
    const { id, target, dataset, prompt, tags, verdict, score, duration, cost } = this.at(row);
    const { tool_durations, stop_reason, ...kept } = rest;
    const found = rest.evaluator_results ?? [];
    const scored = verdict !== "error" && verdict !== "unscored";
    const [input, output, cached, ended] = ["input", "output", "cached", "ended"].map((name) => known(columns[name][row]));
    const tokens = input === null ? undefined : { input, output, cached: cached ?? undefined };
    const used = { token_usage: tokens, cost_usd: cost ?? undefined, duration_ms: duration ?? undefined };
    const metrics = { ...used, tool_durations, stop_reason };
    return {
      ...(ended === null ? {} : { timestamp: new Date(ended).toISOString() }),
      run_id: this.head.run.id,
      eval_id: id,
      dataset: dataset.name,
      dataset_path: dataset.path,
      target,
      ...(prompt === null ? {} : { prompt }),
      trial: columns.trial[row],
      status: scored ? "ok" : verdict,
      score,
      verdict: scored ? verdict : null,
      hits: found.flatMap((each) => each.hits ?? []),
      misses: found.flatMap((each) => each.misses ?? []),
      ...kept,
      ...(Object.values(metrics).some((value) => value !== undefined) ? { execution_metrics: metrics } : {}),
      tags,
    };
  }

  // Returns the rows that match all filters, in their order; the counts of each facet, which apply the filters of the
  // others; and the scores by bin and verdict. `found` marks the rows with a match in their conversation.
  select(values, found) {
    const { total } = this;
    const missed = new Uint8Array(total); // how many facets a row does not match; 255: another filter
    this.#dropUnmatched(values, found, missed);
    const used = Object.keys(FACETS).filter((name) => name !== "label" || this.labels !== null);
    const facets = used.map((name) => this.#facet(name, this.#codes(name), values.facets[name]));
    for (const { codes, allowed } of facets) {
      if (!allowed) continue;
      for (let row = 0; row < total; row++) if (!allowed[codes[row] + 1] && missed[row] < 254) missed[row]++;
    }
    for (const facet of facets) countCodes(facet, missed, total);
    const rows = matching(this.#order(values.sort, values.descending), missed);
    const counts = Object.fromEntries(facets.map(({ name, lists, counts }) => [name, byValue(lists, counts)]));
    return { rows, counts, ...this.#histogram(rows) };
  }

  // The number of different values of a facet in the whole run.
  variety(name) {
    const lists = this.#valuesByCode(name);
    if (this.#variety.get(name)?.lists !== lists.length)
      this.#variety.set(name, { lists: lists.length, size: new Set(lists.flat()).size });
    return this.#variety.get(name).size;
  }

  #codes(name) {
    return name === "label" ? this.labels.codes(this.total) : this.columns[FACETS[name]];
  }

  // The values of each code of a facet (from -1 on), and whether the filter allows the code; null without a filter.
  #facet(name, codes, chosen) {
    const lists = [[], ...this.#valuesByCode(name)];
    const allowed = chosen.size ? Uint8Array.from(lists, (list) => (list.some((value) => chosen.has(value)) ? 1 : 0)) : null;
    return { name, codes, lists, allowed, counts: new Uint32Array(lists.length) };
  }

  #valuesByCode(name) {
    const { head } = this;
    const one = (list) => list.map((value) => [value]);
    switch (name) {
      case "verdict":
        return one(VERDICTS);
      case "target":
        return one(head.targets);
      case "dataset":
        return one(head.datasets.map((dataset) => dataset.name));
      case "prompt":
        return one(head.prompts);
      case "error":
        return one(head.errors);
      case "evaluator":
        return head.evaluatorSets;
      case "label":
        return this.labels?.lists ?? [];
      default:
        return head.tagSets;
    }
  }

  // Applies the filters that have no counts: the range of scores and the search.
  #dropUnmatched({ scores, search }, found, missed) {
    const { score } = this.columns;
    if (scores)
      for (let row = 0; row < this.total; row++) {
        const bin = binOf(score[row]);
        if (bin === NO_BIN || bin < scores[0] || bin >= scores[1]) missed[row] = 255;
      }
    const wanted = search.trim().toLowerCase();
    if (!wanted) return;
    const marks = this.#marks(wanted);
    for (let row = 0; row < this.total; row++) if (!marks[row] && !(found !== null && found[row])) missed[row] = 255;
  }

  // Marks the rows whose id, target, tags or error class contain a text. Kept for the rows that follow.
  #marks(wanted) {
    const isNew = this.#search.text !== wanted;
    const from = isNew ? 0 : this.#search.total;
    const marks = new Uint8Array(this.total);
    if (!isNew) marks.set(this.#search.marks);
    if (from < this.total) this.#ids.mark(wanted, marks, from);
    for (const name of ["target", "tag", "error"]) {
      const codes = this.columns[FACETS[name]];
      const hits = Uint8Array.from([[], ...this.#valuesByCode(name)], (list) => (list.some((value) => value.toLowerCase().includes(wanted)) ? 1 : 0));
      if (hits.includes(1)) for (let row = from; row < this.total; row++) if (hits[codes[row] + 1]) marks[row] = 1;
    }
    this.#search = { text: wanted, marks, total: this.total };
    return marks;
  }

  // Counts the scores in each bin by verdict.
  #histogram(rows) {
    const { score, verdict } = this.columns;
    const kinds = VERDICTS.length;
    const counts = new Uint32Array((BINS + 1) * kinds);
    for (let i = 0; i < rows.length; i++) counts[binOf(score[rows[i]]) * kinds + verdict[rows[i]]]++;
    const bins = Array.from({ length: BINS }, (_, bin) => [...counts.subarray(bin * kinds, bin * kinds + 3)]);
    return { bins, scored: bins.flat().reduce((sum, n) => sum + n, 0) };
  }

  #order(sort, isDescending) {
    // Names are sorted by rank, which changes with every new name.
    const version = this.head.targets.length + this.head.datasets.length + this.head.prompts.length;
    const kept = this.#orders.get(sort);
    if (kept?.version === version) return kept.order.rows(this.total, isDescending);
    const order = new Order(this.#key(sort));
    this.#orders.set(sort, { version, order });
    return order.rows(this.total, isDescending);
  }

  #key(sort) {
    const { columns, head } = this;
    const byName = (codes, names) => {
      const ranks = rankOf(names);
      return new NumberKey((row) => (columns[codes][row] < 0 ? NaN : ranks[columns[codes][row]]));
    };
    switch (sort) {
      case "worst":
        return new NumberKey((row) => WORST[columns.verdict[row]] + (known(columns.score[row]) ?? 0));
      case "id":
        return new TextKey(columns.id);
      case "target":
        return byName("target", head.targets);
      case "dataset":
        return byName("dataset", head.datasets.map((dataset) => dataset.name));
      case "prompt":
        return byName("prompt", head.prompts);
      case "verdict":
      case "trial":
      case "score":
      case "duration":
      case "cost":
        return new NumberKey((row) => columns[sort][row]);
      default:
        return new NumberKey((row) => row);
    }
  }
}

// The reason why a result did not pass, as in agentv.runs.summary.reason_of.
export function reasonOf(record) {
  if (record.error) return record.error.message;
  if (record.misses.length) return record.misses[0];
  const low = (record.evaluator_results ?? []).filter((found) => found.verdict && found.verdict !== "pass");
  const reasoning = low.find((found) => found.reasoning)?.reasoning;
  return record.reasoning ?? reasoning ?? low.map((found) => found.name).join(", ");
}

// A facet counts rows that match all others: those that miss none, and those that miss this facet only.
function countCodes({ codes, allowed, counts }, missed, total) {
  for (let row = 0; row < total; row++) {
    const code = codes[row] + 1;
    if (missed[row] === 0 || (missed[row] === 1 && allowed && !allowed[code])) counts[code]++;
  }
}

function matching(order, missed) {
  const rows = new Uint32Array(order.length);
  let n = 0;
  for (let i = 0; i < order.length; i++) if (missed[order[i]] === 0) rows[n++] = order[i];
  return rows.subarray(0, n);
}

function byValue(lists, counts) {
  const found = new Map();
  lists.forEach((list, code) => {
    if (counts[code]) for (const value of list) found.set(value, (found.get(value) ?? 0) + counts[code]);
  });
  return found;
}

function rankOf(names) {
  const ranks = new Map([...new Set(names)].sort().map((name, rank) => [name, rank]));
  return names.map((name) => ranks.get(name));
}

function binOf(score) {
  return Number.isNaN(score) ? NO_BIN : Math.min(BINS - 1, Math.floor(score * BINS + 1e-9));
}
