// The keys of the review page. Each presses a button or follows a link that the page has; without this script, those do.
"use strict";

let candidates = [];
let chosen = 0;
let isDeciding = false;
let steps = 0; // the number of steps that this page was asked to show
let ahead = []; // the pictures of the next step, which are loaded while the person looks at this one

function choose(index, isMoved) {
  if (!candidates.length) {
    return;
  }
  chosen = (index + candidates.length) % candidates.length;
  candidates.forEach((one, place) => one.classList.toggle("is-chosen", place === chosen && candidates.length > 1));
  if (isMoved) {
    candidates[chosen].focus({ preventScroll: true });
    candidates[chosen].scrollIntoView({ block: "nearest" });
  }
}

function press(key) {
  const selector = `[data-key="${key}"]`;
  const own = candidates.length ? candidates[chosen].querySelector(selector) : null;
  const control = own || document.querySelector(`.last ${selector}, .pager ${selector}`);
  if (control && !control.disabled) {
    control.click();
  } else {
    answerIdle(key, Boolean(control));
  }
}

document.addEventListener("keydown", (event) => {
  const isTyping = event.target.closest("input:not([type=hidden]), textarea, select, video");
  if (isTyping || event.ctrlKey || event.metaKey || event.altKey || event.repeat) {
    return;
  }
  const key = event.key.toLowerCase();
  const isVariant = /^[1-9]$/.test(key) && Number(key) <= candidates.length && candidates.length > 1;
  if (isVariant) {
    choose(Number(key) - 1, true);
  } else if (candidates.length > 1 && (key === "arrowleft" || key === "arrowright")) {
    choose(chosen + (key === "arrowright" ? 1 : -1), true);
  } else if (!"kdrunp".includes(key) || key.length !== 1) {
    return;
  } else {
    press(key);
  }
  event.preventDefault();
});

// A decision goes through the HTTP interface, as those of other programs. The form does the same without this script.
async function decide(form, decided) {
  const field = (name) => form.elements.namedItem(name).value;
  const job = form.dataset.decision;
  const answer = await fetch(`${job}/${decided}`, {
    method: "POST",
    headers: { "Content-Type": "application/json", "X-CSRF-Token": field("csrf_token") },
    body: JSON.stringify({ items: { [field("id")]: Number(field("version")) } }),
  });
  if (!answer.ok) {
    throw new Error("refused");
  }
  const page = new URL(form.action);
  const query = new URLSearchParams({ at: field("at") });
  if (page.searchParams.has("all")) {
    query.set("all", "true");
  }
  const step = await (await fetch(`${job}/review?${query}`)).json();
  const place = decided !== "undo" && step.decided ? step.next : field("at");
  if (place) {
    page.searchParams.set("at", place);
  }
  page.searchParams.set("last", form.dataset.item);
  await show(page);
}

document.addEventListener("submit", (event) => {
  const form = event.target;
  const button = event.submitter;
  if (!form.dataset.decision || !button || button.name !== "decided") {
    return;
  }
  event.preventDefault();
  if (isDeciding) {
    return;
  }
  isDeciding = true;
  decide(form, button.value).catch(() => {
    // The page that the server returns says why: another version is current, or the connection is lost.
    form.append(Object.assign(document.createElement("input"), { type: "hidden", name: "decided", value: button.value }));
    form.submit();
  });
});

window.addEventListener("pageshow", () => (isDeciding = false));

// The next step replaces this one within the page, so that nothing but its text is read when a key is pressed.
async function read(url) {
  const answer = await fetch(url);
  if (!answer.ok) {
    throw new Error("refused");
  }
  return new DOMParser().parseFromString(await answer.text(), "text/html");
}

async function show(url, isBack) {
  steps += 1;
  const mine = steps;
  try {
    const page = await read(url);
    if (mine !== steps) {
      return; // another key was pressed meanwhile
    }
    if (!isBack) {
      history.pushState(null, "", url);
    }
    document.title = page.title;
    const [known] = candidates;
    main.replaceChildren(...page.getElementById("main").childNodes);
    if (known && document.getElementById(known.id)) { // the same variants: the next one to decide about
      begin(chosen);
      candidates[chosen].scrollIntoView({ block: "nearest" });
    } else {
      begin(0);
      scrollTo(0, 0);
    }
    const last = document.querySelector(".last span");
    if (last && last.getBoundingClientRect().bottom < 0) {
      answer(last.textContent); // the words about the decision are above the window
    }
  } catch {
    location.assign(url); // the browser says what is wrong
  }
}

async function lookAhead() {
  const link = document.querySelector(".pager a[rel=next]");
  const mine = steps;
  if (!link) {
    return;
  }
  const page = await read(link.href).catch(() => null);
  if (page && mine === steps) {
    const urls = [...page.querySelectorAll("#main img")].map((image) => image.getAttribute("src"));
    ahead = urls.map((src) => Object.assign(new Image(), { src }));
    ahead.forEach((image) => image.decode().catch(() => null)); // a gap, which the step shows
  }
}

document.addEventListener("click", (event) => {
  const link = event.target.closest(".pager a[rel]");
  if (link && event.button === 0 && !event.ctrlKey && !event.metaKey && !event.shiftKey && !event.altKey) {
    event.preventDefault();
    show(link.href);
  }
});

window.addEventListener("popstate", () => show(location.href, true));

function begin(from) {
  candidates = [...document.querySelectorAll("[data-candidate]")];
  // A person who points at a variant means that one.
  candidates.forEach((one, place) => one.addEventListener("focusin", () => choose(place, false)));
  const open = candidates.map((one, place) => (one.classList.contains("v-none") ? place : -1)).filter((place) => place >= 0);
  choose(open.find((place) => place >= from) ?? open[0] ?? 0, false);
  isDeciding = false;
  lookAhead();
}

begin(0);
document.documentElement.dataset.keys = "ready"; // the page names its keys from now on: one pressed earlier has no effect
