// The rows of the table: filtering and sorting. Does not use the DOM.

export const VERDICTS = ["pass", "borderline", "fail", "error", "unscored"];
export const BINS = 20;

const NONE = "";

export class Rows {
  constructor(head) {
    this.total = 0;
    this.head = head;
    this.columns = {};
    this.#lowered = [];
  }

  // Adds a block of rows. A served block also has the names that its rows are the first to refer to.
  append({ n, names = {}, first, total, complete, ...block }) {
    for (const [list, entries] of Object.entries(names)) this.head[list].push(...entries);
    let moment = 0;
    for (const [name, values] of Object.entries(block)) {
      const column = (this.columns[name] ??= []);
      for (let i = 0; i < n; i++) {
        // A column with equal values in a block is stored as one value.
        const value = Array.isArray(values) ? values[i] : values;
        // Timestamps are stored as the time since the previous row.
        column.push(name === "ended" && value !== null ? (moment += value) : value);
      }
    }
    this.total += n;
  }

  #lowered;

  // A row as the table shows it.
  at(row) {
    const { columns, head } = this;
    return {
      row,
      id: columns.id[row],
      verdict: VERDICTS[columns.verdict[row]],
      score: columns.score[row],
      target: head.targets[columns.target[row]],
      dataset: head.datasets[columns.dataset[row]],
      prompt: columns.prompt[row] < 0 ? null : head.prompts[columns.prompt[row]],
      trial: columns.trial[row],
      duration: columns.duration[row],
      cost: columns.cost[row],
      tags: head.tagSets[columns.tags[row]],
      error: columns.error[row] < 0 ? null : head.errors[columns.error[row]],
    };
  }

  // Other results of the same case: of other targets, prompts and trials.
  others(row) {
    const { id, dataset } = this.columns;
    const found = [];
    for (let other = 0; other < this.total && found.length < 100; other++)
      if (other !== row && id[other] === id[row] && dataset[other] === dataset[row]) found.push(this.at(other));
    return found;
  }

  // Restores a record from the columns and the fields that are stored separately.
  record(row, rest) {
    const { columns } = this;
    const { id, target, dataset, prompt, trial, tags, verdict, score, duration, cost } = this.at(row);
    const { tool_durations, ...kept } = rest;
    const found = rest.evaluator_results ?? [];
    const scored = verdict !== "error" && verdict !== "unscored";
    const tokens = columns.input[row] === null ? undefined : { input: columns.input[row], output: columns.output[row], cached: columns.cached[row] ?? undefined };
    const metrics = { token_usage: tokens, cost_usd: cost ?? undefined, duration_ms: duration ?? undefined, tool_durations };
    const ended = columns.ended[row];
    return {
      ...(ended === null ? {} : { timestamp: new Date(ended).toISOString() }),
      run_id: this.head.run.id,
      eval_id: id,
      dataset: dataset.name,
      dataset_path: dataset.path,
      target,
      ...(prompt === null ? {} : { prompt }),
      trial,
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

  // The values of a facet that a row has.
  facet(name, row) {
    const { columns, head } = this;
    switch (name) {
      case "verdict":
        return [VERDICTS[columns.verdict[row]]];
      case "target":
        return [head.targets[columns.target[row]]];
      case "dataset":
        return [head.datasets[columns.dataset[row]].name];
      case "error":
        return columns.error[row] < 0 ? [] : [head.errors[columns.error[row]]];
      case "evaluator":
        return head.evaluatorSets[columns.missed[row]];
      default:
        return head.tagSets[columns.tags[row]];
    }
  }

  // Returns the rows that match all filters except one, for the counts of a facet.
  matching(values, found, except = null) {
    const tests = this.#tests(values, found, except);
    const rows = [];
    for (let row = 0; row < this.total; row++) if (tests.every((test) => test(row))) rows.push(row);
    return rows;
  }

  counts(name, rows) {
    const counts = new Map();
    for (const row of rows) for (const value of this.facet(name, row)) counts.set(value, (counts.get(value) ?? 0) + 1);
    return counts;
  }

  sorted(rows, sort, descending) {
    const key = this.#key(sort);
    if (key === null) return descending ? rows.reverse() : rows;
    const direction = descending ? -1 : 1;
    return rows.sort((a, b) => {
      const left = key(a);
      const right = key(b);
      // Absent values come last in both directions.
      if (left === null || right === null) return left === right ? a - b : left === null ? 1 : -1;
      return left < right ? -direction : left > right ? direction : a - b;
    });
  }

  // Counts the scores in each bin by verdict.
  histogram(rows) {
    const bins = Array.from({ length: BINS }, () => [0, 0, 0]);
    let scored = 0;
    for (const row of rows) {
      const score = this.columns.score[row];
      if (score === null) continue;
      scored++;
      bins[binOf(score)][this.columns.verdict[row]]++;
    }
    return { bins, scored };
  }

  #tests(values, found, except) {
    const tests = [];
    for (const [name, chosen] of Object.entries(values.facets)) {
      if (chosen.size === 0 || name === except) continue;
      tests.push((row) => this.facet(name, row).some((value) => chosen.has(value)));
    }
    if (values.scores) {
      const [low, high] = values.scores;
      tests.push((row) => {
        const score = this.columns.score[row];
        return score !== null && binOf(score) >= low && binOf(score) < high;
      });
    }
    const wanted = values.search.trim().toLowerCase();
    if (wanted) tests.push((row) => this.#names()[row].includes(wanted) || (found !== null && found.has(row)));
    return tests;
  }

  // The text for the quick search: ids, targets, tags and error classes, in lower case.
  #names() {
    const { columns, head } = this;
    for (let row = this.#lowered.length; row < this.total; row++) {
      const names = [columns.id[row], head.targets[columns.target[row]], ...head.tagSets[columns.tags[row]], head.errors[columns.error[row]] ?? NONE];
      this.#lowered.push(names.join("\n").toLowerCase());
    }
    return this.#lowered;
  }

  #key(sort) {
    const { columns, head } = this;
    switch (sort) {
      case "id":
        return (row) => columns.id[row];
      case "score":
        return (row) => columns.score[row];
      case "verdict":
        return (row) => columns.verdict[row];
      case "target":
        return (row) => head.targets[columns.target[row]];
      case "duration":
        return (row) => columns.duration[row];
      case "cost":
        return (row) => columns.cost[row];
      default:
        return null;
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

function binOf(score) {
  return Math.min(BINS - 1, Math.floor(score * BINS + 1e-9));
}
