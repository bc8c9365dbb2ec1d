// The admin API. The token is asked for once, when it is needed, and kept in this tab only.

const KEY = "rejoinder.admin-token";
let token = sessionStorage.getItem(KEY) ?? "";
let asking = null;

export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export async function ask(path, { method = "GET", body } = {}) {
  for (;;) {
    const used = token;
    const response = await send(path, method, body, used);
    if (response.status === 401) {
      // Another request may have asked for it meanwhile.
      if (used === token) await (asking ??= askToken(Boolean(used)));
      continue;
    }
    if (used) sessionStorage.setItem(KEY, used);
    if (!response.ok) throw new Refused(response.status, await messageOf(response));
    return response.json();
  }
}

async function send(path, method, body, used) {
  const headers = {};
  if (used) headers.authorization = `Bearer ${used}`;
  if (body !== undefined) headers["content-type"] = "application/json";
  try {
    return await fetch(path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) });
  } catch {
    throw new Refused(0, "The proxy does not answer.");
  }
}

async function messageOf(response) {
  try {
    return (await response.json()).error.message;
  } catch {
    return `The proxy answered ${response.status}.`;
  }
}

function askToken(wasWrong) {
  sessionStorage.removeItem(KEY);
  const dialog = document.getElementById("gate");
  const form = document.getElementById("gate-form");
  const input = document.getElementById("gate-token");
  document.getElementById("gate-error").textContent = wasWrong ? "That is not the token." : "";
  input.value = "";
  dialog.addEventListener("cancel", (event) => event.preventDefault(), { once: true });
  if (!dialog.open) dialog.showModal();
  input.focus();
  return new Promise((resolve) => {
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      token = input.value;
      asking = null;
      dialog.close();
      resolve();
    }, { once: true });
  });
}
