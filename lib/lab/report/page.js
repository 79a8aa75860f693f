for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => head.querySelector("button").addEventListener("click", () => {
    const up = head.getAttribute("aria-sort") !== "ascending";
    for (const other of heads) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
    const numeric = head.classList.contains("n");
    const value = row => {
      const text = row.cells[column].title || row.cells[column].textContent;
      if (!numeric) return text;
      return text === "" ? NaN : Number(text.replace("inf", "Infinity"));
    };
    // What is no number comes last in both directions.
    const compare = (a, b) => {
      if (!numeric) return (up ? 1 : -1) * a.localeCompare(b);
      return Number.isNaN(a) - Number.isNaN(b) || (up ? 1 : -1) * (a === b ? 0 : a - b) || 0;
    };
    const rows = [...table.tBodies[0].rows].map(row => [value(row), row]);
    rows.sort((a, b) => compare(a[0], b[0]));
    table.tBodies[0].append(...rows.map(row => row[1]));
  }));
}
// Paper has nothing to unfold. Claims are printed whole, and folded again afterwards. A long table is printed only
// if the reader has unfolded it: its title says how many rows the file has.
let unfolded = [];
addEventListener("beforeprint", () => {
  unfolded = [...document.querySelectorAll("#claims details:not([open])")];
  for (const details of unfolded) details.open = true;
  Plot.print(true);
});
addEventListener("afterprint", () => {
  for (const details of unfolded) details.open = false;
  Plot.print(false);
});
