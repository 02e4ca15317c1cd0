// A verdict in its colour.

import { element } from "./dom.js";

export function badge(verdict) {
  return element("span", { class: `badge ${verdict}` }, verdict);
}
