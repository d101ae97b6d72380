// The picture that is looked at: beside the cards, or large, with what it is compared with.

import { current } from "./selection.js";

const dialog = document.getElementById("zoom");

/** Fill the panel beside the cards. */
export function describe(card) {
  const picture = card.querySelector("img");
  const stage = document.getElementById("stage-image");
  stage.src = picture ? picture.src : "/static/mark.svg";
  stage.alt = `Image ${card.dataset.image}`;
  for (const place of document.querySelectorAll("[data-fact]")) {
    place.textContent = card.dataset[place.dataset.fact] ?? "";
  }
  for (const place of document.querySelectorAll(".fact-time")) {
    place.textContent = card.querySelector("time")?.title || "unknown";
  }
  compare("suspect", card.dataset.suspectId, card.dataset.suspect);
  const same = card.dataset.nearestId === card.dataset.suspectId;
  compare("nearest", same ? "" : card.dataset.nearestId, same ? "" : card.dataset.nearest);
}

/** Pictures of a class beside the image: one must see what "like a dune" means. */
function compare(which, classId, name) {
  const pictures = classId ? document.querySelector(`#library [data-class="${CSS.escape(classId)}"]`) : null;
  for (const box of document.querySelectorAll(`[data-compare="${which}"]`)) {
    box.hidden = !name;
    box.querySelector("b").textContent = name;
    const copies = pictures ? [...pictures.children].slice(0, 4).map((image) => image.cloneNode()) : [];
    if (!copies.length) {
      copies.push(Object.assign(document.createElement("span"), { className: "soft", textContent: "no pictures yet" }));
    }
    box.querySelector(".strip").replaceChildren(...copies);
  }
}

export const isZoomed = () => dialog.open;

let zoomed = () => {};

/** Called when the large picture was opened or closed, however that was done. */
export function onZoom(run) {
  zoomed = run;
}
dialog.addEventListener("close", () => zoomed());

export function fillZoom(card) {
  const picture = card.querySelector("img");
  const large = document.getElementById("zoom-image");
  large.src = picture ? picture.src : "/static/mark.svg";
  large.alt = `Image ${card.dataset.image}`;
}

export function closeZoom() {
  if (dialog.open) dialog.close();
}

export function zoom() {
  if (dialog.open) dialog.close();
  else if (current()) {
    fillZoom(current());
    dialog.showModal();
    zoomed();
  }
}

document.getElementById("zoom-image").addEventListener("click", closeZoom);
dialog.addEventListener("click", (event) => {
  if (event.target === dialog) closeZoom();
});

/**
 * A swipe across the large picture: far enough, and more across than down. Whoever has magnified the
 * page moves what they look at with the same finger, and answers nothing.
 */
const FAR = 60;
const isMagnified = () => (window.visualViewport?.scale ?? 1) > 1.05;
let began = null;
dialog.addEventListener("touchstart", (event) => {
  began = event.touches.length === 1 && !isMagnified() ? event.touches[0] : null;
}, { passive: true });
dialog.addEventListener("touchend", (event) => {
  const ended = event.changedTouches[0];
  const across = began ? ended.clientX - began.clientX : 0;
  const down = began ? ended.clientY - began.clientY : 0;
  if (Math.abs(across) > FAR && Math.abs(across) > 2 * Math.abs(down)) {
    dialog.dispatchEvent(new CustomEvent("swipe", { detail: across > 0 ? "right" : "left" }));
  }
  began = null;
}, { passive: true });
