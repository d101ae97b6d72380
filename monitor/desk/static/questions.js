// Questions: look, choose, answer with one key, take back with another.
//
// The server renders every card; this file sends answers and fetches the changing part again. An
// answer is written down here before it is sent, so that neither a reload nor a server that is
// away for a moment loses one.

import { cardOf, cards, chooseGroup, current, dropEmptyGroups, extendTo, leave, look, move, onChange, picked, setChosen, setCurrent, settle, targets as chosenOrCurrent, toggle } from "./selection.js";
import { Refused, freshId, localTimes, send, showOpen, toast } from "./common.js";
import { closeZoom, describe, fillZoom, isZoomed, onZoom, zoom } from "./shown_picture.js";
import { askName, setKnown } from "./name_dialog.js";

const bench = document.getElementById("bench");
const mayAnswer = bench.dataset.mayAnswer === "yes";
const leaseSeconds = Number(bench.dataset.lease);
const PENDING = "conclad.pending";
const ORDER = "conclad.order";
const POLL_MS = 2500;

const skipped = new Set();
let stamp = document.getElementById("part").dataset.stamp;
let version = document.getElementById("part").dataset.version;

// -- what is looked at, and what an answer would go to -----------------------------------------

/** Large, one image hides all others: an answer goes to it alone, and what is chosen stays so. */
const targets = () => (isZoomed() && current() ? [current()] : chosenOrCurrent());

onChange(() => {
  const card = current();
  document.getElementById("look").hidden = !card;
  if (card) describe(card);
  if (card && isZoomed()) fillZoom(card);
  if (mayAnswer) showTargets();
});
if (mayAnswer) onZoom(showTargets);

/** Name the targets, with their pictures: a bulk answer is seen before it is given. */
function showTargets() {
  const found = targets();
  const isBulk = picked().length > 0 && !isZoomed();
  const words = found.length === 1 ? (isBulk ? "1 image, chosen" : "This image is…") : found.length ? `${found.length} images` : "Nothing is open";
  document.getElementById("target").textContent = words;
  document.getElementById("target-pictures").replaceChildren(...found.map(small));
  bench.classList.toggle("idle", !cards().length);
  const aside = isBulk && current() && !found.includes(current());
  document.getElementById("aside").hidden = !aside;
  bench.classList.toggle("looking-aside", Boolean(aside));
  const suggested = suggestion(found);
  const many = found.length > 1;
  for (const place of document.querySelectorAll(".accept-word")) {
    place.textContent = suggested ? `${many ? `All ${found.length}: ` : "Yes, "}${suggested.name}` : "Give it a name…";
  }
  showOther(suggested ? null : nearestOf(found), suggested, many);
  for (const button of document.querySelectorAll("[data-do]")) {
    button.disabled = !found.length && button.dataset.do !== "undo";
  }
}

function small(card) {
  const picture = card.querySelector("img");
  const button = Object.assign(document.createElement("button"), { type: "button", className: "small", title: `${card.dataset.source}: look at it` });
  button.dataset.look = card.dataset.id;
  button.append(Object.assign(document.createElement("img"), { src: picture?.src ?? "/static/mark.svg", alt: `Image ${card.dataset.image} of ${card.dataset.source}` }));
  return button;
}

/** What all of them are suspected to be; null when they differ or have no name. */
function suggestion(found) {
  const first = found[0]?.dataset;
  if (!first?.suspect || found.some((card) => card.dataset.suspect !== first.suspect)) return null;
  return { name: first.suspect, id: first.suspectId };
}

/** The known class that all of them look most like; null when they differ. */
function nearestOf(found) {
  const first = found[0]?.dataset;
  if (!first?.nearestId || found.some((card) => card.dataset.nearestId !== first.nearestId)) return null;
  return { name: first.nearest, id: first.nearestId };
}

/** The second large button: where nothing is suggested, the class that it looks most like. */
function showOther(nearest, suggested, many) {
  const number = nearest && [...document.querySelectorAll("#palette .class")].findIndex((one) => one.dataset.class === nearest.id) + 1;
  for (const button of document.querySelectorAll(".other")) {
    button.hidden = !suggested && !nearest;
    button.dataset.do = nearest ? "nearest" : "new";
    button.querySelector(".other-word").textContent = nearest ? `${many ? "All are" : "It is"} ${nearest.name}` : "Something else…";
    const key = button.querySelector("kbd");
    if (key) key.textContent = nearest ? number : "n";
    if (key) key.hidden = Boolean(nearest) && !(number >= 1 && number <= 9);
  }
}

