// The map of a pool: images that look alike lie together. Drawn on a canvas, chosen with a lasso.

import { Refused, moment, send, toast } from "./common.js";
import { chooseLarge, isLarge, largeKey, setUpLarge, showLarge } from "./large_view.js";
import { actingKey, setTargets, setUp } from "./act_on_images.js";

const RADIUS = 4;
const REACH = 10;
const AGAIN_MS = 1500;
const PICTURES_FROM = 60;
const SIDE = 46;
const LARGEST_SIDE = 160;

const canvas = document.getElementById("map");
const pen = canvas.getContext("2d");
const pool = canvas.dataset.pool;
const mayAnswer = canvas.dataset.mayAnswer === "yes";
const chosen = new Map();
const pictures = new Map();

let points = [];
let view = { x: 0, y: 0, scale: 1 };
let lasso = null;
let hovered = null;
let cursor = null;
let only = "all";
let colours = {};
const dots = {};

// -- where things are ---------------------------------------------------------------------------

let size = { width: 0, height: 0 };
const box = () => size;
const unit = () => Math.min(size.width, size.height) - 40;
function measure() {
  const { width, height } = canvas.getBoundingClientRect();
  size = { width, height };
}
const across = (point) => view.x + 20 + point.x * unit() * view.scale;
const down = (point) => view.y + 20 + point.y * unit() * view.scale;
const shownPoints = () => points.filter((one) => only === "all" || (only === "novel" ? one.novel : one.asked));

function nearestTo(x, y, reach = REACH) {
  let best = null;
  let least = reach * reach;
  for (const one of shownPoints()) {
    const distance = (across(one) - x) ** 2 + (down(one) - y) ** 2;
    if (distance <= least) [best, least] = [one, distance];
  }
  return best;
}

function inside(path, x, y) {
  let is = false;
  for (let i = 0, j = path.length - 1; i < path.length; j = i, i += 1) {
    const [a, b] = [path[i], path[j]];
    if (a.y > y !== b.y > y && x < ((b.x - a.x) * (y - a.y)) / (b.y - a.y) + a.x) is = !is;
  }
  return is;
}

// -- drawing ------------------------------------------------------------------------------------

function readColours() {
  const style = getComputedStyle(document.documentElement);
  const of = (name) => style.getPropertyValue(name).trim();
  colours = { known: of("--point"), novel: of("--point-new"), answered: of("--good"), chosen: of("--accent"), ink: of("--ink"), sheet: of("--sheet") };
  for (const kind of ["known", "novel", "answered"]) dots[kind] = stamp(colours[kind]);
}

/** A dot to be stamped wherever a point of its kind lies. */
function stamp(colour) {
  const ratio = devicePixelRatio || 1;
  const side = Math.ceil((2 * RADIUS + 2) * ratio);
  const found = Object.assign(document.createElement("canvas"), { width: side, height: side });
  const brush = found.getContext("2d");
  brush.fillStyle = colour;
  brush.arc(side / 2, side / 2, RADIUS * ratio, 0, 2 * Math.PI);
  brush.fill();
  return found;
}

let waiting = false;
function draw() {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => {
    waiting = false;
    paint();
  });
}

function paint() {
  const { width, height } = box();
  const ratio = devicePixelRatio || 1;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
  }
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, height);
  const seen = shownPoints().filter((one) => across(one) > -SIDE && across(one) < width + SIDE && down(one) > -SIDE && down(one) < height + SIDE);
  const withPictures = seen.length <= PICTURES_FROM;
  const side = sideOf(seen.length);
  // What is new is drawn last, above the rest. Stamped: thousands of circles would take too long.
  for (const kind of ["known", "novel", "answered"]) {
    const dot = dots[kind];
    for (const one of seen) {
      if (kindOf(one) !== kind) continue;
      if (withPictures && drawPicture(one, side)) continue;
      pen.drawImage(dot, across(one) - RADIUS - 1, down(one) - RADIUS - 1, 2 * RADIUS + 2, 2 * RADIUS + 2);
    }
  }
  ring(seen.filter((one) => one.asked), colours.ink, RADIUS + 2, 1.5);
  ring(seen.filter((one) => chosen.has(one.id)), colours.chosen, RADIUS + 3, 3);
  ring([hovered, cursor].filter(Boolean), colours.ink, RADIUS + 5, 2);
  if (lasso) outline();
}

const kindOf = (one) => (one.answer ? "answered" : one.novel ? "novel" : "known");

/** The fewer there are, the larger: who goes near wants to see them. */
const sideOf = (count) => Math.min(LARGEST_SIDE, Math.max(SIDE, Math.sqrt((box().width * box().height) / Math.max(1, count)) / 3));

function drawPicture(one, side) {
  let picture = pictures.get(one.id);
  if (!picture) {
    picture = new Image();
    picture.onload = draw;
    picture.src = `/pictures/${one.id}`;
    pictures.set(one.id, picture);
    if (pictures.size > 400) pictures.delete(pictures.keys().next().value);
  }
  if (!picture.complete || !picture.naturalWidth) return false;
  const scale = side / Math.max(picture.naturalWidth, picture.naturalHeight);
  const [w, h] = [picture.naturalWidth * scale, picture.naturalHeight * scale];
  const [x, y] = [across(one) - w / 2, down(one) - h / 2];
  pen.drawImage(picture, x, y, w, h);
  pen.lineWidth = 2;
  pen.strokeStyle = colours[kindOf(one)];
  pen.strokeRect(x, y, w, h);
  return true;
}

