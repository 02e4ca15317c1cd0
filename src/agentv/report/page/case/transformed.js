// The raw answer beside the text that was scored, where a transform of the target or of an evaluator changed it.

import { section } from "./blocks.js";
import { sideBySide } from "./reference.js";
import { element } from "../core/dom.js";
import { firstEntries } from "../core/first_entries.js";
import { oneLine } from "../core/text.js";

export function transformed(result) {
  const raw = result.raw_answer ?? result.candidate_answer;
  if (typeof raw !== "string") return null;
  const pairs = changedTexts(result);
  if (!pairs.length) return null;
  const shown = ([scored, names]) => [
    sideBySide({ title: "Raw answer", text: raw }, { title: names.length ? `Text scored by ${oneLine(names.join(", "), 200)}` : "Scored text", text: scored }),
    scored === "" && element("p", { class: "note" }, "The scored text is empty."),
  ];
  return section("transformed", "Raw answer and scored text", firstEntries(pairs, (pair) => element("div", {}, shown(pair)), "texts"));
}

// Each text that was scored instead of the raw answer, with the names of the evaluators whose own transform made it.
function changedTexts(result) {
  const names = new Map();
  const collect = (results, before) => {
    for (const found of results ?? []) {
      const text = found.candidate_answer;
      if (typeof text === "string") names.set(text, [...(names.get(text) ?? []), before + found.name]);
      collect(found.evaluator_results, `${before}${found.name} / `);
    }
  };
  collect(result.evaluator_results, "");
  const isChanged = typeof result.raw_answer === "string" && typeof result.candidate_answer === "string";
  return [...(isChanged ? [[result.candidate_answer, []]] : []), ...names];
}
