// Adds labels to the view of a run.

import { LabelPanel } from "./label_panel.js";
import { RunLabels } from "./run_labels.js";

export function withLabels(view) {
  return { ...view, open: async (context) => addTo(await view.open(context)) };
}

// Does nothing unless the server collects labels. The order of the rows must not reveal the verdicts.
function addTo(page) {
  if (!page.head.label) return page;
  const labels = new RunLabels(page.source, () => page.rows.columns.verdict);
  if (page.state.values.sort === "worst") page.state.update({ sort: "order" });
  const open = (row) => {
    page.state.update({ open: row });
    page.table.reveal(row);
  };
  page.addLabels(labels, new LabelPanel(labels, { open, idOf: (row) => page.rows.at(row).id }));
  return page;
}