function ring(found, colour, radius, width) {
  pen.strokeStyle = colour;
  pen.lineWidth = width;
  pen.beginPath();
  for (const one of found) {
    pen.moveTo(across(one) + radius, down(one));
    pen.arc(across(one), down(one), radius, 0, 2 * Math.PI);
  }
  pen.stroke();
}

function outline() {
  pen.strokeStyle = colours.chosen;
  pen.lineWidth = 2;
  pen.setLineDash([6, 4]);
  pen.beginPath();
  lasso.forEach((at, index) => (index ? pen.lineTo(at.x, at.y) : pen.moveTo(at.x, at.y)));
  pen.closePath();
  pen.stroke();
  pen.setLineDash([]);
}

// -- choosing -----------------------------------------------------------------------------------

function setChosen(found) {
  chosen.clear();
  for (const one of found) chosen.set(one.id, one);
  setTargets([...chosen.values()]);
  draw();
}

function toggle(one) {
  if (!one || !mayAnswer) return;
  if (!chosen.delete(one.id)) chosen.set(one.id, one);
  setTargets([...chosen.values()]);
  draw();
}

const withWords = (one) => ({ ...one, words: one.novel ? "looks new" : "looks known" });

function zoomAt(x, y, factor) {
  const scale = Math.min(40, Math.max(0.8, view.scale * factor));
  const by = scale / view.scale;
  view = { x: x - 20 - (x - 20 - view.x) * by, y: y - 20 - (y - 20 - view.y) * by, scale };
  draw();
}

// Two fingers move and zoom; with one a path is drawn.
const fingers = new Map();
const spread = () => {
  const [a, b] = [...fingers.values()];
  return { x: (a.x + b.x) / 2, y: (a.y + b.y) / 2, wide: Math.max(1, Math.hypot(a.x - b.x, a.y - b.y)) };
};

function pinch(id, at) {
  const before = spread();
  fingers.set(id, at);
  const now = spread();
  view = { ...view, x: view.x + now.x - before.x, y: view.y + now.y - before.y };
  zoomAt(now.x, now.y, now.wide / before.wide);
}

function lift(event) {
  fingers.delete(event.pointerId);
}

let held = null;
canvas.addEventListener("pointerdown", (event) => {
  canvas.setPointerCapture(event.pointerId);
  const at = { x: event.offsetX, y: event.offsetY };
  if (event.pointerType === "touch" && fingers.size < 2) fingers.set(event.pointerId, at);
  if (fingers.size === 2) {
    lasso = held = null;
    return;
  }
  held = { at, pans: event.button > 0 || event.altKey || !mayAnswer, view: { ...view }, adds: event.shiftKey || event.ctrlKey || event.metaKey, moved: false };
});
canvas.addEventListener("pointermove", (event) => {
  const at = { x: event.offsetX, y: event.offsetY };
  if (fingers.size === 2) {
    if (fingers.has(event.pointerId)) pinch(event.pointerId, at);
    return;
  }
  if (fingers.has(event.pointerId)) fingers.set(event.pointerId, at);
  if (!held) {
    const found = nearestTo(at.x, at.y);
    if (found !== hovered) {
      hovered = found;
      showHover(at);
      draw();
    }
    return;
  }
  if (Math.hypot(at.x - held.at.x, at.y - held.at.y) > 4) held.moved = true;
  if (!held.moved) return;
  if (held.pans) view = { ...view, x: held.view.x + at.x - held.at.x, y: held.view.y + at.y - held.at.y };
  else lasso = [...(lasso ?? [held.at]), at];
  draw();
});
canvas.addEventListener("pointercancel", lift);
canvas.addEventListener("pointerup", (event) => {
  lift(event);
  if (held && !held.moved) {
    const found = nearestTo(event.offsetX, event.offsetY, event.pointerType === "touch" ? 24 : REACH);
    if (found && held.adds) toggle(found);
    else if (found) {
      cursor = found;
      showLarge(withWords(found));
    }
  } else if (lasso) {
    const path = lasso;
    const found = shownPoints().filter((one) => inside(path, across(one), down(one)));
    setChosen(held.adds ? [...chosen.values(), ...found] : found.slice(0, 500));
  }
  lasso = held = null;
  draw();
});
canvas.addEventListener("pointerleave", () => {
  hovered = null;
  showHover(null);
  draw();
});
canvas.addEventListener("contextmenu", (event) => event.preventDefault());
canvas.addEventListener("wheel", (event) => {
  event.preventDefault();
  zoomAt(event.offsetX, event.offsetY, event.deltaY < 0 ? 1.2 : 1 / 1.2);
}, { passive: false });

