// Creates elements. Text is always inserted as text, never parsed as HTML.

const AT_ONCE = 10_000; // children; a call with more arguments may overflow the stack
const SVG = "http://www.w3.org/2000/svg";

export function element(name, attributes = {}, ...children) {
  return filled(document.createElement(name), attributes, children);
}

// An element of a drawing.
export function drawn(name, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, name), attributes, children);
}

export function replaceChildren(parent, ...children) {
  const shown = children.flat().filter((child) => child !== null && child !== undefined && child !== false);
  parent.replaceChildren(...shown.slice(0, AT_ONCE));
  for (let first = AT_ONCE; first < shown.length; first += AT_ONCE) parent.append(...shown.slice(first, first + AT_ONCE));
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
