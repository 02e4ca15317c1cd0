// Light or dark: as the system has it, until somebody chooses.

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
    return theme in NEXT ? theme : "auto";
  } catch {
    return "auto"; // a browser may refuse a file its storage
  }
}

function keep(theme) {
  try {
    localStorage.setItem(KEY, theme);
  } catch {
    // Then it holds for this visit only.
  }
}
