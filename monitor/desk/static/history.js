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
      ...found.sentences.map((text) => Object.assign(document.createElement("li"), { textContent: text })),
    );
  }
}

document.addEventListener("click", (event) => {
  const button = event.target.closest(".versions [data-do]");
  if (button) change(button.dataset.do, button.dataset.version).catch((error) => toast(error.message, { tone: "warn" }));
});

for (const text of document.querySelectorAll("[data-moment]")) text.textContent = moment(text.dataset.moment);