function showHover(at) {
  const card = document.getElementById("map-hover");
  card.hidden = !hovered || !at;
  if (card.hidden) return;
  card.querySelector("img").src = `/pictures/${hovered.id}`;
  card.querySelector("span").textContent = `${hovered.source} · ${hovered.answer ?? (hovered.novel ? `looks new (${hovered.ratio.toFixed(2)})` : `looks like ${hovered.nearest}`)}`;
  card.style.left = `${Math.min(at.x + 14, box().width - 190)}px`;
  card.style.top = `${Math.min(at.y + 14, box().height - 170)}px`;
}

/** The nearest point in the direction of an arrow. */
function step(dx, dy) {
  const found = shownPoints();
  if (!cursor) cursor = found[0] ?? null;
  else {
    const ahead = found
      .map((one) => ({ one, x: across(one) - across(cursor), y: down(one) - down(cursor) }))
      .filter(({ one, x, y }) => one !== cursor && x * dx + y * dy > Math.abs(x * dy) + Math.abs(y * dx));
    ahead.sort((a, b) => Math.hypot(a.x, a.y) - Math.hypot(b.x, b.y));
    cursor = ahead[0]?.one ?? cursor;
  }
  if (cursor) {
    document.getElementById("map-cursor").textContent = `${cursor.source}, image ${cursor.image}: ${cursor.novel ? "looks new" : `looks like ${cursor.nearest}`}`;
    if (isLarge()) showLarge(withWords(cursor));
  }
  draw();
}

const middle = () => [box().width / 2, box().height / 2];
const keys = {
  ArrowRight: () => step(1, 0),
  ArrowLeft: () => step(-1, 0),
  ArrowDown: () => step(0, 1),
  ArrowUp: () => step(0, -1),
  "+": () => zoomAt(...middle(), 1.3),
  "-": () => zoomAt(...middle(), 1 / 1.3),
  0: () => reset(),
  x: () => (isLarge() ? chooseLarge() : toggle(cursor)),
  Enter: () => cursor && showLarge(withWords(cursor)),
  " ": () => cursor && showLarge(withWords(cursor)),
  Escape: () => setChosen([]),
};

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  if (event.target.matches("input, select, textarea") || document.querySelector("#naming[open], #known-dialog[open]")) return;
  if (event.target.closest("button, a, summary") && (event.key === "Enter" || event.key === " ")) return;
  if (isLarge() && ["Escape", "Enter", " "].includes(event.key)) return;
  const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  if (keys[key]) {
    event.preventDefault();
    keys[key](event);
  } else if (isLarge() ? largeKey(key) : actingKey(key)) event.preventDefault();
});

// -- loading ------------------------------------------------------------------------------------

function reset() {
  view = { x: (box().width - unit() - 40) / 2, y: (box().height - unit() - 40) / 2, scale: 1 };
  draw();
}

async function load() {
  const found = await send("GET", `/api/pools/${pool}/map`);
  points = found.points;
  const novel = points.filter((one) => one.novel).length;
  const thinned = found.shown < found.pool.size ? `, of ${found.pool.size.toLocaleString()}` : "";
  document.getElementById("map-words").textContent = `${points.length.toLocaleString()} images${thinned}; ${novel.toLocaleString()} ${novel === 1 ? "looks" : "look"} new to the detector in use.${found.settled ? "" : " Arranging…"}`;
  draw();
  if (!found.settled) setTimeout(() => load().catch(() => {}), AGAIN_MS);
  canvas.dataset.settled = found.settled ? "yes" : "no";
}

if (pool) {
  setUp(() => load().catch(() => {}), () => setChosen([]));
  const pointOf = (item) => points.find((one) => one.id === item.id);
  setUpLarge({
    step: (by) => step(by, 0),
    choose: (item) => toggle(pointOf(item)),
    isChosen: (item) => chosen.has(item.id),
    count: (item) => new Set([...chosen.keys(), item.id]).size,
    act: (item, key) => {
      if (!chosen.has(item.id)) toggle(pointOf(item));
      actingKey(key);
    },
  });
  readColours();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    readColours();
    draw();
  });
  measure();
  new ResizeObserver(() => {
    measure();
    draw();
  }).observe(canvas);
  document.getElementById("map-only").addEventListener("change", (event) => {
    only = event.target.value;
    draw();
  });
  document.getElementById("map-in").addEventListener("click", () => zoomAt(...middle(), 1.4));
  document.getElementById("map-out").addEventListener("click", () => zoomAt(...middle(), 1 / 1.4));
  document.getElementById("map-reset").addEventListener("click", reset);
  reset();
  await load().catch((error) => toast(error instanceof Refused ? error.message : "The desk cannot be reached.", { tone: "warn" }));
  // For tests, and for whoever wants to know where an image lies.
  canvas.whereIs = (id) => {
    const one = points.find((point) => point.id === id);
    return one ? { x: across(one), y: down(one) } : null;
  };
  canvas.ids = () => points.map((one) => one.id);
}
for (const option of document.querySelectorAll("#map-pool option")) option.textContent = option.dataset.words + moment(option.dataset.at);
document.getElementById("map-pool")?.addEventListener("change", (event) => location.assign(`/map?pool=${event.target.value}`));
document.body.dataset.ready = "yes";
