// Light or dark theme; follows the system by default.

import { element } from "./dom.js";

const KEY = "agentv-theme";
const NEXT = { auto: "light", light: "dark", dark: "auto" };

export function themeButton() {
  const button = element("button", { type: "button", class: "theme" });
  const apply = (theme) => {
    if (theme === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    button.textContent = `Theme: ${theme}`;
    button.onclick = () => {
      keep(NEXT[theme]);
      apply(NEXT[theme]);
    };
  };
  apply(kept());
  return button;
}

function kept() {
  try {
    const theme = localStorage.getItem(KEY);
    return Object.hasOwn(NEXT, theme) ? theme : "auto";
  } catch {
    return "auto"; // storage may not be available to a page that is opened from disk
  }
}

function keep(theme) {
  try {
    localStorage.setItem(KEY, theme);
  } catch {
    // The theme then applies to this visit only.
  }
}
