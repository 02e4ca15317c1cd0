// A chart of means with their 95 % intervals, one point per run, oldest first. Points are links to their runs.

import { drawn } from "../core/dom.js";
import { count, interval, moment, number } from "../core/format.js";
import { oneLine } from "../core/text.js";

const HEIGHT = 300;
const TOP = 30;
const BOTTOM = 34;
const AXIS = 44; // the width of the axis, which stays in place while the chart is scrolled
const LEFT = 4;
const RIGHT = 24;
const LEAST_WIDTH = 280;
const STEP = 18; // the least distance between points
const LEAST_RANGE = 0.2;
const LABEL = 110; // the width of a date below the chart

// `runs` are oldest first; `notes` has the numbers of the notes of a run by its id; `width` is the space there is.
// Returns the axis and the chart, which may be wider than the space.
export function trendChart(runs, { notes, address, current, width }) {
  const scale = scaleOf(runs, Math.max(width - AXIS, LEAST_WIDTH, LEFT + RIGHT + STEP * runs.length));
  const axis = drawing(AXIS, { "aria-hidden": "true" }, marks(scale).map((value) => mark(value, scale)));
  const chart = drawing(
    scale.width,
    { role: "group", "aria-label": "Means with 95 % intervals, oldest run first; each point opens its run" },
    marks(scale).map((value) => gridLine(value, scale)),
    lines(runs, scale),
    runs.map((run, position) => breakMark(run, position, scale, notes.get(run.id))),
    runs.map((run, position) => point(run, position, scale, { address, current })),
    dates(runs, scale),
  );
  return { axis, chart };
}

function drawing(width, attributes, ...parts) {
  const size = { width, height: HEIGHT, viewBox: `0 0 ${width} ${HEIGHT}` };
  return drawn("svg", { class: "trend-chart", ...size, ...attributes }, parts.flat());
}

function scaleOf(runs, width) {
  const values = runs.flatMap((run) => [run.mean, ...(run.ci95 ?? [])]);
  const middle = (Math.min(...values) + Math.max(...values)) / 2;
  const half = Math.max(LEAST_RANGE, Math.max(...values) - Math.min(...values)) / 2;
  const low = Math.max(0, Math.floor((middle - half) * 10) / 10);
  const high = Math.min(1, Math.ceil((middle + half) * 10) / 10);
  const room = width - LEFT - RIGHT;
  return {
    low,
    high,
    width,
    x: (position) => LEFT + (runs.length === 1 ? room / 2 : 12 + ((room - 24) * position) / (runs.length - 1)),
    y: (value) => TOP + ((high - value) / (high - low)) * (HEIGHT - TOP - BOTTOM),
  };
}

function marks({ low, high }) {
  const step = high - low > 0.55 ? 0.2 : 0.1;
  const values = [];
  for (let value = low; value <= high + 1e-9; value += step) values.push(value);
  return values;
}

function gridLine(value, { width, y }) {
  return drawn("line", { class: "scale-line", x1: 0, x2: width - RIGHT, y1: y(value), y2: y(value) });
}

function mark(value, { y }) {
  return drawn("text", { class: "scale-text", x: AXIS - 8, y: y(value) + 4, "text-anchor": "end" }, value.toFixed(1));
}

// Connects the points; not across a change of the measure, because the means are not comparable there.
function lines(runs, { x, y }) {
  const parts = [];
  runs.forEach((run, position) => {
    if (!position || run.other_measures) parts.push([]);
    parts.at(-1).push(`${x(position).toFixed(1)},${y(run.mean).toFixed(1)}`);
  });
  return parts.map((points) => drawn("polyline", { class: "means", points: points.join(" ") }));
}

// A line before the first run after a change, with the numbers of its notes.
function breakMark(run, position, { x, y, low, high }, numbers) {
  if (!numbers) return null;
  const at = position ? (x(position - 1) + x(position)) / 2 : x(0) - 12;
  return drawn(
    "g",
    { class: "break", "aria-hidden": "true" },
    drawn("line", { x1: at, x2: at, y1: y(high) - 6, y2: y(low) }),
    drawn("text", { x: at, y: y(high) - 12, "text-anchor": "middle" }, numbers.join(", ")),
  );
}

function point(run, position, { x, y }, { address, current }) {
  const [low, high] = run.ci95 ?? [run.mean, run.mean];
  const at = x(position);
  const kind = [run.is_unread && "unread", run.id === current && "current"].filter(Boolean).join(" ");
  return drawn(
    "a",
    { class: `point ${kind}`, href: address(run), "data-run": run.id, "aria-label": description(run) },
    drawn("title", {}, description(run)),
    drawn("rect", { class: "area", x: at - STEP / 2, y: TOP, width: STEP, height: HEIGHT - TOP - BOTTOM }),
    drawn("line", { class: "interval", x1: at, x2: at, y1: y(low), y2: y(high) }),
    drawn("circle", { cx: at, cy: y(run.mean), r: 5 }),
  );
}

function description(run) {
  const bounds = run.ci95 ? `95 % interval ${interval(run.ci95)}, ` : "";
  const day = run.started_at ? `, ${moment(run.started_at)}` : "";
  return `Mean ${number(run.mean)}, ${bounds}n = ${count(run.scored)}: ${oneLine(run.name, 80)}${day}`;
}

// The month, the day and the time; other text unchanged.
function dayText(text) {
  const found = moment(text);
  return found.endsWith(" UTC") ? found.slice(5, 16) : oneLine(text, 12);
}

// Dates below the chart, as many as fit.
function dates(runs, { x, width }) {
  // The first date begins at its point, and the last one ends there, where there is no more room.
  const anchor = (position) => (position === 0 ? "start" : x(position) + LABEL / 2 > width ? "end" : "middle");
  const every = Math.max(1, Math.ceil(runs.length / Math.max(1, Math.floor((width - LEFT - RIGHT) / LABEL))));
  return runs.map((run, position) =>
    run.started_at && position % every === 0
      ? drawn(
          "text",
          { class: "scale-text", x: x(position), y: HEIGHT - 12, "text-anchor": anchor(position) },
          dayText(run.started_at),
        )
      : null,
  );
}
