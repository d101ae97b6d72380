// Corrections of classes: each asks once, says what it does, and loads the page anew.

import { freshId, openDialog, send, toast } from "./common.js";

const chosen = () => [...document.querySelectorAll(".choose:checked")].map((box) => box.closest(".class-card"));

function done(result) {
  const version = result.version ? ` Detector version ${result.version} is in use.` : "";
  sessionStorage.setItem("conclad.said", `${result.what}.${version}`);
  location.reload();
}

const said = sessionStorage.getItem("conclad.said");
if (said) {
  sessionStorage.removeItem("conclad.said");
  toast(said);
}

function rename(card) {
  const dialog = document.getElementById("rename-dialog");
  const input = document.getElementById("rename-name");
  const operation = freshId();
  dialog.querySelector("h2 b").textContent = card.dataset.name;
  input.value = card.dataset.name;
  openDialog(dialog, async () =>
    done(await send("POST", `/api/classes/${card.dataset.class}/rename`, { operation, name: input.value })),
  );
  input.select();
}

function retire(card) {
  const dialog = document.getElementById("retire-dialog");
  const operation = freshId();
  dialog.querySelector("h2 b").textContent = card.dataset.name;
  openDialog(dialog, async () =>
    done(await send("POST", `/api/classes/${card.dataset.class}/retire`, { operation })),
  );
}

function merge() {
  const cards = chosen();
  const place = document.getElementById("merge-names");
  const operation = freshId();
  place.replaceChildren(
    ...cards.map((card, index) => {
      const label = document.createElement("label");
      const radio = Object.assign(document.createElement("input"), {
        type: "radio",
        name: "into",
        value: card.dataset.class,
        checked: index === 0,
      });
      label.append(radio, ` ${card.dataset.name}`);
      return label;
    }),
  );
  openDialog(document.getElementById("merge-dialog"), async () => {
    const into = place.querySelector(":checked").value;
    const classes = cards.map((card) => card.dataset.class).filter((id) => id !== into);
    done(await send("POST", "/api/classes/merge", { operation, classes, into }));
  });
}

async function samples(card) {
  const dialog = document.getElementById("samples-dialog");
  const list = document.getElementById("samples");
  dialog.querySelector("h2 b").textContent = card.dataset.name;
  list.replaceChildren();
  openDialog(dialog, async () => true);
  const found = await send("GET", `/api/classes/${card.dataset.class}/samples`);
  const pseudo = found.samples.filter((sample) => sample.by === "pseudo-label");
  list.replaceChildren(...pseudo.map((sample) => sampleRow(card, sample)));
}

function sampleRow(card, sample) {
  const row = document.createElement("li");
  if (sample.thumbnail) {
    row.append(Object.assign(document.createElement("img"), { src: `/thumbnails/${sample.thumbnail}`, alt: "" }));
  } else {
    row.append(Object.assign(document.createElement("span"), { className: "blank" }));
  }
  const words = document.createElement("span");
  const sure = sample.confidence === null ? "" : `, ${Math.round(100 * sample.confidence)}% sure`;
  words.textContent = `${sample.image_id} · ${sample.source_id}${sure}`;
  const button = Object.assign(document.createElement("button"), {
    type: "button",
    className: "quiet danger",
    textContent: `Not ${card.dataset.name}`,
  });
  const operation = freshId();
  button.addEventListener("click", async () => {
    button.disabled = true;
    try {
      const body = { operation, source_id: sample.source_id, image_id: sample.image_id };
      const result = await send("POST", `/api/classes/${card.dataset.class}/wrong`, body);
      row.remove();
      toast(`${result.what}. Detector version ${result.version} is in use.`);
    } catch (error) {
      document.querySelector("#samples-dialog .hint").textContent = error.message;
      button.disabled = false;
    }
  });
  row.append(words, button);
  return row;
}

const actions = { rename, retire, samples };

document.addEventListener("click", (event) => {
  const button = event.target.closest(".class-card [data-do]");
  if (button) actions[button.dataset.do](button.closest(".class-card"));
});

document.addEventListener("change", (event) => {
  if (!event.target.matches(".choose")) return;
  const count = chosen().length;
  document.getElementById("toolbar").hidden = count < 1;
  document.getElementById("merge").disabled = count < 2;
  document.getElementById("chosen-count").textContent = `${count} chosen${count < 2 ? ": choose another to merge" : ""}`;
});

document.getElementById("merge")?.addEventListener("click", merge);
document.getElementById("choose-none")?.addEventListener("click", () => {
  for (const box of document.querySelectorAll(".choose:checked")) box.checked = false;
  document.getElementById("toolbar").hidden = true;
});
