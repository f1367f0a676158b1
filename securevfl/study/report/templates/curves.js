// -- measures against rounds, virtual time or bytes -------------------------------------------

const FAR = 20; // ends, or losses, that lie further apart than this need a logarithmic scale
const MOST_LINES = 8; // of a tooltip, before it tells means
const DASHES = [null, "7 3", "2 3", "9 3 2 3"];

class Curves {
  constructor(section) {
    this.section = section;
    this.axis = "time";
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

  points(run, measure) {
    const { curves } = run;
    if (curves[measure] === undefined || curves[this.axis] === undefined) return [];
    return curves[this.axis]
      .map((x, row) => ({ x, y: curves[measure][row], row }))
      .filter(({ x, y }) => x !== null && (y !== null || !MEASURES[measure].held));
  }

  plot(host) {
    const { measure } = host.dataset;
    const label = `${host.dataset.label} curve. Arrow keys read values, + and - zoom, 0 shows all.`;
    const spec = {
      label, left: 58, zoom: this.zoom,
      height: () => 250,
      axis: () => AXES[this.axis],
      log: () => this.log,
      domain: () => this.domain(),
      stops: () => [...new Set(visible().flatMap((run) => this.points(run, measure))
        .filter(({ y }) => y !== null).map(({ x }) => x))].sort((a, b) => a - b),
      paint: (plot) => this.paint(plot, measure),
      read: (value) => this.read(value, measure),
      dots: (value, plot) => this.dots(value, measure, plot),
    };
    new Plot(host, spec).draw();
  }

  domain() {
    const all = visible().flatMap((run) => run.curves[this.axis]).filter((v) => v !== null);
    if (all.length === 0) return [0, 1];
    const low = all.reduce((a, b) => Math.min(a, b));
    const high = all.reduce((a, b) => Math.max(a, b));
    const from = this.log || low > high / 3 ? low : 0;
    return [from === high ? from * 0.9 : from, high];
  }

  paint(plot, measure) {
    const { range } = plot.x;
    const { tick, format, log, zero } = MEASURES[measure];
    const all = visible().map((run) => ({ run, points: this.points(run, measure) }));
    const inside = all.flatMap(({ points }) => points)
      .filter(({ x, y }) => y !== null && x >= range[0] && x <= range[1]).map(({ y }) => y);
    let low = inside.reduce((a, b) => Math.min(a, b), Infinity);
    let high = inside.reduce((a, b) => Math.max(a, b), -Infinity);
    if (inside.length === 0) [low, high] = [0, 1];
    const far = Boolean(log) && low > 0 && high > FAR * low;
    const pad = (high - low || Math.abs(high) || 1) * 0.06;
    const span = far ? [low / 1.1, high * 1.1] : [zero ? 0 : low - pad, high + pad];
    if (measure === "accuracy" || measure === "auc" || measure === "f1") {
      span[1] = Math.min(span[1], 1 + pad / 3);
    }
    plot.y = scale(span, [plot.bottom, plot.top], far);
    this.leftAxis(plot, ticks(span[0], span[1], 5, far), tick ?? ((v) => String(Number(v.toPrecision(3)))));
    if (inside.length === 0) {
      plot.root.append(svg("text", {
        x: (plot.left + plot.right) / 2, y: (plot.top + plot.bottom) / 2,
        "text-anchor": "middle", class: "nothing",
      }, visible().length === 0 ? "all runs are hidden" : "no values here"));
    }
    const clip = `clip-${figures.indexOf(plot)}`;
    plot.root.append(svg("clipPath", { id: clip }, svg("rect", {
      x: plot.left - 5, y: plot.top - 6, width: plot.right - plot.left + 10,
      height: plot.bottom - plot.top + 12,
    })));
    const lines = svg("g", { "clip-path": `url(#${clip})` });
    all.forEach(({ run, points }) => this.line(lines, plot, run, points, measure));
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

  line(host, plot, run, points, measure) {
    let path = "";
    let pen = "M";
    for (const { x, y } of points) {
      if (y === null) pen = "M";
      else {
        path += `${pen}${plot.x(x).toFixed(1)} ${plot.y(y).toFixed(1)}`;
        pen = "L";
      }
    }
    if (path === "") return;
    const stroke = colour(run.group);
    host.append(svg("path", {
      class: "line", d: path, style: `stroke:${stroke}`, "data-run": run.label,
      "stroke-dasharray": DASHES[Math.floor(run.group / 8) % DASHES.length],
    }));
    const [from, to] = plot.x.range;
    const few = points.filter(({ x, y }) => y !== null && x >= from && x <= to);
    if (few.length > 70 || !MEASURES[measure].held) return;
    few.forEach(({ x, y }) => host.append(symbol(run.group, plot.x(x), plot.y(y), 3)));
  }

  at(run, value, measure) {
    const points = this.points(run, measure).filter(({ y }) => y !== null);
    if (points.length === 0) return null;
    return points[nearest(points.map(({ x }) => x), value)];
  }

  // Of many runs, the seeds of a study say, only the mean of each group is told.
  means(value, measure) {
    const { format } = MEASURES[measure];
    return page.groups.flatMap((name, group) => {
      const values = visible().filter((run) => run.group === group)
        .map((run) => this.at(run, value, measure)?.y).filter((y) => y !== undefined);
      if (values.length === 0) return [];
      const mean = values.reduce((a, b) => a + b) / values.length;
      return [{ text: `${name}: ${format(mean)} (mean of ${values.length} runs)`, group }];
    });
  }

  read(value, measure) {
    const { format } = MEASURES[measure];
    if (page.runs.length > MOST_LINES) {
      return [{ text: AXES[this.axis].format(value) }, ...this.means(value, measure)];
    }
    return visible().flatMap((run) => {
      const point = this.at(run, value, measure);
      if (point === null) return [];
      const where = Object.entries(AXES).map(([name, { text }]) => {
        const v = run.curves[name]?.[point.row];
        return v === null || v === undefined ? null : text(v);
      }).filter((text) => text !== null).join(", ");
      const name = page.runs.length > 1 ? `${run.label}: ` : "";
      return [{ text: `${name}${format(point.y)} (${where})`, group: run.group }];
    });
  }

  dots(value, measure, plot) {
    return visible().flatMap((run) => {
      const point = this.at(run, value, measure);
      const inside = point !== null && point.x >= plot.x.range[0] && point.x <= plot.x.range[1];
      return inside ? [symbol(run.group, plot.x(point.x), plot.y(point.y), 5)] : [];
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
