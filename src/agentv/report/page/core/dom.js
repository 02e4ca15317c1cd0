// Creates elements. Text is always inserted as text, never parsed as HTML.

export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) set(made, key, value);
  made.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return made;
}

export function replaceChildren(parent, ...children) {
  parent.replaceChildren(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
}

function set(made, key, value) {
  if (value === null || value === undefined || value === false) return;
  if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
  else if (key === "style") for (const [name, part] of Object.entries(value)) made.style.setProperty(name, part);
  else made.setAttribute(key, value === true ? "" : String(value));
}
