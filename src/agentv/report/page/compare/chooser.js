// Chooses the runs of a comparison, or targets of one run, in the served page.

import { element, replaceChildren } from "../core/dom.js";
import { moment } from "../core/format.js";
import { oneLine } from "../core/text.js";
import { completeRun, titleOf } from "../runs/run_entries.js";

export class Chooser {
  constructor(source, state) {
    this.source = source;
    this.state = state;
    const select = (place) => element("select", { "aria-label": `Run ${"AB"[place]}`, onchange: () => this.#choose(place) });
    this.selects = [select(0), select(1)];
    this.pool = element("input", { type: "checkbox", onchange: () => this.#pool() });
    this.poolLabel = element("label", { class: "pool" }, this.pool, " Pool A with its equal runs");
    this.root = element(
      "div",
      { class: "chooser" },
      element("label", {}, "A ", this.selects[0]),
      element("button", { type: "button", "aria-label": "Swap A and B", title: "Swap A and B", onclick: () => this.#swap() }, "⇄"),
      element("label", {}, "B ", this.selects[1]),
      this.poolLabel,
    );
  }

  // Lists the runs and returns the chosen ones; without any, the run of the address and the one before it.
  async load() {
    const { runs } = await this.source.runs();
    this.runs = runs;
    let chosen = this.state.getAll("runs");
    if (!chosen.length) chosen = proposal(runs, this.state.get("run"));
    this.selects.forEach((select, place) => this.#fill(select, runs, chosen[place], chosen[1 - place]));
    this.pool.checked = this.state.get("pool") === "1";
    this.poolLabel.hidden = chosen.length !== 2 || !this.#related(chosen).length;
    return chosen.length > 1 ? chosen : [];
  }

  // The runs to pool with A, if that is chosen: the server leaves out those that differ.
  pooled(chosen) {
    return this.state.get("pool") === "1" && chosen.length === 2 ? this.#related(chosen) : [];
  }

  // Finished runs of the same datasets and targets as A, without A and B.
  #related([first, second]) {
    const ids = [first, second].map((name) => name.split(":")[0]);
    const model = this.runs.find((run) => run.id === ids[0]);
    const key = (run) => JSON.stringify([run.datasets, Object.keys(run.targets ?? {})]);
    const isRelated = (run) => run.state === "finished" && !ids.includes(run.id) && key(run) === key(model);
    return model ? this.runs.filter(isRelated).map((run) => run.id) : [];
  }

  #pool() {
    this.state.update({ pool: this.pool.checked ? "1" : null, case: null }, { isStep: true });
  }

  // Lists runs with a dataset of the other chosen run first: others have no case in common.
  #fill(select, runs, chosen, other) {
    const datasets = runs.find((run) => other === run.id || other?.startsWith(`${run.id}:`))?.datasets;
    const isLikely = (run) => !datasets?.length || (run.datasets ?? []).some((name) => datasets.includes(name));
    const listed = (found) => found.flatMap(choices).map(([value, title]) => element("option", { value }, oneLine(title, 120)));
    const others = listed(runs.filter((run) => !isLikely(run)));
    replaceChildren(
      select,
      element("option", { value: "" }, "Choose a run"),
      listed(runs.filter(isLikely)),
      others.length > 0 && element("optgroup", { label: "Other datasets" }, others),
    );
    if (chosen && ![...select.options].some(({ value }) => value === chosen)) select.append(element("option", { value: chosen }, chosen));
    select.value = chosen ?? "";
  }

  #choose(place) {
    const chosen = this.selects.map((select) => select.value);
    this.state.update({ runs: chosen.filter(Boolean), case: null, anyway: null }, { isStep: true });
    this.selects[place].focus();
  }

  #swap() {
    this.state.update({ runs: this.selects.map((select) => select.value).reverse(), case: null }, { isStep: true });
  }
}

// The newest run, or a given one, after the newest earlier run of the same datasets; the targets of a single run.
function proposal(runs, wanted) {
  const readable = runs.filter((run) => run.state !== "unreadable");
  const place = Math.max(0, readable.findIndex((run) => run.id === wanted));
  const [after, ...earlier] = readable.slice(place);
  if (!after) return [];
  const before = earlier.find((run) => String(run.datasets) === String(after.datasets)) ?? earlier[0];
  if (before) return [before.id, after.id];
  const targets = Object.keys(after.targets ?? {});
  return targets.length > 1 ? targets.slice(0, 2).map((target) => `${after.id}:${target}`) : [];
}

// A run, and each of its targets if it has several. The name is first: it tells runs apart where a menu cuts long titles.
function choices(run) {
  const targets = Object.keys(run.targets ?? {});
  const started = run.started_at ? moment(run.started_at) : null;
  const name = run.name ?? run.run_id;
  const title = [...new Set([name, titleOf(completeRun(run)), started])].filter(Boolean).join(" · ");
  const parts = targets.length > 1 ? targets.map((target) => [`${run.id}:${target}`, `${name} · only ${target}`]) : [];
  return [[run.id, title], ...parts];
}
