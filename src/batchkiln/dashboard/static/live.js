// Replaces the changed parts of a page by server-sent events. Without this script the pages are complete but static.
"use strict";

const main = document.getElementById("main");
const offline = document.getElementById("offline");
const icons = { fine: "/static/icon.svg", look: "/static/icon-look.svg", help: "/static/icon-help.svg" };
const deferred = new Map(); // parts to replace after the person has ended a click, or a text selection in them
const WIDE = ".strip, .scroll"; // what scrolls sideways
const TITLE_MAX = 60;
const AGAIN_MS = 1000;
const LARGE = ".view img, .outputs a:has(+ template) img"; // whole files, and no small pictures
let isPressed = false; // a button of the mouse is down: the click is lost if its link is replaced or moved meanwhile
let source = null;
let lastMessageAt = 0;
let wasClosed = false; // the dashboard said that it ends

// Times come in UTC. They are shown in the browser's time zone, with its name.
const zone = new Intl.DateTimeFormat("en-GB", {
  year: "numeric",
  month: "2-digit",
  day: "2-digit",
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
  hourCycle: "h23",
  timeZoneName: "short",
});

function partsOf(at) {
  return Object.fromEntries(zone.formatToParts(new Date(at)).map(({ type, value }) => [type, value]));
}

function showLocalTimes(root) {
  for (const time of root.querySelectorAll("time[datetime]")) {
    const { year, month, day, hour, minute, second, timeZoneName } = partsOf(time.dateTime);
    const hasZone = /[A-Z]/.test(time.textContent); // to the minute; a list of seconds names the zone below the page
    const date = /^\d{4}-/.test(time.textContent) ? `${year}-${month}-${day} ` : ""; // a plot has hours alone
    time.title = time.title || `${time.dateTime.slice(0, 19).replace("T", " ")} UTC`;
    time.textContent = `${date}${hour}:${minute}${hasZone ? ` ${timeZoneName}` : `:${second}`}`;
  }
  for (const title of root.querySelectorAll("svg title")) { // the bars of a plot; SVG has no <time>
    title.textContent = title.textContent.replace(/(\d{4}-\d\d-\d\d) (\d\d:\d\d) UTC/, (_, date, at) => {
      const { year, month, day, hour, minute, timeZoneName } = partsOf(`${date}T${at}Z`);
      return `${year}-${month}-${day} ${hour}:${minute} ${timeZoneName}`;
    });
  }
}

// Entries of a list that are as they were stay the same nodes, so that their pictures do not flicker.
function keepKnown(part, fresh) {
  for (const entry of fresh.querySelectorAll("li[data-key]")) {
    const known = part.querySelector(`li[data-key="${CSS.escape(entry.dataset.key)}"]`);
    if (known && known.isEqualNode(entry)) {
      entry.replaceWith(known);
    }
  }
}

// New rows come before the others. A row that is open, or that the person has scrolled to, stays where it is.
function rowBeingRead(part) {
  const inView = [...part.querySelectorAll("li[data-key]")].filter((row) => {
    const { top, bottom } = row.getBoundingClientRect();
    return bottom > 0 && top < innerHeight;
  });
  const isScrolledTo = part.getBoundingClientRect().top < 0;
  const row = inView.find((each) => each.querySelector("details[open]")) || (isScrolledTo && inView[0]);
  return row ? { key: row.dataset.key, top: row.getBoundingClientRect().top } : null;
}

