// Owners over time: a row for each partition, a colour for each member.

import { timeTicks, windowSelect } from "./time_axis.js";
import { draw, make, moment, plain, shortId } from "./text.js";

const CHART_MIN = 120;
const NAMES_SHARE = 0.4;
const LEGEND_MAX = 12;
const CHARACTER = 7;
const PADDING = 12;
const AXIS = 20;
const HUES = [210, 28, 130, 345, 265, 52, 180, 310, 95, 5];
const SHADES = [0, -14, 12];
const SIZES = [[30, 22], [120, 11], [400, 5], [Infinity, 3]];

export class Ownership {
  constructor() {
    this.colours = new Map();
    this.spans = new WeakMap();
    this.legend = make("p", { class: "legend" });
    this.names = draw("svg", { class: "names", "aria-hidden": "true" });
    this.chart = draw("svg", { role: "img", "aria-label": "owners of partitions over time" });
    // A bar gets its title when the pointer first reaches it: there may be thousands.
    this.chart.addEventListener("pointerover", (event) => {
      const span = this.spans.get(event.target);
      if (span && !event.target.firstChild) event.target.append(draw("title", {}, spanText(...span)));
    });
    this.box = make("div", { class: "scroll chart" }, this.names, this.chart);
    this.window = windowSelect("time range of ownership", () => this.show(...this.shown));
    const title = make("h2", {}, "ownership ", this.window);
    const words = "A bar shows how long a member owned a partition, with its member epochs; faint: being "
      + "revoked; gap: no owner. Point at a bar for details.";
    this.element = make(
      "section", { id: "ownership" }, title, make("p", { class: "quiet" }, words), this.legend, this.box,
    );
  }

  colour(memberId) {
    if (!this.colours.has(memberId)) {
      const index = this.colours.size;
      const shade = SHADES[Math.floor(index / HUES.length) % SHADES.length];
      this.colours.set(memberId, [HUES[index % HUES.length], shade]);
    }
    return this.colours.get(memberId);
  }

  paint(element, memberId) {
    const [hue, shade] = this.colour(memberId);
    element.style.setProperty("--hue", hue);
    element.style.setProperty("--shade", `${shade}%`);
    return element;
  }

  show(partitions, now) {
    this.shown = [partitions, now];
    const height = SIZES.find(([most]) => partitions.length <= most)[1];
    const starts = partitions.flatMap((each) => each.ownership.map((span) => span.from_s));
    const from = Math.max(now - Number(this.window.value), Math.min(now - 10, ...minimum(starts)));
    const width = Math.max(CHART_MIN, this.box.clientWidth - this.nameWidth(partitions, height) - PADDING);
    const scale = { from, now, width, x: (at) => ((at - from) / (now - from)) * width };
    const bottom = partitions.length * height + AXIS;
    size(this.chart, width, bottom);
    const bars = partitions.flatMap((each, row) => this.bars(each, AXIS + row * height, height, scale));
    this.chart.replaceChildren(...grid(scale, bottom), ...bars);
    this.drawNames(partitions, height, bottom);
    this.drawLegend(partitions);
  }

  bars(partition, top, height, scale) {
    return partition.ownership
      .filter((span) => span.until_s === null || span.until_s > scale.from)
      .flatMap((span) => {
        const left = scale.x(Math.max(span.from_s, scale.from));
        const wide = Math.max(1, scale.x(span.until_s === null ? scale.now : span.until_s) - left);
        const gap = height > 8 ? 2 : height > 4 ? 1 : 0;
        const bar = draw("rect", {
          class: span.is_revoking ? "own revoking" : "own",
          x: left.toFixed(1), y: top + gap, width: wide.toFixed(1), height: height - 2 * gap,
        });
        this.paint(bar, span.member_id);
        this.spans.set(bar, [partition, span]);
        const epochs = epochText(span);
        if (height < 16 || wide < epochs.length * CHARACTER + 8) return [bar];
        return [bar, draw("text", { x: (left + 4).toFixed(1), y: top + height - 7 }, epochs)];
      });
  }

  nameWidth(partitions, height) {
    const longest = Math.max(0, ...partitions.map((each) => label(each, height).length));
    return Math.min(260, this.box.clientWidth * NAMES_SHARE, longest * CHARACTER + PADDING);
  }

  drawNames(partitions, height, bottom) {
    const width = this.nameWidth(partitions, height);
    size(this.names, width, bottom);
    let topic = null;
    const texts = partitions.map((each, row) => {
      const isNew = each.topic !== topic;
      topic = each.topic;
      // Rows too low for a label show only the topic, once.
      if (height < 11 && !isNew) return null;
      const y = AXIS + row * height + (height < 11 ? 9 : height - (height > 16 ? 7 : 2));
      return draw("text", { x: 0, y }, shortened(label(each, height), width));
    });
    this.names.replaceChildren(...texts.filter(Boolean));
  }

  drawLegend(partitions) {
    const members = new Map();
    for (const each of partitions) {
      for (const span of each.ownership) members.set(span.member_id, span.client_id);
    }
    const entries = [...members].slice(0, LEGEND_MAX).map(([memberId, clientId]) => {
      const name = `${clientId} ${shortId(clientId, memberId)}`;
      return make("span", { title: memberId }, this.paint(make("i"), memberId), name);
    });
    const more = members.size - entries.length;
    if (more > 0) entries.push(make("span", { class: "quiet" }, `and ${more} more members`));
    this.legend.replaceChildren(...entries);
  }
}

function label(partition, height) {
  return height < 11 ? partition.topic : `${partition.topic}-${partition.partition}`;
}

// Long labels are cut at the start: the partition number is at the end.
function shortened(name, width) {
  const most = Math.floor((width - PADDING) / CHARACTER);
  return name.length <= most ? name : `…${name.slice(1 - most)}`;
}

function epochText(span) {
  const [first, last] = [span.first_member_epoch, span.last_member_epoch];
  return first === last ? plain(first) : `${plain(first)}–${plain(last)}`;
}

function spanText(partition, span) {
  const until = span.until_s === null ? "now" : moment(span.until_s);
  const revoking = span.is_revoking ? ", being revoked" : "";
  return `${partition.topic}-${partition.partition}: ${span.client_id} ${span.member_id}, epoch `
    + `${epochText(span)}${revoking}, ${moment(span.from_s)} to ${until}`;
}

// Math.min(...values) would overflow the stack with thousands of spans.
function minimum(values) {
  return values.length ? [values.reduce((a, b) => (a < b ? a : b))] : [];
}

function size(svg, width, height) {
  svg.setAttribute("width", width);
  svg.setAttribute("height", height);
}

function grid(scale, bottom) {
  return timeTicks(scale.from, scale.now, scale.width).flatMap(({ at, words }) => {
    const x = scale.x(at).toFixed(1);
    return [
      draw("line", { class: "grid", x1: x, x2: x, y1: AXIS - 4, y2: bottom }),
      draw("text", { class: "quiet", x, y: AXIS - 8 }, words),
    ];
  });
}
