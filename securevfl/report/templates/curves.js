// -- measures against rounds, virtual time or bytes -------------------------------------------

const FAR = 20; // ends, or losses, that lie further apart than this need a logarithmic scale
const STEPS = 120; // of a mean over several runs
const DASHES = [null, "7 3", "2 3", "9 3 2 3"];

// One curve a group: of a single run its points, of several the mean and the range of all.
class Series {
  constructor(group, runs, axis, measure) {
    this.group = group;
    this.runs = runs;
    const { held } = MEASURES[measure];
    const each = runs.map(({ curves }) => (curves[axis] ?? [])
      .map((x, row) => ({ x, y: curves[measure]?.[row] ?? null, row }))
      .filter(({ x, y }) => x !== null && (y !== null || !held)));
    const there = each.map((points) => points.filter(({ y }) => y !== null))
      .filter((points) => points.length > 0);
    this.points = runs.length === 1 ? each[0] : Series.mean(there);
    this.known = this.points.filter(({ y }) => y !== null);
    this.many = there.length;
    this.xs = this.known.map(({ x }) => x);
  }

  // Where all of them have values, by linear interpolation.
  static mean(each) {
    if (each.length === 0) return [];
    const from = Math.max(...each.map((points) => points[0].x));
    const to = Math.min(...each.map((points) => points.at(-1).x));
    if (to < from) return [];
    const steps = to > from ? STEPS : 0;
    return Array.from({ length: steps + 1 }, (_, k) => {
      const x = steps === 0 ? from : from + ((to - from) * k) / steps;
      const values = each.map((points) => Series.between(points, x));
      const y = values.reduce((a, b) => a + b) / values.length;
      return { x, y, low: Math.min(...values), high: Math.max(...values) };
    });
  }

  static between(points, x) {
    const after = points.findIndex((point) => point.x >= x);
    if (after <= 0) return points[Math.max(after, 0)].y;
    const [a, b] = [points[after - 1], points[after]];
    return b.x === a.x ? b.y : a.y + ((b.y - a.y) * (x - a.x)) / (b.x - a.x);
  }

  at(x) {
    return this.known.length === 0 ? null : this.known[nearest(this.xs, x)];
  }
}

class Curves {
  constructor(section) {
    this.section = section;
    this.log = false;
    this.zoom = new Zoom();
    const axes = section.querySelectorAll("input[name=axis]");
    const log = section.querySelector("input[name=log]");
    const use = () => {
      const ends = visible().map((run) => run.curves[this.axis].at(-1)).filter((v) => v > 0);
      this.log = ends.length > 1 && Math.max(...ends) > FAR * Math.min(...ends);
      log.checked = this.log;
    };
    axes.forEach((input) => input.addEventListener("change", () => {
      this.axis = input.value;
      use();
      this.zoom.set(null);
    }));
    log.addEventListener("change", () => {
      this.log = log.checked;
      this.zoom.set(null);
    });
    this.axis = [...axes].find((input) => input.checked).value;
    use();
    section.querySelector(".tools").append(this.zoom.buttons());
    section.querySelectorAll("[data-measure]").forEach((host) => this.plot(host));
  }

  series(measure) {
    return page.groups.map((_, group) => group).filter((group) => shown.has(group))
      .map((group) => new Series(
        group, page.runs.filter((run) => run.group === group), this.axis, measure));
  }

  plot(host) {
    const { measure } = host.dataset;
    let series = [];
    new Plot(host, {
      label: `${host.dataset.label} curve. Arrow keys read values, + and - zoom, 0 shows all.`,
      left: 58, zoom: this.zoom,
      height: () => 250,
      axis: () => AXES[this.axis],
      log: () => this.log,
      domain: () => this.domain(),
      paint: (plot) => {
        series = this.series(measure);
        this.paint(plot, series, measure);
      },
      stops: () => [...new Set(series.flatMap(({ xs }) => xs))].sort((a, b) => a - b),
      read: (value) => this.read(value, series, measure),
      dots: (value, plot) => this.dots(value, series, plot),
    }).draw();
  }

  domain() {
    const all = visible().flatMap((run) => run.curves[this.axis]).filter((v) => v !== null);
    if (all.length === 0) return [0, 1];
    const low = all.reduce((a, b) => Math.min(a, b));
    const high = all.reduce((a, b) => Math.max(a, b));
    const from = this.log || low > high / 3 ? low : 0;
    return [from === high ? from * 0.9 : from, high];
  }

