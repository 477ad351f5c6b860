// Which page is shown, and the stream that it is drawn from.

import { GroupPage } from "./group.js";
import { GroupsPage } from "./groups.js";
import { moment, setText } from "./text.js";

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
    showStale(frame.stale);
    show();
  };
  stream.onerror = () => showWarning("spark-groups serve does not answer", "Retrying.");
}

function close() {
  if (stream) stream.close();
  stream = null;
}

function showStale(why) {
  if (why?.is_missing) {
    showWarning(`${why.reason} (since ${moment(why.since_s)})`, "Brokers answer; polling continues.");
  } else {
    showWarning(why && `brokers have not answered since ${moment(why.since_s)}`, why?.reason);
  }
}

// The last view stays on the page, marked stale, with the reason.
function showWarning(problem, reason) {
  stale.hidden = !problem;
  document.body.classList.toggle("stale", Boolean(problem));
  if (!problem) return;
  const seen = frame && frame.seen_at_s !== null ? `showing data from ${moment(frame.seen_at_s)}` : "no data yet";
  setText(stale, `${problem}; ${seen}. ${reason}`);
}

function show() {
  if (!frame) return;
  page.show(frame, filter.value.trim().toLowerCase());
  setText(read, frame.seen_at_s === null ? "" : `read at ${moment(frame.seen_at_s)}`);
}

// Key strokes and resize events within one animation frame are drawn once.
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
// Browsers limit connections to a host: hidden pages close theirs.
document.addEventListener("visibilitychange", () => {
  if (document.hidden) close();
  else if (!stream) listen(chosenGroup());
});
open();
