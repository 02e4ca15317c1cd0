// Requests to the server of the page.

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

// The response to a request. Fails with a TypeError, as `fetch` does, if the server does not answer.
export async function answer(address, options = {}) {
  const response = await fetch(address, options).catch(() => {
    throw new TypeError("The server does not answer. Is `agentv view` still running?");
  });
  if (!response.ok) throw await failure(response);
  return response;
}

// The error of a refused request, with the message, the detail and the hint of the server.
async function failure(response) {
  const { error } = await response.json().catch(() => ({}));
  const made = new Error(error?.message ?? `The server answered with status ${response.status}`);
  made.detail = error?.detail ?? null;
  made.hint = error?.hint ?? null;
  return made;
}
