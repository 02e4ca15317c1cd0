// Tells where a key was pressed. Letters that are typed, and keys that operate a control, do not move rows.

export function isTyping(target) {
  if (target instanceof HTMLTextAreaElement || target instanceof HTMLSelectElement) return true;
  return target instanceof HTMLInputElement && !["checkbox", "radio", "button"].includes(target.type);
}

export function isControl(target) {
  return target instanceof Element && target.closest("button, a, summary, input, select, textarea, label") !== null;
}
