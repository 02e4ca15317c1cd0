// Requests to the server of the page.

const RETRY = 1_000; // milliseconds until a server that cannot be reached is asked again

export async function get(address) {
  const response = await fetch(address);
  if (!response.ok) throw await failure(response);
  return response.json();
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
  const response = await fetch(address, { method: "POST", headers, body: JSON.stringify(data) });
  if (!response.ok) throw await failure(response);
  return response.json();
}

// The error of a refused request, with the message, the detail and the hint of the server.
export async function failure(response) {
  const { error } = await response.json().catch(() => ({}));
  const made = new Error(error?.message ?? `The server answered with status ${response.status}`);
  made.detail = error?.detail ?? null;
  made.hint = error?.hint ?? null;
  return made;
}
