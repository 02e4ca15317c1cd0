// Events of the server, shared by all views: "runs" (the list changed), "progress" (of a running eval), "labels" (the file
// changed), "connection" (lost or found again), and "replaced" (a run turned out to be another one).
//
// A browser allows six connections to a server, so its visible pages share one stream: the page that holds a lock reads it
// and sends what it receives to the others. When it is closed or hidden, the next one takes over.

import { EventStream } from "./event_stream.js";

const NAME = "agentv events"; // of the lock and the channel, which belong to one server
const MISSED = ["runs", "labels"]; // what views read again when events were missed

export class ServerEvents extends EventTarget {
  #address;
  #stream = null; // in the page that reads it
  #visible = null; // aborted when the page is hidden
  #isCurrent = false; // whether no event was missed
  #wasCurrent = false;
  // Locks do not exist on a page that was opened from another machine: each page reads a stream of its own there.
  #channel = navigator.locks ? new BroadcastChannel(NAME) : null;

  constructor(address) {
    super();
    this.#address = address;
    this.isLost = false;
    this.progress = new Map(); // the last progress of running evals, by the id of the run
    this.#channel?.addEventListener("message", ({ data }) => this.#visible && this.#take(data));
    document.addEventListener("visibilitychange", () => this.#follow());
    this.#follow();
  }

  // Calls a function for each event of this name. Returns a function that ends it.
  on(name, react) {
    const listen = (event) => react(event.detail);
    this.addEventListener(name, listen);
    return () => this.removeEventListener(name, listen);
  }

  // Hidden pages leave the stream to visible ones.
  #follow() {
    this.#visible?.abort();
    this.#visible = null;
    this.#isCurrent = false;
    if (document.hidden) return;
    this.#visible = new AbortController();
    const { signal } = this.#visible;
    if (!this.#channel) return this.#read(signal);
    navigator.locks.request(NAME, { signal }, () => signal.aborted || this.#read(signal)).catch(() => {}); // hidden meanwhile
    this.#channel.postMessage({ kind: "question" });
  }

  // Reads the stream until the page is hidden.
  #read(signal) {
    const stream = (this.#stream = new EventStream(this.#address, {
      opened: () => this.#tell(this.#state({ isNew: true, isLost: false, progress: [] })),
      lost: () => this.#tell(this.#state({ isLost: true })),
      received: (name, data) => this.#tell({ kind: "event", name, data }),
    }));
    return new Promise((resolve) => {
      signal.addEventListener("abort", () => {
        stream.close();
        this.#stream = null;
        resolve();
      });
    });
  }

  #state(changes = {}) {
    return { kind: "state", isNew: false, isLost: this.isLost, progress: [...this.progress.values()], ...changes };
  }

  #tell(message) {
    this.#channel?.postMessage(message);
    this.#take(message);
  }

  #take(message) {
    if (message.kind === "event") this.#receive(message.name, message.data);
    else if (message.kind === "state") this.#catchUp(message);
    else if (this.#stream && (this.#isCurrent || this.isLost)) this.#channel.postMessage(this.#state());
  }

  // A page asked for the state, or there is a new stream: then events were missed, so the views read again.
  #catchUp({ isNew, isLost, progress }) {
    this.#setLost(isLost);
    if (isLost || (this.#isCurrent && !isNew)) return;
    this.progress.clear();
    for (const each of progress) this.#receive("progress", each);
    if (this.#wasCurrent) for (const name of MISSED) this.send(name, null);
    this.#isCurrent = this.#wasCurrent = true;
  }

  #receive(name, data) {
    if (name === "progress" && data.state === "running") this.progress.set(data.id, data);
    else if (name === "progress") this.progress.delete(data.id);
    this.send(name, data);
  }

  #setLost(isLost) {
    if (isLost) this.#isCurrent = false;
    if (this.isLost === isLost) return;
    this.isLost = isLost;
    this.send("connection", { isLost });
  }

  // Sends an event to the views of this page.
  send(name, detail) {
    this.dispatchEvent(new CustomEvent(name, { detail }));
  }
}
