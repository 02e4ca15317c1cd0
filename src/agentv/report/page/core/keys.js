// Keys of the views. Letters that are typed, and keys that operate a control, do not move rows.

export function isTyping(target) {
  if (target instanceof HTMLTextAreaElement || target instanceof HTMLSelectElement) return true;
  return target instanceof HTMLInputElement && !["checkbox", "radio", "button"].includes(target.type);
}

export function isControl(target) {
  return target instanceof Element && target.closest("button, a, summary, input, select, textarea, label") !== null;
}

// Handles a key in a view with a search box, a table of results and the open result beside it. Returns whether it was used.
export function resultKey(event, { search, table, detail, isOpen }) {
  const { target, key } = event;
  if (isTyping(target)) return target === search.input && leaveSearch(key, search, table);
  if (key === "/") return search.focus(), true;
  if (key === "Escape" && isOpen) return detail.close(), true;
  if ((key === "Enter" || key === " ") && isControl(target)) return false;
  // Other keys scroll the open result if it has the focus.
  const isReading = detail.root.contains(target);
  if (isReading && key !== "j" && key !== "k") return false;
  if (!table.key(event)) return false;
  if (key === "Enter" || isReading) detail.focus();
  return true;
}

// `Esc`, `Enter` and `↓` leave the search box, and keep its text.
function leaveSearch(key, search, table) {
  if (!["Escape", "Enter", "ArrowDown"].includes(key)) return false;
  search.now();
  table.focus();
  return true;
}
