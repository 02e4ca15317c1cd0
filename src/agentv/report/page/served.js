// Entry point of the page that `agentv view` serves.

import { COMPARE } from "./compare/compare_view.js";
import { start } from "./core/shell.js";
import { ServedSource } from "./data/served.js";
import { GRID } from "./grid/grid_view.js";
import { withHiddenVerdicts, withLabels } from "./labels/labelling.js";
import { RUN } from "./run/run_view.js";
import { RUNS } from "./runs/runs_view.js";
import { TREND } from "./runs/trend_view.js";

const root = document.getElementById("app");
const source = new ServedSource();

// A single run opens at once.
async function chooseView() {
  if (location.hash) return;
  const { runs } = await source.runsAhead();
  if (runs.length === 1) history.replaceState(null, "", `#view=run&run=${encodeURIComponent(runs[0].id)}`);
}

chooseView()
  .then(() => start(root, source, [RUNS, withLabels(RUN), GRID, withHiddenVerdicts(COMPARE), TREND]))
  .catch((error) => {
    root.textContent = `The page cannot be opened: ${error.message}`;
  });
