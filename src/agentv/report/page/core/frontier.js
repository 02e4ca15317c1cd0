// A picture of cost and quality: a point for each run or target, and the line of those that no other one dominates.

import { drawn, element } from "./dom.js";
import { interval, number } from "./format.js";
import { oneLine, visible } from "./text.js";

const WIDE = 460;
const HEIGHT = 240;
const LEFT = 46;
const RIGHT = 24;
const LETTER = 7;
const TOP = 14;
const BOTTOM = 36;
const LEAST_RANGE = 0.1;

// `points` have a name, a mean with its interval, a cost, and whether they are dominated.
export function frontierChart({ text, points }, width = WIDE) {
  const scale = scaleOf(points, width);
  const best = points.filter((point) => !point.is_dominated).sort((a, b) => a.cost - b.cost);
  const size = { width, height: HEIGHT, viewBox: `0 0 ${width} ${HEIGHT}` };
  const label = `Cost per case and mean score. ${points.map(description).join("; ")}`;
  return element(
    "figure",
    { class: "frontier" },
    drawn(
      "svg",
      { ...size, role: "img", "aria-label": visible(label) },
      [scale.low, (scale.low + scale.high) / 2, scale.high].flatMap((value) => mark(value, scale)),
      axis(scale),
      drawn("polyline", { class: "best", points: best.map((point) => `${scale.x(point.cost)},${scale.y(point.mean)}`).join(" ") }),
      points.map((point) => dot(point, scale)),
    ),
    element("figcaption", {}, visible(text)),
  );
}

function scaleOf(points, width) {
  const values = points.flatMap((point) => [point.mean, ...(point.ci95 ?? [])]);
  const middle = (Math.min(...values) + Math.max(...values)) / 2;
  const half = Math.max(LEAST_RANGE, Math.max(...values) - Math.min(...values)) / 2;
  const low = Math.max(0, middle - half);
  const high = Math.min(1, middle + half);
  const most = Math.max(...points.map((point) => point.cost)) || 1;
  return {
    low,
    high,
    most,
    end: width - RIGHT,
    x: (cost) => Math.round(LEFT + (cost / most) * (width - LEFT - RIGHT)),
    y: (value) => Math.round(TOP + ((high - value) / (high - low)) * (HEIGHT - TOP - BOTTOM)),
  };
}

function mark(value, { y, end }) {
  return [
    drawn("line", { class: "grid", x1: LEFT, x2: end, y1: y(value), y2: y(value) }),
    drawn("text", { x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }, value.toFixed(2)),
  ];
}

function axis({ x, most }) {
  const below = { y: HEIGHT - BOTTOM + 16 };
  const unit = most >= 1 ? `$${most.toFixed(2)}` : `$${most.toFixed(4)}`;
  return [
    drawn("text", { ...below, x: x(0) }, "$0"),
    drawn("text", { ...below, x: x(most), "text-anchor": "end" }, unit),
    drawn("text", { x: x(most / 2), y: HEIGHT - 4, "text-anchor": "middle" }, "cost per case"),
  ];
}

// A name is on the right if there is room for it.
function dot(point, { x, y, end }) {
  const [low, high] = point.ci95 ?? [point.mean, point.mean];
  const at = x(point.cost);
  const name = oneLine(point.name, 12);
  const fits = at + 9 + LETTER * name.length <= end + RIGHT;
  const place = fits ? { x: at + 9 } : { x: at - 9, "text-anchor": "end" };
  return drawn(
    "g",
    { class: point.is_dominated ? "point dominated" : "point" },
    drawn("title", {}, visible(description(point))),
    drawn("line", { class: "interval", x1: at, x2: at, y1: y(low), y2: y(high) }),
    drawn("circle", { cx: at, cy: y(point.mean), r: 5 }),
    drawn("text", { ...place, y: y(point.mean) + 4 }, name),
  );
}

function description(point) {
  const bounds = point.ci95 ? ` (95 % ${interval(point.ci95)})` : "";
  return `${point.name}: mean ${number(point.mean)}${bounds}, ${point.cost_text} per case, ${point.status}`;
}