/** Numbers keep their meaning while somebody works: classes stay where they were first seen. */
function arrangePalette() {
  const list = document.getElementById("palette");
  if (!list) return;
  const before = JSON.parse(sessionStorage.getItem(ORDER) ?? "[]");
  const items = new Map([...list.children].map((item) => [item.firstElementChild.dataset.class, item]));
  const order = [...before.filter((id) => items.has(id)), ...[...items.keys()].filter((id) => !before.includes(id))];
  sessionStorage.setItem(ORDER, JSON.stringify(order));
  list.replaceChildren(...order.map((id) => items.get(id)));
  order.forEach((id, index) => {
    const key = items.get(id).querySelector("kbd");
    key.textContent = index < 9 ? index + 1 : "";
    key.hidden = index >= 9;
  });
  document.getElementById("palette-place").replaceChildren(list);
  setKnown(order.map((id) => ({ id, name: items.get(id).firstElementChild.dataset.name })));
}

// -- answering ----------------------------------------------------------------------------------

const pending = () => JSON.parse(localStorage.getItem(PENDING) ?? "[]");
const setPending = (list) => localStorage.setItem(PENDING, JSON.stringify(list));
const pendingIds = () => new Set(pending().flatMap((one) => one.answers.map((a) => String(a.question_id))));

function answer(found, kind, className, label) {
  if (!mayAnswer || !found.length) return;
  const answers = found.map((card) => {
    const one = { question_id: Number(card.dataset.id), answer: kind };
    if (className) one.class = className;
    return one;
  });
  const action = freshId();
  setPending([...pending(), { action, answers }]);
  leave(found);
  count(answers.length);
  toast(answers.length > 1 ? `${answers.length} × ${label}` : label, {
    action: { word: "Undo", run: () => undo(action) },
  });
  flush();
}

function count(by) {
  const bar = document.getElementById("bar");
  if (!bar) return;
  bar.value += by;
  document.getElementById("done").textContent = bar.value;
}

let flushing = null;

function flush() {
  flushing ??= flushAll().finally(() => {
    flushing = null;
  });
  return flushing;
}

async function flushAll() {
  while (pending().length) {
    const [first] = pending();
    try {
      const result = await send("POST", "/api/answers", first);
      showOpen(result.open);
      for (const receipt of result.receipts) {
        if (receipt.fate === "conflict" || receipt.fate === "refused") toast(receipt.message, { tone: "warn" });
      }
    } catch (error) {
      if (!(error instanceof Refused) || error.status >= 500 || error.status === 429) {
        connection(false);
        setTimeout(flush, 2000);
        return;
      }
      toast(error.message, { tone: "warn" });
    }
    connection(true);
    setPending(pending().filter((one) => one.action !== first.action));
  }
  await refresh();
}

let connected = true;

function connection(works) {
  if (works === connected) return;
  connected = works;
  document.body.classList.toggle("offline", !works);
  if (!works) toast("The desk cannot be reached. Your answers are kept here and sent when it is back.", { tone: "warn" });
  else toast("The desk is back, your answers are sent.");
}

/** Take back one action, or without one the last. */
async function undo(of = null) {
  if (!mayAnswer) return;
  await flush();
  if (pending().length) return;
  try {
    const body = of ? { action: freshId(), of } : { action: freshId() };
    const result = await send("POST", "/api/undo", body);
    for (const id of result.question_ids) skipped.delete(String(id));
    await refresh();
    const back = result.question_ids.map((id) => cardOf(id)).filter(Boolean);
    if (back.length) setCurrent(back[0]);
    setChosen(back.length > 1 ? back.map((card) => card.dataset.id) : []);
    toast(back.length > 1 ? `${back.length} answers taken back` : "Answer taken back");
  } catch (error) {
    toast(error instanceof Refused ? error.message : "The desk cannot be reached.", { tone: "warn" });
  }
}

function accept() {
  const found = targets();
  const suggested = suggestion(found);
  if (suggested) answer(found, "class", suggested.id || suggested.name, suggested.name);
  else name();
}

function acceptGroup(group) {
  const found = [...group.querySelectorAll(".card")];
  const suggested = suggestion(found);
  if (suggested) answer(found, "class", suggested.id || suggested.name, suggested.name);
}

function skip() {
  const found = targets();
  for (const card of found) skipped.add(card.dataset.id);
  leave(found);
  showSkipped();
}

function showSkipped() {
  const note = document.getElementById("skipped");
  note.hidden = !skipped.size;
  note.firstElementChild.textContent = `${skipped.size} skipped for now.`;
}

function name() {
  const found = targets();
  if (!found.length) return;
  askName(found.length, (one) => answer(found, "class", one.id || one.name, one.name));
}

// -- keys and clicks ----------------------------------------------------------------------------

const actions = {
  accept,
  new: name,
  nearest: () => {
    const nearest = nearestOf(targets());
    if (nearest) answer(targets(), "class", nearest.id, nearest.name);
  },
  skip,
  undo: () => undo(),
  zoom,
  cannot_tell: () => answer(targets(), "cannot_tell", null, "Can’t tell"),
  bad_image: () => answer(targets(), "bad_image", null, "Not an image"),
};

