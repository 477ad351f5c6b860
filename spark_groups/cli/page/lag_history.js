// The total lag of a group over a day, a point for each minute.

import { clock, draw, make, number } from "./text.js";

const HEIGHT = 70;
const LABELS_EVERY = 110;

export class LagHistory {
  constructor() {
    this.path = draw("path", { "vector-effect": "non-scaling-stroke" });
    this.chart = draw("svg", { class: "history", role: "img", preserveAspectRatio: "none" }, this.path);
    this.times = make("p", { class: "times quiet" });
    this.most = make("span", { class: "quiet" });
    this.element = make("section", { id: "lag", hidden: true }, make("h2", {}, "lag ", this.most), this.chart, this.times);
  }

  // A single step is not shown.
  show(history) {
    const { lags } = history;
    const known = lags.filter((each) => each !== null);
    this.element.hidden = lags.length < 2 || !known.length;
    if (this.element.hidden) return;
    const most = known.reduce((a, b) => (a > b ? a : b));
    const [from, until] = [history.from_s, history.from_s + (lags.length - 1) * history.step_s];
    const words = `at most ${number(most)} since ${clock(from)}, a point for each minute`;
    this.most.textContent = words;
    this.chart.setAttribute("aria-label", `lag, ${words}`);
    this.chart.setAttribute("viewBox", `0 0 ${lags.length - 1} ${HEIGHT}`);
    this.path.setAttribute("d", path(lags, Math.max(1, most)));
    const count = Math.max(2, Math.min(lags.length, Math.floor(this.element.clientWidth / LABELS_EVERY)));
    const at = (index) => clock(from + ((until - from) * index) / (count - 1));
    this.times.replaceChildren(...Array.from({ length: count }, (_, index) => make("span", {}, at(index))));
  }
}

// Single steps are points; unknown values are gaps.
function path(lags, most) {
  let pen = "M";
  return lags.map((each, index) => {
    if (each === null) {
      pen = "M";
      return "";
    }
    const y = (HEIGHT - 2 - (each / most) * (HEIGHT - 4)).toFixed(1);
    const command = `${pen}${index} ${y}${pen === "M" ? "h0.01" : ""}`;
    pen = "L";
    return command;
  }).join("");
}
