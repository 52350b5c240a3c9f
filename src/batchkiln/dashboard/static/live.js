// Replaces the changed parts of a page by server-sent events. Without this script the pages are complete but static.
"use strict";

const main = document.getElementById("main");
const offline = document.getElementById("offline");
const icons = { fine: "/static/icon.svg", look: "/static/icon-look.svg", help: "/static/icon-help.svg" };
const deferred = new Map(); // parts to replace after the person has ended a text selection in them
let source = null;
let lastMessageAt = 0;

function replacePart(name, html) {
  const part = main.querySelector(`[data-part="${name}"]`);
  if (!part) {
    return;
  }
  const selection = window.getSelection();
  if (!selection.isCollapsed && part.contains(selection.anchorNode)) {
    deferred.set(name, html);
    return;
  }
  deferred.delete(name);
  const focused = part.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
  const strip = part.querySelector(".strip");
  const scrolled = strip ? strip.scrollLeft : 0;
  part.innerHTML = html; // rendered by the server, which escapes all data
  if (focused !== null) {
    const again = part.querySelector(`a[href="${CSS.escape(focused)}"]`);
    if (again) {
      again.focus({ preventScroll: true });
    }
  }
  if (scrolled && part.querySelector(".strip")) {
    part.querySelector(".strip").scrollLeft = scrolled;
  }
  const headline = part.querySelector("[data-level]");
  if (headline) {
    document.getElementById("icon").href = icons[headline.dataset.level];
    if (location.pathname === "/") {
      document.title = `${headline.dataset.title} · batchkiln`;
    }
  }
}

function setOffline(isOffline) {
  offline.hidden = !isOffline;
  document.body.classList.toggle("is-offline", isOffline);
}

function connect() {
  source = new EventSource(main.dataset.events);
  lastMessageAt = Date.now();
  source.onopen = () => setOffline(false);
  source.onmessage = (event) => {
    lastMessageAt = Date.now();
    for (const [name, html] of Object.entries(JSON.parse(event.data))) {
      replacePart(name, html);
    }
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

if (main && main.dataset.events) {
  document.addEventListener("visibilitychange", connectWhileVisible);
  document.addEventListener("selectionchange", () => deferred.forEach((html, name) => replacePart(name, html)));
  setInterval(checkConnection, 5000);
  window.addEventListener("pagehide", () => source && source.close());
  window.addEventListener("pageshow", (event) => event.persisted && ((source = null), connectWhileVisible()));
  connectWhileVisible();
}
