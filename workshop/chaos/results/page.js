// Zoom, a line under the pointer with its time, and details of what the pointer is on.
const box = document.querySelector(".scroll");
const chart = document.getElementById("chart");
const cursor = document.getElementById("cursor");
const tip = document.getElementById("tip");
const buttons = [...document.querySelectorAll("button[data-zoom]")];
const endsS = Number(chart.dataset.ends);
const LEAST = 200;
let room = LEAST;

function zoom(times) {
  const names = document.querySelector(".names").getBoundingClientRect().width;
  const middle = (box.scrollLeft + (box.clientWidth - names) / 2) / chart.getBoundingClientRect().width;
  room = Math.max(LEAST, box.clientWidth - names - 2);
  chart.setAttribute("width", Math.floor(room * times));
  box.scrollLeft = middle * room * times - room / 2;
  for (const each of buttons) each.setAttribute("aria-pressed", Number(each.dataset.zoom) === times);
  chart.dataset.zoom = times;
  label();
}

// Only as many times as there is room for.
function label() {
  const width = Number(chart.getAttribute("width"));
  const steps = [1, 2, 5, 10, 30, 60, 120, 300];
  const step = steps.find((each) => (each / endsS) * width >= 60) || 600;
  for (const each of chart.querySelectorAll("[data-second]")) {
    each.style.display = Number(each.dataset.second) % step ? "none" : "";
  }
}

function details(element) {
  const owner = element.closest("[data-tip], g, svg");
  if (!owner || owner === chart) return "";
  const title = owner.querySelector(":scope > title");
  if (title) {
    // The browser would show it as well, later.
    owner.dataset.tip = title.textContent;
    owner.setAttribute("aria-label", title.textContent);
    title.remove();
  }
  return owner.dataset.tip || "";
}

chart.addEventListener("pointermove", (event) => {
  const bounds = chart.getBoundingClientRect();
  const share = (event.clientX - bounds.left) / bounds.width;
  cursor.setAttribute("x1", `${100 * share}%`);
  cursor.setAttribute("x2", `${100 * share}%`);
  const text = details(event.target);
  tip.textContent = text || `${(share * endsS).toFixed(1)} s`;
  tip.hidden = false;
  const { width, height } = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(4, Math.min(event.clientX + 14, innerWidth - width - 8))}px`;
  tip.style.top = `${event.clientY + 18 + height > innerHeight ? event.clientY - height - 10 : event.clientY + 18}px`;
});
chart.addEventListener("pointerleave", () => { tip.hidden = true; });
for (const each of buttons) each.addEventListener("click", () => zoom(Number(each.dataset.zoom)));
addEventListener("resize", () => zoom(Number(chart.dataset.zoom)));
zoom(1);
