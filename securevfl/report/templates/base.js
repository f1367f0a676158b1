// -- elements, numbers, scales ----------------------------------------------------------------

const page = JSON.parse(document.getElementById("data").textContent);
const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

// Text goes in as text: nothing here ever parses markup.
const el = (name, attributes = {}, ...children) =>
  fill(document.createElement(name), attributes, children);
const svg = (name, attributes = {}, ...children) =>
  fill(document.createElementNS(SVG, name), attributes, children);

const grouped = new Intl.NumberFormat("en-US");
const two = new Intl.NumberFormat("en-US", {
  minimumFractionDigits: 2, maximumFractionDigits: 2,
});

function size(bytes) {
  for (const unit of ["B", "kB", "MB", "GB", "TB"]) {
    if (bytes < 1000 || unit === "TB") return `${unit === "B" ? bytes : bytes.toFixed(2)} ${unit}`;
    bytes /= 1000;
  }
}

function seconds(value) {
  if (value < 60) return `${two.format(value)} s`;
  const parts = [value / 3600, (value / 60) % 60, value % 60].map((part) => String(Math.floor(part)));
  return `${parts[0]}:${parts[1].padStart(2, "0")}:${parts[2].padStart(2, "0")}`;
}
const percent = (value) => `${(100 * value).toFixed(2)} %`;
const BRIEF = 14; // characters of a party's name that a figure has room for
const brief = (name) => (name.length > BRIEF ? `${name.slice(0, BRIEF - 1)}…` : name);

function plain(value) {
  const small = Math.abs(value);
  if (value === 0 || (small >= 1e-3 && small < 1e3)) return value.toFixed(4);
  if (small >= 1e3 && small < 1e9) return grouped.format(Math.round(value));
  return value.toPrecision(4);
}

const AXES = {
  step: { label: "round", format: (v) => grouped.format(Math.round(v)), text: (v) => `round ${grouped.format(v)}` },
  time: { label: page.clock, format: (v) => `${Number(v.toPrecision(4))} s`, text: seconds },
  bytes: { label: "sent by all parties", format: size, text: size },
};
const MEASURES = {
  accuracy: { format: percent, tick: (v) => `${Number((100 * v).toFixed(2))} %`, held: true },
  auc: { format: plain, held: true },
  f1: { format: percent, tick: (v) => `${Number((100 * v).toFixed(2))} %`, held: true },
  rmse: { format: plain, held: true },
  r2: { format: plain, held: true },
  test_loss: { format: plain, held: true, log: true },
  loss: { format: plain, log: true },
  epsilon_total: { format: plain, zero: true },
};

// Round numbers of about `count` steps between two values, two at least where that can be; whole
// decades on a logarithmic scale.
function ticks(low, high, count, log) {
  if (log) {
    const found = [];
    const decades = Math.log10(high / low);
    const kept = decades > count ? [1] : decades > 1.2 ? [1, 3] : [1, 2, 3, 5, 7];
    for (let e = Math.floor(Math.log10(low)); e <= Math.ceil(Math.log10(high)); e += 1) {
      found.push(...kept.map((m) => Number(`${m}e${e}`)));
    }
    const inside = found.filter((v) => v >= low * 0.999 && v <= high * 1.001);
    const every = Math.ceil(inside.length / (count + 1));
    if (inside.length > 1) return inside.filter((_, i) => i % every === 0);
  }
  const span = high - low || 1;
  const power = 10 ** Math.floor(Math.log10(span / count));
  const steps = [1, 2, 5, 10].map((m) => m * power);
  let at = steps.findIndex((step) => span / step <= count);
  let found = multiples(steps[at], low, high);
  for (; found.length < 2 && at > 0; at -= 1) found = multiples(steps[at - 1], low, high);
  return found;
}

function multiples(step, low, high) {
  const found = [];
  const slack = 1e-9 * (high - low || 1);
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + slack; k += 1) {
    found.push(Number((k * step).toPrecision(12)));
  }
  return found;
}

function scale([low, high], [from, to], log) {
  const f = log ? (v) => Math.log(Math.max(v, low * 1e-9)) : (v) => v;
  const back = log ? Math.exp : (v) => v;
  const width = f(high) - f(low) || 1;
  const made = (v) => from + ((f(v) - f(low)) / width) * (to - from);
  made.invert = (p) => back(f(low) + ((p - from) / (to - from)) * width);
  return made;
}

// Place of the value in a sorted list that is nearest to one that is asked for.
function nearest(sorted, value) {
  let low = 0;
  let high = sorted.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (sorted[middle] < value) low = middle; else high = middle;
  }
  return Math.abs(sorted[low] - value) <= Math.abs(sorted[high] - value) ? low : high;
}

const colour = (group) => `var(--run-${group % 8})`;

// -- which runs are shown; figures ask, and are told when it changes --------------------------

const shown = new Set(page.groups.map((_, group) => group));
const figures = [];
const visible = () => page.runs.filter((run) => shown.has(run.group));
const redraw = () => figures.forEach((figure) => figure.draw());
