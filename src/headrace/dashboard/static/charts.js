// Under the pointer a chart tells its numbers at that moment. Whoever has no pointer finds them in the chart's table.
"use strict";
(() => {
  const tip = document.createElement("div");
  const hair = document.createElement("div");
  tip.className = "tip";
  hair.className = "hair";
  for (const part of [tip, hair]) {
    part.hidden = true;
    part.setAttribute("aria-hidden", "true");
    document.body.append(part);
  }

  function hide() {
    tip.hidden = hair.hidden = true;
  }

  function show(drawing, event) {
    const box = drawing.getBoundingClientRect();
    const scale = box.width / drawing.viewBox.baseVal.width;
    const at = (event.clientX - box.left) / scale;
    const names = JSON.parse(drawing.dataset.names);
    const points = JSON.parse(drawing.dataset.points);
    const nearest = points.reduce((best, point) => (Math.abs(point[0] - at) < Math.abs(best[0] - at) ? point : best));
    const left = box.left + nearest[0] * scale + scrollX;
    const lines = names.map((name, index) => `${name} ${nearest[2][index]}`);
    tip.textContent = [`${nearest[1]} UTC`, ...lines].join("\n");
    tip.hidden = hair.hidden = false;
    hair.style.left = `${left}px`;
    hair.style.top = `${box.top + scrollY + 8}px`;
    hair.style.height = `${box.height - 30 * scale}px`;
    const isRight = left + tip.offsetWidth + 16 > scrollX + document.documentElement.clientWidth;
    tip.style.left = `${isRight ? left - tip.offsetWidth - 10 : left + 10}px`;
    tip.style.top = `${box.top + scrollY + 12}px`;
  }

  document.addEventListener("pointermove", (event) => {
    const drawing = event.pointerType === "mouse" && event.target.closest("svg[data-points]");
    if (drawing) show(drawing, event);
    else if (!tip.hidden) hide();
  });
  document.addEventListener("scroll", hide, { passive: true });
})();
