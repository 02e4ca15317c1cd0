// Creates elements. Text is always inserted as text, never parsed as HTML.

const SVG = "http://www.w3.org/2000/svg";

export function element(name, attributes = {}, ...children) {
  return filled(document.createElement(name), attributes, children);
}

// An element of a drawing.
export function drawn(name, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, name), attributes, children);
}

export function replaceChildren(parent, ...children) {
  parent.replaceChildren(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
}

function filled(made, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) set(made, key, value);
  replaceChildren(made, ...children);
  return made;
}

function set(made, key, value) {
  if (value === null || value === undefined || value === false) return;
  if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
  else if (key === "style") for (const [name, part] of Object.entries(value)) made.style.setProperty(name, part);
  else made.setAttribute(key, value === true ? "" : String(value));
}
