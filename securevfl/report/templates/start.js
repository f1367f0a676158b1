// -- controls of the page ---------------------------------------------------------------------

document.querySelectorAll("button[data-toggle]").forEach((button) => {
  button.addEventListener("click", () => {
    const group = Number(button.dataset.toggle);
    if (shown.has(group)) shown.delete(group); else shown.add(group);
    button.setAttribute("aria-pressed", String(shown.has(group)));
    document.querySelectorAll(`[data-group="${group}"]`).forEach((part) => {
      part.hidden = !shown.has(group);
    });
    redraw();
  });
});

document.querySelectorAll("button[data-copy]").forEach((button) => {
  button.addEventListener("click", async () => {
    const text = document.getElementById(button.dataset.copy).textContent;
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(document.getElementById(button.dataset.copy));
      button.textContent = "Selected; press Ctrl+C";
    }
  });
});

document.querySelectorAll("#curves").forEach((section) => new Curves(section));
page.runs.forEach((run, number) => {
  const lanes = document.querySelector(`[data-timeline="${number}"]`);
  if (lanes && run.timeline) new Timeline(lanes, run);
  const links = document.querySelector(`[data-links="${number}"]`);
  if (links && run.links) new Links(links, run);
});
