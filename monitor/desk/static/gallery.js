// The gallery: thousands of images in one list, of which only those in view are in the page.

import { Refused, localTimes, moment, send, toast } from "./common.js";
import { chooseLarge, isLarge, largeKey, setUpLarge, showLarge } from "./large_view.js";
import { actingKey, setTargets, setUp } from "./act_on_images.js";

const PAGE = 200;
const GAP = 10;
const LEAST_CELL = 168;
const BEYOND = 2;
const SETTLED_MS = 70;
const MOST = 500;

const place = document.getElementById("gallery");
const spacer = document.getElementById("gallery-space");
const form = document.getElementById("filters");
const mayAnswer = place.dataset.mayAnswer === "yes";

let total = 0;
let items = [];
let asked = new Map();
let round = 0;
let columns = 1;
let cell = LEAST_CELL;
let cursor = -1;
let anchor = null;
const chosen = new Map();
const nodes = new Map();

// -- what there is ------------------------------------------------------------------------------

function filters() {
  const found = new URLSearchParams();
  const values = new FormData(form);
  for (const name of ["source", "class", "least", "order"]) if (values.get(name)) found.set(name, values.get(name));
  for (const name of ["since", "until"]) if (values.get(name)) found.set(name, new Date(values.get(name)).toISOString());
  const settled = values.get("settled");
  if (settled === "all") found.set("all", "true");
  else if (settled) found.set("settled", settled);
  return found;
}

/** Each page once; whoever asks for it again waits for the same. */
function load(page) {
  if (!asked.has(page)) asked.set(page, fetchPage(page));
  return asked.get(page);
}

async function fetchPage(page) {
  const mine = round;
  const query = filters();
  query.set("offset", page * PAGE);
  query.set("limit", PAGE);
  try {
    const found = await send("GET", `/api/images?${query}`);
    if (mine !== round) return;
    total = found.total;
    found.images.forEach((one, index) => {
      items[page * PAGE + index] = one;
    });
    fillSources(found.sources);
    if (!page) summary();
    arrange();
  } catch (error) {
    asked.delete(page);
    toast(error instanceof Refused ? error.message : "The desk cannot be reached.", { tone: "warn" });
  }
}

function fillSources(sources) {
  const list = form.elements.source;
  if (list.options.length - 1 >= sources.length) return;
  const wanted = list.value || list.dataset.wanted;
  const all = [...new Set([...sources, ...(wanted ? [wanted] : [])])].sort();
  list.replaceChildren(list.options[0], ...all.map((name) => Object.assign(document.createElement("option"), { value: name, textContent: name })));
  list.value = wanted;
}

function summary() {
  document.getElementById("gallery-count").textContent = total === 1 ? "1 image" : `${total.toLocaleString()} images`;
  document.getElementById("gallery-empty").hidden = total > 0;
  document.getElementById("gallery-why").textContent = whyNothing();
  place.hidden = !total;
}

/** Why the list is empty: nothing was there, or nothing of what was chosen. */
function whyNothing() {
  if ([...filters()].some(([name]) => name !== "order")) return "No image is like that. Choose fewer filters.";
  return "Nothing that looked new is waiting for an outcome. Choose another outcome to see what was found before.";
}

async function restart() {
  round += 1;
  items = [];
  asked = new Map();
  for (const node of nodes.values()) node.remove();
  nodes.clear();
  await load(0);
  if (cursor >= total) cursor = total - 1;
  draw();
}

// -- drawing ------------------------------------------------------------------------------------

function arrange() {
  const width = place.clientWidth - GAP;
  const least = width < 500 ? 104 : LEAST_CELL;
  columns = Math.max(2, Math.floor(width / (least + GAP)));
  cell = Math.floor(width / columns) - GAP;
  spacer.style.height = `${Math.ceil(total / columns) * (height() + GAP)}px`;
  draw();
}

// The words of a cell lie below each other unless it is wide; a narrow one leaves the number out.
const isStacked = () => cell < 240;
const height = () => Math.round(cell * 0.75) + (isStacked() ? 44 : 26);

