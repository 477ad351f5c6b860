// The events of a group, the latest first; the events of a move are one line that opens.

import { make, moment, number, setText } from "./text.js";

const ALARMING = new Set(["group missing", "not readable", "commits refused", "deletion alert"]);

export class EventList {
  constructor() {
    this.list = make("ol", { reversed: true });
    this.known = new Map();
    this.element = make("aside", { id: "events" }, make("h2", {}, "events"), this.list);
  }

  // Lines are reused: one that is open stays open.
  show(events, moves) {
    const byNumber = new Map(moves.map((each) => [each.number, each]));
    const known = this.known;
    this.known = new Map();
    const lines = grouped(events).reverse().map(({ key, own }) => {
      const move = own.length > 1 ? byNumber.get(own[0].move) : undefined;
      const reused = known.get(key);
      const line = reused && Boolean(reused.querySelector("details")) === Boolean(move) ? reused : make("li");
      if (move) fillMove(line, move, own);
      else fillEvent(line, own[0]);
      this.known.set(key, line);
      return line;
    });
    if (!lines.length) lines.push(make("li", { class: "quiet" }, "no events yet"));
    const isSame = lines.length === this.list.children.length
      && lines.every((each, index) => each === this.list.children[index]);
    if (!isSame) this.list.replaceChildren(...lines);
  }
}

// Each move at the place of its first event.
function grouped(events) {
  const groups = new Map();
  for (const each of events) {
    const key = each.move === null ? `${each.at_s} ${each.kind} ${each.text}` : `move ${each.move}`;
    if (!groups.has(key)) groups.set(key, { key, own: [] });
    groups.get(key).own.push(each);
  }
  return [...groups.values()];
}

function fillEvent(line, event) {
  line.className = ALARMING.has(event.kind) ? "alarm" : "";
  if (!line.firstChild) line.append(make("time"), " ", make("span"));
  setText(line.firstChild, moment(event.at_s));
  setText(line.lastChild, event.text);
}

function fillMove(line, move, own) {
  if (!line.firstChild) {
    const head = make("summary", {}, make("time"), " ", make("span"), " ", make("span", { class: "quiet" }));
    line.append(make("details", {}, head, make("ol", { reversed: true })));
  }
  const details = line.firstChild;
  const [time, , text, , count] = details.firstChild.childNodes;
  setText(time, moment(move.from_s));
  setText(text, move.text);
  setText(count, `(${number(own.length)} events${move.is_under_way ? ", under way" : ""})`);
  // A move is open while it is under way, unless somebody closes it.
  if ((line.className === "moving") !== move.is_under_way) {
    line.className = move.is_under_way ? "moving" : "";
    details.open = move.is_under_way;
  }
  const inner = details.lastChild;
  // Events of a move only come and, when there are too many, go: the last one tells.
  const version = `${own.length} ${own[own.length - 1].at_s}`;
  if (inner.dataset.version === version) return;
  inner.dataset.version = version;
  inner.replaceChildren(...[...own].reverse().map((each) => {
    const item = make("li");
    fillEvent(item, each);
    return item;
  }));
}
