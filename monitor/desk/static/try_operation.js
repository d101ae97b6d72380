// The API page: each operation can be tried from its own form.

import { freshId } from "./common.js";

const MOST = 20000;
const csrf = document.querySelector('meta[name="csrf"]').content;

function address(form) {
  let path = form.dataset.path;
  const query = new URLSearchParams();
  for (const input of form.querySelectorAll("input[name]")) {
    if (input.dataset.in === "path") path = path.replace(`{${input.name}}`, encodeURIComponent(input.value));
    else if (input.value) query.set(input.name, input.value);
  }
  return query.size ? `${path}?${query}` : path;
}

async function run(form) {
  const reply = form.querySelector(".reply");
  const body = form.querySelector("textarea");
  const options = { method: form.dataset.method, headers: { accept: "application/json", "x-csrf-token": csrf } };
  if (options.method !== "GET") {
    options.headers["content-type"] = body?.dataset.kind ?? "application/json";
    // An example's id is drawn again each time, as a program would.
    options.body = (body?.value ?? "{}").replaceAll("FRESH-ID", freshId());
  }
  reply.hidden = false;
  reply.textContent = "…";
  try {
    const response = await fetch(address(form), options);
    const kind = response.headers.get("content-type") ?? "";
    let text = kind.startsWith("image/") ? `(${kind}, ${(await response.blob()).size} bytes)` : await response.text();
    if (kind.includes("json")) text = JSON.stringify(JSON.parse(text), null, 2);
    const more = text.length > MOST ? `\n… ${text.length - MOST} characters more` : "";
    reply.textContent = `${response.status} ${response.statusText}\n\n${text.slice(0, MOST)}${more}`;
  } catch {
    reply.textContent = "The desk cannot be reached.";
  }
}

document.addEventListener("submit", (event) => {
  if (!event.target.matches(".try")) return;
  event.preventDefault();
  run(event.target);
});

// A link to a shape opens it.
addEventListener("hashchange", () => document.getElementById(location.hash.slice(1))?.setAttribute("open", ""));
