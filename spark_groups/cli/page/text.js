// Text, numbers and elements. Unknown values are "—", never 0.
// Texts are untrusted: they are set as text, never parsed as HTML.

export const UNKNOWN = "—";
const RANGES_SHOWN = 12;

const whole = new Intl.NumberFormat("en-US");
const time = new Intl.DateTimeFormat([], { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
const minute = new Intl.DateTimeFormat([], { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
const date = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });
const short = new Intl.NumberFormat("en-US", { maximumFractionDigits: 1 });

export function number(value) {
  return value === null || value === undefined ? UNKNOWN : whole.format(value);
}

export function plain(value) {
  return value === null || value === undefined || value === "" ? UNKNOWN : String(value);
}

export function rate(value) {
  if (value === null || value === undefined) return UNKNOWN;
  if (value === 0) return "0/s";
  const size = Math.abs(value);
  const text = size >= 100 ? whole.format(Math.round(size)) : short.format(size);
  return `${value < 0 ? "−" : "+"}${text}/s`;
}

// A time of day, with the date if it is not today.
export function moment(seconds) {
  return `${dateBefore(seconds)}${time.format(seconds * 1000)}`;
}

// The same without seconds.
export function momentInMinutes(seconds) {
  return `${dateBefore(seconds)}${minute.format(seconds * 1000)}`;
}

function dateBefore(seconds) {
  const at = new Date(seconds * 1000);
  return at.toDateString() === new Date().toDateString() ? "" : `${date.format(at)} `;
}

// How long something lasts, in its two largest units.
export function age(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  const [days, hours, minutes] = [86400, 3600, 60].map((unit) => Math.floor(whole / unit));
  if (days) return `${days} d ${hours % 24} h`;
  if (hours) return `${hours} h ${minutes % 60} min`;
  return minutes ? `${minutes} min ${whole % 60} s` : `${whole} s`;
}

// The age of the first unread record; null: unknown.
export function behind(seconds) {
  if (seconds === null || seconds === undefined) return UNKNOWN;
  return seconds > 0 && seconds < 10 ? `${seconds.toFixed(1)} s` : age(seconds);
}

export function catchUp(found) {
  if (found.outlook === "catching up") return `catches up in ${age(Math.ceil(found.catch_up_s))}`;
  return found.outlook === "unknown" ? UNKNOWN : found.outlook;
}

// When unread records may expire, in the words of `spark-groups lag`.
export function expiry(time) {
  if (time.deletion_in_s !== null) {
    const when = time.deletion_in_s > 0 ? `in ${age(time.deletion_in_s)}` : "at any time";
    return time.deletion === "by age or size" ? `${when}, or by size` : when;
  }
  const isWithoutAge = time.deletion === "never" || time.deletion === "by size";
  return isWithoutAge && time.first_unread_offset !== null ? time.deletion : "";
}

// The state of a group, in its colour.
export function pill(state) {
  return make("strong", { class: `pill ${state.toLowerCase()}` }, state);
}

// Partition numbers by topic, as "flights 0-5, 8; orders 0".
export function ranges(byTopic) {
  const parts = [];
  let left = RANGES_SHOWN;
  let rest = 0;
  for (const [topic, numbers] of Object.entries(byTopic)) {
    const found = [];
    for (const each of numbers) {
      const last = found[found.length - 1];
      if (last && last[1] === each - 1) last[1] = each;
      else found.push([each, each]);
    }
    const kept = found.slice(0, Math.max(0, left));
    left -= kept.length;
    for (const [from, to] of found.slice(kept.length)) rest += to - from + 1;
    if (kept.length) {
      parts.push(`${topic} ${kept.map(([a, b]) => (a === b ? a : `${a}-${b}`)).join(", ")}`);
    }
  }
  return parts.join("; ") + (rest ? ` and ${number(rest)} more` : "");
}

export function shortId(clientId, memberId) {
  const rest = memberId.startsWith(clientId) ? memberId.slice(clientId.length) : memberId;
  return rest.replace(/^-+/, "").slice(0, 8);
}

export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children);
  return element;
}

export function draw(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}
