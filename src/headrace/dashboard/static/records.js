// Records of a topic: the last ones and those that come, or a search that the server does and tells the progress of.
"use strict";
(() => {
  const MOST = 500; // rows on the page; what is older goes
  const form = document.getElementById("search");
  const rows = document.getElementById("records");
  const bar = document.getElementById("search-progress");
  const state = document.getElementById("search-state");
  const problem = document.getElementById("search-problem");
  const cancel = document.getElementById("cancel");
  const follow = document.getElementById("follow");
  const nothing = document.getElementById("no-records");
  const nothingText = document.getElementById("no-records-text");
  const number = new Intl.NumberFormat("en");
  let source = null;
  let isFollowing = false;
  let last = { read: 0, total: 0, found: 0 };

  function fields() {
    return [...new FormData(form)].filter(([, value]) => value.trim());
  }

  function stop(words) {
    if (source) source.close();
    source = null;
    cancel.hidden = true;
    bar.hidden = true;
    follow.setAttribute("aria-pressed", "false");
    if (words !== undefined) state.textContent = words;
    if (!rows.childElementCount) {
      nothing.hidden = false;
      nothingText.textContent = fields().length ? "No record matches" : "No records";
    }
  }

  function count() {
    return `${number.format(last.found)} matches in ${number.format(last.read)} of ${number.format(last.total)} records`;
  }

  function run(shouldFollow) {
    if (source) source.close();
    isFollowing = shouldFollow;
    rows.replaceChildren();
    nothing.hidden = true;
    problem.hidden = true;
    last = { read: 0, total: 0, found: 0 };
    const query = new URLSearchParams(fields());
    history.replaceState(null, "", query.size ? `?${query}` : location.pathname);
    if (shouldFollow) {
      query.set("follow", "1");
      if (!query.has("from")) query.set("from", "-25");
    }
    cancel.hidden = false;
    follow.setAttribute("aria-pressed", String(shouldFollow));
    bar.hidden = shouldFollow;
    bar.value = 0;
    state.textContent = shouldFollow ? "following" : "searching";
    source = new EventSource(`${form.dataset.stream}?${query}`);
    source.addEventListener("records", (event) => {
      nothing.hidden = true;
      rows.insertAdjacentHTML("afterbegin", JSON.parse(event.data).html);
      while (rows.childElementCount > MOST) rows.lastElementChild.remove();
    });
    source.addEventListener("progress", (event) => {
      last = JSON.parse(event.data);
      bar.value = last.total ? last.read / last.total : 1;
      if (isFollowing) {
        nothing.hidden = rows.childElementCount > 0 || last.read < last.total;
        nothingText.textContent = "No records yet. New records appear here as they are written";
        state.textContent = "following";
      } else state.textContent = count();
    });
    source.addEventListener("done", () => stop(`done: ${count()}`));
    source.addEventListener("problem", (event) => {
      stop("");
      problem.textContent = JSON.parse(event.data);
      problem.hidden = false;
      nothing.hidden = true;
    });
    source.addEventListener("error", () => {
      // A search begun anew by itself would show its finds twice; what is followed goes on as soon as it can.
      const wasFollowing = isFollowing;
      stop(wasFollowing ? "connection lost, retrying" : "connection lost, search again");
      if (wasFollowing) setTimeout(() => { if (!source) run(true); }, 2000);
    });
  }

  form.addEventListener("submit", (event) => { event.preventDefault(); run(false); });
  follow.addEventListener("click", () => (source && isFollowing ? stop("stopped") : run(true)));
  cancel.addEventListener("click", () => {
    if (source) stop(isFollowing ? "stopped" : `stopped: ${count()}`);
  });
  addEventListener("pagehide", () => source && source.close());
  run(!fields().some(([name]) => name !== "wrote"));
})();
