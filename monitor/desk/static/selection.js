// Looking and choosing. Looking moves the attention to one card; choosing builds a set of them.
//
// The two never mix: a plain click or an arrow looks, and what was chosen stays chosen. An answer
// goes to what is chosen or, if that is nothing, to the card that is looked at.

const chosen = new Set();
let currentId = null;
let anchor = null;
let changed = () => {};

/** Called whenever another card is looked at, or something else is chosen. */
export function onChange(run) {
  changed = run;
}

export const cards = () => [...document.querySelectorAll(".card")];
export const cardOf = (id) => document.getElementById(`q${id}`);
export const current = () => (currentId === null ? null : cardOf(currentId));
export const picked = () => cards().filter((card) => chosen.has(card.dataset.id));

/** What an answer would go to. */
export function targets() {
  const found = picked();
  return found.length ? found : current() ? [current()] : [];
}

export function setCurrent(card, { focus = true } = {}) {
  current()?.classList.remove("current");
  for (const other of cards()) other.tabIndex = -1;
  currentId = card ? card.dataset.id : null;
  if (card) {
    card.classList.add("current");
    card.tabIndex = 0;
    if (focus) card.focus({ preventScroll: true });
    card.scrollIntoView({ block: "nearest" });
  }
  changed();
}

export function setChosen(ids) {
  const wanted = [...ids];
  chosen.clear();
  for (const id of wanted) chosen.add(id);
  for (const card of cards()) card.setAttribute("aria-selected", chosen.has(card.dataset.id));
  changed();
}

/** Bring what is chosen in line with the cards that are there. */
export function settle() {
  setChosen([...chosen].filter((id) => cardOf(id)));
}

export function toggle(card = current()) {
  if (!card) return;
  anchor = null;
  const ids = new Set(chosen);
  if (!ids.delete(card.dataset.id)) ids.add(card.dataset.id);
  setChosen(ids);
}

/** Choose from where the range began to `card`, beside what was chosen before it began. */
export function extendTo(card) {
  anchor ??= { id: currentId ?? card.dataset.id, before: [...chosen] };
  setCurrent(card);
  setChosen([...anchor.before, ...between(anchor.id, card.dataset.id)]);
}

function between(fromId, toId) {
  const ids = cards().map((card) => card.dataset.id);
  const [a, b] = [ids.indexOf(fromId), ids.indexOf(toId)].sort((x, y) => x - y);
  return a < 0 ? [toId] : ids.slice(a, b + 1);
}

/** All of a group are chosen; if they all were, none of them is. */
export function chooseGroup(group) {
  if (!group) return;
  anchor = null;
  const ids = [...group.querySelectorAll(".card")].map((card) => card.dataset.id);
  const others = [...chosen].filter((id) => !ids.includes(id));
  if (!group.contains(current())) setCurrent(group.querySelector(".card"));
  setChosen(ids.every((id) => chosen.has(id)) ? others : [...others, ...ids]);
}

export function look(card) {
  anchor = null;
  setCurrent(card);
}

export function move(dx, dy, extend) {
  const all = cards();
  const from = current();
  if (!all.length) return;
  let to = from ?? all[0];
  if (from && dx) to = all[all.indexOf(from) + dx] ?? from;
  if (from && dy) to = vertical(all, from, dy) ?? from;
  if (extend) extendTo(to);
  else look(to);
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

/** Take cards off the page and go on with the one that follows. */
export function leave(gone) {
  const all = cards();
  const last = all.indexOf(gone[gone.length - 1]);
  const rest = all.filter((card) => !gone.includes(card));
  const next = all.slice(last + 1).find((card) => !gone.includes(card)) ?? rest.pop();
  for (const card of gone) card.remove();
  dropEmptyGroups();
  anchor = null;
  setChosen([...chosen].filter((id) => cardOf(id)));
  setCurrent(next ?? null);
  if (!next) document.getElementById("main").focus();
}

export function dropEmptyGroups() {
  for (const group of document.querySelectorAll(".group")) {
    if (!group.querySelector(".card")) group.remove();
  }
}
