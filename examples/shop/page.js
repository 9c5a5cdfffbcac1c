"use strict";
// All of the page is made from one JSON object a second; text goes in as text, never as markup, and only what changed
// is made anew, so that who listens to the page, or has a finger on it, is not disturbed.
const token = document.querySelector("meta[name=token]").content;
const mortal = { broker: "the broker", "cdc.shop": "the capture", "pipelines.shop": "the pipelines", "sync.warehouse": "the warehouse's feed" };
const at = (id) => document.getElementById(id);
const number = (value) => Number(value ?? 0).toLocaleString("en");
const money = (cents) => (Number(cents) / 100).toLocaleString("en", { minimumFractionDigits: 2, maximumFractionDigits: 2 }) + " €";
const clock = (seconds) => new Date(seconds * 1000).toLocaleTimeString("en-GB");
const begins = (window) => String(window).slice(11, 19);
const fails = (side) => !side || side.error !== undefined;
const seen = {};

function put(id, facts, make) {
  const text = JSON.stringify(facts);
  if (seen[id] === text) return;
  seen[id] = text;
  at(id).replaceChildren(...[make()].flat());
}

function element(name, text, kind) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (kind) made.className = kind;
  return made;
}

function table(caption, heads, rows) {
  const made = element("table");
  made.append(element("caption", caption, "unseen"));
  const head = made.createTHead().insertRow(), body = made.createTBody();
  for (const [text, kind] of heads) { const cell = element("th", text, kind); cell.scope = "col"; head.append(cell); }
  for (const cells of rows) {
    const row = body.insertRow();
    cells.forEach(([text, kind], place) => row.append(element("td", text, [heads[place][1], kind].filter(Boolean).join(" "))));
  }
  return made;
}

function shape(name, places) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(places)) made.setAttribute(key, value);
  return made;
}

function chart(windows) {
  if (!windows.length) return element("p", "no window has closed yet", "muted");
  const room = Math.max(windows.length, 9), width = 100 / room, most = Math.max(...windows.map((each) => each.cents), 1);
  const drawing = shape("svg", { viewBox: "0 0 100 50", preserveAspectRatio: "none", role: "img",
    "aria-label": `Revenue of the last ${windows.length} windows, up to ${money(most)}; the numbers are below` });
  windows.forEach((each, place) => {
    const height = 48 * each.cents / most;
    const bar = shape("rect", { x: (room - windows.length + place) * width + 0.4, y: 50 - height, width: width - 0.8, height });
    if (each.again) bar.setAttribute("class", "again");
    const title = shape("title", {});
    title.textContent = `${begins(each.window_start)}: ${number(each.orders)} orders, ${money(each.cents)}`;
    bar.append(title);
    drawing.append(bar);
  });
  drawing.append(shape("line", { x1: 0, x2: 100, y1: 50, y2: 50 }));
  const axis = element("div", undefined, "axis"), last = windows[windows.length - 1];
  axis.append(element("span", `${windows.length} windows`), element("span", `highest ${money(most)}`), element("span", `newest ${begins(last.window_start)}`));
  return [drawing, axis];
}

function tile(name, value, note) {
  const made = element("div"), told = element("dd", value);
  if (note) told.append(element("small", note));
  made.append(element("dt", name), told);
  return made;
}

function steps(now) {
  const open = now.steps.some((step) => step.seconds === null);
  at("start").hidden = !open;
  if (!open) return;
  put("steps", [now.steps, Math.floor(now.for_s)], () => now.steps.map((step) => {
    const done = step.seconds !== null;
    const item = element("li", done ? `${step.text}, after ${step.seconds.toFixed(0)} s` : step.text, done ? "done" : step.meanwhile ? "now" : "");
    if (step.meanwhile) item.append(element("small", `${step.meanwhile} … ${now.for_s.toFixed(0)} s so far`));
    return item;
  }));
}

function verdict(now) {
  const same = now.in_step && Object.values(now.in_step).every(Boolean);
  const last = now.story.find((line) => line.kind === "proof" || line.kind === "bad");
  let text = "", kind = "";
  if (now.comparing) text = "a part was killed: all copies are compared once it is back", kind = "warn";
  else if (last?.kind === "proof") text = last.text, kind = "proof";
  else if (!now.buying && same) text = "customers are paused and all copies are equal", kind = "proof";
  at("verdict").className = `verdict ${kind}`;
  if (at("verdict").textContent !== text) at("verdict").textContent = text;
}

