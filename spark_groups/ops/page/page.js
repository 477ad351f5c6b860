// Which page is shown, and the stream that it is drawn from.

import { GroupPage } from "./group.js";
import { GroupsPage } from "./groups.js";
import { clock, setText } from "./text.js";

const main = document.getElementById("main");
const filter = document.getElementById("filter");
const place = document.getElementById("place");
const read = document.getElementById("read");
const stale = document.getElementById("stale");

let page = null;
let frame = null;
let stream = null;
let isDue = false;

function chosenGroup() {
  return new URLSearchParams(location.hash.slice(1)).get("group");
}

function open() {
  close();
  const groupId = chosenGroup();
  frame = null;
  page = groupId ? new GroupPage() : new GroupsPage();
  setText(place, groupId ? ` / ${groupId}` : "");
  document.title = groupId ? `${groupId} · spark-groups` : "spark-groups";
  filter.value = "";
  stale.hidden = true;
  read.textContent = "";
  main.replaceChildren(page.element);
  listen(groupId);
}

function listen(groupId) {
  const query = groupId ? `?${new URLSearchParams({ group: groupId })}` : "";
  stream = new EventSource(`events${query}`);
  stream.onmessage = (message) => {
    frame = JSON.parse(message.data);
    tellStale(frame.stale);
    show();
  };
  stream.onerror = () => tell("spark-groups serve does not answer", "it is tried again");
}

function close() {
  if (stream) stream.close();
  stream = null;
}

function tellStale(why) {
  if (why?.is_missing) {
    tell(`${why.reason} (since ${clock(why.since_s)})`, "The brokers answer, and are asked again");
  } else {
    tell(why && `the brokers are not readable since ${clock(why.since_s)}`, why?.reason);
  }
}

// What was read last stays, with the reason why it is not of now.
function tell(what, reason) {
  stale.hidden = !what;
  document.body.classList.toggle("stale", Boolean(what));
  if (!what) return;
  const seen = frame && frame.seen_at_s !== null ? `shown is what was read at ${clock(frame.seen_at_s)}` : "nothing was read yet";
  setText(stale, `${what}; ${seen}. ${reason}`);
}

function show() {
  if (!frame) return;
  page.show(frame, filter.value.trim().toLowerCase());
  setText(read, frame.seen_at_s === null ? "" : `read at ${clock(frame.seen_at_s)}`);
}

// Several letters, or the many steps of a window that grows, are drawn once.
function showSoon() {
  if (isDue) return;
  isDue = true;
  requestAnimationFrame(() => {
    isDue = false;
    show();
  });
}

filter.addEventListener("input", showSoon);
document.addEventListener("keydown", (event) => {
  if (event.key === "/" && document.activeElement !== filter) {
    event.preventDefault();
    filter.focus();
  } else if (event.key === "Escape" && document.activeElement === filter) {
    filter.value = "";
    filter.blur();
    show();
  }
});
window.addEventListener("hashchange", open);
window.addEventListener("resize", showSoon);
// A browser opens few connections to one host: pages that nobody sees leave theirs to the others.
document.addEventListener("visibilitychange", () => {
  if (document.hidden) close();
  else if (!stream) listen(chosenGroup());
});
open();
