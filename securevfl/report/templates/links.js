// -- who sent how much to whom ----------------------------------------------------------------

const COUNTS = ["messages", "bytes", "late"];

const UNITS = [["GB", 1e9], ["MB", 1e6], ["kB", 1e3], ["B", 1]];
const DENSE = 16; // parties from which cells are small

class Links {
  constructor(host, run) {
    this.links = run.links;
    this.host = host;
    this.kind = host.closest(".card").querySelector("select[name=kind]");
    this.what = host.closest(".card").querySelectorAll("input[data-what]");
    this.kind.addEventListener("change", () => this.draw());
    this.what.forEach((input) => input.addEventListener("change", () => this.draw()));
    figures.push(this);
    this.draw();
  }

  sums(what) {
    const { parties, cells } = this.links;
    const wanted = this.kind.value === "" ? null : Number(this.kind.value);
    const table = parties.map(() => parties.map(() => 0));
    for (const [kind, sender, receiver, ...counts] of cells) {
      if (wanted === null || kind === wanted) table[sender][receiver] += counts[COUNTS.indexOf(what)];
    }
    return table;
  }

  draw() {
    const { parties } = this.links;
    const what = [...this.what].find((input) => input.checked).dataset.what;
    const table = this.sums(what);
    const most = Math.max(1, ...table.flat());
    const dense = parties.length > DENSE;
    const [unit, factor] = what === "bytes" ? UNITS.find(([, f]) => most >= f) : ["", 1];
    const short = (n, digits) => {
      const value = Number((n / factor).toPrecision(digits));
      return n > 0 && value < 0.01 ? "<.01" : grouped.format(value);
    };
    const noun = what === "late" ? "late messages" : what;
    const exact = (n) => `${grouped.format(n)} ${noun}`;
    const sum = (list) => list.reduce((a, b) => a + b, 0);
    const cell = (n, title, name, digits) =>
      el("td", { class: name, title, "data-value": n }, short(n, digits));
    const total = (n, title) => cell(n, title, "sum", 3);
    const word = (name) => brief(name.replace(/^party (\d+)$/, "$1"));
    const head = el("tr", {}, el("th", { scope: "col", title: "from (row) to (column)" }, unit),
      ...parties.map((name) => el("th", { scope: "col", title: name }, word(name))),
      el("th", { scope: "col" }, "sum"));
    const rows = parties.map((from, s) => el("tr", {},
      el("th", { scope: "row", title: from }, word(from)),
      ...parties.map((to, r) => {
        if (s === r) return el("td", { class: "self" }, "");
        const n = table[s][r];
        const made = cell(n, `${from} to ${to}: ${exact(n)}`, "link", dense ? 2 : 3);
        made.style.setProperty("--part", (n / most).toFixed(3));
        return made;
      }),
      total(sum(table[s]), `${from} sent ${exact(sum(table[s]))}`)));
    const foot = el("tr", {}, el("th", { scope: "row" }, "sum"),
      ...parties.map((to, r) => {
        const got = sum(table.map((row) => row[r]));
        return total(got, `${to} was sent ${exact(got)}`);
      }), total(sum(table.flat()), exact(sum(table.flat()))));
    this.host.replaceChildren(el("table", { class: dense ? "matrix dense" : "matrix" },
      el("thead", {}, head), el("tbody", {}, ...rows, foot)));
  }
}