function draw() {
  const rowHeight = height() + GAP;
  const first = Math.max(0, Math.floor(place.scrollTop / rowHeight) - BEYOND) * columns;
  const last = Math.min(total, (Math.ceil((place.scrollTop + place.clientHeight) / rowHeight) + BEYOND) * columns);
  for (const [index, node] of nodes) {
    if (index < first || index >= last) {
      node.remove();
      nodes.delete(index);
    }
  }
  const fresh = document.createDocumentFragment();
  for (let index = first; index < last; index += 1) {
    const item = items[index];
    if (!item) {
      if (index % PAGE === 0 || index === first) load(Math.floor(index / PAGE));
      continue;
    }
    let node = nodes.get(index);
    if (!node) {
      node = make(item, index);
      nodes.set(index, node);
      fresh.append(node);
    }
    const row = Math.floor(index / columns);
    node.style.transform = `translate(${(index % columns) * (cell + GAP)}px, ${row * rowHeight}px)`;
    node.style.width = `${cell}px`;
    node.style.height = `${height()}px`;
    node.classList.toggle("stacked", isStacked());
    node.classList.toggle("narrow", cell < 150);
    node.setAttribute("aria-selected", chosen.has(item.id));
    node.classList.toggle("current", index === cursor);
  }
  spacer.append(fresh);
  const active = nodes.get(cursor);
  if (active) place.setAttribute("aria-activedescendant", active.id);
  else place.removeAttribute("aria-activedescendant");
  clearTimeout(settled);
  settled = setTimeout(loadPictures, SETTLED_MS);
}

let settled = 0;

/** Pictures are fetched once the list stands still: flying past costs nothing. */
function loadPictures() {
  for (const node of nodes.values()) {
    const picture = node.firstElementChild;
    if (!picture.src) picture.src = `/pictures/${node.dataset.id}`;
  }
}

function make(item, index) {
  const node = document.createElement("div");
  node.className = "cell";
  node.id = `i${item.id}`;
  node.dataset.id = item.id;
  node.dataset.index = index;
  node.setAttribute("role", "option");
  node.setAttribute("aria-setsize", total);
  node.setAttribute("aria-posinset", index + 1);
  const picture = Object.assign(document.createElement("img"), { alt: `Image ${item.image} of ${item.source}, ${item.words}`, decoding: "async", draggable: false });
  const words = document.createElement("span");
  words.className = "meta";
  // What looked known at first has no score to show: it was found to be new later.
  const said = item.class_name ?? (item.settled === "new" ? "found to be new" : null);
  words.append(
    Object.assign(document.createElement("span"), { className: "from", textContent: item.source }),
    Object.assign(document.createElement("span"), { className: !said && item.ratio >= 1.6 ? "ratio far" : "ratio", textContent: said ?? item.words }),
  );
  if (!said) words.lastChild.append(Object.assign(document.createElement("span"), { className: "number", textContent: ` ${item.ratio.toFixed(2)}` }));
  node.append(picture, words);
  if (mayAnswer) node.append(Object.assign(document.createElement("span"), { className: "pick", ariaHidden: "true" }));
  node.title = [item.captured_at ? moment(item.captured_at) : null, `score ${item.ratio.toFixed(2)}`, item.nearest ? `nearest ${item.nearest}` : null].filter(Boolean).join(" · ");
  return node;
}

// -- looking and choosing -----------------------------------------------------------------------

function lookAt(index, { large = false } = {}) {
  if (index < 0 || index >= total) return;
  cursor = index;
  const top = Math.floor(index / columns) * (height() + GAP);
  if (top < place.scrollTop) place.scrollTop = top;
  else if (top + height() > place.scrollTop + place.clientHeight) place.scrollTop = top + height() - place.clientHeight;
  draw();
  if (large && items[index]) showLarge(items[index]);
}

function setChosen(found) {
  chosen.clear();
  for (const item of found) chosen.set(item.id, item);
  setTargets([...chosen.values()]);
  draw();
}

function toggle(item) {
  if (!item || !mayAnswer) return;
  anchor = null;
  if (!chosen.delete(item.id)) chosen.set(item.id, item);
  setTargets([...chosen.values()]);
  draw();
}

function extendTo(index) {
  if (!mayAnswer || index < 0 || index >= total) return;
  anchor ??= { index: Math.max(cursor, 0), before: [...chosen.values()] };
  const [from, to] = [anchor.index, index].sort((a, b) => a - b);
  lookAt(index);
  setChosen([...anchor.before, ...items.slice(from, to + 1).filter(Boolean)]);
}

