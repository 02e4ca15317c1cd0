// Events of the server, shared by all views: "runs" (the list changed), "progress" (of a running eval), and
// "connection" (lost or found again). Reconnects on its own. Not connected while the page is hidden.

const NAMES = ["runs", "progress"];
const RETRY = 1_000; // milliseconds until a refused connection is tried again

export class ServerEvents extends EventTarget {
  #address;
  #stream = null;
  #wasOpened = false;
  #retry = 0;

  constructor(address) {
    super();
    this.#address = address;
    this.isLost = false;
    this.progress = new Map(); // the last progress of running evals, by the id of the run
    document.addEventListener("visibilitychange", () => this.#follow());
    this.#follow();
  }

  // Calls a function for each event of this name. Returns a function that ends it.
  on(name, react) {
    const listen = (event) => react(event.detail);
    this.addEventListener(name, listen);
    return () => this.removeEventListener(name, listen);
  }

  // A browser allows few connections to a server: hidden pages leave them to visible ones.
  #follow() {
    this.#close();
    if (!document.hidden) this.#open();
  }

  #open() {
    this.#stream = new EventSource(this.#address);
    this.#stream.onopen = () => this.#opened();
    this.#stream.onerror = () => this.#failed();
    for (const name of NAMES) {
      this.#stream.addEventListener(name, (event) => this.#received(name, event.data ? JSON.parse(event.data) : null));
    }
  }

  #close() {
    clearTimeout(this.#retry);
    this.#stream?.close();
    this.#stream = null;
  }

  // Events were missed since the last connection, so the views read the list again.
  #opened() {
    this.#setLost(false);
    this.progress.clear();
    if (this.#wasOpened) this.#send("runs", null);
    this.#wasOpened = true;
  }

  #received(name, data) {
    if (name === "progress" && data.state === "running") this.progress.set(data.id, data);
    else if (name === "progress") this.progress.delete(data.id);
    this.#send(name, data);
  }

  // The browser reconnects after a lost connection, but not after a refused one.
  #failed() {
    this.#setLost(true);
    if (this.#stream?.readyState !== EventSource.CLOSED) return;
    this.#close();
    this.#retry = setTimeout(() => this.#follow(), RETRY);
  }

  #setLost(isLost) {
    if (this.isLost === isLost) return;
    this.isLost = isLost;
    this.#send("connection", { isLost });
  }

  #send(name, detail) {
    this.dispatchEvent(new CustomEvent(name, { detail }));
  }
}
