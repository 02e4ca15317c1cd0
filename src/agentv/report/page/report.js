// Entry point of the page of one run in one file.

import { start } from "./core/shell.js";
import { EmbeddedSource } from "./data/embedded.js";
import { GRID } from "./grid/grid_view.js";
import { RUN } from "./run/run_view.js";

const root = document.getElementById("app");
start(root, new EmbeddedSource(document), [RUN, GRID]).catch((error) => {
  root.textContent = `The report cannot be opened: ${error.message}. It needs a browser from 2024 or later.`;
});
