// Entry point of the page with embedded data.

import { EmbeddedRun } from "./embedded.js";
import { start } from "./main.js";

const root = document.getElementById("app");
start(root, new EmbeddedRun(document)).catch((error) => {
  root.textContent = `The report cannot be opened: ${error.message}. It needs a browser from 2023 or later.`;
});
