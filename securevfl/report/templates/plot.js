// -- a plot: axes, a cursor for mouse, finger and keyboard, zoom ------------------------------

// A range of x that several plots share; null for all of it.
class Zoom {
  constructor() {
    this.range = null;
    this.plots = [];
  }

  set(range) {
    this.range = range;
    this.plots.forEach((plot) => plot.draw());
  }

  // Narrower or wider about a place, or about the middle.
  by(factor, about = null) {
    const plot = this.plots.find((one) => one.x !== undefined);
    if (plot === undefined) return;
    const [from, to] = plot.x.pixels;
    const centre = about === null ? (from + to) / 2 : plot.x(about);
    const half = ((to - from) / 2) * factor;
    const middle = Math.min(Math.max(centre, from + half), to - half);
    if (factor < 1) {
      this.set([plot.x.invert(middle - half), plot.x.invert(middle + half)]);
      return;
    }
    const [low, high] = plot.whole;
    const a = Math.max(plot.x.invert((from + to) / 2 - half), low);
    const b = Math.min(plot.x.invert((from + to) / 2 + half), high);
    this.set(a <= low && b >= high ? null : [a, b]);
  }

  buttons() {
    const one = (text, title, act) => {
      const made = el("button", { type: "button", title, "aria-label": title }, text);
      made.addEventListener("click", act);
      return made;
    };
    return el("span", { class: "zoom", role: "group", "aria-label": "Zoom" },
      one("−", "Zoom out", () => this.by(2)),
      one("+", "Zoom in", () => this.by(0.5)),
      one("Reset", "Show all", () => this.set(null)));
  }
}

// `spec` has: label; left, height (pixels); zoom; domain() of x; log(); axis(); paint(plot);
// stops() where the cursor can stand; read(x, lane) the lines of the tooltip; lanes() or nothing.
class Plot {
  constructor(host, spec) {
    this.spec = spec;
    this.cursor = null;
    this.lane = 0;
    this.frame = el("div", {
      class: "plot", tabindex: "0", role: "slider", "aria-label": spec.label,
      "aria-valuemin": "0", "aria-valuemax": "0", "aria-valuenow": "0",
      "aria-valuetext": "Press the arrow keys to read values",
    });
    this.tip = el("div", { class: "tip", hidden: "", "aria-hidden": "true" });
    host.replaceChildren(this.frame);
    this.drawn = null;
    this.width = 0;
    spec.zoom.plots.push(this);
    figures.push(this);
    this.listen();
    new ResizeObserver(() => {
      if (this.frame.clientWidth !== this.width) this.draw();
    }).observe(this.frame);
  }

  draw() {
    const { spec } = this;
    this.width = this.frame.clientWidth;
    if (this.width === 0) return;
    const height = spec.height();
    const root = svg("svg", {
      width: this.width, height, viewBox: `0 0 ${this.width} ${height}`, "aria-hidden": "true",
    });
    this.whole = spec.domain();
    this.left = spec.left;
    this.right = this.width - 14;
    this.top = 10;
    this.bottom = height - 40;
    const log = spec.log() && this.whole[0] > 0;
    const range = spec.zoom.range ?? this.whole;
    const pixels = [this.left, this.right];
    this.x = Object.assign(scale(range, pixels, log), { pixels, range });
    this.root = root;
    spec.paint(this);
    this.bottomAxis(ticks(range[0], range[1], Math.max(2, Math.floor(this.width / 110)), log));
    this.mark = svg("g", { class: "cursor" });
    root.append(this.mark);
    this.frame.replaceChildren(root, this.tip);
    this.stops = spec.stops().filter((v) => v >= range[0] && v <= range[1]);
    this.frame.setAttribute("aria-valuemax", Math.max(0, this.stops.length - 1));
    this.hide();
  }

  bottomAxis(values) {
    const { format, label } = this.spec.axis();
    const axis = svg("g", { class: "axis" });
    const y = this.bottom;
    axis.append(svg("line", { x1: this.left, x2: this.right, y1: y, y2: y }));
    for (const value of values) {
      const x = this.x(value);
      const anchor = x > this.right - 12 ? "end" : "middle";
      axis.append(svg("line", { x1: x, x2: x, y1: y, y2: y + 4 }));
      axis.append(svg("text", { x, y: y + 17, "text-anchor": anchor }, format(value)));
    }
    axis.append(svg("text", {
      x: (this.left + this.right) / 2, y: y + 34, "text-anchor": "middle", class: "name",
    }, label));
    this.root.append(axis);
  }

