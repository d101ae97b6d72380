// The queue: look, choose, answer with one key, take back with another.
//
// The server renders every card; this file only moves the attention, sends answers and fetches
// the page's part anew. An answer is written down here before it is sent, so that neither a
// reload nor a server that is away for a moment loses one.

import { Refused, freshId, openDialog, send, showOpen, toast } from "./common.js";

const bench = document.getElementById("bench");
const mayAnswer = bench.dataset.mayAnswer === "yes";
const leaseSeconds = Number(bench.dataset.lease);
const PENDING = "conclad.pending";
const ORDER = "conclad.order";
const POLL_MS = 2500;

const chosen = new Set();
const skipped = new Set();
let currentId = null;
let anchorId = null;
let stamp = document.getElementById("part").dataset.stamp;
let version = document.getElementById("part").dataset.version;

// -- cards ------------------------------------------------------------------------------------

const cards = () => [...document.querySelectorAll(".card")];
const cardOf = (id) => document.getElementById(`q${id}`);
const current = () => (currentId === null ? null : cardOf(currentId));
const targets = () => {
  const picked = cards().filter((card) => chosen.has(card.dataset.id));
  return picked.length ? picked : current() ? [current()] : [];
};

function setCurrent(card, { focus = true } = {}) {
  current()?.classList.remove("current");
  for (const other of cards()) other.tabIndex = -1;
  currentId = card ? card.dataset.id : null;
  if (card) {
    card.classList.add("current");
    card.tabIndex = 0;
    if (focus) card.focus({ preventScroll: true });
    card.scrollIntoView({ block: "nearest" });
  }
  show();
}

function setChosen(ids) {
  chosen.clear();
  for (const id of ids) chosen.add(id);
  for (const card of cards()) card.setAttribute("aria-selected", chosen.has(card.dataset.id));
  show();
}

function range(fromId, toId) {
  const ids = cards().map((card) => card.dataset.id);
  const [a, b] = [ids.indexOf(fromId), ids.indexOf(toId)].sort((x, y) => x - y);
  return a < 0 ? [toId] : ids.slice(a, b + 1);
}

function move(dx, dy, extend) {
  const all = cards();
  const from = current();
  if (!all.length) return;
  let to = from ?? all[0];
  if (from && dx) to = all[all.indexOf(from) + dx] ?? from;
  if (from && dy) to = vertical(all, from, dy) ?? from;
  if (extend) {
    anchorId ??= from?.dataset.id ?? to.dataset.id;
    setCurrent(to);
    setChosen(range(anchorId, to.dataset.id));
  } else {
    anchorId = null;
    setChosen([]);
    setCurrent(to);
  }
}

/** The nearest card in the row above or below, also across groups. */
function vertical(all, from, dy) {
  const here = from.getBoundingClientRect();
  const rows = all
    .map((card) => ({ card, box: card.getBoundingClientRect() }))
    .filter(({ box }) => (dy > 0 ? box.top > here.bottom - 4 : box.bottom < here.top + 4));
  if (!rows.length) return null;
  const edge = dy > 0 ? Math.min(...rows.map(({ box }) => box.top)) : Math.max(...rows.map(({ box }) => box.top));
  const row = rows.filter(({ box }) => Math.abs(box.top - edge) < 4);
  row.sort((p, q) => Math.abs(p.box.left - here.left) - Math.abs(q.box.left - here.left));
  return row[0].card;
}

// -- the side: what is looked at, and what can be said -----------------------------------------

function show() {
  const card = current();
  const look = document.getElementById("look");
  look.hidden = !card;
  if (card) {
    const picture = card.querySelector("img");
    const stage = document.getElementById("stage-image");
    stage.src = picture ? picture.src : "/static/mark.svg";
    stage.alt = `Image ${card.dataset.image}`;
    document.getElementById("fact-source").textContent = card.dataset.source;
    document.getElementById("fact-time").textContent = card.dataset.time;
    document.getElementById("fact-ratio").textContent = card.dataset.ratio;
    compare("suspect", card.dataset.suspectId, card.dataset.suspect);
    const same = card.dataset.nearestId === card.dataset.suspectId;
    compare("nearest", same ? "" : card.dataset.nearestId, same ? "" : card.dataset.nearest);
    if (document.getElementById("zoom").open) fillZoom(card);
  }
  if (!mayAnswer) return;
  const found = targets();
  const words = found.length > 1 ? `${found.length} images chosen` : found.length ? "This image is…" : "Nothing is open";
  document.getElementById("target").textContent = words;
  document.getElementById("accept-word").textContent = suggestion(found)?.name ?? "Name it…";
  for (const button of document.querySelectorAll(".answers button")) {
    button.disabled = !found.length && button.dataset.do !== "undo";
  }
}

