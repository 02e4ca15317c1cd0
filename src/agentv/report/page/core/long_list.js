// A long list whose rows have the same height. Only visible rows exist as elements. They are in a window that stays in
// place while the list scrolls, so that a fast scroll shows rows that are about to change, and never an empty place.

const TALLEST = 16_000_000; // pixels; taller elements lose precision in browsers

export class LongList {
  // `scroller` contains a sticky `header` and the `spacer`, which is as tall as the list and contains the `window`.
  constructor({ scroller, header, spacer, window }, height) {
    this.scroller = scroller;
    this.header = header;
    this.spacer = spacer;
    this.window = window;
    this.height = height;
    this.rows = 0;
  }

  set length(rows) {
    this.rows = rows;
    this.spacer.style.setProperty("height", `${Math.min(rows * this.height, TALLEST)}px`);
  }

  // The height of the place for rows.
  get view() {
    return Math.max(this.height, this.scroller.clientHeight - this.header.offsetHeight);
  }

  // The number of rows that `PageDown` moves.
  get page() {
    return Math.max(1, Math.floor(this.view / this.height) - 1);
  }

  // How far the list is scrolled, in pixels of the list.
  get scrolled() {
    const most = Math.max(0, this.rows * this.height - this.view);
    return Math.min(most, this.scroller.scrollTop * this.#scale);
  }

  // If the list is taller than the tallest element, a pixel of the scroll bar is more than a pixel of the list.
  get #scale() {
    const { view } = this;
    const real = this.rows * this.height - view;
    return real <= TALLEST - view ? 1 : real / (TALLEST - view);
  }

  scrollTo(pixels) {
    this.scroller.scrollTop = pixels / this.#scale;
  }

  // Scrolls as little as possible to show a row whole.
  reveal(position) {
    const { scrolled } = this;
    const wanted = nearest(position * this.height, this.height, scrolled, this.view);
    if (wanted !== scrolled) this.scrollTo(wanted);
  }

  // Fits the window, and returns the rows to draw and how far the list is scrolled.
  fit() {
    const { scrolled, view, height, rows } = this;
    const top = this.header.offsetHeight;
    this.window.style.setProperty("height", `${Math.min(view, rows * height)}px`);
    this.window.style.setProperty("top", `${top}px`);
    return { first: Math.floor(scrolled / height), last: Math.min(rows, Math.ceil((scrolled + view) / height) + 1), scrolled };
  }
}

// The scroll position closest to the current one that shows an item whole.
export function nearest(start, size, scrolled, view) {
  if (start < scrolled) return start;
  return start + size > scrolled + view ? start + size - view : scrolled;
}
