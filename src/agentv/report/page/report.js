// Where a report that is one file begins: its data is in the document.

import { EmbeddedRun } from "./embedded.js";
import { start } from "./main.js";

const root = document.getElementById("app");
start(root, new EmbeddedRun(document)).catch((error) => {
  root.textContent = `The report cannot be opened: ${error.message}. It needs a browser from 2023 or later.`;
});
