// -- who sent how much to whom ----------------------------------------------------------------

const COUNTS = ["messages", "bytes", "late"];

function short(value, what) {
  if (value === 0) return "0";
  if (what !== "bytes") return value < 10000 ? String(value) : `${Number((value / 1000).toPrecision(3))}k`;
  for (const [unit, factor] of [["T", 1e12], ["G", 1e9], ["M", 1e6], ["k", 1e3]]) {
    if (value >= factor) return `${Number((value / factor).toPrecision(3))}${unit}`;
  }
  return String(value);
}

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
    const exact = (n) => (what === "bytes" ? `${grouped.format(n)} bytes` : `${grouped.format(n)} ${what === "late" ? "late messages" : "messages"}`);
    const sum = (list) => list.reduce((a, b) => a + b, 0);
    const cell = (n, title, name) => el("td", { class: name, title, "data-value": n }, n === null ? "" : short(n, what));
    const word = (name) => name.replace("party ", "");
    const head = el("tr", {}, el("th", { scope: "col" }, "from \\ to"),
      ...parties.map((name) => el("th", { scope: "col", title: name }, word(name))),
      el("th", { scope: "col" }, "sum"));
    const rows = parties.map((from, s) => el("tr", {}, el("th", { scope: "row", title: from }, word(from)),
      ...parties.map((to, r) => {
        if (s === r) return el("td", { class: "self" }, "");
        const made = cell(table[s][r], `${from} to ${to}: ${exact(table[s][r])}`, "link");
        made.style.setProperty("--part", (table[s][r] / most).toFixed(3));
        return made;
      }),
      cell(sum(table[s]), `${from} sent ${exact(sum(table[s]))}`, "sum")));
    const foot = el("tr", {}, el("th", { scope: "row" }, "sum"),
      ...parties.map((to, r) => {
        const got = sum(table.map((row) => row[r]));
        return cell(got, `${to} was sent ${exact(got)}`, "sum");
      }), cell(sum(table.flat()), exact(sum(table.flat())), "sum"));
    this.host.replaceChildren(el("table", { class: "matrix" },
      el("thead", {}, head), el("tbody", {}, ...rows, foot)));
  }
}
