// The total lag of a group in the last minutes, or over a day.

import { timeTicks, windowSelect } from "./time_axis.js";
import { draw, make, moment, number, rate } from "./text.js";

const RECENT_S = 900;
// Between polls further apart there is a gap.
const RECENT_GAP_S = 30;
const HEIGHT = 120;
const TOP = 8;
const BOTTOM = 20;
const CHARACTER = 7;
const LINES_MAX = 4;
const LAST_LABEL = 60;

export class LagHistory {
  constructor() {
    this.chart = draw("svg", { class: "history", role: "img", height: TOP + HEIGHT + BOTTOM });
    this.most = make("span", { class: "quiet" });
    this.window = windowSelect("time range of lag", () => this.show(this.frame));
    this.rates = make("p", { class: "quiet rates" });
    this.element = make(
      "section", { id: "lag", hidden: true }, make("h2", {}, "lag ", this.most, this.window), this.rates, this.chart,
    );
  }

  // A single point is not shown.
  show(frame) {
    this.frame = frame;
    const all = points(frame, Number(this.window.value));
    const from = Math.max(frame.at_s - Number(this.window.value), Math.min(frame.at_s - 10, all[0]?.at ?? frame.at_s));
    const shown = all.filter((each) => each.at >= from);
    const known = shown.filter((each) => each.lag !== null);
    this.element.hidden = !frame.lag_history.recent.length || new Set(all.map((each) => each.at)).size < 2;
    if (this.element.hidden) return;
    const { lag_rate: change, read_rate: read, written_rate: written } = frame.trend;
    this.rates.textContent = `lag change ${rate(change)} · committed ${rate(read)} · written ${rate(written)}`;
    const most = known.reduce((top, each) => Math.max(top, each.lag), 0);
    const words = known.length ? `at most ${number(most)} since ${moment(from)}` : `unknown since ${moment(from)}`;
    this.most.textContent = words;
    this.chart.setAttribute("aria-label", `lag, ${words}`);
    this.draw(shown, most, from);
  }

  draw(shown, most, from) {
    const levels = lagTicks(most);
    const top = levels[levels.length - 1];
    const left = Math.max(...levels.map((each) => number(each).length)) * CHARACTER + 8;
    const right = Math.max(left + 100, this.element.clientWidth - 4);
    const now = this.frame.at_s;
    const x = (at) => left + ((at - from) / (now - from)) * (right - left);
    const y = (lag) => TOP + HEIGHT - (lag / top) * HEIGHT;
    this.chart.setAttribute("width", right + 2);
    const lines = levels.flatMap((each) => [
      draw("line", { class: "grid", x1: left, x2: right, y1: y(each), y2: y(each) }),
      draw("text", { class: "level", x: left - 6, y: y(each) + 4 }, number(each)),
    ]);
    const base = TOP + HEIGHT;
    const times = timeTicks(from, now, right - left).flatMap((each) => [
      draw("line", { class: "grid", x1: x(each.at), x2: x(each.at), y1: TOP, y2: base + 4 }),
      ...(x(each.at) > right - LAST_LABEL ? [] : [draw("text", { class: "time", x: x(each.at), y: base + 16 }, each.words)]),
    ]);
    times.push(draw("text", { class: "level", x: right, y: base + 16 }, "now"));
    this.chart.replaceChildren(...lines, ...times, draw("path", { d: path(shown, x, y) }));
  }
}

// Points of the range, the present one last; a lag of null is a gap.
function points(frame, window) {
  const history = frame.lag_history;
  const found = window > RECENT_S
    ? history.lags.map((lag, index) => ({ at: history.from_s + index * history.step_s, lag }))
    : recent(history.recent);
  const group = frame.group;
  if (frame.stale || frame.seen_at_s === null) return found;
  return [...found, { at: frame.seen_at_s, lag: group.totals.unknown_lag_partitions ? null : group.totals.lag }];
}

function recent(pairs) {
  return pairs.flatMap(([at, lag], index) => {
    const isGap = index > 0 && at - pairs[index - 1][0] > RECENT_GAP_S;
    return isGap ? [{ at: at - 0.001, lag: null }, { at, lag }] : [{ at, lag }];
  });
}

// Round numbers from 0 to at least `most`.
function lagTicks(most) {
  const rough = Math.max(1, most / LINES_MAX);
  const size = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].find((each) => each * size >= rough) * size;
  return Array.from({ length: Math.max(1, Math.ceil(most / step)) + 1 }, (_, index) => index * step);
}

// Single points are dots.
function path(points, x, y) {
  let pen = "M";
  return points.map(({ at, lag }) => {
    if (lag === null) {
      pen = "M";
      return "";
    }
    const command = `${pen}${x(at).toFixed(1)} ${y(lag).toFixed(1)}${pen === "M" ? "h0.01" : ""}`;
    pen = "L";
    return command;
  }).join("");
}
