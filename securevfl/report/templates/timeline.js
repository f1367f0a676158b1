// -- one lane a party: delays, late messages, rounds that were left, breakdowns ---------------

const LANE = 30;
const BAR = 17;

class Timeline {
  constructor(host, run) {
    this.run = run;
    this.line = run.timeline;
    this.zoom = new Zoom();
    const end = this.line.ends.at(-1);
    const beyond = this.line.lanes.flatMap(({ down }) => down.flat()).filter((t) => t !== null);
    this.end = Math.max(end, ...beyond, ...this.line.marks.map(({ time }) => time));
    host.parentElement.querySelector(".tools").append(this.zoom.buttons());
    this.plot = new Plot(host, {
      label: `Timeline of ${run.label}. Left and right arrows move in time, up and down between `
        + "parties, + and - zoom, 0 shows all.",
      left: Math.max(70, 12 + 7 * Math.max(...this.line.lanes.map(({ name }) => brief(name).length))),
      zoom: this.zoom,
      height: () => this.line.lanes.length * LANE + 54,
      axis: () => AXES.time,
      log: () => false,
      domain: () => [0, this.end],
      stops: () => this.line.ends.map((_, cell) => this.middle(cell)),
      paint: (plot) => this.paint(plot),
      read: (value, lane) => this.read(value, lane),
      dots: (_, plot) => [svg("rect", {
        class: "lane-mark", x: plot.left, y: plot.top + plot.lane * LANE,
        width: plot.right - plot.left, height: LANE - 3,
      })],
      lanes: () => this.line.lanes.length,
      laneHeight: LANE,
      laneAt: (plot, y) => {
        const lane = Math.floor((y - plot.top) / LANE);
        return Math.min(Math.max(lane, 0), this.line.lanes.length - 1);
      },
    });
    this.plot.draw();
  }

  start(cell) {
    return cell === 0 ? 0 : this.line.ends[cell - 1];
  }

  middle(cell) {
    return (this.start(cell) + this.line.ends[cell]) / 2;
  }

  paint(plot) {
    const clip = `lanes-${figures.indexOf(plot)}`;
    plot.root.append(svg("clipPath", { id: clip }, svg("rect", {
      x: plot.left, y: 0, width: plot.right - plot.left, height: plot.bottom + 1,
    })));
    const body = svg("g", { "clip-path": `url(#${clip})` });
    const names = svg("g", { class: "axis" });
    this.line.lanes.forEach((lane, row) => {
      const top = plot.top + row * LANE;
      names.append(svg("text", { x: plot.left - 8, y: top + 16, "text-anchor": "end" }, brief(lane.name)));
      body.append(svg("rect", {
        class: "lane", x: plot.left, y: top, width: plot.right - plot.left, height: LANE - 3,
        "data-lane": lane.name,
      }));
      this.lane(body, plot, lane, top);
    });
    this.line.marks.forEach((mark) => this.mark(body, plot, mark));
    plot.root.append(names, body);
  }

  lane(body, plot, lane, top) {
    const most = lane.party < 0 ? this.line.highest.server : this.line.highest.others;
    const cells = this.line.ends.map((end, cell) => {
      const x = plot.x(this.start(cell));
      const full = plot.x(end) - x;
      return { x, width: Math.max(full - (full > 4 ? 1 : 0), 0.7) };
    });
    const box = ({ x, width }, y, height) =>
      `M${x.toFixed(1)} ${y.toFixed(1)}h${width.toFixed(1)}v${height.toFixed(1)}h${(-width).toFixed(1)}Z`;
    const bars = (lane.bars ?? []).map((value, cell) => {
      const height = most > 0 && value > 0 ? Math.max((value / most) * BAR, 1) : 0;
      return height > 0 ? box(cells[cell], top + BAR - height, height) : "";
    }).join("");
    // At its very time where the history tells it, else over the whole round.
    const strip = (name, y, height) => {
      const times = lane.times[name] ?? [];
      if (times.length > 0) {
        return times.map((t) => box({ x: plot.x(t) - 0.8, width: 1.6 }, y, height)).join("");
      }
      return lane[name].map((n, cell) => (n > 0 ? box(cells[cell], y, height) : "")).join("");
    };
    const path = (name, d) => (d === "" ? [] : [svg("path", { class: name, d })]);
    body.append(
      ...path(lane.party < 0 ? "bar server" : "bar", bars),
      ...lane.down.map(([from, to]) => {
        const x = plot.x(from);
        const width = Math.max(plot.x(to ?? this.end) - x, 2);
        return svg("rect", { class: "down", x, y: top, width, height: LANE - 3 });
      }),
      ...path("late", strip("late", top + BAR + 1.5, 4)),
      ...path("left", strip("left", top + BAR + 6, 3.5)),
      ...path("lost", strip("lost", top + BAR + 6, 3.5)));
  }

  mark(body, plot, { time, party }) {
    const row = this.line.lanes.findIndex((lane) => lane.party === party);
    const [x, y] = [plot.x(time), plot.top + row * LANE];
    body.append(svg("path", { class: "event", d: `M${x - 4} ${y}h8l-4 7Z` }));
  }

  read(value, row) {
    const { ends, first, last } = this.line;
    const cell = nearest(ends.map((_, c) => this.middle(c)), value);
    const lane = this.line.lanes[row];
    const [from, to] = [this.start(cell), ends[cell]];
    const round = last.length === 0 ? "" : first[cell] === last[cell]
      ? `round ${grouped.format(last[cell])}, ` : `rounds ${first[cell]} to ${last[cell]}, `;
    const lines = [`${lane.name}: ${round}${seconds(from)} to ${seconds(to)}`];
    if (lane.bars) {
      const bar = lane.bars[cell];
      const several = first[cell] === last[cell] ? "" : " on average";
      if (last.length === 0) lines.push(`used ${bar} times`);
      else if (lane.party < 0) lines.push(`the round took ${seconds(bar)}${several}`);
      else if (bar > 0) lines.push(`its messages were under way for up to ${seconds(bar)}${several}`);
    }
    const count = (n, one, many) => (n > 0 ? [`${n} ${n === 1 ? one : many}`] : []);
    lines.push(...count(lane.late[cell], "message came late", "messages came late"));
    if (lane.left[cell] > 0) lines.push("left the round when a newer one was announced");
    lines.push(...count(lane.lost[cell], "message of it was lost", "messages of it were lost"));
    for (const [a, b] of lane.down) {
      if (a < to && (b ?? Infinity) > from) {
        lines.push(b === null ? `down from ${seconds(a)} on` : `down from ${seconds(a)} to ${seconds(b)}`);
      }
    }
    for (const mark of this.line.marks) {
      if (mark.party === lane.party && mark.time > from && mark.time <= to) {
        lines.push(mark.text ? `${mark.name}: ${mark.text}` : mark.name);
      }
    }
    return lines.map((text) => ({ text }));
  }
}
