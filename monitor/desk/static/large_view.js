// One image large, with images that look like it and pictures of the nearest class.

import { moment, send } from "./common.js";

const dialog = document.getElementById("large");
const image = document.getElementById("large-image");
let shown = null;
let moves = { step: () => {}, choose: () => {}, isChosen: () => false, count: () => 1, act: () => {} };

/**
 * `step(by)` goes to another image, `choose(item)` chooses it or not, `isChosen(item)`; `act(item, key)`
 * does what the key means to it and to what is chosen beside it, `count(item)` of them together.
 */
export function setUpLarge(found) {
  moves = found;
}

export const isLarge = () => dialog.open;
export const shownLarge = () => shown;

export async function showLarge(item) {
  shown = item;
  image.src = `/pictures/${item.id}?large=true`;
  image.alt = `Image ${item.image} of ${item.source}`;
  const words = [item.source, item.image, item.captured_at ? moment(item.captured_at, "zoned") : null, `${item.words} (${item.ratio.toFixed(2)})`];
  if (item.class_name) words.push(`${item.class_name}, ${item.by === "person" ? "named by a person" : "concluded by itself"}`);
  document.getElementById("large-words").textContent = words.filter(Boolean).join(" · ");
  document.getElementById("large-alike").textContent = "…";
  document.getElementById("large-reference").replaceChildren();
  document.getElementById("large-nearest").textContent = item.nearest ?? "";
  showChosen();
  if (!dialog.open) dialog.showModal();
  try {
    const found = await send("GET", `/api/images/${item.id}/around`);
    if (shown === item) showAround(found);
  } catch {
    if (shown === item) showAround({ alike: [], pictures: [], nearest: item.nearest });
  }
}

function showAround({ alike, pictures, nearest }) {
  const strip = document.getElementById("large-alike");
  strip.replaceChildren(
    ...alike.map((one) => {
      const button = Object.assign(document.createElement("button"), { type: "button", className: "small", title: `${one.source}: ${one.words}, nearest ${one.nearest ?? "nothing"}` });
      button.append(Object.assign(document.createElement("img"), { src: `/pictures/${one.id}`, alt: `Image ${one.image} of ${one.source}` }));
      button.addEventListener("click", () => showLarge(one));
      return button;
    }),
  );
  if (!alike.length) strip.textContent = "not known: the data of its pool are not kept any more";
  document.getElementById("large-nearest").textContent = nearest ?? "nothing";
  document.getElementById("large-reference").replaceChildren(
    ...pictures.map((digest) => Object.assign(document.createElement("img"), { src: `/thumbnails/${digest}`, alt: nearest ?? "" })),
  );
}

function showChosen() {
  const button = document.getElementById("large-choose");
  if (!button) return;
  const is = moves.isChosen(shown);
  button.setAttribute("aria-pressed", is);
  button.textContent = is ? "Chosen ✓" : "Choose it";
  // What was chosen before is meant too: each button says how many that makes.
  const count = moves.count(shown);
  const many = count > 1;
  document.getElementById("large-name").textContent = many ? `Name these ${count}…` : "Name it…";
  document.getElementById("large-known").textContent = many ? `These ${count} are known…` : "It is known…";
  document.getElementById("large-bad").textContent = many ? `Not images (${count})` : "Not an image";
}

/** Keys that teach, for the image that is shown; whether the key was one of them. */
export function largeKey(key) {
  if (!"nkb".includes(key) || !document.getElementById("large-name")) return false;
  dialog.close();
  moves.act(shown, key);
  return true;
}

export function chooseLarge() {
  moves.choose(shown);
  showChosen();
}

dialog.addEventListener("click", (event) => {
  if (event.target === dialog || event.target === image) dialog.close();
  if (event.target.closest("#large-choose")) chooseLarge();
  for (const [id, key] of [["name", "n"], ["known", "k"], ["bad", "b"]]) {
    if (event.target.closest(`#large-${id}`)) largeKey(key);
  }
  if (event.target.closest("#large-before")) moves.step(-1);
  if (event.target.closest("#large-after")) moves.step(1);
});
