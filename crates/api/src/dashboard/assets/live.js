// Keeps a page up to date: the server tells the markup of regions that are otherwise now, and only what differs is touched, so
// that focus, selection, scrolling and what is open stay. Without this file every page and every form works as well.
"use strict";

const RETRY = 5000;
const state = document.getElementById("live");
let source = null;
let retry = 0;

function say(word, title) {
  if (!state) return;
  state.className = word === "live" ? "is-live" : "is-not";
  state.title = title;
  if (state.textContent !== word) state.textContent = word;
}

function follow() {
  clearTimeout(retry);
  if (source || document.hidden || !document.querySelector("main[data-live]")) return;
  source = new EventSource("/live" + location.pathname + location.search);
  source.onopen = () => say("live", "The page follows the fleet");
  source.onerror = () => {
    say("not live", "The page is as it was last told; it is tried again");
    // A browser tries again by itself where a stream broke, but not where it was refused.
    if (source.readyState === EventSource.CLOSED) {
      leave();
      retry = setTimeout(follow, RETRY);
    }
  };
  source.addEventListener("regions", (event) => {
    for (const [id, markup] of Object.entries(JSON.parse(event.data))) {
      const region = document.getElementById(id);
      if (!region) continue;
      const next = document.createElement("template");
      next.innerHTML = markup;
      mend(region, next.content);
    }
  });
}

function leave() {
  if (source) source.close();
  source = null;
}

// Makes the children of one node like those of another.
function mend(old, next) {
  const wanted = [...next.childNodes];
  wanted.forEach((node, place) => {
    const have = old.childNodes[place];
    if (!have) old.append(node);
    else if (have.nodeType !== node.nodeType || have.nodeName !== node.nodeName) have.replaceWith(node);
    else if (node.nodeType !== Node.ELEMENT_NODE) {
      if (have.data !== node.data) have.data = node.data;
    } else {
      mendAttributes(have, node);
      mend(have, node);
    }
  });
  while (old.childNodes.length > wanted.length) old.lastChild.remove();
}

function mendAttributes(have, node) {
  for (const { name, value } of [...node.attributes]) {
    if (have.getAttribute(name) !== value) have.setAttribute(name, value);
  }
  for (const { name } of [...have.attributes]) {
    // Whatever somebody opened stays open.
    if (name !== "open" && !node.hasAttribute(name)) have.removeAttribute(name);
  }
}

// A browser has few connections to one server: tabs that nobody sees give theirs back.
document.addEventListener("visibilitychange", () => {
  if (document.hidden) leave();
  else follow();
});
addEventListener("pagehide", leave);
addEventListener("pageshow", follow);

document.addEventListener("keydown", (event) => {
  const typing = event.target.closest("input, select, textarea");
  if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
    event.preventDefault();
    const search = document.getElementById("search");
    search.focus();
    search.select();
  } else if (event.key === "Escape" && typing) {
    event.target.blur();
  }
});

follow();
