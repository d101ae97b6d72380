// Acting on chosen images: name them, say that they are known, or that they are none.
//
// The bar names its targets with small pictures before anything is done, and each message takes
// back its own action.

import { Refused, freshId, openDialog, send, toast } from "./common.js";
import { askName, setKnown } from "./name_dialog.js";

const SHOWN = 24;
const bar = document.getElementById("acting");
const mayAnswer = bar.dataset.mayAnswer === "yes";
const classes = [...document.querySelectorAll("#known-classes [data-class]")];
setKnown(classes.map((one) => ({ id: one.dataset.class, name: one.dataset.name })));

let targets = [];
let done = () => {};
let dropped = () => {};

/** `onDone` is called after something was taught or taken back, `onNone` to choose nothing. */
export function setUp(onDone, onNone) {
  done = onDone;
  dropped = onNone;
}

/** What the bar acts on: [{id, source, image, nearest}]. */
export function setTargets(found) {
  targets = found;
  bar.hidden = !found.length;
  const words = found.length === 1 ? "1 image" : `${found.length} images`;
  document.getElementById("acting-words").textContent = words;
  document.getElementById("acting-pictures").replaceChildren(
    ...found.slice(0, SHOWN).map((one) =>
      Object.assign(document.createElement("img"), { src: `/pictures/${one.id}`, alt: `Image ${one.image} of ${one.source}` }),
    ),
    found.length > SHOWN ? `and ${found.length - SHOWN} more` : "",
  );
}

async function tell(answer, name) {
  const action = freshId();
  const chosen = targets;
  const body = { action, images: chosen.map((one) => one.id), answer };
  if (name) body.class = name;
  document.body.classList.add("working");
  try {
    const found = await send("POST", "/api/images/teach", body);
    const left = found.left ? ` (${found.left} taught nothing: their features are not kept)` : "";
    toast(`${found.words}${left}`, { action: { word: "Undo", run: () => undo(action) }, tone: found.held ? "warn" : "plain" });
    dropped();
    done();
  } finally {
    document.body.classList.remove("working");
  }
}

async function undo(of) {
  try {
    const found = await send("POST", "/api/images/undo", { action: freshId(), of });
    toast(found.words);
    done();
  } catch (error) {
    toast(error instanceof Refused ? error.message : "The desk cannot be reached.", { tone: "warn" });
  }
}

const report = (error) => toast(error instanceof Refused ? error.message : "The desk cannot be reached.", { tone: "warn" });

function nameThese() {
  askName(targets.length, (one) => tell("class", one.id || one.name).catch(report));
}

/** Known classes, those that the images look nearest to first. */
function theseAreKnown() {
  const near = new Map();
  for (const one of targets) near.set(one.nearest, (near.get(one.nearest) ?? 0) + 1);
  const list = document.getElementById("known-classes");
  const order = [...classes].sort((a, b) => (near.get(b.dataset.name) ?? 0) - (near.get(a.dataset.name) ?? 0) || a.dataset.name.localeCompare(b.dataset.name));
  list.replaceChildren(...order.map((one) => one.closest("label")));
  order[0]?.click();
  const dialog = document.getElementById("known-dialog");
  document.getElementById("known-title").textContent = targets.length > 1 ? `Which known class are these ${targets.length} images?` : "Which known class is it?";
  openDialog(dialog, async () => {
    const chosen = list.querySelector(":checked");
    await tell("class", chosen.dataset.class);
  });
  order[0]?.focus();
}

const actions = {
  name: nameThese,
  known: theseAreKnown,
  bad: () => tell("bad_image").catch(report),
  none: () => dropped(),
};

/** Keys that pages with a bar share; whether the key was one of them. */
export function actingKey(key) {
  const action = { n: "name", k: "known", b: "bad" }[key];
  if (!action || !mayAnswer || !targets.length) return false;
  actions[action]();
  return true;
}

bar.addEventListener("click", (event) => {
  const button = event.target.closest("[data-act]");
  if (button) actions[button.dataset.act]();
});
