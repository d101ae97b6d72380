// Asking for the name of a class. A name that is nearly another offers the other one first.

import { openDialog, send } from "./common.js";

const dialog = document.getElementById("naming");
const input = document.getElementById("naming-name");
const hint = document.getElementById("naming-hint");
const go = document.getElementById("naming-go");
const other = document.getElementById("naming-other");

/** What the dialog may complete: [{id, name}]. */
let known = [];

export function setKnown(classes) {
  known = classes;
  document.getElementById("naming-names").replaceChildren(
    ...classes.map(({ name }) => Object.assign(document.createElement("option"), { value: name })),
  );
}

const find = (name) => known.find((one) => one.name === name);

/** Ask about `count` images; `take` is given {id, name}, where the id is empty for a new class. */
export function askName(count, take) {
  const many = count > 1;
  const title = many ? `What are these ${count} images?` : "What is it?";
  let nearly = null;
  document.getElementById("naming-title").textContent = title;
  document.getElementById("naming-label").textContent = `${many ? "Their" : "Its"} name: one that exists, or a new one`;
  input.value = "";
  const tell = () => {
    nearly = null;
    other.hidden = true;
    const typed = input.value.trim();
    hint.className = "hint";
    hint.textContent = typed && !find(typed) ? "A new class." : "";
    go.textContent = typed && !find(typed) ? "Make it a new class" : "Answer";
  };
  const choose = (name) => {
    const found = find(name);
    take({ id: found?.id ?? "", name: found?.name ?? name });
  };
  input.oninput = tell;
  tell();
  other.onclick = () => {
    dialog.close();
    choose(input.value.trim());
  };
  openDialog(dialog, async () => {
    const typed = input.value.trim();
    if (nearly === null && !find(typed)) {
      const { similar } = await send("GET", `/api/classes/similar?name=${encodeURIComponent(typed)}`);
      if (similar.length) {
        nearly = similar[0];
        hint.textContent = `There is already “${nearly}”. Is it the same?`;
        hint.className = "hint warn";
        go.textContent = `Use “${nearly}”`;
        other.textContent = `No, “${typed}” is another class`;
        other.hidden = false;
        return false;
      }
    }
    choose(nearly ?? typed);
    return true;
  });
  input.focus();
}
