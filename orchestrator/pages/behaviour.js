"use strict";
(() => {
  const page = JSON.parse(document.getElementById("page").textContent);
  const titles = page.axes;
  const rows = (columns) => {
    const names = Object.keys(columns);
    return columns[names[0]].map((_, i) =>
      Object.fromEntries(names.map((name) => [name, columns[name][i]])));
  };
  const tables = Object.fromEntries(
    Object.entries(page.tables).map(([name, columns]) => [name, rows(columns)]));

  const looks = (dark) => {
    const ink = dark ? "#e6e9ee" : "#1d2430", quiet = dark ? "#a3adbb" : "#566072";
    const grid = dark ? "#2b323d" : "#e6e9ee";
    const colours = dark
      ? ["#7ea6ff", "#ffa657", "#5fd3a4", "#e38fd0", "#d9bf6a", "#9cc9e6", "#ff8a7a", "#b3a6ff"]
      : page.colours;
    return {
      background: "transparent", font: "system-ui, -apple-system, 'Segoe UI', sans-serif",
      axis: { labelColor: quiet, titleColor: quiet, gridColor: grid, domainColor: grid,
        tickColor: grid, titleFontWeight: 400, labelFontSize: 11, titleFontSize: 12 },
      legend: { labelColor: ink, titleColor: quiet, title: null, orient: "top", columns: 3,
        labelFontSize: 12, symbolStrokeWidth: 2, titleFontWeight: 400, labelLimit: 220 },
      range: { category: colours }, view: { stroke: null }, line: { strokeWidth: 2 },
      rule: { color: quiet }, mark: { tooltip: null },
    };
  };

  // a chart's x axis is one of the known ones wherever it stands
  const along = (spec, axis) => JSON.parse(JSON.stringify(spec), (key, value) => {
    if (key === "x" && value && value.field in titles && value.type === "quantitative") {
      const whole = axis === "round" || axis === "steps" ? 1 : undefined;
      return { ...value, field: axis, title: titles[axis], axis: { ...value.axis, tickMinStep: whole } };
    }
    if (key === "tooltip" && Array.isArray(value)) {
      return value.map((one) => one.field in titles && one.type === "quantitative"
        ? { ...one, field: axis, title: titles[axis] } : one);
    }
    return value;
  });

  const paper = window.matchMedia("print"), night = window.matchMedia("(prefers-color-scheme: dark)");
  let over = "";
  const draw = (chart) => {
    const place = document.getElementById(`chart-${chart.id}`);
    const spec = chart.over ? along(chart.spec, over || chart.over) : chart.spec;
    const size = { width: "container", height: 230, autosize: { type: "fit", contains: "padding" } };
    return vegaEmbed(place, { ...spec, ...size, datasets: { ...tables, ...chart.data } }, {
      renderer: "svg", config: looks(night.matches && !paper.matches), tooltip: { theme: night.matches ? "dark" : "light" },
      actions: { export: { svg: true, png: true }, source: false, compiled: false, editor: false },
      downloadFileName: chart.id,
    }).then(() => {
      // vega-embed's menu is three dots, of which nothing can be read aloud
      const menu = place.querySelector("summary");
      if (menu) menu.setAttribute("aria-label", "Save this chart");
    });
  };
  const drawAll = (which = () => true) => page.charts.filter(which).forEach(draw);
  drawAll();
  night.addEventListener("change", () => drawAll());
  window.addEventListener("beforeprint", () => drawAll());
  document.querySelectorAll("input[name=over]").forEach((input) =>
    input.addEventListener("change", () => { over = input.value; drawAll((c) => c.over); }));

  document.querySelectorAll("table.sortable").forEach((table) => {
    const body = table.tBodies[0], first = Number(table.dataset.first);
    let all = false;
    const fold = () => [...body.rows].forEach((row, i) => row.classList.toggle("over", !all && i >= first));
    const more = document.querySelector(`button[aria-controls="${table.id}"]`);
    if (more) more.addEventListener("click", () => { all = true; fold(); more.remove(); });
    const number = (row, i) => {
      const text = row.cells[i].textContent.replaceAll(",", "");
      return text === "" ? NaN : Number(text);
    };
    [...table.tHead.rows[0].cells].forEach((head, i) => head.firstChild.addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") !== "ascending";
      [...table.tHead.rows[0].cells].forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const sorted = [...body.rows].sort((a, b) => {
        const x = number(a, i), y = number(b, i);
        if (Number.isNaN(x) || Number.isNaN(y)) return Number.isNaN(x) - Number.isNaN(y);
        return up ? x - y : y - x;
      });
      body.append(...sorted);
      fold();
    }));
    fold();
  });
})();
