// The keyboard: shortcuts, their help, the menu on a phone, and the switch between light and dark.
"use strict";
(() => {
  const help = document.getElementById("help");
  const menu = document.getElementById("menu");
  const menuButton = document.getElementById("menu-button");
  const themeButton = document.getElementById("theme-switch");
  let isGoing = false;
  let goingUntil = 0;

  function nameTheme(theme) {
    themeButton.setAttribute("aria-label", `Colours: ${theme}. Change`);
    themeButton.title = `Colours: ${theme}`;
  }
  nameTheme(window.headraceTheme.current());
  themeButton.addEventListener("click", () => nameTheme(window.headraceTheme.next()));

  document.getElementById("help-open").addEventListener("click", () => help.showModal());
  menuButton.addEventListener("click", () => {
    const isOpen = menu.classList.toggle("open");
    menuButton.setAttribute("aria-expanded", String(isOpen));
  });

  const isTyping = (target) => target.closest("input:not([type=checkbox]), textarea, select, [contenteditable]");

  function moveRow(step) {
    const links = [...document.querySelectorAll("main table.rows tbody th a, main table.records summary")];
    if (!links.length) return;
    const at = links.indexOf(document.activeElement);
    const next = links[at < 0 ? (step > 0 ? 0 : links.length - 1) : Math.min(Math.max(at + step, 0), links.length - 1)];
    next.focus();
    next.scrollIntoView({ block: "nearest" });
  }

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || help.open) return;
    if (isTyping(event.target)) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    if (isGoing && Date.now() < goingUntil) {
      isGoing = false;
      const link = document.querySelector(`nav a[data-shortcut="${CSS.escape(event.key)}"]`);
      if (link) { event.preventDefault(); link.click(); }
      return;
    }
    const actions = {
      "?": () => help.showModal(),
      "/": () => document.querySelector("[data-search]")?.focus(),
      g: () => { isGoing = true; goingUntil = Date.now() + 1500; },
      j: () => moveRow(1),
      k: () => moveRow(-1),
      t: () => nameTheme(window.headraceTheme.next()),
      Escape: () => document.getElementById("cancel")?.click(),
    };
    if (Object.hasOwn(actions, event.key)) {
      if (event.key === "/") event.preventDefault();
      actions[event.key]();
    }
  });
})();