function replacePart(name, html) {
  const part = main.querySelector(`[data-part="${name}"]`);
  if (!part) {
    return;
  }
  const selection = window.getSelection();
  if (isPressed || (!selection.isCollapsed && part.contains(selection.anchorNode))) {
    deferred.set(name, html);
    return;
  }
  deferred.delete(name);
  const active = part.contains(document.activeElement) ? document.activeElement : null;
  const scrolled = [...part.querySelectorAll(WIDE)].map((each) => each.scrollLeft);
  const read = rowBeingRead(part);
  const nameOf = (each, place) => each.id || place; // entries of a history have ids, because new ones come before them
  const all = [...part.querySelectorAll("details")];
  const open = all.map((each, place) => each.open && nameOf(each, place));
  const fresh = document.createElement("template");
  fresh.innerHTML = html; // rendered by the server, which escapes all data
  showLocalTimes(fresh.content);
  fresh.content.querySelectorAll("details").forEach((each, place) => (each.open = each.open || open.includes(nameOf(each, place))));
  keepKnown(part, fresh.content);
  part.replaceChildren(fresh.content);
  const href = active && active.getAttribute("href");
  const again = active && active.isConnected ? active : href && part.querySelector(`a[href="${CSS.escape(href)}"]`);
  if (again) {
    again.focus({ preventScroll: true });
  }
  part.querySelectorAll(WIDE).forEach((each, place) => (each.scrollLeft = scrolled[place] || 0));
  const same = read && part.querySelector(`li[data-key="${CSS.escape(read.key)}"]`);
  if (same) {
    scrollBy(0, same.getBoundingClientRect().top - read.top);
  }
  showVerdict();
}

// The tab shows the headline: its level as the icon and, on the overview, its text.
function showVerdict() {
  const headline = main.querySelector("[data-level]");
  if (headline) {
    document.getElementById("icon").href = icons[headline.dataset.level];
    if (location.pathname === "/") {
      const text = headline.dataset.title;
      const project = document.body.dataset.project;
      const start = text.length > TITLE_MAX ? `${text.slice(0, TITLE_MAX - 1)}…` : text;
      document.title = [start, project, "batchkiln"].filter(Boolean).join(" · ");
    }
  }
}

function replaceDeferred() {
  if (deferred.size) {
    deferred.forEach((html, name) => replacePart(name, html));
    document.dispatchEvent(new Event("parts"));
  }
}

function setOffline(isOffline) {
  offline.hidden = !isOffline;
  offline.textContent = wasClosed
    ? "The dashboard was closed. This page shows the queue as it was then."
    : "Not connected: this page is out of date. The dashboard has ended, or cannot be reached.";
  offline.classList.toggle("is-closed", wasClosed);
  document.body.classList.toggle("is-offline", isOffline);
}

function connect() {
  source = new EventSource(main.dataset.events);
  lastMessageAt = Date.now();
  source.onopen = () => {
    wasClosed = false;
    setOffline(false);
  };
  source.addEventListener("closed", () => (wasClosed = true));
  source.onmessage = (event) => {
    lastMessageAt = Date.now();
    for (const [name, html] of Object.entries(JSON.parse(event.data))) {
      replacePart(name, html);
    }
    document.dispatchEvent(new Event("parts"));
  };
  source.onerror = () => {
    setOffline(true);
    if (source.readyState === EventSource.CLOSED) {
      source = null;
      setTimeout(() => !document.hidden && !source && connect(), 5000);
    }
  };
}

// A tunnel can lose its connection without an error. The server sends a message at least every five seconds.
function checkConnection() {
  if (source && Date.now() - lastMessageAt > 20000) {
    setOffline(true);
    source.close();
    connect();
  }
}

// A hidden page closes its connection, because a browser opens at most six per host.
function connectWhileVisible() {
  if (document.hidden && source) {
    source.close();
    source = null;
  } else if (!document.hidden && !source) {
    connect();
  }
}

// The browser draws the first lines of a damaged picture, and calls it loaded and decoded; it makes no bitmap of it.
function checkWhole(picture) {
  createImageBitmap(picture, { resizeWidth: 8, resizeHeight: 8 }).then(
    (bitmap) => bitmap.close(),
    () => picture.isConnected && tellBroken(picture),
  );
}

// A file that is gone or broken has words in place of the browser's broken picture.
function tellBroken(picture) {
  if (picture.dataset.told) {
    return;
  }
  if (picture.matches("img") && !picture.dataset.again) { // once: the network may have failed, and not the file
    picture.dataset.again = "yes";
    setTimeout(() => picture.setAttribute("src", picture.getAttribute("src")), AGAIN_MS);
    return;
  }
  const link = picture.closest("a");
  const told = (link || picture).nextElementSibling;
  if (told && told.matches("template")) { // the server's words, with the way to have it again
    told.replaceWith(told.content);
    (link || picture).remove();
    return;
  }
  const isSmall = picture.matches(".frame img");
  const text = isSmall ? "no picture" : "This file cannot be shown.";
  picture.dataset.told = text;
  const words = Object.assign(document.createElement("span"), { className: isSmall ? "blank" : "gone", textContent: text });
  if (!isSmall && link) {
    link.replaceWith(words); // it led to the same file
    return;
  }
  picture.after(words);
  picture.hidden = true;
}