  paint(plot, series, measure) {
    const { tick, log, zero } = MEASURES[measure];
    const [from, to] = plot.x.range;
    const inside = series.flatMap(({ known }) => known).filter(({ x }) => x >= from && x <= to);
    const [low, high] = inside.length === 0 ? [0, 1] : [
      inside.reduce((a, { y, low: l }) => Math.min(a, l ?? y), Infinity),
      inside.reduce((a, { y, high: h }) => Math.max(a, h ?? y), -Infinity),
    ];
    const far = Boolean(log) && low > 0 && high > FAR * low;
    const pad = (high - low || Math.abs(high) || 1) * 0.06;
    const span = far ? [low / 1.1, high * 1.1] : [zero ? 0 : low - pad, high + pad];
    if (high <= 1 && ["accuracy", "auc", "f1"].includes(measure)) {
      span[1] = Math.min(span[1], 1 + pad / 3);
    }
    plot.y = scale(span, [plot.bottom, plot.top], far);
    this.leftAxis(plot, ticks(span[0], span[1], 5, far),
      tick ?? ((v) => String(Number(v.toPrecision(3)))));
    if (inside.length === 0) {
      plot.root.append(svg("text", {
        x: (plot.left + plot.right) / 2, y: (plot.top + plot.bottom) / 2,
        "text-anchor": "middle", class: "nothing",
      }, series.length === 0 ? "all runs are hidden" : "no values here"));
    }
    const clip = `clip-${figures.indexOf(plot)}`;
    plot.root.append(svg("clipPath", { id: clip }, svg("rect", {
      x: plot.left - 5, y: plot.top - 6, width: plot.right - plot.left + 10,
      height: plot.bottom - plot.top + 12,
    })));
    const lines = svg("g", { "clip-path": `url(#${clip})` });
    series.forEach((one) => this.line(lines, plot, one, measure));
    plot.root.append(lines);
  }

  leftAxis(plot, values, format) {
    const axis = svg("g", { class: "axis" });
    for (const value of values) {
      const y = plot.y(value);
      axis.append(svg("line", { class: "grid", x1: plot.left, x2: plot.right, y1: y, y2: y }));
      axis.append(svg("text", { x: plot.left - 7, y: y + 4, "text-anchor": "end" }, format(value)));
    }
    plot.root.append(axis);
  }

  line(host, plot, one, measure) {
    const at = (x, y) => `${plot.x(x).toFixed(1)} ${plot.y(y).toFixed(1)}`;
    let path = "";
    let pen = "M";
    for (const { x, y } of one.points) {
      if (y !== null) path += pen + at(x, y);
      pen = y === null ? "M" : "L";
    }
    if (path === "") return;
    const stroke = colour(one.group);
    if (one.many > 1) {
      const there = one.points.map(({ x, high }) => at(x, high));
      const back = one.points.map(({ x, low }) => at(x, low)).reverse();
      host.append(svg("path", {
        class: "band", d: `M${[...there, ...back].join("L")}Z`, style: `fill:${stroke}`,
      }));
    }
    host.append(svg("path", {
      class: "line", d: path, style: `stroke:${stroke}`, "data-run": page.groups[one.group],
      "stroke-dasharray": DASHES[Math.floor(one.group / 8) % DASHES.length],
    }));
    const [from, to] = plot.x.range;
    const few = one.known.filter(({ x }) => x >= from && x <= to);
    if (one.many > 1 || few.length > 70 || !MEASURES[measure].held) return;
    few.forEach(({ x, y }) => host.append(symbol(one.group, plot.x(x), plot.y(y), 3)));
  }

  read(value, series, measure) {
    const { format } = MEASURES[measure];
    const means = series.some(({ many }) => many > 1);
    const lines = series.flatMap((one) => {
      const point = one.at(value);
      if (point === null) return [];
      const name = page.groups.length > 1 ? `${page.groups[one.group]}: ` : "";
      const where = one.many > 1 ? `${format(point.low)} to ${format(point.high)} in ${one.many} runs`
        : Object.entries(AXES).map(([axis, { text }]) => {
          const v = one.runs[0].curves[axis]?.[point.row];
          return v === null || v === undefined ? null : text(v);
        }).filter((text) => text !== null).join(", ");
      return [{ text: `${name}${format(point.y)} (${where})`, group: one.group }];
    });
    return means ? [{ text: AXES[this.axis].format(value) }, ...lines] : lines;
  }

  dots(value, series, plot) {
    const [from, to] = plot.x.range;
    return series.flatMap((one) => {
      const point = one.at(value);
      const inside = point !== null && point.x >= from && point.x <= to;
      return inside ? [symbol(one.group, plot.x(point.x), plot.y(point.y), 5)] : [];
    });
  }
}

// A mark whose form tells runs apart where colours do not.
function symbol(group, x, y, r) {
  const style = `fill:${colour(group)}`;
  const forms = [
    () => svg("circle", { class: "dot", cx: x, cy: y, r, style }),
    () => svg("rect", { class: "dot", x: x - r, y: y - r, width: 2 * r, height: 2 * r, style }),
    () => svg("path", { class: "dot", d: `M${x} ${y - 1.3 * r}L${x + 1.2 * r} ${y + r}H${x - 1.2 * r}Z`, style }),
    () => svg("path", { class: "dot", d: `M${x} ${y - 1.4 * r}L${x + 1.4 * r} ${y}L${x} ${y + 1.4 * r}L${x - 1.4 * r} ${y}Z`, style }),
  ];
  return forms[group % forms.length]();
}
