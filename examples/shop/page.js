"use strict";
// All of the page is made from one JSON object a second; text goes in as text, never as markup.
const token = document.querySelector("meta[name=token]").content;
const mortal = { broker: "the broker", "cdc.shop": "the capture", "pipelines.shop": "the pipelines", "views.keep": "the view's keeper", "sync.warehouse": "the warehouse's feed" };
const at = (id) => document.getElementById(id);
const number = (value) => Number(value).toLocaleString("en");
const money = (cents) => (Number(cents) / 100).toLocaleString("en", { minimumFractionDigits: 2 }) + " €";
const clock = (seconds) => new Date(seconds * 1000).toLocaleTimeString("en-GB");

function element(name, text, kind) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (kind) made.className = kind;
  return made;
}

function table(heads, rows) {
  const made = element("table"), head = made.createTHead().insertRow(), body = made.createTBody();
  for (const [text, kind] of heads) { const cell = element("th", text, kind); cell.scope = "col"; head.append(cell); }
  for (const cells of rows) {
    const row = body.insertRow();
    cells.forEach(([text, kind], place) => row.append(element("td", text, [heads[place][1], kind].filter(Boolean).join(" "))));
  }
  return made;
}

const fails = (side) => !side || side.error !== undefined;
const held = (side, text) => (fails(side) ? ["not to be reached right now", "warn"] : [text]);

function show(now) {
  at("state").textContent = `as of ${clock(now.at)}` + (now.buying ? "" : " · customers rest");
  const links = now.parts.filter((part) => part.url).map((part) => [part.name, part.url]);
  at("links").replaceChildren(...links.flatMap(([name, url]) => {
    const link = element("a", name === "dashboard" ? "the dashboard" : "the view over HTTP");
    link.href = name === "dashboard" ? url : `${url}/views/cities`;
    return [link, " "];
  }));
  const log = now.log ?? {};
  at("flow").replaceChildren(table([["step"], ["records", "n"]], [
    [["orders in the database"], held(now.database, number(now.database?.orders))],
    [["changes of orders in the log"], held(now.log, number(log["shop.public.orders"]))],
    [["orders with the city of their time"], held(now.log, number(log["shop.enriched"]))],
    [["windows told"], held(now.revenue, number(now.revenue?.total))],
    [["… of these told again, for late orders"], held(now.revenue, number(now.revenue?.corrected))],
  ]));
  const word = { true: ["the same", "good"], false: ["on its way", "warn"], null: ["not known", "muted"] };
  const lag = Object.fromEntries((Array.isArray(now.derived) ? now.derived : []).map((each) => [each.name, each]));
  const behind = (name) => (lag[name] ? `${number(lag[name].lag)} records behind` : "");
  at("step").replaceChildren(table([["side"], ["orders", "n"], ["worth", "n"], [""]], [
    [["PostgreSQL"], held(now.database, number(now.database?.standing)), [fails(now.database) ? "" : money(now.database.cents)], [""]],
    [["view"], held(now.view, number(now.view?.orders)), [fails(now.view) ? "" : money(now.view.cents)], word[now.in_step?.view]],
    [["cache of products"], [""], [behind("cache")], word[now.in_step?.cache]],
    [["search index"], [""], [behind("search")], word[now.in_step?.search]],
    [["warehouse"], [""], [behind("warehouse")], word[now.in_step?.warehouse]],
  ]));
  for (const button of at("kill").children) {
    const part = now.parts.find((each) => each.name === button.dataset.do);
    button.disabled = !part || part.phase !== "running";
  }
  at("late").textContent = `${number(now.late)} such orders so far in this run.`;
  at("revenue").replaceChildren(fails(now.revenue) ? element("p", "no window has ended yet", "muted") : table(
    [["from"], ["city"], ["orders", "n"], ["worth", "n"], ["revision", "n"]],
    now.revenue.windows.map((each) => [[String(each.window_start).slice(11, 19)], [each.city], [number(each.orders)],
      [money(each.cents)], [each.revision, each.revision > 1 ? "warn" : ""]])));
  if (!fails(now.view)) {
    const fresh = now.view.freshness;
    at("freshness").textContent = `Batch ${fresh.batch}, written ${(fresh.age_ms / 1000).toFixed(1)} s ago; the answer itself says so.`;
    at("view").replaceChildren(table([["city"], ["orders", "n"], ["worth", "n"]],
      now.view.rows.map((row) => [[row.city], [number(row.orders)], [money(row.cents)]])));
  }
  at("parts").replaceChildren(table([["part"], ["state"], ["pid", "n"], ["started again", "n"]],
    now.parts.map((part) => [[part.name], [part.phase, ["running", "done"].includes(part.phase) ? "good" : "bad"],
      [part.pid ?? "–"], [part.restarts]])));
  at("story").replaceChildren(...now.story.map((line) => {
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
source.onerror = () => { at("state").textContent = "the demo has ended, or is starting again"; };
