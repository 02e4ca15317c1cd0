// Requests to the server of the page.

export async function get(address) {
  const response = await fetch(address);
  if (!response.ok) throw await failure(response);
  return response.json();
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
