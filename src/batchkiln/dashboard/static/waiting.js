// Opens the dashboard as soon as its queue is there. Until then, the server answers that it waits.
"use strict";

setInterval(async () => {
  const answer = await fetch("/waiting").catch(() => null); // for a moment, neither server is there
  if (answer && !answer.ok) {
    location.reload();
  }
}, 1000);
