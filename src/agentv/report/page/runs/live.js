// What changes while an eval runs: progress, rate, errors, cost, time left, and the state of the connection.

import { element, replaceChildren } from "../core/dom.js";
import { count, duration, usd } from "../core/format.js";

// A line that is shown while the connection to the server is lost.
export class ConnectionLine {
  constructor(events) {
    this.root = element("p", { class: "connection", role: "status" });
    const show = ({ isLost }) => replaceChildren(this.root, isLost ? "Connection lost; trying again" : "");
    show(events);
    this.close = events.on("connection", show);
  }
}

// The progress of one run: hidden unless it runs. `onEnd` is called with the last progress when the run ends.
export class LiveLine {
  #stops;
  #events;
  #id;

  constructor(events, id, onEnd = () => {}) {
    this.#events = events;
    this.#id = id;
    this.bar = new ProgressBar();
    this.text = element("span", { class: "figures" });
    this.line = element("p", { class: "live-line", hidden: true }, this.bar.root, this.text);
    this.connection = new ConnectionLine(events);
    this.root = element("div", { class: "live" }, this.line, this.connection.root);
    const stop = events.on("progress", (progress) => {
      if (progress.id !== id) return;
      const wasRunning = !this.line.hidden;
      this.show(progress);
      if (wasRunning && !isRunning(progress)) onEnd(progress);
    });
    this.#stops = [stop, this.connection.close];
    if (events.progress.has(id)) this.show(events.progress.get(id));
  }

  // Calls a function with whether the run is in progress: when it makes progress, and when the list of runs changed,
  // because a run may be resumed and end between two events.
  follow(react) {
    this.#stops.push(
      this.#events.on("progress", (progress) => progress.id === this.#id && react(isRunning(progress))),
      this.#events.on("runs", () => react(false)),
    );
  }

  show(progress) {
    this.line.hidden = !isRunning(progress);
    this.bar.show(progress.done, progress.jobs);
    this.text.textContent = ["running", ...progressFacts(progress), ...spending(progress)].join(" · ");
  }

  close() {
    for (const stop of this.#stops) stop();
  }
}

export function isRunning({ state }) {
  return state === "running";
}

// How far a run is: done, rate and time left.
export function progressFacts({ done, jobs, rate, seconds_left }) {
  return [
    jobs ? `${count(done ?? 0)} of ${count(jobs)} done` : `${count(done ?? 0)} done`,
    rate ? rateText(rate) : null,
    isKnown(seconds_left) ? `about ${duration(1000 * seconds_left)} left` : null,
  ].filter(Boolean);
}

function spending({ errors, cost_usd }) {
  return [
    isKnown(errors) ? `${count(errors)} ${errors === 1 ? "error" : "errors"}` : null,
    isKnown(cost_usd) ? usd(cost_usd) : null,
  ].filter(Boolean);
}

function isKnown(value) {
  return value !== null && value !== undefined;
}

// `rate` is in jobs per second.
function rateText(rate) {
  return rate >= 1 ? `${rate.toFixed(1)}/s` : `${(60 * rate).toFixed(1)}/min`;
}

export class ProgressBar {
  constructor() {
    this.fill = element("i", {});
    this.root = element("span", { class: "progress-bar", role: "progressbar", "aria-label": "Jobs done", "aria-valuemin": "0" }, this.fill);
  }

  show(done, jobs) {
    const share = jobs ? Math.min(1, (done ?? 0) / jobs) : 0;
    this.fill.style.setProperty("width", `${(100 * share).toFixed(1)}%`);
    this.root.setAttribute("aria-valuemax", String(jobs ?? 0));
    this.root.setAttribute("aria-valuenow", String(done ?? 0));
  }
}
