// Entry point of the page that `agentv view` serves.

import { start } from "./core/shell.js";
import { ServedSource } from "./data/served.js";
import { RUN } from "./run/run_view.js";

const root = document.getElementById("app");
start(root, new ServedSource(), [RUN]).catch((error) => {
  root.textContent = `The page cannot be opened: ${error.message}`;
});
