// A long list whose rows have the same height. Only visible rows exist as elements. They are in a window that stays in
// place while the list scrolls, so that a fast scroll shows rows that are about to change, and never an empty place.

import { element } from "./dom.js";

const TALLEST = 16_000_000; // pixels; taller elements lose precision in browsers

export class LongList {
  #drawn = new Map(); // what `make` returned, by position

  // `titles` is the row above the others, `height` that of a row in pixels. `draw` is called when the list is scrolled,
  // `fit` when its size has changed, `click` with a click on a row, and `focus` when the keyboard enters the list.
  constructor({ label, titles, height, draw, fit = draw, click = null, focus = () => {} }) {
    this.height = height;
    this.rows = 0;
    this.header = element("div", { class: "head", role: "rowgroup" }, titles);
    this.window = element("div", { class: "window", role: "rowgroup", onclick: click });
    // As tall as the list.
    this.spacer = element("div", { class: "spacer", role: "presentation" }, this.window);
    this.root = element(
      "div",
      { class: "scroller", role: "grid", tabindex: "0", "aria-label": label, onscroll: draw, onfocus: () => this.root.matches(":focus-visible") && focus() },
      this.header,
      this.spacer,
    );
    new ResizeObserver(fit).observe(this.root);
  }

  set length(rows) {
    this.rows = rows;
    this.spacer.style.setProperty("height", `${Math.min(rows * this.height, TALLEST)}px`);
    this.root.setAttribute("aria-rowcount", String(rows + 1));
  }

  // The height of the place for rows.
  get view() {
    return Math.max(this.height, this.root.clientHeight - this.header.offsetHeight);
  }

  // How many rows a key moves; undefined if it does not move.
  steps(key) {
    const page = Math.max(1, Math.floor(this.view / this.height) - 1);
    const steps = { ArrowDown: 1, ArrowUp: -1, j: 1, k: -1, PageDown: page, PageUp: -page, Home: -Infinity, g: -Infinity, End: Infinity, G: Infinity };
    return steps[key];
  }

  // The position of the first row that can be seen whole.
  get top() {
    return Math.ceil(this.scrolled / this.height);
  }

  // How far the list is scrolled, in pixels of the list.
  get scrolled() {
    const most = Math.max(0, this.rows * this.height - this.view);
    return Math.min(most, this.root.scrollTop * this.#scale);
  }

  // If the list is taller than the tallest element, a pixel of the scroll bar is more than a pixel of the list.
  get #scale() {
    const { view } = this;
    const real = this.rows * this.height - view;
    return real <= TALLEST - view ? 1 : real / (TALLEST - view);
  }

  scrollTo(pixels) {
    this.root.scrollTop = pixels / this.#scale;
  }

  // Scrolls as little as possible to show a row whole.
  reveal(position) {
    const { scrolled } = this;
    const wanted = nearest(position * this.height, this.height, scrolled, this.view);
    if (wanted !== scrolled) this.scrollTo(wanted);
  }

  focus() {
    this.root.focus({ preventScroll: true });
  }

  // Draws the rows that can be seen. `make(position)` returns the `line` of a row, and what else is known of it;
  // `update(drawn, position)` is called with it at every drawing. Returns the first position and the one after the last.
  draw(make, update) {
    const { scrolled, view, height, rows } = this;
    const [first, last] = [Math.floor(scrolled / height), Math.min(rows, Math.ceil((scrolled + view) / height) + 1)];
    this.window.style.setProperty("height", `${Math.min(view, rows * height)}px`);
    this.window.style.setProperty("top", `${this.header.offsetHeight}px`);
    this.#drop((position) => position < first || position >= last);
    for (let position = first; position < last; position++) {
      const drawn = this.#drawn.get(position) ?? this.#add(position, make(position));
      drawn.line.style.setProperty("top", `${position * height - scrolled}px`);
      update(drawn, position);
    }
    return [first, last];
  }

  // What is drawn at a position; undefined if it cannot be seen.
  drawnAt(position) {
    return this.#drawn.get(position);
  }

  get drawn() {
    return this.#drawn.values();
  }

  // Draws all rows again the next time.
  clear() {
    this.#drop(() => true);
  }

  // Marks the current row or cell for screen readers; none if it is not drawn.
  activate(active) {
    if (active) this.root.setAttribute("aria-activedescendant", active.id);
    else this.root.removeAttribute("aria-activedescendant");
  }

  #add(position, drawn) {
    this.#drawn.set(position, drawn);
    this.window.append(drawn.line);
    return drawn;
  }

  #drop(isDropped) {
    for (const [position, { line }] of this.#drawn) {
      if (!isDropped(position)) continue;
      line.remove();
      this.#drawn.delete(position);
    }
  }
}

// The rows of a long list in an order, one of which is current. A subclass has the `list`, and draws it in `draw`.
export class RowList {
  shown = [];
  current = -1;

  get length() {
    return this.shown.length;
  }

  position(row) {
    return this.shown.indexOf(row);
  }

  // Returns the row before or after another in the displayed order; null at the ends and without the other.
  neighbour(row, step) {
    const position = this.position(row);
    return position < 0 ? null : (this.shown[position + step] ?? null);
  }

  reveal(row) {
    const position = this.position(row);
    if (position >= 0) this.move(position);
  }

  focus() {
    this.list.focus();
  }

  // Makes the row at a position, or the nearest one, the current one.
  move(position) {
    const last = this.shown.length - 1;
    if (last < 0) return;
    this.current = Math.max(0, Math.min(last, position));
    this.list.reveal(this.current);
    this.draw();
  }
}

// Marks a row or a cell as the current one and as the open one.
export function mark(drawn, isCurrent, isOpen) {
  drawn.classList.toggle("current", isCurrent);
  drawn.classList.toggle("open", isOpen);
  drawn.setAttribute("aria-selected", String(isCurrent));
}

// The scroll position closest to the current one that shows an item whole.
export function nearest(start, size, scrolled, view) {
  if (start < scrolled) return start;
  return start + size > scrolled + view ? start + size - view : scrolled;
}