/** What all of them are suspected to be; null when they differ or have no name. */
function suggestion(found) {
  const first = found[0]?.dataset;
  if (!first?.suspect || found.some((card) => card.dataset.suspect !== first.suspect)) return null;
  return { name: first.suspect, id: first.suspectId };
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

function fillZoom(card) {
  const picture = card.querySelector("img");
  document.getElementById("zoom-image").src = picture ? picture.src : "/static/mark.svg";
  document.getElementById("zoom-image").alt = `Image ${card.dataset.image}`;
  const { source, time, ratio } = card.dataset;
  document.getElementById("zoom-words").textContent = `${source} · ${time} · ${ratio} × T_inner`;
}

function zoom() {
  const dialog = document.getElementById("zoom");
  if (dialog.open) dialog.close();
  else if (current()) {
    fillZoom(current());
    dialog.showModal();
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
  const names = order.map((id) => {
    const name = items.get(id).firstElementChild.dataset.name;
    return Object.assign(document.createElement("option"), { value: name });
  });
  document.getElementById("naming-names").replaceChildren(...names);
}

// -- answering ----------------------------------------------------------------------------------

const pending = () => JSON.parse(localStorage.getItem(PENDING) ?? "[]");
const setPending = (list) => localStorage.setItem(PENDING, JSON.stringify(list));
const pendingIds = () => new Set(pending().flatMap((one) => one.answers.map((a) => String(a.query_id))));

function answer(found, kind, className, label) {
  if (!mayAnswer || !found.length) return;
  const answers = found.map((card) => {
    const one = { query_id: Number(card.dataset.id), answer: kind };
    if (className) one.class = className;
    return one;
  });
  setPending([...pending(), { action: freshId(), answers }]);
  leave(found);
  count(answers.length);
  toast(answers.length > 1 ? `${answers.length} × ${label}` : label, {
    action: { word: "Undo (u)", run: undo },
  });
  flush();
}

/** Take cards off the page and go on with the one that follows. */
function leave(gone) {
  const all = cards();
  const last = all.indexOf(gone[gone.length - 1]);
  const next = all.slice(last + 1).find((card) => !gone.includes(card)) ?? all.filter((card) => !gone.includes(card)).pop();
  for (const card of gone) card.remove();
  for (const group of document.querySelectorAll(".group")) {
    if (!group.querySelector(".card")) group.remove();
  }
  anchorId = null;
  setChosen([]);
  setCurrent(next ?? null);
  if (!next) document.getElementById("main").focus();
}

function count(by) {
  const bar = document.getElementById("bar");
  const done = document.getElementById("done");
  if (!bar) return;
  bar.value += by;
  done.textContent = bar.value;
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

async function undo() {
  if (!mayAnswer) return;
  await flush();
  if (pending().length) return;
  try {
    const result = await send("POST", "/api/undo", { action: freshId() });
    for (const id of result.query_ids) skipped.delete(String(id));
    await refresh();
    const back = result.query_ids.map((id) => cardOf(id)).filter(Boolean);
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

/** Ask for a name; one that is nearly another must be meant. */
function name() {
  const found = targets();
  if (!found.length) return;
  const dialog = document.getElementById("naming");
  const input = document.getElementById("naming-name");
  const hint = document.getElementById("naming-hint");
  const known = () => [...document.querySelectorAll("#palette .class")].find((one) => one.dataset.name === input.value.trim());
  let warned = null;
  input.value = "";
  input.oninput = () => {
    warned = null;
    hint.textContent = known() ? "" : input.value.trim() ? "A new class." : "";
    hint.className = "hint";
    document.getElementById("naming-go").textContent = known() || !input.value.trim() ? "Answer" : "Make it a new class";
  };
  input.oninput();
  openDialog(dialog, async () => {
    const typed = input.value.trim();
    if (!known() && warned !== typed) {
      const { similar } = await send("GET", `/api/classes/similar?name=${encodeURIComponent(typed)}`);
      if (similar.length) {
        warned = typed;
        hint.textContent = `There is already ${similar.slice(0, 3).map((one) => `“${one}”`).join(", ")}. Press Enter again if “${typed}” is another class.`;
        hint.className = "hint warn";
        return false;
      }
    }
    answer(found, "class", known()?.dataset.class ?? typed, typed);
    return true;
  });
  input.focus();
}

// -- keys and clicks ----------------------------------------------------------------------------

const actions = {
  accept,
  new: name,
  skip,
  undo,
  zoom,
  cannot_tell: () => answer(targets(), "cannot_tell", null, "Cannot tell"),
  bad_image: () => answer(targets(), "bad_image", null, "Bad image"),
};

const keys = {
  Enter: accept,
  n: name,
  t: actions.cannot_tell,
  b: actions.bad_image,
  s: skip,
  u: undo,
  x: toggle,
  g: () => chooseGroup(current()?.closest(".group")),
  " ": zoom,
  Escape: () => setChosen([]),
  ArrowRight: (event) => move(1, 0, event.shiftKey),
  ArrowLeft: (event) => move(-1, 0, event.shiftKey),
  ArrowDown: (event) => move(0, 1, event.shiftKey),
  ArrowUp: (event) => move(0, -1, event.shiftKey),
};

function toggle() {
  const card = current();
  if (!card) return;
  const ids = new Set(chosen);
  if (!ids.delete(card.dataset.id)) ids.add(card.dataset.id);
  anchorId = card.dataset.id;
  setChosen(ids);
}

function chooseGroup(group) {
  if (!group) return;
  const members = [...group.querySelectorAll(".card")];
  if (!members.includes(current())) setCurrent(members[0]);
  setChosen(members.map((card) => card.dataset.id));
}

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
  if (!action || (event.key === "Escape" && document.getElementById("zoom").open)) return;
  event.preventDefault();
  action(event);
});

document.addEventListener("click", (event) => {
  const card = event.target.closest(".card");
  if (card) {
    if (event.shiftKey && (anchorId ?? currentId)) {
      anchorId ??= currentId;
      setCurrent(card);
      setChosen(range(anchorId, card.dataset.id));
    } else {
      setCurrent(card);
      toggle();
    }
    return;
  }
  const choice = event.target.closest("#palette .class");
  if (choice) answer(targets(), "class", choice.dataset.class, choice.dataset.name);
  const button = event.target.closest("[data-do]");
  if (button) actions[button.dataset.do]();
  const group = event.target.closest(".choose-group");
  if (group) chooseGroup(group.closest(".group"));
  if (event.target.closest("#stage")) zoom();
  if (event.target.closest("#zoom")) document.getElementById("zoom").close();
  if (event.target.closest("#unskip")) {
    skipped.clear();
    refresh();
  }
});

// The two clicks before it have chosen the card and let it go again.
document.addEventListener("dblclick", (event) => {
  if (event.target.closest(".card")) zoom();
});

// -- staying up to date -------------------------------------------------------------------------

async function refresh() {
  const response = await fetch("/queue", { credentials: "same-origin" });
  if (!response.ok) return;
  const fresh = new DOMParser().parseFromString(await response.text(), "text/html").getElementById("part");
  if (!fresh) return location.assign("/sign-in");
  stamp = fresh.dataset.stamp;
  const hasFocus = document.activeElement?.classList.contains("card") || document.activeElement === document.body || document.activeElement?.id === "main";
  document.getElementById("part").replaceWith(fresh);
  tidy(hasFocus);
}

/** Bring a part that has just come from the server in line with what is going on here. */
function tidy(focus) {
  const waiting = pendingIds();
  for (const card of cards()) {
    if (waiting.has(card.dataset.id) || skipped.has(card.dataset.id)) card.remove();
  }
  for (const group of document.querySelectorAll(".group")) {
    if (!group.querySelector(".card")) group.remove();
  }
  for (const id of [...chosen]) if (!cardOf(id)) chosen.delete(id);
  showOpen(Number(document.getElementById("part").dataset.open));
  showSkipped();
  arrangePalette();
  setChosen([...chosen]);
  setCurrent(current() ?? cards()[0] ?? null, { focus });
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
  await send("POST", "/api/queries/lease", {});
}

async function start() {
  tidy(true);
  if (mayAnswer) {
    await flush();
    await borrow().then(refresh, () => {});
    setInterval(() => document.hidden || borrow().catch(() => {}), (leaseSeconds * 1000) / 3);
    addEventListener("pagehide", () => {
      fetch("/api/queries/release", {
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
