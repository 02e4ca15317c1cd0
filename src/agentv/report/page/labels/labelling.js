// Adds labels to the view of a run.

import { ComparedLabels } from "./compared_labels.js";
import { LabelPanel } from "./label_panel.js";
import { RunLabels } from "./run_labels.js";

export function withLabels(view) {
  return { ...view, open: async (context) => addTo(await view.open(context), context.source.events()) };
}

// Hides verdicts in a view of several runs until their answers are labelled.
export function withHiddenVerdicts(view) {
  return { ...view, open: (context) => view.open({ ...context, labelsOf: (runs) => labelsOf(context.source, runs) }) };
}

// The labels of each run; null unless the server collects labels.
async function labelsOf(source, ids) {
  if (!(await source.runs()).label) return null;
  const runs = await Promise.all(ids.map((id) => source.run(id)));
  return new ComparedLabels(runs.map((run) => new RunLabels(run, () => [], source.events())));
}

// Does nothing unless the server collects labels. The order of the rows must not reveal the verdicts.
function addTo(page, events) {
  if (!page.head.label) return page;
  const labels = new RunLabels(page.source, () => page.rows.columns.verdict, events);
  if (page.state.values.sort === "worst") page.state.update({ sort: "order" });
  const open = (row) => {
    page.state.update({ open: row });
    page.table.reveal(row);
  };
  page.addLabels(labels, new LabelPanel(labels, { open, idOf: (row) => page.rows.at(row).id }));
  return page;
}
