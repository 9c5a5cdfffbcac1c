// Makes one piece of the page look like new HTML while touching as little as possible: the focus, an opened <details>,
// a scrolled table and a selection survive an update.
"use strict";
(() => {
  const KEPT = { DETAILS: ["open"], INPUT: ["value", "checked"] };

  const keyOf = (node) => (node.nodeType === Node.ELEMENT_NODE ? node.getAttribute("data-key") : null);
  const isAlike = (left, right) =>
    left.nodeType === right.nodeType && left.nodeName === right.nodeName && keyOf(left) === keyOf(right);

  function morphAttributes(target, source) {
    const kept = KEPT[target.nodeName] || [];
    for (const { name, value } of [...source.attributes]) {
      if (!kept.includes(name) && target.getAttribute(name) !== value) target.setAttribute(name, value);
    }
    for (const { name } of [...target.attributes]) {
      if (!kept.includes(name) && !source.hasAttribute(name)) target.removeAttribute(name);
    }
  }

  function morphNode(target, source) {
    if (target.nodeType !== Node.ELEMENT_NODE) {
      if (target.nodeValue !== source.nodeValue) target.nodeValue = source.nodeValue;
      return;
    }
    morphAttributes(target, source);
    morphChildren(target, source);
  }

  function morphChildren(target, source) {
    // Rows with a key move with it, so that a focused row stays focused when another comes before it.
    const keyed = new Map([...target.children].filter((child) => keyOf(child)).map((child) => [keyOf(child), child]));
    let at = target.firstChild;
    for (const wanted of [...source.childNodes]) {
      const match = keyOf(wanted) && keyed.get(keyOf(wanted));
      if (match && match !== at) target.insertBefore(match, at);
      const current = match || at;
      if (current && isAlike(current, wanted)) {
        at = current.nextSibling;
        morphNode(current, wanted);
      } else {
        target.insertBefore(wanted, at);
      }
    }
    while (at) {
      const next = at.nextSibling;
      at.remove();
      at = next;
    }
  }

  window.headraceMorph = (target, html) => {
    const holder = document.createElement("template");
    holder.innerHTML = html;
    morphChildren(target, holder.content);
  };
})();
