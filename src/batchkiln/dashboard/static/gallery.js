// The keys and the selection of the gallery. Each key presses a button or follows a link that the page has.
"use strict";

const form = document.getElementById("selection");
const isLarge = Boolean(document.querySelector("main.reviewing"));
const FIELDS_MAX = 60000; // characters: the server reads forms of 64 KiB
let lastPicked = null;

// What is selected outlives the page, for as long as the tab: by name, the fields that the form sends, VERSION NAME.
const place = `selected ${location.pathname}`;
let selected = new Map();

function picks() {
  return [...form.querySelectorAll('input[type="checkbox"][name="item"]')];
}

function nameOf(field) {
  return field.slice(field.indexOf(" ") + 1);
}

function store() {
  sessionStorage.setItem(place, JSON.stringify([...selected.values()]));
}

function read() {
  selected = new Map(JSON.parse(sessionStorage.getItem(place) || "[]").map((field) => [nameOf(field), field]));
  show();
}

function show() {
  const every = picks();
  every.forEach((one) => (one.checked = selected.has(nameOf(one.value))));
  const here = every.filter((one) => one.checked);
  here.forEach((one) => selected.set(nameOf(one.value), one.value)); // in the version that is seen now
  const bar = form.querySelector(".selection");
  if (bar) {
    const number = selected.size;
    const isTooMuch = number && `${new URLSearchParams([...selected.values()].map((field) => ["item", field]))}`.length > FIELDS_MAX;
    const others = number - here.length;
    const words = [`${number || "none"} selected`, others && `${others} elsewhere`, isTooMuch && "too many to send at once"];
    const all = bar.querySelector("[data-all]");
    bar.querySelector("[data-count]").textContent = words.filter(Boolean).join(", ");
    all.checked = here.length === every.length;
    all.indeterminate = here.length > 0 && here.length < every.length;
    bar.classList.toggle("has-some", number > 0);
    bar.querySelectorAll("button[name]").forEach((button) => (button.disabled = !number || isTooMuch));
  }
}

function take() {
  picks().forEach((one) => (one.checked ? selected.set(nameOf(one.value), one.value) : selected.delete(nameOf(one.value))));
  store();
  show();
}

form.addEventListener("click", (event) => {
  const pick = event.target.closest('input[name="item"]');
  const every = picks();
  if (event.target.closest("[data-clear]")) {
    selected.clear();
    store();
    show();
    form.querySelector("[data-all]").focus(); // the button is gone
    return;
  }
  if (event.target.closest("[data-all]")) {
    every.forEach((one) => (one.checked = event.target.checked));
  } else if (pick && event.shiftKey && every.includes(lastPicked)) {
    const [from, to] = [every.indexOf(lastPicked), every.indexOf(pick)].sort((a, b) => a - b);
    every.slice(from, to + 1).forEach((one) => (one.checked = pick.checked));
  }
  lastPicked = pick || lastPicked;
  take();
});

form.addEventListener("formdata", (event) => {
  if (!isLarge) { // a large item is decided alone
    event.formData.delete("item");
    selected.forEach((field) => event.formData.append("item", field));
  }
});

const aliases = { arrowleft: "p", arrowright: "n" };

document.addEventListener("keydown", (event) => {
  const isTyping = event.target.closest("input:not([type=hidden], [type=checkbox]), textarea, select, video");
  if (isTyping || event.ctrlKey || event.metaKey || event.altKey || event.repeat) {
    return;
  }
  const key = event.key.toLowerCase();
  if (key === "u" && undoLast) {
    event.preventDefault();
    undoLast.click();
    return;
  }
  const control = document.querySelector(`#main [data-key="${CSS.escape(aliases[key] || key)}"]`);
  if (control && !control.disabled && control.matches("a, button")) {
    event.preventDefault();
    control.click();
  } else if (isLarge) {
    answerIdle(aliases[key] || key, Boolean(control));
  } else if (key === "escape") {
    picks().forEach((one) => (one.checked = false));
    take();
  }
});

// The way back from a large item leads to the page that it was opened on, to its place there. From an item of another
// page, or of another search, it leads to a page that begins with the item, as without this script.
const wayBack = `tiles ${location.pathname}`;

function searchOf(address) {
  const given = new URL(address).searchParams;
  ["after", "before", "page", "large", "done", "n"].forEach((name) => given.delete(name));
  return `${given}`;
}

function rememberTiles() {
  const keys = [...form.querySelectorAll(".tile")].map((tile) => tile.dataset.key);
  sessionStorage.setItem(wayBack, JSON.stringify({ address: location.href, keys, top: scrollY }));
}

