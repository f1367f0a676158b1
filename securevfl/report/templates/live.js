// -- a run that goes on: its rows are asked for again and again -------------------------------

const EVERY = 1000; // milliseconds
const told = document.getElementById("state");

function update({ curves, figures: found, told: sums }) {
  if (curves === null) return;
  page.runs[0].curves = curves;
  document.querySelectorAll("[data-measure]").forEach((host) => {
    host.parentElement.hidden = !(host.dataset.measure in curves);
  });
  document.getElementById("summary").replaceChildren(
    ...Object.entries(found).map(([name, [label, value]]) => el(
      "div", {}, el("dt", {}, label), el("dd", { "data-figure": name }, value))));
  told.textContent = "The run goes on; this page follows it.";
  document.getElementById("sums").textContent = sums && `Decoded sums so far: ${sums}.`;
  redraw();
}

async function follow() {
  try {
    const answer = await fetch("rows", { cache: "no-store" });
    if (!answer.ok) throw new Error(answer.statusText);
    update(await answer.json());
    setTimeout(follow, EVERY);
  } catch {
    told.textContent = "The run is over, or was stopped: nothing answers any more. "
      + "securevfl report, with its folder, writes the whole page.";
    told.dataset.over = "yes";
  }
}

follow();