// The answer to a key: a few words over the page, which go by themselves.
const ANSWER_MS = 3000;
const KEYS_MS = 20000;
let answerTimer = null;

function answer(words, milliseconds = ANSWER_MS) {
  let told = document.getElementById("answer");
  if (!told) {
    told = Object.assign(document.createElement("p"), { id: "answer", className: "toast" });
    told.setAttribute("role", "status");
    document.body.append(told);
  }
  told.classList.remove("above");
  told.replaceChildren(...(Array.isArray(words) ? words : [words]));
  told.hidden = false;
  clearTimeout(answerTimer);
  answerTimer = setTimeout(() => (told.hidden = true), milliseconds);
}

// A key that has no button to press now says why.
function answerIdle(key, isDisabled) {
  const already = { k: "It is kept already.", d: "It is dropped already." };
  const missing = {
    k: "Nothing is here to keep.",
    d: "Nothing is here to drop.",
    r: "Nothing is here to make again.",
    u: "There is nothing to undo.",
    n: "This is the last one.",
    p: "This is the first one.",
  };
  const mayOnlyLook = "kdru".includes(key) && key.length === 1 && document.querySelector(".limited");
  const words = mayOnlyLook ? "Your token may only look." : (isDisabled && already[key]) || missing[key];
  if (words) {
    answer(words);
  }
}

document.addEventListener("keydown", (event) => {
  const isTyping = event.target.closest("input:not([type=hidden], [type=checkbox]), textarea, select");
  if (!["?", "Escape"].includes(event.key) || isTyping || event.ctrlKey || event.metaKey || event.altKey) {
    return;
  }
  const told = document.getElementById("answer");
  const keys = document.querySelector("#main .keys");
  const areShown = told && !told.hidden && told.textContent === (keys && keys.textContent);
  if (areShown) {
    told.hidden = true;
    event.stopImmediatePropagation(); // Escape does one thing at a time
  } else if (event.key === "Escape") {
    return;
  } else if (keys) {
    answer([...keys.cloneNode(true).childNodes], KEYS_MS);
  } else {
    answer("This page has no keys of its own.");
  }
});

const zoneName = document.getElementById("zone");
if (zoneName) {
  zoneName.textContent = zone.resolvedOptions().timeZone;
}
showLocalTimes(document);

if (main) {
  showVerdict();
  main.addEventListener("error", (event) => event.target.matches("img, video") && tellBroken(event.target), true);
  main.addEventListener("load", (event) => event.target.matches(LARGE) && checkWhole(event.target), true);
  for (const picture of main.querySelectorAll("img")) {
    if (!picture.complete || (!picture.naturalWidth && picture.loading === "lazy")) {
      continue;
    }
    if (!picture.naturalWidth) {
      tellBroken(picture); // it failed before this script was there
    } else if (picture.matches(LARGE)) {
      checkWhole(picture); // likewise
    }
  }
  for (const clip of main.querySelectorAll("video")) {
    if (clip.error) {
      tellBroken(clip); // likewise
    }
  }
}

if (main && main.dataset.events) {
  document.addEventListener("visibilitychange", connectWhileVisible);
  document.addEventListener("selectionchange", replaceDeferred);
  document.addEventListener("pointerdown", () => (isPressed = true));
  for (const end of ["pointerup", "pointercancel", "contextmenu"]) { // a mouse's click comes right after the first
    document.addEventListener(end, () => setTimeout(() => ((isPressed = false), replaceDeferred())));
  }
  setInterval(checkConnection, 5000);
  window.addEventListener("pagehide", () => source && source.close());
  window.addEventListener("pageshow", (event) => event.persisted && ((source = null), connectWhileVisible()));
  connectWhileVisible();
}
