// Requests to the server of the page.

const PROBLEM = "application/problem+json";
const RETRY = 1_000; // milliseconds until a server that cannot be reached is asked again

export async function get(address) {
  return (await answer(address)).json();
}

// Asks again while the server cannot be reached.
export async function persistently(address) {
  for (;;) {
    try {
      return await get(address);
    } catch (error) {
      if (!(error instanceof TypeError)) throw error; // the server refused
      await new Promise((resume) => setTimeout(resume, RETRY));
    }
  }
}

export async function post(address, data) {
  const headers = { "Content-Type": "application/json" };
  return (await answer(address, { method: "POST", headers, body: JSON.stringify(data) })).json();
}

// The response to a request. Fails with a TypeError, as `fetch` does, if the server does not answer. A problem of the
// data, such as a damaged run, is a response of a type of its own, because browsers log refused requests as errors.
export async function answer(address, options = {}) {
  const response = await fetch(address, options).catch(() => {
    throw new TypeError("The server does not answer. Is `agentv view` still running?");
  });
  if (response.ok && response.headers.get("Content-Type")?.split(";")[0] !== PROBLEM) return response;
  const { error } = await response.json().catch(() => ({}));
  throw failure(error ?? { message: `The server answered with status ${response.status}` });
}

// An error of the server: its message, its detail, its hint, and the view that the hint leads to.
export function failure({ message, detail, hint, view }) {
  return Object.assign(new Error(message), { detail, hint, view });
}
