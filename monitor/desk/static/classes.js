// Corrections of classes: each asks once, says what it does, and reloads the page.

import { afterReload, freshId, moment, openDialog, send } from "./common.js";

const chosen = () => [...document.querySelectorAll(".choose:checked")].map((box) => box.closest(".class-card"));

function done(result, operation) {
  const version = result.version ? ` Detector version ${result.version} is in use.` : "";
  afterReload(`${result.what}.${version}`, { path: "/api/classes/undo", body: { operation } });
}

const item = (text) => Object.assign(document.createElement("li"), { textContent: text });

function rename(card) {
  const dialog = document.getElementById("rename-dialog");
  const input = document.getElementById("rename-name");
  const operation = freshId();
  dialog.querySelector("h2 b").textContent = card.dataset.name;
  input.value = card.dataset.name;
  openDialog(dialog, async () =>
    done(await send("POST", `/api/classes/${card.dataset.class}/rename`, { operation, name: input.value }), operation),
  );
  input.select();
}

function retire(card) {
  const dialog = document.getElementById("retire-dialog");
  const operation = freshId();
  dialog.querySelector("h2 b").textContent = card.dataset.name;
  openDialog(dialog, async () =>
    done(await send("POST", `/api/classes/${card.dataset.class}/retire`, { operation }), operation),
  );
  consequences("retire-means", [card], (found) => found.retiring);
}

/** What a change would mean, before it is made. */
async function consequences(place, cards, sentences) {
  const list = document.getElementById(place);
  const asked = cards.map((card) => card.dataset.class).join();
  list.replaceChildren();
  list.dataset.asked = asked;
  const found = await Promise.all(cards.map((card) => send("GET", `/api/classes/${card.dataset.class}/impact`)));
  // Another name may have been chosen meanwhile: its own answers are on their way.
  if (list.dataset.asked === asked) list.replaceChildren(...found.flatMap(sentences).map(item));
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
    done(await send("POST", "/api/classes/merge", { operation, classes, into }), operation);
  });
  const tell = () => {
    const into = place.querySelector(":checked").value;
    return consequences("merge-means", cards.filter((card) => card.dataset.class !== into), (found) => found.merging);
  };
  place.onchange = tell;
  tell();
}

/** What the detector concluded by itself, to be contradicted picture by picture. */
async function samples(card) {
  const dialog = document.getElementById("samples-dialog");
  const list = document.getElementById("samples");
  const rest = document.getElementById("samples-rest");
  const operation = freshId();
  const wrong = () => [...list.querySelectorAll(":checked")].map((box) => box.sample);
  dialog.querySelector("h2 b").textContent = card.dataset.name;
  list.replaceChildren();
  rest.hidden = true;
  openDialog(dialog, async () => {
    const images = wrong().map(({ source_id, image_id }) => ({ source_id, image_id }));
    done(await send("POST", `/api/classes/${card.dataset.class}/wrong`, { operation, images }), operation);
  });
  list.onchange = () => sayWhatIsWrong(card.dataset.name, wrong().length);
  list.onchange();
  const found = await send("GET", `/api/classes/${card.dataset.class}/samples`);
  list.replaceChildren(...found.samples.filter((sample) => sample.by === "pseudo-label").map(sampleCard));
  list.querySelector("input")?.focus();
  rest.hidden = found.samples.length === found.total;
  rest.textContent = `These are ${found.samples.length} of ${found.total.toLocaleString()}; the others are surer.`;
}

function sayWhatIsWrong(name, count) {
  const go = document.getElementById("samples-go");
  go.disabled = !count;
  go.textContent = count ? `${count} ${count === 1 ? "is" : "are"} not ${name}` : "Choose what is wrong";
}

/** The picture that was kept, or else the image itself from the feed. */
const sourceOf = (sample) => (sample.thumbnail ? `/thumbnails/${sample.thumbnail}` : `/pictures/${sample.picture}`);

function sampleCard(sample) {
  const sure = sample.confidence === null ? "" : `${Math.round(100 * sample.confidence)}% sure`;
  const box = Object.assign(document.createElement("input"), { type: "checkbox", sample });
  const image = Object.assign(document.createElement("img"), {
    src: sourceOf(sample),
    alt: `Image ${sample.image_id}`,
    title: `${sample.image_id} · ${sample.source_id}`,
    loading: "lazy",
  });
  const words = [sample.source_id, sure].filter(Boolean).map((text) => Object.assign(document.createElement("span"), { textContent: text }));
  const label = document.createElement("label");
  label.append(box, image, ...words);
  const item = document.createElement("li");
  item.append(label);
  return item;
}

/** All pictures of a class, and one of them large: those on its card, then the rest of what it learnt. */
async function pictures(card, chosen) {
  const dialog = document.getElementById("pictures-dialog");
  const large = document.getElementById("pictures-large");
  const words = document.getElementById("pictures-words");
  const strip = document.getElementById("pictures-all");
  const show = (image) => {
    large.src = image.large ?? image.src;
    large.alt = image.alt;
    words.textContent = image.title;
  };
  const add = (found, more = 0) => {
    strip.append(
      ...found.map((one) => {
        const button = Object.assign(document.createElement("button"), { type: "button", className: "small" });
        button.append(Object.assign(document.createElement("img"), { src: one.src, alt: one.alt, title: one.title, className: one.className, loading: "lazy" }));
        button.addEventListener("click", () => show(one));
        return button;
      }),
    );
    const count = strip.children.length;
    const of = more ? ` of ${(count + more).toLocaleString()}` : "";
    dialog.querySelector("h2").textContent = `${card.dataset.name}: ${count.toLocaleString()}${of} picture${count + more === 1 ? "" : "s"}`;
  };
  const onCard = [...card.querySelectorAll(".strip img, .more-pictures img")];
  strip.replaceChildren();
  add(onCard.map((image) => ({ src: image.src || image.dataset.src, alt: image.alt, title: image.title, className: image.className })));
  const first = chosen ?? onCard[0];
  if (first) show(first);
  dialog.showModal();
  if (!card.querySelector("[data-samples='yes']")) return;
  const found = await send("GET", `/api/classes/${card.dataset.class}/samples`);
  const seen = new Set(onCard.map((image) => image.src || image.dataset.src));
  const rest = found.samples.filter((sample) => !sample.thumbnail || !seen.has(new URL(sourceOf(sample), location).href) && !seen.has(sourceOf(sample)));
  add(
    rest.map((sample) => ({
      src: sourceOf(sample),
      large: sample.thumbnail ? null : `${sourceOf(sample)}?large=true`,
      alt: `${card.dataset.name}, image ${sample.image_id}`,
      title: [sample.by === "person" ? "answered by a person" : "added by itself", sample.source_id, sample.image_id, sample.captured_at ? moment(sample.captured_at) : null].filter(Boolean).join(" · "),
      className: `by-${sample.by}`,
    })),
    found.total - found.samples.length,
  );
}

const actions = { rename, retire, samples, pictures: (card, button) => pictures(card, button.querySelector("img")) };

document.addEventListener("click", (event) => {
  const button = event.target.closest(".class-card [data-do]");
  if (button) actions[button.dataset.do](button.closest(".class-card"), button);
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
document.body.dataset.ready = "yes";
