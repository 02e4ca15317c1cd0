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
    this.root = element(
      "div",
      { class: "chooser" },
      element("label", {}, "A ", this.selects[0]),
      element("button", { type: "button", "aria-label": "Swap A and B", title: "Swap A and B", onclick: () => this.#swap() }, "⇄"),
      element("label", {}, "B ", this.selects[1]),
    );
  }

  // Lists the runs and returns the chosen ones; without any, the run of the address and the one before it.
  async load() {
    const { runs } = await this.source.runs();
    let chosen = this.state.getAll("runs");
    if (!chosen.length) chosen = proposal(runs, this.state.get("run"));
    this.selects.forEach((select, place) => this.#fill(select, runs, chosen[place], chosen[1 - place]));
    return chosen.length > 1 ? chosen : [];
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