function leadBack() {
  const left = JSON.parse(sessionStorage.getItem(wayBack) || "null");
  const large = form.querySelector("[data-item]");
  const link = document.querySelector('#main a[data-key="escape"]');
  if (large && left && searchOf(left.address) === searchOf(location.href)) {
    if (left.keys.includes(large.dataset.item)) {
      link.href = left.address;
    }
    sessionStorage.setItem(wayBack, JSON.stringify({ ...left, item: large.dataset.item, leadsTo: link.href }));
  }
}

function returnToTile() {
  const left = JSON.parse(sessionStorage.getItem(wayBack) || "null");
  const tile = left && left.leadsTo === location.href && form.querySelector(`.tile[data-key="${left.item}"] .open`);
  if (tile) {
    scrollTo(0, left.leadsTo === left.address ? left.top : 0);
    tile.focus({ preventScroll: true });
    tile.scrollIntoView({ block: "nearest" });
  }
}

// A page reads so many items and no more. Without a match on it, the search goes on as its link would, and tells how far.
async function goOn(told) {
  let page = document;
  for (let empty = told; empty; empty = page.querySelector("[data-goes-on]")) {
    told.textContent = empty.textContent;
    const further = page.querySelector(`.pager [rel="${empty.dataset.goesOn}"]`);
    const reply = await fetch(further.href);
    if (!reply.ok) {
      return; // the link is still there
    }
    page = new DOMParser().parseFromString(await reply.text(), "text/html");
    if (!page.querySelector("[data-goes-on]")) {
      location.replace(further.href);
    }
  }
}

const told = document.querySelector("[data-goes-on]");
if (told) {
  goOn(told).catch(() => {}); // a lost connection: the link is still there
}

// What was kept or dropped can be taken back at once, for the same items, until another page was left.
const decidedHere = `decided ${location.pathname}`;
let undoLast = null; // the button that does it

form.addEventListener("submit", (event) => {
  const wish = event.submitter && event.submitter.value;
  if (["keep", "drop", "undo"].includes(wish)) {
    const fields = isLarge ? [form.querySelector("[data-item]").value] : [...selected.values()];
    sessionStorage.setItem(decidedHere, JSON.stringify({ wish, fields, address: form.action }));
  }
});

function undoButton({ fields, address }) {
  const button = Object.assign(document.createElement("button"), { type: "button", textContent: "Undo" });
  button.addEventListener("click", () => {
    if (isLarge) { // which returns to the item, from the one that followed it
      form.action = address;
      form.querySelector("[data-item]").value = fields[0];
    } else {
      selected = new Map(fields.map((field) => [nameOf(field), field]));
    }
    const wish = Object.assign(document.createElement("button"), { name: "do", value: "undo", hidden: true });
    form.append(wish);
    form.requestSubmit(wish);
  });
  return button;
}

// The page says what was done with the selection. Its address is forgotten, so that a reload does not say it again.
const notes = [...document.querySelectorAll("#main > .note")];
const decided = JSON.parse(sessionStorage.getItem(decidedHere) || "null");
sessionStorage.removeItem(decidedHere);
if (notes.length) {
  if (decided && decided.fields.length === 1) {
    notes[0].textContent = notes[0].textContent.replace(/^1 item/, () => nameOf(decided.fields[0]));
  }
  if (decided && decided.wish !== "undo" && (form.querySelector("[data-item]") || !isLarge)) {
    undoLast = undoButton(decided);
    notes[0].append(" ", undoLast);
  }
  if (!isLarge) {
    store();
  } else if (notes.length === 1) {
    // over the header, so that the next picture is where the last one was
    answer([...notes[0].childNodes], undoLast ? KEYS_MS : ANSWER_MS);
    document.getElementById("answer").classList.add("above");
    notes[0].remove();
  }
  const address = new URL(location.href);
  ["done", "n", "last"].forEach((name) => address.searchParams.delete(name));
  history.replaceState(null, "", address);
}

if (isLarge) {
  leadBack();
  document.addEventListener("parts", leadBack);
} else {
  returnToTile();
  window.addEventListener("pagehide", rememberTiles);
}

// The size of the tiles is this browser's own choice.
const SIZES = ["small", "medium", "large"];

function resize(size) {
  document.documentElement.dataset.tiles = size;
  document.querySelectorAll("[data-size]").forEach((one) => one.setAttribute("aria-pressed", one.dataset.size === size));
}

document.querySelectorAll("[data-size]").forEach((one) =>
  one.addEventListener("click", () => {
    localStorage.setItem("tiles", one.dataset.size);
    resize(one.dataset.size);
  }),
);
const kept = localStorage.getItem("tiles");
resize(SIZES.includes(kept) ? kept : "medium");

document.addEventListener("parts", show);
window.addEventListener("pageshow", read); // a browser that goes back restores what was checked then
read();
document.documentElement.dataset.keys = "ready";