function show(now) {
  const log = now.log ?? {}, revenue = fails(now.revenue) ? { windows: [], again: [], total: 0, corrected: 0 } : now.revenue;
  const held = (side, text) => (fails(side) ? ["not yet", "muted"] : [text]);
  at("state").textContent = `live, as of ${clock(now.at)}` + (now.buying ? "" : " · customers paused");
  const links = now.parts.filter((part) => part.url).map((part) => [part.name, part.url]);
  put("links", links, () => links.map(([name, url]) => {
    const link = element("a", name === "dashboard" ? "the dashboard" : "the view over HTTP");
    link.href = name === "dashboard" ? url : `${url}/views/cities`;
    return link;
  }));
  steps(now);
  const behind = fails(now.view) || fails(now.database) ? null : now.database.standing - now.view.orders;
  put("tiles", [now.database, behind, revenue.corrected, revenue.total, now.late], () => [
    tile("Valid orders", fails(now.database) ? "–" : number(now.database.standing), "in PostgreSQL"),
    tile("Revenue", fails(now.database) ? "–" : money(now.database.cents), "without cancelled orders"),
    tile("View lag", behind === null ? "–" : `${number(Math.max(behind, 0))} orders`, behind === null ? "not served yet" : "served over HTTP"),
    tile("Late orders", number(now.late), `${number(revenue.corrected)} of ${number(revenue.total)} results corrected`),
  ]);
  put("chart", revenue.windows, () => chart(revenue.windows));
  put("revenue", revenue.windows, () => table("Revenue of each window", [["from"], ["orders", "n"], ["revenue", "n"], ["corrected cities", "n"]],
    [...revenue.windows].reverse().map((each) => [[begins(each.window_start)], [number(each.orders)], [money(each.cents)], [number(each.again), each.again ? "warn" : ""]])));
  put("late", [now.late, revenue.corrected, now.left_out], () => table("Late orders", [["in this run"], ["", "n"]], [
    [["orders placed offline"], [number(now.late)]],
    [["results corrected by them"], [number(revenue.corrected)]],
    [["dropped: more than five minutes late"], [number(now.left_out)]],
  ]));
  put("again", revenue.again, () => (revenue.again.length ? table("Corrected windows", [["corrected"], ["city"], ["orders", "n"], ["revenue", "n"]],
    revenue.again.map((each) => [[begins(each.window_start)], [each.city], [number(each.orders)], [money(each.cents)]])) : []));
  const word = { true: ["equal", "good"], false: ["catching up", "warn"], null: ["not yet", "muted"] };
  const lag = Object.fromEntries((Array.isArray(now.derived) ? now.derived : []).map((each) => [each.name, each]));
  const waits = (name) => (lag[name]?.lag && !now.in_step?.[name] ? `${number(lag[name].lag)} behind` : "");
  put("step", [now.database, now.view, now.in_step, lag], () => table("What each copy holds", [["copy"], ["orders", "n"], ["revenue", "n"], [""]], [
    [["PostgreSQL"], held(now.database, number(now.database?.standing)), [fails(now.database) ? "" : money(now.database.cents)], [""]],
    [["view"], held(now.view, number(now.view?.orders)), [fails(now.view) ? "" : money(now.view.cents)], word[now.in_step?.view]],
    [["cache"], [""], [waits("cache")], word[now.in_step?.cache]],
    [["search index"], [""], [waits("search")], word[now.in_step?.search]],
    [["warehouse"], [""], [waits("warehouse")], word[now.in_step?.warehouse]],
  ]));
  verdict(now);
  for (const button of at("kill").children) {
    const part = now.parts.find((each) => each.name === button.dataset.do);
    button.disabled = !part || part.phase !== "running";
  }
  if (!fails(now.view)) {
    const fresh = now.view.freshness;
    at("freshness").textContent = `Batch ${fresh.batch}, written ${(fresh.age_ms / 1000).toFixed(1)} s ago, as the response reports.`;
    put("view", now.view.rows, () => table("The view by city", [["city"], ["orders", "n"], ["revenue", "n"]],
      now.view.rows.map((row) => [[row.city], [number(row.orders)], [money(row.cents)]])));
  }
  put("flow", [now.database, now.log, now.revenue], () => table("Records at each step", [["step"], ["records", "n"]], [
    [["orders in the database"], held(now.database, number(now.database?.orders))],
    [["changes of orders in the log"], held(now.log, number(log["shop.public.orders"]))],
    [["orders joined with the city at order time"], held(now.log, number(log["shop.enriched"]))],
    [["results emitted, per city and ten seconds"], held(now.revenue, number(revenue.total))],
  ]));
  put("parts", now.parts, () => table("Parts of the stack", [["part"], ["state"], ["pid", "n"], ["restarts", "n"]],
    now.parts.map((part) => [[part.name], [part.phase, ["running", "done"].includes(part.phase) ? "good" : "bad"],
      [part.pid ?? "–"], [part.restarts]])));
  put("story", now.story, () => now.story.map((line) => {
    const item = element("li", undefined, line.kind);
    item.append(element("time", clock(line.at)), line.text);
    return item;
  }));
}

for (const [name, text] of Object.entries(mortal)) {
  const button = element("button", `Kill ${text}`, "kill");
  button.type = "button";
  button.dataset.do = name;
  at("kill").append(button);
}
document.addEventListener("click", async (event) => {
  const what = event.target.dataset?.do;
  if (!what) return;
  const answer = await fetch(`/do/${what}`, { method: "POST", headers: { "X-Token": token } });
  if (!answer.ok) at("state").textContent = (await answer.json()).error;
});
const source = new EventSource("/live");
source.onmessage = (event) => { const now = JSON.parse(event.data); if (now.parts) show(now); };
source.onerror = () => { at("state").textContent = "the demo has ended or is restarting"; };
