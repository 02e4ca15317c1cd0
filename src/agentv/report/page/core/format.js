// Formats figures in the same way as agentv.report.figures.

import { INVISIBLE, visible } from "./text.js";

export const NONE = "–";

export function number(value) {
  return value === null || value === undefined ? NONE : value.toFixed(3).replace("-", "−");
}

export function interval(bounds) {
  return bounds ? `${number(bounds[0])} to ${number(bounds[1])}` : NONE;
}

export function percent(share) {
  return share === null || share === undefined ? NONE : `${(share * 100).toFixed(1)} %`;
}

export function percentInterval(bounds) {
  return bounds ? `${(bounds[0] * 100).toFixed(0)} to ${(bounds[1] * 100).toFixed(0)} %` : NONE;
}

export function usd(amount) {
  if (amount === null || amount === undefined) return NONE;
  return amount >= 1 || amount === 0 ? `$${amount.toFixed(2)}` : `$${amount.toFixed(4)}`;
}

// An amount in whole cents, unless it is less than one.
export function shortUsd(amount) {
  return amount >= 0.01 ? `$${amount.toFixed(2)}` : usd(amount);
}

export function duration(milliseconds) {
  if (milliseconds === null || milliseconds === undefined) return NONE;
  if (milliseconds < 999.5) return `${milliseconds.toFixed(0)} ms`;
  const seconds = milliseconds / 1000;
  if (seconds < 59.95) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  const minutes = Math.floor(whole / 60);
  if (minutes < 60) return `${minutes}m ${String(whole % 60).padStart(2, "0")}s`;
  return `${Math.floor(minutes / 60)}h ${String(minutes % 60).padStart(2, "0")}m`;
}

export function count(value) {
  return value.toLocaleString("en");
}

export function moment(text) {
  const parsed = new Date(text);
  return Number.isNaN(parsed.getTime()) ? text : parsed.toISOString().slice(0, 16).replace("T", " ") + " UTC";
}

// Quotes a word for a POSIX shell.
export function shellWord(text) {
  if (/^[\w@%+=:,./-]+$/.test(text)) return text;
  // Characters that are not visible are written as codes.
  if (visible(text) !== text) return `$'${text.replace(/['\\]/g, "\\$&").replace(INVISIBLE, shellCode)}'`;
  return `'${text.replaceAll("'", `'"'"'`)}'`;
}

function shellCode(character) {
  return `\\u${character.codePointAt(0).toString(16).padStart(4, "0")}`;
}
