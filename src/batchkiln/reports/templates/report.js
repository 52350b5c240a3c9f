"use strict";
// Filters the cards of this page, and enlarges their pictures. Without scripts, all cards are shown as they are.
addEventListener("DOMContentLoaded", () => {
  const form = document.querySelector(".filter");
  const cards = [...document.querySelectorAll(".sheet > figure")];
  const boxes = [...form.querySelectorAll("[type=checkbox]")];
  const search = form.querySelector("[type=search]");
  const shown = form.querySelector("output");
  const textOf = (node) => node.textContent.toLowerCase();
  const texts = cards.map((card) => [...card.querySelectorAll(".id b, .prompt, .error, .meta span span")].map(textOf).join("\n"));
  const here = new Set(cards.map((card) => card.dataset.state));
  for (const box of boxes) box.parentElement.hidden = here.size < 2 || !here.has(box.value);
  const filter = () => {
    const words = search.value.toLowerCase().split(/\s+/);
    const states = new Set(boxes.filter((box) => box.checked).map((box) => box.value));
    let count = 0;
    cards.forEach((card, at) => {
      const fits = states.has(card.dataset.state) && words.every((word) => texts[at].includes(word));
      card.hidden = !fits;
      count += fits;
    });
    shown.value = `${count} of ${cards.length}${shown.dataset.of}`;
  };
  // A link to a card shows it, whatever the filter.
  addEventListener("hashchange", () => {
    const card = document.getElementById(location.hash.slice(1));
    if (card && card.hidden) {
      form.reset();
      filter();
      card.scrollIntoView();
    }
  });
  form.addEventListener("input", filter);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.hidden = cards.length < 2;
  filter();

  const pictures = [...document.querySelectorAll(".sheet .cell img")];
  const view = document.body.appendChild(document.createElement("dialog"));
  view.setAttribute("aria-label", "Picture");
  let current = 0;
  const show = (at) => {
    current = at;
    const caption = document.createElement("p");
    caption.textContent = pictures[at].closest("figure").querySelector(".id b").textContent;
    view.replaceChildren(pictures[at].cloneNode(), caption);
    if (!view.open) view.showModal();
  };
  const step = (by) => {
    let at = current + by;
    while (pictures[at] && pictures[at].closest("figure").hidden) at += by;
    if (pictures[at]) show(at);
  };
  pictures.forEach((picture, at) => {
    const button = document.createElement("button");
    button.title = "Enlarge";
    picture.replaceWith(button);
    button.append(picture);
    button.addEventListener("click", () => show(at));
  });
  view.addEventListener("click", () => view.close());
  view.addEventListener("close", () => pictures[current].parentElement.focus());
  view.addEventListener("keydown", (event) => {
    if (event.key === "ArrowRight") step(1);
    if (event.key === "ArrowLeft") step(-1);
  });
});
