// The home page: what looked new lately, and a fresh look every few seconds.

import { localTimes, send } from "./common.js";

const EVERY_MS = 10000;
const SHOWN = 12;

async function newest() {
  const place = document.getElementById("newest");
  try {
    const found = await send("GET", `/api/images?limit=${SHOWN}`);
    place.replaceChildren(
      ...found.images.map((one) => {
        const link = Object.assign(document.createElement("a"), { href: `/images#${one.id}`, title: `${one.source}: ${one.words}` });
        link.append(Object.assign(document.createElement("img"), { src: `/pictures/${one.id}`, alt: `Image ${one.image} of ${one.source}`, loading: "lazy" }));
        return link;
      }),
    );
    if (!found.images.length) place.textContent = place.dataset.empty;
  } catch {
    // What was shown before is better than nothing.
  }
}

async function refresh() {
  if (document.hidden) return;
  const response = await fetch("/", { credentials: "same-origin" }).catch(() => null);
  if (!response?.ok) return;
  const fresh = new DOMParser().parseFromString(await response.text(), "text/html").getElementById("home");
  if (!fresh) return location.assign("/sign-in");
  const before = document.getElementById("newest");
  fresh.querySelector("#newest").replaceWith(before);
  const focused = document.activeElement?.getAttribute("href");
  document.getElementById("home").replaceWith(fresh);
  localTimes();
  if (focused) document.querySelector(`#home a[href="${CSS.escape(focused)}"]`)?.focus();
  await newest();
}

await newest();
setInterval(refresh, EVERY_MS);
document.body.dataset.ready = "yes";
