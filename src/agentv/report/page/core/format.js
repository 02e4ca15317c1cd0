// Formats figures in the same way as agentv.report.figures.

import { INVISIBLE, visible } from "./text.js";

export const NONE = "–";

const EXACT = 30; // more digits than a half has after its last one

// A number with a fixed number of decimals. A half is rounded to the even digit, as in Python: `toFixed` rounds it up.
export function fixed(value, decimals) {
  if (value < 0) return `-${fixed(-value, decimals)}`;
  const isHalf = /^50*$/.test(value.toFixed(decimals + EXACT).slice(-EXACT));
  const scale = 10 ** decimals;
  const below = Math.floor(value * scale);
  return (isHalf && below % 2 === 0 ? below / scale : value).toFixed(decimals);
}

export function number(value) {
  return value === null || value === undefined ? NONE : fixed(value, 3).replace("-", "−");
}

export function interval(bounds) {
  return bounds ? `${number(bounds[0])} to ${number(bounds[1])}` : NONE;
}

export function percent(share) {
  return share === null || share === undefined ? NONE : `${fixed(share * 100, 1)} %`;
}

export function percentInterval(bounds) {
  return bounds ? `${fixed(bounds[0] * 100, 0)} to ${fixed(bounds[1] * 100, 0)} %` : NONE;
}

export function usd(amount) {
  if (amount === null || amount === undefined) return NONE;
  return amount >= 1 || amount === 0 ? `$${fixed(amount, 2)}` : `$${fixed(amount, 4)}`;
}

// An amount in whole cents, unless it is less than one.
export function shortUsd(amount) {
  return amount >= 0.01 ? `$${fixed(amount, 2)}` : usd(amount);
}

export function duration(milliseconds) {
  if (milliseconds === null || milliseconds === undefined) return NONE;
  if (milliseconds < 999.5) return `${fixed(milliseconds, 0)} ms`;
  const seconds = milliseconds / 1000;
  if (seconds < 59.95) return `${fixed(seconds, 1)} s`;
  const whole = Number(fixed(seconds, 0));
  const minutes = Math.floor(whole / 60);
  if (minutes < 60) return `${minutes}m ${String(whole % 60).padStart(2, "0")}s`;
  return `${Math.floor(minutes / 60)}h ${String(minutes % 60).padStart(2, "0")}m`;
}

export function count(value) {
  return value.toLocaleString("en");
}

export function plural(n, one, many = `${one}s`) {
  return `${count(n)} ${n === 1 ? one : many}`;
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
