// The target that answered: its system prompt and settings, as the run stored them without secrets.

import { filledLater, section } from "./blocks.js";
import { element } from "../core/dom.js";
import { longText } from "../core/long_text.js";
import { own } from "../core/lookup.js";
import { asText, visible } from "../core/text.js";

export function targetSettings(row, head) {
  const entry = own(head.settings, row.target);
  if (!entry) return section("settings", "Target", element("p", { class: "note" }, "The settings of the target are not stored in this run."));
  const { system_prompt: prompt, ...settings } = entry.settings ?? {};
  const pairs = [["provider", entry.provider], ...Object.entries(settings).filter(([name]) => name !== "provider" && name !== "name")];
  return section(
    "settings",
    "Target",
    element("h4", {}, "System prompt"),
    prompt ? longText(asText(prompt)) : element("p", { class: "note" }, "The target has no system prompt of its own."),
    element("h4", {}, "Settings"),
    element("dl", {}, pairs.flatMap(([name, value]) => [element("dt", {}, visible(name)), element("dd", {}, settingValue(value))])),
  );
}

function settingValue(value) {
  const text = asText(value);
  return text.length <= 200 ? element("code", {}, visible(text)) : filledLater(`${text.length} characters`, () => longText(text, "code"));
}
