// Keeps the page up to date: the server sends each part once it has changed, and this puts it in its place.
"use strict";
(() => {
  const text = document.getElementById("live-text");
  const state = document.getElementById("live-state");
  const isLive = document.body.hasAttribute("data-live-page");
  let source = null;
  let watchdog = 0;

  function say(kind, words) {
    if (state.dataset.kind !== kind) {
      state.dataset.kind = kind;
      text.textContent = words;
    }
  }

  function alive() {
    clearTimeout(watchdog);
    watchdog = setTimeout(connect, 30000); // a connection can be dead without saying so
  }

  function connect() {
    if (source) source.close();
    const query = new URLSearchParams({ path: location.pathname + location.search, template: document.body.dataset.livePage });
    source = new EventSource(`/live?${query}`);
    source.addEventListener("part", (event) => {
      const part = JSON.parse(event.data);
      const target = document.querySelector(`[data-live="${part.name}"]`);
      if (target) window.headraceMorph(target, part.html);
    });
    source.addEventListener("seen", () => { alive(); say("live", "live"); });
    source.addEventListener("heartbeat", alive);
    source.addEventListener("reload", () => { source.close(); location.reload(); });
    source.addEventListener("full", (event) => { source.close(); say("off", JSON.parse(event.data)); });
    source.addEventListener("error", () => {
      say("lost", "dashboard unreachable, retrying");
      // The browser tries again by itself after a lost connection, but not after an answer that is no stream.
      if (source.readyState === EventSource.CLOSED) { clearTimeout(watchdog); watchdog = setTimeout(connect, 2000); }
    });
    alive();
  }

  if (isLive) {
    connect();
    addEventListener("pagehide", () => source && source.close());
    addEventListener("pageshow", (event) => { if (event.persisted) connect(); });
    document.addEventListener("visibilitychange", () => {
      // A page that nobody sees asks for nothing.
      if (document.hidden) { clearTimeout(watchdog); source.close(); } else connect();
    });
  }

  // Filters take effect while one types: the address changes, and the stream of the new address brings the rows.
  for (const form of document.querySelectorAll("form[data-instant]")) {
    let pause = 0;
    const update = () => {
      const isChosen = ([name, value]) => value && form.elements[name].selectedIndex !== 0; // the first choice is the usual one
      const query = new URLSearchParams([...new FormData(form)].filter(isChosen));
      history.replaceState(null, "", query.size ? `?${query}` : location.pathname);
      connect();
    };
    form.addEventListener("input", () => { clearTimeout(pause); pause = setTimeout(update, 150); });
    form.addEventListener("submit", (event) => { event.preventDefault(); update(); });
  }
})();
