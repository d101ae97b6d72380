// Which detector is in use: each change says before what it would mean, and can be undone after.

import { afterReload, moment, openDialog, send, toast } from "./common.js";

const WORDS = {
  rollback: ["Go back to version", "Go back"],
  release: ["Use version", "Use it"],
  refuse: ["Refuse version", "Refuse it"],
};

async function change(kind, version) {
  const dialog = document.getElementById("version-dialog");
  const reason = document.getElementById("version-reason");
  const list = document.getElementById("version-changes");
  const current = document.querySelector(".versions .current th")?.textContent;
  document.getElementById("version-title").textContent = `${WORDS[kind][0]} ${version}?`;
  const go = document.getElementById("version-go");
  go.textContent = WORDS[kind][1];
  go.className = kind === "refuse" ? "danger" : "accept";
  reason.value = "";
  reason.required = kind === "refuse";
  list.replaceChildren();
  openDialog(dialog, async () => {
    await send("POST", `/api/versions/${version}/${kind}`, { reason: reason.value });
    const said = kind === "refuse" ? `Version ${version} is refused.` : `Version ${version} is in use.`;
    const undo = kind !== "refuse" && current ? { path: `/api/versions/${current}/rollback`, body: { reason: `undone: back to version ${current}` } } : null;
    afterReload(said, undo);
  });
  if (kind !== "refuse" && current) {
    const found = await send("GET", `/api/versions/${current}/diff/${version}`);
    list.replaceChildren(
      ...[...found.sentences, "You can take it back right after."].map((text) => Object.assign(document.createElement("li"), { textContent: text })),
    );
  }
}

document.addEventListener("click", (event) => {
  const button = event.target.closest(".versions [data-do]");
  if (button) change(button.dataset.do, button.dataset.version).catch((error) => toast(error.message, { tone: "warn" }));
});

for (const text of document.querySelectorAll("[data-moment]")) text.textContent = moment(text.dataset.moment);

/** What a bar or mark of a plot says, below the plot: a pointer, a finger and a click all reach it. */
function read(event) {
  const part = event.target.closest("[data-words]");
  if (part) part.closest(".plot").querySelector(".reading").textContent = `${moment(part.dataset.at)}: ${part.dataset.words}`;
}
document.addEventListener("pointerover", read);
document.addEventListener("click", read);

document.getElementById("plot-source")?.addEventListener("change", (event) => event.currentTarget.requestSubmit());

/** The server's days are those of UTC; a reader's day begins at their own midnight. */
function regroup() {
  const days = document.getElementById("days");
  const lists = new Map();
  for (const entry of days.querySelectorAll("li")) {
    const day = moment(entry.querySelector("time").dateTime, "weekday");
    if (!lists.has(day)) lists.set(day, []);
    lists.get(day).push(entry);
  }
  if (!lists.size) return;
  const parts = [...lists].flatMap(([day, entries]) => {
    const heading = Object.assign(document.createElement("h3"), { className: "day", textContent: day });
    const list = Object.assign(document.createElement("ol"), { className: "timeline" });
    list.append(...entries);
    return [heading, list];
  });
  days.replaceChildren(...parts);
}
regroup();
document.body.dataset.ready = "yes";
