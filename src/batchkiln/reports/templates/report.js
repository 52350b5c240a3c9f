"use strict";
// Filters the cards of this page. Without scripts, all cards are shown.
addEventListener("DOMContentLoaded", () => {
  const form = document.querySelector(".filter");
  const cards = [...document.querySelectorAll(".sheet > figure")];
  const boxes = [...form.querySelectorAll("[type=checkbox]")];
  const search = form.querySelector("[type=search]");
  const shown = form.querySelector("output");
  const texts = cards.map((card) => card.querySelector("figcaption").textContent.toLowerCase());
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
    shown.value = count === cards.length ? "" : `${count} of ${cards.length}`;
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
});
