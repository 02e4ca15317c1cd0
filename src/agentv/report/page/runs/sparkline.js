// A small line of the means of earlier runs that ends at this run, with the figures as its text.

import { drawn } from "../core/dom.js";
import { number } from "../core/format.js";

const WIDTH = 96;
const HEIGHT = 26;
const EDGE = 4;
const LEAST_RANGE = 0.1; // small changes are not drawn as large ones

// `means` are oldest first. Returns null if there is no earlier run.
export function sparkline(means) {
  if (means.length < 2) return null;
  const middle = (Math.min(...means) + Math.max(...means)) / 2;
  const range = Math.max(LEAST_RANGE, Math.max(...means) - Math.min(...means));
  const x = (position) => EDGE + (position / (means.length - 1)) * (WIDTH - 2 * EDGE);
  const y = (mean) => HEIGHT / 2 - ((mean - middle) / range) * (HEIGHT - 2 * EDGE);
  const points = means.map((mean, position) => `${x(position).toFixed(1)},${y(mean).toFixed(1)}`).join(" ");
  const last = means.length - 1;
  return drawn(
    "svg",
    { class: "sparkline", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, width: WIDTH, height: HEIGHT, role: "img", "aria-label": description(means) },
    drawn("title", {}, description(means)),
    drawn("polyline", { points }),
    drawn("circle", { cx: x(last).toFixed(1), cy: y(means[last]).toFixed(1), r: 3 }),
  );
}

function description(means) {
  const earlier = means.slice(0, -1).map(number).join(", ");
  const runs = means.length === 2 ? "the earlier run" : `the ${means.length - 1} earlier runs`;
  return `Mean ${number(means.at(-1))}; ${runs}, oldest first: ${earlier}`;
}