const keys = {
  Enter: accept,
  n: name,
  t: actions.cannot_tell,
  b: actions.bad_image,
  s: skip,
  u: () => undo(),
  x: () => toggle(),
  g: () => chooseGroup(current()?.closest(".group")),
  " ": zoom,
  Escape: () => setChosen([]),
  ArrowRight: (event) => move(1, 0, event.shiftKey),
  ArrowLeft: (event) => move(-1, 0, event.shiftKey),
  ArrowDown: (event) => move(0, 1, event.shiftKey),
  ArrowUp: (event) => move(0, -1, event.shiftKey),
};

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  if (document.getElementById("naming").open || event.target.matches("input, textarea, select")) return;
  const onControl = event.target.closest("button, a, summary");
  if (onControl && (event.key === "Enter" || event.key === " ")) return;
  const number = /^[1-9]$/.test(event.key) ? Number(event.key) : 0;
  if (number) {
    document.querySelectorAll("#palette .class")[number - 1]?.click();
    event.preventDefault();
    return;
  }
  const action = keys[event.key.length === 1 ? event.key.toLowerCase() : event.key];
  if (!action || (event.key === "Escape" && isZoomed())) return;
  event.preventDefault();
  action(event);
});

function clickCard(event, card) {
  if (event.shiftKey) return extendTo(card);
  if (event.ctrlKey || event.metaKey || event.target.closest(".pick")) {
    toggle(card);
    return setCurrent(card);
  }
  look(card);
  // A phone has no room for the picture beside the cards: a tap shows it large.
  if (matchMedia("(max-width: 56rem)").matches) zoom();
}

document.addEventListener("click", (event) => {
  const card = event.target.closest(".card");
  if (card) return clickCard(event, card);
  const seen = event.target.closest("[data-look]");
  if (seen) return look(cardOf(seen.dataset.look));
  const choice = event.target.closest("#palette .class");
  if (choice) answer(targets(), "class", choice.dataset.class, choice.dataset.name);
  const button = event.target.closest("[data-do]");
  if (button) actions[button.dataset.do]();
  const group = event.target.closest(".choose-group, .accept-group");
  if (group?.matches(".choose-group")) chooseGroup(group.closest(".group"));
  if (group?.matches(".accept-group")) acceptGroup(group.closest(".group"));
  if (event.target.closest("#stage")) zoom();
  if (event.target.closest("#unskip")) {
    skipped.clear();
    refresh();
  }
});

document.addEventListener("dblclick", (event) => {
  if (event.target.closest(".card") && !event.target.closest(".pick") && !isZoomed()) zoom();
});

document.getElementById("zoom").addEventListener("swipe", (event) => (event.detail === "right" ? accept() : skip()));

// -- staying up to date -------------------------------------------------------------------------

async function refresh() {
  const response = await fetch("/questions/part", { credentials: "same-origin" });
  if (!response.ok) return;
  const fresh = new DOMParser().parseFromString(await response.text(), "text/html").getElementById("part");
  if (!fresh) return location.assign("/sign-in");
  stamp = fresh.dataset.stamp;
  const active = document.activeElement;
  const hasFocus = active?.classList.contains("card") || active === document.body || active?.id === "main";
  document.getElementById("part").replaceWith(fresh);
  tidy(hasFocus);
}

/** Bring a part that has just come from the server in line with what is going on here. */
function tidy(focus) {
  const waiting = pendingIds();
  for (const card of cards()) {
    if (waiting.has(card.dataset.id) || skipped.has(card.dataset.id)) card.remove();
  }
  dropEmptyGroups();
  localTimes();
  showOpen(Number(document.getElementById("part").dataset.open));
  showSkipped();
  arrangePalette();
  settle();
  setCurrent(current() ?? cards()[0] ?? null, { focus: focus && !isZoomed() });
  if (!cards().length) closeZoom();
}

async function poll() {
  if (document.hidden) return;
  try {
    const pulse = await send("GET", "/api/pulse");
    connection(true);
    const inUse = String(pulse.version ?? "");
    if (inUse !== version) toast(`Detector version ${inUse} is in use.`);
    version = inUse;
    if (pending().length) flush();
    else if (pulse.stamp !== stamp) {
      if (mayAnswer) await borrow();
      await refresh();
    }
  } catch (error) {
    if (!(error instanceof Refused)) connection(false);
  }
}

/** Borrow questions, so that two people are not shown the same ones. */
async function borrow() {
  await send("POST", "/api/questions/lease", {});
}

async function start() {
  tidy(true);
  if (mayAnswer) {
    await flush();
    await borrow().then(refresh, () => {});
    setInterval(() => document.hidden || borrow().catch(() => {}), (leaseSeconds * 1000) / 3);
    addEventListener("pagehide", () => {
      fetch("/api/questions/release", {
        method: "POST",
        keepalive: true,
        headers: { "content-type": "application/json", "x-csrf-token": document.querySelector('meta[name="csrf"]').content },
        body: "{}",
      }).catch(() => {});
    });
  }
  setInterval(poll, POLL_MS);
  document.body.dataset.ready = "yes";
}

start();
