// The keys and the selection of the gallery. Each key presses a button or follows a link that the page has.
"use strict";

const form = document.getElementById("selection");
let lastPicked = null;

function picks() {
  return [...form.querySelectorAll('input[type="checkbox"][name="item"]')];
}

function count() {
  const every = picks();
  const number = every.filter((one) => one.checked).length;
  const told = form.querySelector("[data-count]");
  const all = form.querySelector("[data-all]");
  if (told && all) {
    told.textContent = number ? `${number} selected` : "none selected";
    all.checked = number === every.length;
    all.indeterminate = number > 0 && number < every.length;
    form.querySelector(".selection").classList.toggle("has-some", number > 0);
    form.querySelectorAll(".selection button").forEach((button) => (button.disabled = !number));
  }
}

form.addEventListener("click", (event) => {
  const pick = event.target.closest('input[name="item"]');
  const every = picks();
  if (event.target.closest("[data-all]")) {
    every.forEach((one) => (one.checked = event.target.checked));
  } else if (pick && event.shiftKey && every.includes(lastPicked)) {
    const [from, to] = [every.indexOf(lastPicked), every.indexOf(pick)].sort((a, b) => a - b);
    every.slice(from, to + 1).forEach((one) => (one.checked = pick.checked));
  }
  lastPicked = pick || lastPicked;
  count();
});

const aliases = { arrowleft: "p", arrowright: "n" };

document.addEventListener("keydown", (event) => {
  const isTyping = event.target.closest("input:not([type=hidden], [type=checkbox]), textarea, select, video");
  if (isTyping || event.ctrlKey || event.metaKey || event.altKey || event.repeat) {
    return;
  }
  const key = event.key.toLowerCase();
  const control = document.querySelector(`#main [data-key="${CSS.escape(aliases[key] || key)}"]`);
  if (control && !control.disabled && control.matches("a, button")) {
    event.preventDefault();
    control.click();
  } else if (key === "escape") {
    picks().forEach((one) => (one.checked = false));
    count();
  }
});

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

document.addEventListener("parts", count);
window.addEventListener("pageshow", count); // a browser that goes back restores what was checked
count();
document.documentElement.dataset.keys = "ready";