  listen() {
    const { frame } = this;
    let start = null;
    const place = (event) => {
      const box = frame.getBoundingClientRect();
      return [event.clientX - box.left, event.clientY - box.top];
    };
    frame.addEventListener("pointerdown", (event) => {
      if (event.pointerType === "mouse" && event.button === 0) {
        start = place(event)[0];
        frame.setPointerCapture(event.pointerId);
      }
    });
    frame.addEventListener("pointermove", (event) => {
      const [x, y] = place(event);
      this.point(x, y);
      if (start !== null) this.selection(start, x);
    });
    frame.addEventListener("pointerup", (event) => {
      const [x, y] = place(event);
      if (start !== null && Math.abs(x - start) > 6) this.zoomTo(start, x);
      else this.point(x, y);
      start = null;
    });
    frame.addEventListener("pointercancel", () => { start = null; });
    frame.addEventListener("pointerleave", () => { if (start === null) this.hide(); });
    frame.addEventListener("dblclick", () => this.spec.zoom.set(null));
    frame.addEventListener("blur", () => this.hide());
    frame.addEventListener("keydown", (event) => {
      if (!event.ctrlKey && !event.metaKey && !event.altKey && this.key(event.key)) {
        event.preventDefault();
      }
    });
  }

  key(name) {
    const { zoom } = this.spec;
    const last = this.stops.length - 1;
    if (last < 0) return false;
    const at = this.cursor === null ? null : nearest(this.stops, this.cursor);
    const steps = { ArrowLeft: -1, ArrowRight: 1, PageDown: -10, PageUp: 10 };
    if (name in steps) {
      const next = at === null ? (steps[name] > 0 ? 0 : last) : at + steps[name];
      this.show(this.stops[Math.min(Math.max(next, 0), last)]);
    } else if (name === "Home") this.show(this.stops[0]);
    else if (name === "End") this.show(this.stops[last]);
    else if (name === "+" || name === "=") this.zoomed(() => zoom.by(0.5, this.cursor));
    else if (name === "-") this.zoomed(() => zoom.by(2));
    else if (name === "0" || name === "Escape") zoom.set(null);
    else if (this.spec.lanes && (name === "ArrowUp" || name === "ArrowDown")) {
      const step = name === "ArrowUp" ? -1 : 1;
      this.lane = Math.min(Math.max(this.lane + step, 0), this.spec.lanes() - 1);
      this.show(this.cursor ?? this.stops[0]);
    } else return false;
    return true;
  }

  // Zooming redraws, which hides the cursor; bring it back.
  zoomed(act) {
    const before = this.cursor;
    act();
    if (before !== null) this.show(before);
  }

  selection(from, to) {
    const x = Math.max(Math.min(from, to), this.left);
    const end = Math.min(Math.max(from, to), this.right);
    this.mark.append(svg("rect", {
      class: "selection", x, y: this.top, width: Math.max(end - x, 0),
      height: this.bottom - this.top,
    }));
  }

  zoomTo(from, to) {
    const low = Math.max(Math.min(from, to), this.left);
    const high = Math.min(Math.max(from, to), this.right);
    if (high - low > 3) this.spec.zoom.set([this.x.invert(low), this.x.invert(high)]);
  }

  point(x, y) {
    if (this.stops === undefined || this.stops.length === 0 || x < this.left - 8) return;
    if (this.spec.laneAt) this.lane = this.spec.laneAt(this, y);
    this.show(this.stops[nearest(this.stops, this.x.invert(x))]);
  }

  show(value) {
    this.cursor = value;
    const lines = this.spec.read(value, this.lane, this);
    const x = Math.min(Math.max(this.x(value), this.left), this.right);
    this.mark.replaceChildren(
      svg("line", { x1: x, x2: x, y1: this.top, y2: this.bottom }),
      ...(this.spec.dots ? this.spec.dots(value, this) : []));
    this.tip.replaceChildren(...lines.map(({ text, group }) => {
      const key = el("span", { class: "key" });
      if (group !== undefined) key.style.background = colour(group);
      return el("div", {}, ...(group === undefined ? [] : [key]), text);
    }));
    this.tip.hidden = false;
    const room = this.width - this.tip.offsetWidth - 4;
    const wanted = x > this.width / 2 ? x - this.tip.offsetWidth - 12 : x + 12;
    this.tip.style.left = `${Math.max(Math.min(wanted, room), 4)}px`;
    // Below what is read, so that nothing of it is covered.
    const lane = this.top + (this.lane + 1) * (this.spec.laneHeight ?? 0);
    this.tip.style.top = `${this.spec.lanes ? lane + 2 : this.bottom + 8}px`;
    this.frame.setAttribute("aria-valuenow", nearest(this.stops, value));
    this.frame.setAttribute("aria-valuetext", lines.map(({ text }) => text).join("; "));
  }

  hide() {
    this.cursor = null;
    this.tip.hidden = true;
    if (this.mark) this.mark.replaceChildren();
  }
}
