// The stream of server events, read by one page. Reconnects on its own.

const NAMES = ["runs", "progress", "labels"];
const RETRY = 1_000; // milliseconds until a refused connection is tried again

export class EventStream {
  #address;
  #listener;
  #stream = null;
  #retry = 0;

  // `listener` has `opened()`, `lost()` and `received(name, data)`.
  constructor(address, listener) {
    this.#address = address;
    this.#listener = listener;
    this.#open();
  }

  close() {
    clearTimeout(this.#retry);
    this.#stream.close();
  }

  #open() {
    this.#stream = new EventSource(this.#address);
    this.#stream.onopen = () => this.#listener.opened();
    this.#stream.onerror = () => this.#failed();
    for (const name of NAMES) this.#stream.addEventListener(name, ({ data }) => this.#listener.received(name, JSON.parse(data)));
  }

  // The browser reconnects after a lost connection, but not after a refused one.
  #failed() {
    this.#listener.lost();
    if (this.#stream.readyState === EventSource.CLOSED) this.#retry = setTimeout(() => this.#open(), RETRY);
  }
}
