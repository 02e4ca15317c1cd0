// The parameters in the hash of the URL: the view, the run, filters and the open result. Links restore them.

export class State extends EventTarget {
  #parameters = new URLSearchParams(location.hash.slice(1));

  constructor() {
    super();
    addEventListener("hashchange", () => {
      if (this.#parameters.toString() === location.hash.slice(1)) return;
      this.#parameters = new URLSearchParams(location.hash.slice(1));
      this.dispatchEvent(new Event("change"));
    });
  }

  get(name) {
    return this.#parameters.get(name);
  }

  getAll(name) {
    return this.#parameters.getAll(name);
  }

  // Adds parameters that a view chose itself, so that the address names them. The view stays open.
  fill(changes) {
    this.#write(changes, false);
    this.dispatchEvent(new Event("fill"));
  }

  // Sets parameters: a string, a list of strings, or null to remove one. With `isStep`, the back button undoes it.
  update(changes, { isStep = false } = {}) {
    this.#write(changes, isStep);
    this.dispatchEvent(new Event("change"));
  }

  #write(changes, isStep) {
    for (const [name, value] of Object.entries(changes)) {
      this.#parameters.delete(name);
      for (const each of [value ?? []].flat()) this.#parameters.append(name, each);
    }
    const hash = this.#parameters.toString();
    const url = hash ? `#${hash}` : location.pathname + location.search;
    // Typed letters replace the history entry, so that each does not add one.
    if (isStep) history.pushState(null, "", url);
    else history.replaceState(null, "", url);
  }
}
