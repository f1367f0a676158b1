// A click on the head of a column sorts a table by it: by numbers where cells begin with one.
document.addEventListener("DOMContentLoaded", () => {
  for (const head of document.querySelectorAll("article table.docutils thead th")) {
    const table = head.closest("table"), column = head.cellIndex;
    let down = false;
    const sort = () => {
      down = !down;
      const value = (row) => row.cells[column].innerText.replace(/,/g, "");
      const rows = [...table.tBodies[0].rows].sort((a, b) => {
        const [x, y] = [value(a), value(b)], [p, q] = [parseFloat(x), parseFloat(y)];
        if (isNaN(p) !== isNaN(q)) return isNaN(p) ? 1 : -1;  // empty cells come last
        return (down ? -1 : 1) * (isNaN(p) ? x.localeCompare(y) : p - q);
      });
      table.tBodies[0].append(...rows);
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
    };
    head.tabIndex = 0;
    head.style.cursor = "pointer";
    head.addEventListener("click", sort);
    head.addEventListener("keydown", (event) => { if (event.key === "Enter") sort(); });
  }
});
