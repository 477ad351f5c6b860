// The lag at the last polls as a small line; unknown values are gaps.

import { UNKNOWN, draw, setText } from "./text.js";

const WIDTH = 90;
const HEIGHT = 18;

export function sparkline(cell, values, words) {
  if (values.every((each) => each === null)) {
    setText(cell, UNKNOWN);
    return;
  }
  let svg = cell.firstChild;
  if (!svg || svg.tagName !== "svg") {
    svg = draw("svg", { class: "spark", width: WIDTH, height: HEIGHT, role: "img" });
    svg.append(draw("path"));
    cell.replaceChildren(svg);
  }
  const path = points(values);
  if (svg.firstChild.getAttribute("d") !== path) svg.firstChild.setAttribute("d", path);
  if (svg.getAttribute("aria-label") !== words) svg.setAttribute("aria-label", words);
}

function points(values) {
  const top = Math.max(1, ...values.filter((each) => each !== null));
  const step = WIDTH / Math.max(1, values.length - 1);
  let path = "";
  let pen = "M";
  values.forEach((each, index) => {
    if (each === null) {
      pen = "M";
      return;
    }
    const y = HEIGHT - 2 - (each / top) * (HEIGHT - 4);
    path += `${pen}${(index * step).toFixed(1)} ${y.toFixed(1)}`;
    pen = "L";
  });
  return path;
}
