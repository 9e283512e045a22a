"use strict";
(function () {
  function key(cell) {
    const number = Number(cell.dataset.value);
    const known = cell.dataset.value !== "" && !Number.isNaN(number);
    return { known: cell.dataset.value !== "" && cell.dataset.value !== "-", number: known ? number : null, text: cell.dataset.value };
  }
  function compare(one, other) {
    if (one.known !== other.known) return one.known ? -1 : 1;
    if (one.number !== null && other.number !== null) return one.number - other.number;
    return one.text.localeCompare(other.text, "en", { numeric: true });
  }
  function sortBy(table, index, ascending) {
    const body = table.tBodies[0];
    const rows = Array.from(body.rows).map((row) => ({ row, key: key(row.cells[index]) }));
    rows.sort(function (a, b) {
      const order = compare(a.key, b.key);
      return a.key.known && b.key.known && !ascending ? -order : order;
    });
    rows.forEach((entry) => body.appendChild(entry.row));
  }
  document.querySelectorAll("table.sortable").forEach(function (table) {
    const heads = Array.from(table.tHead.rows[0].cells);
    heads.forEach(function (head, index) {
      head.querySelector("button").addEventListener("click", function () {
        const ascending = head.getAttribute("aria-sort") !== "ascending";
        heads.forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", ascending ? "ascending" : "descending");
        sortBy(table, index, ascending);
      });
    });
  });
  document.querySelectorAll("svg .point").forEach(function (point) {
    const detail = point.closest("section").querySelector(".detail");
    function show() { detail.textContent = point.querySelector("title").textContent; }
    point.addEventListener("mouseenter", show);
    point.addEventListener("focus", show);
  });
})();
