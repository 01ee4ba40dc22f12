"use strict";
// Makes the page easier to use; all that it says is there without.

function enliven(root) {
  // Points of a chart: read by mouse, or one by one with the arrow keys.
  for (const plot of root.querySelectorAll(".plot")) {
    const tip = plot.querySelector(".tip");
    let at = null;
    const drawing = () => [...plot.querySelectorAll("svg")].find((svg) => svg.getClientRects().length);
    const rows = () => {
      const shown = drawing();
      const all = shown ? [...shown.querySelectorAll(".series:not(.off)")] : [];
      return all.map((one) => [...one.querySelectorAll(".pt")]).filter((one) => one.length);
    };
    const show = (point) => {
      if (at) at.classList.remove("at");
      at = point;
      tip.hidden = !point;
      if (!point) return;
      point.classList.add("at");
      tip.textContent = point.dataset.label;
      const box = plot.getBoundingClientRect(), of = point.getBoundingClientRect();
      const x = of.left + of.width / 2 - box.left;
      const left = Math.min(Math.max(0, x - tip.offsetWidth / 2), box.width - tip.offsetWidth);
      const above = of.top - box.top - tip.offsetHeight - 4;
      tip.style.left = `${Math.max(0, left)}px`;
      tip.style.top = `${above >= 0 ? above : of.bottom - box.top + 4}px`;
    };
    plot.addEventListener("pointermove", (event) => {
      let best = null, least = 40 * 40;
      for (const point of rows().flat()) {
        const of = point.getBoundingClientRect();
        const x = of.left + of.width / 2 - event.clientX, y = of.top + of.height / 2 - event.clientY;
        if (x * x + y * y < least) { least = x * x + y * y; best = point; }
      }
      if (best !== at) show(best);
    });
    plot.addEventListener("pointerleave", () => show(null));
    plot.addEventListener("blur", () => show(null));
    plot.addEventListener("keydown", (event) => {
      const all = rows();
      if (!all.length || event.ctrlKey || event.metaKey || event.altKey) return;
      let row = all.findIndex((one) => one.includes(at)), place = row < 0 ? -1 : all[row].indexOf(at);
      if (event.key === "Escape") { show(null); return; }
      const step = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] }[event.key];
      if (event.key === "Home") [row, place] = [Math.max(row, 0), 0];
      else if (event.key === "End") { row = Math.max(row, 0); place = all[row].length - 1; }
      else if (!step) return;
      else if (row < 0) [row, place] = [0, 0];
      else { row += step[0]; place += step[1]; }
      event.preventDefault();
      row = Math.min(Math.max(row, 0), all.length - 1);
      show(all[row][Math.min(Math.max(place, 0), all[row].length - 1)]);
    });
  }

  // Series can be switched off, bands chosen.
  for (const chart of root.querySelectorAll(".chart")) {
    for (const button of chart.querySelectorAll("[data-toggle]")) {
      button.addEventListener("click", () => {
        const on = button.getAttribute("aria-pressed") !== "true";
        button.setAttribute("aria-pressed", String(on));
        for (const one of chart.querySelectorAll(`[data-series="${button.dataset.toggle}"]`)) {
          one.classList.toggle("off", !on);
        }
      });
    }
    const bands = chart.querySelector("[data-bands]");
    if (bands) bands.addEventListener("change", () => {
      chart.classList.remove("bands-error", "bands-none");
      if (bands.value !== "std") chart.classList.add(`bands-${bands.value}`);
    });
  }

  // Tables: sorted by a column, and searched.
  for (const table of root.querySelectorAll("table.sortable")) {
    const body = table.tBodies[0], heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => head.querySelector(".sort").addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      for (const other of heads) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const numbers = head.classList.contains("number");
      const keyed = [...body.rows].map((row) => {
        const cell = row.cells[column];
        const value = numbers ? cell.dataset.v : cell.textContent;
        return [numbers ? (value === undefined ? NaN : Number(value)) : value, row];
      });
      const words = new Intl.Collator(undefined, { numeric: true });
      keyed.sort(([a], [b]) => {
        if (!numbers) return (down ? -1 : 1) * words.compare(a, b);
        if (Number.isNaN(a) || Number.isNaN(b)) return Number.isNaN(a) - Number.isNaN(b);
        return (down ? -1 : 1) * (a === b ? 0 : a < b ? -1 : 1);
      });
      body.append(...keyed.map(([, row]) => row));
    }));
    const search = table.closest(".table").querySelector("[data-filter]");
    if (search) search.addEventListener("input", () => {
      const wanted = search.value.toLocaleLowerCase();
      let left = 0;
      for (const row of body.rows) {
        const off = !row.textContent.toLocaleLowerCase().includes(wanted);
        row.classList.toggle("off", off);
        if (!off) left += 1;
      }
      const found = search.closest(".search").querySelector("[data-found]");
      found.textContent = wanted ? `${left} of ${body.rows.length} rows` : "";
    });
  }

  for (const button of root.querySelectorAll(".copy")) {
    const code = button.parentElement.querySelector("code");
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(code.textContent);
        button.textContent = "Copied";
      } catch {
        getSelection().selectAllChildren(code);
        button.textContent = "Selected: press Ctrl-C";
      }
    });
  }
}

enliven(document);

// On paper nothing can be opened.
let opened = [];
addEventListener("beforeprint", () => {
  opened = [...document.querySelectorAll("details:not([open])")];
  for (const one of opened) one.open = true;
});
addEventListener("afterprint", () => { for (const one of opened) one.open = false; });
