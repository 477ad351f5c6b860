// Labels of a time axis: round times, as far apart as there is room for them.

import { make, moment, momentInMinutes } from "./text.js";

const STEPS_S = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600, 7200, 14400];
const LABEL_WIDTH = 100;

export function timeTicks(from, now, width) {
  const step = STEPS_S.find((each) => (now - from) / each <= width / LABEL_WIDTH) || 28800;
  const words = step < 60 ? moment : momentInMinutes;
  const ticks = [];
  for (let at = Math.ceil(from / step) * step; at < now; at += step) ticks.push({ at, words: words(at) });
  return ticks;
}

const WINDOWS_S = [["15 minutes", 900], ["2 hours", 7_200], ["24 hours", 86_400]];

// The choice of how many seconds a chart shows.
export function windowSelect(label, changed) {
  const options = WINDOWS_S.map(([words, seconds]) => make("option", { value: seconds }, words));
  const select = make("select", { "aria-label": label }, ...options);
  select.addEventListener("change", changed);
  return select;
}
