// What a page owes to people who do not see it, or do not use a mouse: a list of what is missing.
() => {
  const missing = [];
  const tell = (what, node) => missing.push(`${what}: ${node.outerHTML.slice(0, 120)}`);
  const named = (node) =>
    node.getAttribute("aria-label") || node.getAttribute("aria-labelledby") || node.textContent.trim() || node.title;
  for (const field of document.querySelectorAll("input:not([type=hidden]), select, textarea"))
    if (!field.labels.length && !field.getAttribute("aria-label")) tell("a field without a label", field);
  for (const table of document.querySelectorAll("table")) if (!table.caption) tell("a table without a caption", table);
  for (const head of document.querySelectorAll("thead th")) if (!head.scope) tell("a column head without scope", head);
  for (const control of document.querySelectorAll("button, a")) if (!named(control)) tell("a control without a name", control);
  for (const drawing of document.querySelectorAll("main svg"))
    if (drawing.getAttribute("aria-hidden") !== "true" && !drawing.getAttribute("aria-label")) tell("a drawing without words", drawing);
  for (const chart of document.querySelectorAll("figure.chart:not(.batches)"))
    if (!chart.querySelector("table") && !chart.querySelector(".chart-empty")) tell("a chart without its numbers", chart);
  const ids = [...document.querySelectorAll("[id]")].map((node) => node.id);
  for (const id of new Set(ids)) if (ids.filter((other) => other === id).length > 1) missing.push(`id ${id} stands twice`);
  if (document.querySelectorAll("h1").length !== 1) missing.push("not exactly one h1");
  if (!document.documentElement.lang) missing.push("no language");
  if (!document.querySelector("main") || !document.querySelector("nav[aria-label]")) missing.push("no landmarks");
  return missing;
}
