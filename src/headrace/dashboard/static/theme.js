// Before the first paint, so that a page chosen to be dark never flashes.
"use strict";
(() => {
  const THEMES = ["system", "light", "dark"];
  const stored = () => {
    try { return localStorage.getItem("headrace-theme") || "system"; } catch { return "system"; }
  };
  const apply = (theme) => {
    if (theme === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
  };
  apply(stored());
  window.headraceTheme = {
    current: stored,
    next() {
      const theme = THEMES[(THEMES.indexOf(stored()) + 1) % THEMES.length];
      try { localStorage.setItem("headrace-theme", theme); } catch { /* a private window forgets it, and that is fine */ }
      apply(theme);
      return theme;
    },
  };
})();
