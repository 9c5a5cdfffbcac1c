// A topic, live in a page. Whatever breaks the connection, the page goes on behind the last record that it has shown:
// none is missed and none comes twice. The place is kept for the tab, so that a reload goes on there, too.
"use strict";

const asked = new URLSearchParams(location.search);
const gateway = asked.get("gateway") || "http://127.0.0.1:8500";
const topic = encodeURIComponent(asked.get("topic") || "prices");
const usesSocket = asked.get("via") === "websocket";
const AGAIN_MS = 500;

const shown = Object.fromEntries(["state", "received", "reconnected", "missed", "via", "prices", "empty"].map(
  (id) => [id, document.getElementById(id)]));
const counts = { received: 0, reconnected: 0, missed: 0 };
const rows = new Map();
let place = sessionStorage.getItem("place") || "";
let hasBeenLive = false;

function count(what, more = 1) {
  counts[what] += more;
  shown[what].textContent = counts[what];
}

function say(state) {
  shown.state.dataset.is = state;
  shown.state.textContent = { live: "live", away: "away, trying again", connecting: "connecting" }[state];
}

function keep(newPlace) {
  place = newPlace;
  sessionStorage.setItem("place", place);
}

function live(newPlace) {
  if (hasBeenLive) count("reconnected");
  hasBeenLive = true;
  keep(newPlace);
  say("live");
}

function show(record, newPlace) {
  keep(newPlace);
  count("received");
  const { article, price, number } = record.value;
  let row = rows.get(article);
  if (!row) {
    const line = shown.prices.insertRow();
    row = { cells: [0, 1, 2, 3].map(() => line.insertCell()), price };
    rows.set(article, row);
    shown.empty.hidden = true;
  }
  const change = price - row.price;
  row.price = price;
  row.cells[0].textContent = article;
  row.cells[1].textContent = price.toFixed(2);
  row.cells[2].textContent = (change > 0 ? "+" : "") + change.toFixed(2);
  row.cells[2].className = change > 0 ? "up" : change < 0 ? "down" : "";
  row.cells[3].textContent = number;
}

const question = () => `from=${encodeURIComponent(place || "earliest")}`;

// The browser connects again by itself, with the last id; it gives up only when it is answered with an error, as it is
// while the gateway's broker is away.
function listen() {
  const events = new EventSource(`${gateway}/events/${topic}?${question()}`);
  events.addEventListener("live", (event) => live(event.lastEventId));
  events.addEventListener("record", (event) => show(JSON.parse(event.data), event.lastEventId));
  events.addEventListener("missed", (event) => count("missed", JSON.parse(event.data).missed));
  events.onerror = () => {
    say("away");
    if (events.readyState === EventSource.CLOSED) setTimeout(listen, AGAIN_MS);
  };
}

function open() {
  const socket = new WebSocket(`${gateway.replace(/^http/, "ws")}/ws/${topic}?${question()}`, ["headrace.v1"]);
  socket.onmessage = (event) => {
    const said = JSON.parse(event.data);
    if (said.type === "record") show(said.record, said.place);
    else if (said.type === "live") live(said.place);
    else if (said.type === "heartbeat") keep(said.place);
    else if (said.type === "missed") count("missed", said.missed);
  };
  socket.onclose = () => {
    say("away");
    setTimeout(open, AGAIN_MS);
  };
}

shown.via.textContent = usesSocket ? "WebSocket" : "server-sent events";
if (usesSocket) open();
else listen();
