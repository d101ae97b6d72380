// Which detector is in use: each change first says what it would mean.

import { openDialog, send } from "./common.js";

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
    location.reload();
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
  if (button) change(button.dataset.do, button.dataset.version);
});
