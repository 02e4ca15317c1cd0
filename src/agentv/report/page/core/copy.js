// A button that copies a text.

import { element } from "./dom.js";

// `text` is a string, or a function that returns it.
export function copyButton(label, text) {
  const button = element("button", { type: "button", class: "copy" }, label);
  button.addEventListener("click", async () => {
    const done = await copied(typeof text === "function" ? text() : text);
    button.textContent = done ? "Copied" : "Copy failed";
    setTimeout(() => (button.textContent = label), 1500);
  });
  return button;
}

async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // The clipboard API may not be available to a page that is opened from disk.
    const area = element("textarea", { class: "unseen", readonly: true });
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }
}
