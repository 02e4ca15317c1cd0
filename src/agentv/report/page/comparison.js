// Entry point of the page of a comparison in one file.

import { COMPARE } from "./compare/compare_view.js";
import { start } from "./core/shell.js";
import { EmbeddedComparison } from "./data/embedded_comparison.js";

const root = document.getElementById("app");
start(root, new EmbeddedComparison(document), [COMPARE]).catch((error) => {
  root.textContent = `The comparison cannot be opened: ${error.message}. It needs a browser from 2024 or later.`;
});