function move(by, extend) {
  const to = Math.min(total - 1, Math.max(0, cursor + by));
  if (extend) extendTo(to);
  else {
    anchor = null;
    lookAt(to, { large: isLarge() });
  }
}

place.addEventListener("click", (event) => {
  const node = event.target.closest(".cell");
  if (!node) return;
  const index = Number(node.dataset.index);
  if (event.shiftKey) extendTo(index);
  else if (event.ctrlKey || event.metaKey || event.target.closest(".pick")) {
    toggle(items[index]);
    lookAt(index);
  } else {
    anchor = null;
    lookAt(index, { large: true });
  }
});

const keys = {
  ArrowRight: (event) => move(1, event.shiftKey),
  ArrowLeft: (event) => move(-1, event.shiftKey),
  ArrowDown: (event) => move(columns, event.shiftKey),
  ArrowUp: (event) => move(-columns, event.shiftKey),
  Home: () => lookAt(0),
  End: () => lookAt(total - 1),
  x: () => (isLarge() ? chooseLarge() : toggle(items[cursor])),
  Enter: () => items[cursor] && showLarge(items[cursor]),
  " ": () => items[cursor] && showLarge(items[cursor]),
  Escape: () => setChosen([]),
};

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  if (event.target.matches("input, select, textarea") || document.querySelector("#naming[open], #known-dialog[open]")) return;
  if (event.target.closest("button, a, summary") && (event.key === "Enter" || event.key === " ")) return;
  if (isLarge() && ["Escape", "Enter", " ", "Home", "End"].includes(event.key)) return;
  const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  if (keys[key]) {
    event.preventDefault();
    keys[key](event);
  } else if (isLarge() ? largeKey(key) : actingKey(key)) event.preventDefault();
});

setUp(restart, () => setChosen([]));
setUpLarge({
  step: (by) => move(by, false),
  choose: toggle,
  isChosen: (item) => chosen.has(item.id),
  count: (item) => new Set([...chosen.keys(), item.id]).size,
  act: (item, key) => {
    if (!chosen.has(item.id)) toggle(item);
    actingKey(key);
  },
});
place.addEventListener("scroll", () => requestAnimationFrame(draw), { passive: true });
new ResizeObserver(() => arrange()).observe(place);
const NAMES = ["source", "class", "since", "until", "least", "order", "settled"];

/** The address says what is shown, so that it can be kept, sent and linked to. */
function toAddress() {
  const query = new URLSearchParams();
  for (const name of NAMES) if (form.elements[name].value) query.set(name, form.elements[name].value);
  window.history.replaceState(null, "", query.size ? `/images?${query}` : "/images");
}

function fromAddress() {
  const query = new URLSearchParams(location.search);
  form.elements.source.dataset.wanted = query.get("source") ?? "";
  if (query.get("source")) fillSources([query.get("source")]);
  for (const name of NAMES.slice(1)) form.elements[name].value = query.get(name) ?? "";
}

form.addEventListener("change", () => {
  toAddress();
  place.scrollTop = 0;
  cursor = -1;
  restart();
});
form.addEventListener("submit", (event) => event.preventDefault());
/** All that are listed, also those that nobody has scrolled to yet. */
async function chooseAll() {
  const pages = Math.ceil(Math.min(total, MOST) / PAGE);
  await Promise.all(Array.from({ length: pages }, (_, page) => load(page)));
  setChosen(items.filter(Boolean).slice(0, MOST));
  if (total > MOST) toast(`The first ${MOST} of ${total.toLocaleString()} are chosen: no more can be taught at once.`);
}
document.getElementById("choose-all")?.addEventListener("click", chooseAll);

document.getElementById("show-filters").addEventListener("click", (event) => {
  const open = form.classList.toggle("open");
  event.target.setAttribute("aria-expanded", open);
});

fromAddress();
await load(0);
lookAt(0);
const wanted = location.hash.slice(1);
const at = items.findIndex((one) => one?.id === wanted);
if (at >= 0) lookAt(at, { large: true });
localTimes();
document.body.dataset.ready = "yes";
