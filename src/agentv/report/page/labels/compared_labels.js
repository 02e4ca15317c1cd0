// The labels of several runs that are compared: verdicts are hidden until the answers are labelled, or on request.

import { element } from "../core/dom.js";

export class ComparedLabels extends EventTarget {
  #runs;

  // `runs` are the labels of each run.
  constructor(runs) {
    super();
    this.#runs = runs;
    this.reveal = element("input", { type: "checkbox", onchange: () => runs.forEach((each) => each.reveal(this.reveal.checked)) });
    this.root = element(
      "p",
      { class: "note blind-line" },
      "Verdicts are hidden until all answers of the runs are labelled. ",
      element("label", {}, this.reveal, " Show verdicts before labelling"),
    );
    for (const each of runs) each.addEventListener("change", () => this.#follow());
  }

  // Whether figures and lists are hidden.
  get hidesFigures() {
    return this.#runs.some((each) => each.hidesFigures);
  }

  // Whether the verdicts of a case are hidden: until its results in all runs are labelled. `sides` has its results by run,
  // if they can be read.
  hides(sides) {
    if (!sides) return this.hidesFigures;
    return sides.some((side, place) => side?.trials.some(({ row }) => this.#runs[place].hides(row)));
  }

  #follow() {
    this.root.hidden = this.#runs.every((each) => each.isComplete);
    this.dispatchEvent(new Event("change"));
  }

  close() {
    for (const each of this.#runs) each.close();
  }
}
