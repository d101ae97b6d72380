// What all pages share: talking to the server, dialogs, and small messages.

const csrf = document.querySelector('meta[name="csrf"]')?.content ?? "";

/** A fresh id for an action: sent twice, it counts once. */
export function freshId() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/** Ask the server; a refusal in words is thrown as such, a broken connection as TypeError. */
export async function send(method, path, body) {
  const options = { method, headers: { accept: "application/json" }, credentials: "same-origin" };
  if (method !== "GET") {
    options.headers["content-type"] = "application/json";
    options.headers["x-csrf-token"] = csrf;
    options.body = JSON.stringify(body ?? {});
  }
  const response = await fetch(path, options);
  if (response.status === 401) {
    location.assign("/sign-in");
    throw new Refused(401, "Please sign in again.");
  }
  const text = await response.text();
  if (!response.ok) {
    let message = `The desk answered ${response.status}.`;
    try {
      message = JSON.parse(text).error ?? message;
    } catch {
      // A proxy's page, not ours: the number has to do.
    }
    throw new Refused(response.status, message);
  }
  return text ? JSON.parse(text) : null;
}

/** A message that goes by itself; warnings stay longer. */
export function toast(text, { tone = "plain", action = null } = {}) {
  const place = document.getElementById("toasts");
  const note = document.createElement("div");
  note.className = `toast ${tone}`;
  note.append(Object.assign(document.createElement("span"), { textContent: text }));
  if (action) {
    const button = Object.assign(document.createElement("button"), {
      type: "button",
      className: "link",
      textContent: action.word,
    });
    button.addEventListener("click", () => {
      note.remove();
      action.run();
    });
    note.append(button);
  }
  place.append(note);
  while (place.children.length > 3) place.firstElementChild.remove();
  goLater(note, tone === "plain" && !action ? 4000 : 9000);
}

/** Not while somebody points at it, or has its button in the focus: they are about to use it. */
function goLater(note, after) {
  setTimeout(() => (note.matches(":hover, :focus-within") ? goLater(note, 1000) : note.remove()), after);
}

const DAY = { day: "numeric", month: "short", year: "numeric" };
const CLOCK = { hour: "2-digit", minute: "2-digit" };
const MOMENT = { ...DAY, ...CLOCK };
const FORMS = { clock: CLOCK, day: DAY, weekday: { weekday: "long", ...DAY }, moment: MOMENT, zoned: { ...MOMENT, timeZoneName: "short" } };

/** A moment in the reader's zone. */
export function moment(text, form = "moment") {
  return new Intl.DateTimeFormat(undefined, FORMS[form]).format(new Date(text));
}

const LONG_AGO = 60 * 86400;

/** How long ago, in the largest unit that says something; the day itself where that is none. */
export function ago(text, now = Date.now()) {
  const seconds = Math.max(0, (now - new Date(text).getTime()) / 1000);
  if (seconds > LONG_AGO) return moment(text, "day");
  if (seconds < 60) return "just now";
  const [size, word] = [[86400, "day"], [3600, "hour"], [60, "minute"]].find(([least]) => seconds >= least);
  const count = Math.floor(seconds / size);
  return `${count} ${word}${count === 1 ? "" : "s"} ago`;
}

/** Times come in UTC; show each in the reader's zone. */
export function localTimes(root = document) {
  for (const time of root.querySelectorAll("time[datetime]")) {
    time.title = moment(time.dateTime, "zoned");
    const form = time.dataset.form ?? "moment";
    time.textContent = form === "ago" ? ago(time.dateTime) : moment(time.dateTime, form);
  }
}
localTimes();

/** Open a dialog; `submit` may throw a sentence, which is shown inside. */
export function openDialog(dialog, submit) {
  const form = dialog.querySelector("form");
  const hint = dialog.querySelector(".hint");
  hint.textContent = "";
  hint.className = "hint";
  form.onsubmit = async (event) => {
    event.preventDefault();
    const button = form.querySelector('[type="submit"]');
    if (button) button.disabled = true;
    try {
      if ((await submit()) !== false) dialog.close();
    } catch (error) {
      hint.textContent = error instanceof Refused ? error.message : "The desk cannot be reached.";
      hint.className = "hint bad";
    } finally {
      if (button) button.disabled = false;
    }
  };
  if (!dialog.open) dialog.showModal();
}

const SAID = "conclad.said";

/** Reload the page, and say there what was done; `undo` is the request that takes it back. */
export function afterReload(text, undo = null) {
  sessionStorage.setItem(SAID, JSON.stringify({ text, undo }));
  location.reload();
}

const said = JSON.parse(sessionStorage.getItem(SAID) ?? "null");
if (said) {
  sessionStorage.removeItem(SAID);
  const run = async () => {
    try {
      const found = await send("POST", said.undo.path, said.undo.body);
      afterReload(found.words ?? "Taken back.");
    } catch (error) {
      toast(error instanceof Refused ? error.message : "The desk cannot be reached.", { tone: "warn" });
    }
  };
  toast(said.text, said.undo ? { action: { word: "Undo", run } } : {});
}

document.addEventListener("click", (event) => {
  if (event.target.closest("[data-close]")) event.target.closest("dialog").close();
});

document.getElementById("sign-out")?.addEventListener("click", async () => {
  try {
    await fetch("/sign-out", {
      method: "POST",
      headers: { "content-type": "application/json", "x-csrf-token": csrf },
      body: "{}",
      redirect: "manual",
    });
  } finally {
    location.assign("/sign-in");
  }
});

/** The number of open questions, beside the word Questions on every page. */
export function showOpen(count) {
  const place = document.getElementById("open-count");
  place.textContent = count;
  place.hidden = !count;
}

if (!document.body.classList.contains("questions")) {
  const ask = () => send("GET", "/api/pulse").then((pulse) => showOpen(pulse.open), () => {});
  ask();
  setInterval(() => document.hidden || ask(), 15000);
}
