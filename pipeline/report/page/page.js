"use strict";
// Text that may come from a paper is only ever set as textContent.
(() => {
// Okabe and Ito (2008), and lighter tones of it for a dark page.
const LIGHT = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#777777", "#B2A400"];
const DARK = ["#4DA6E0", "#F08A3C", "#2FC79A", "#E3A0C6", "#F2BC4B", "#9AD4F5", "#B0B0B0", "#D9CB3A"];
const SHAPES = ["circle", "rect", "triangle", "rectRot", "star", "crossRot", "cross", "dash"];
const PAGE = 20;
const $ = (selector, root = document) => root.querySelector(selector);
const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];
const percent = value => value === null || Number.isNaN(value) ? "–" : (100 * value).toFixed(1);
const signed = value => Number.isNaN(value) ? "–" : (value > 0 ? "+" : value < 0 ? "−" : "") + (100 * Math.abs(value)).toFixed(1);

function make(tag, text, options = {}) {
  const element = document.createElement(tag);
  if (text !== undefined && text !== null) element.textContent = text;
  for (const [name, value] of Object.entries(options)) element.setAttribute(name, value);
  return element;
}

// Blocks of packed data (pack.py).
async function unpack(id) {
  const text = $(`script#${id}`).textContent;
  const bytes = Uint8Array.fromBase64?.(text) ?? Uint8Array.from(atob(text), letter => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  const data = new Uint8Array(await new Response(stream).arrayBuffer());
  const end = data.indexOf(10), decoder = new TextDecoder();
  const { header, columns } = JSON.parse(decoder.decode(data.subarray(0, end)));
  const body = Math.ceil((end + 1) / 4) * 4, found = {};
  for (const [name, [kind, start, length]] of Object.entries(columns)) {
    const from = body + start;
    if (kind === "text") found[name] = decoder.decode(data.subarray(from, from + length)).split("\n");
    else {
      const type = globalThis[`${kind}Array`];
      found[name] = new type(data.buffer, from, length / type.BYTES_PER_ELEMENT);
    }
  }
  return { header, columns: found };
}

// Theme.
const charts = [];
function colours() {
  const text = getComputedStyle(document.body).color, light = Number(/\d+/.exec(text)[0]) < 128;
  return { text, grid: getComputedStyle($("footer")).borderTopColor, series: light ? LIGHT : DARK };
}
function theme() {
  const button = $("#theme"), order = ["system", "light", "dark"];
  const show = name => {
    if (name === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = name;
    button.textContent = `Theme: ${name}`;
    for (const redraw of charts) redraw();
  };
  let now = "system";
  try { now = localStorage.getItem("mdcr-theme") || now; } catch { /* a browser may refuse storage to files */ }
  show(order.includes(now) ? now : "system");
  button.addEventListener("click", () => {
    now = order[(order.indexOf(now) + 1) % 3];
    try { localStorage.setItem("mdcr-theme", now); } catch { /* likewise */ }
    show(now);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => show(now));
  // A change of the colour scheme for print is seen by media queries alone.
  matchMedia("print").addEventListener("change", () => show(now));
}

// Tables: sorting by a button in each header, and a filter.
function key(cell) {
  const text = cell.dataset.v ?? cell.textContent.trim();
  const number = cell.tagName === "TH" ? NaN : Number.parseFloat(text.replace(/,/g, "").replace("−", "-"));
  return Number.isNaN(number) ? text : number;
}
function compare(a, b, down) {
  const none = value => value === "–" || value === "" || Number.isNaN(value);
  if (none(a) || none(b)) return none(a) - none(b);
  const order = typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true });
  return down ? -order : order;
}
function mark(buttons, chosen, down) {
  for (const button of buttons) {
    const header = button.closest("th");
    if (button === chosen) header.setAttribute("aria-sort", down ? "descending" : "ascending");
    else header.removeAttribute("aria-sort");
  }
}
function sortable(table) {
  const buttons = $$("button[data-sort]", table), body = $("tbody:not(.summary)", table);
  buttons.forEach((button, column) => button.addEventListener("click", () => {
    const now = button.closest("th").getAttribute("aria-sort"), rows = [...body.rows];
    const numeric = rows.some(row => typeof key(row.cells[column]) === "number");
    const down = now ? now === "ascending" : numeric;
    rows.sort((a, b) => compare(key(a.cells[column]), key(b.cells[column]), down));
    body.append(...rows);
    mark(buttons, button, down);
  }));
}
function filterable(section) {
  const input = $("input[data-filter]", section), rows = $$("table.sortable tbody:not(.summary) tr", section);
  if (!input) return;
  input.addEventListener("input", () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const row of rows) {
      const labels = $$("th, td.label", row).map(cell => cell.textContent).join(" ").toLowerCase();
      row.hidden = !words.every(word => labels.includes(word));
      shown += !row.hidden;
    }
    $(".found", section).textContent = words.length ? `${shown} of ${rows.length} rows` : "";
  });
}
function download(name, text) {
  const link = make("a", null, { href: URL.createObjectURL(new Blob([text], { type: "text/plain;charset=utf-8" })), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
function provenance(record) {
  const list = $("#record dl");
  list.replaceChildren();
  const place = [record.label, record.field ?? "dataset level", record.measure].join(", ");
  $("#record-title").textContent = `${place}: ${percent(record.value)}`;
  for (const [name, value] of Object.entries(record)) {
    if (value === null || value === "") continue;
    const text = Array.isArray(value) ? value.join("\n") : String(value);
    list.append(make("dt", name.replaceAll("_", " ")), make("dd", text));
  }
  $("#record").showModal();
}

// Charts.
const intervals = {
  id: "intervals",
  beforeDatasetsDraw(chart) {
    const { ctx, scales } = chart;
    chart.data.datasets.forEach((set, number) => {
      if (!set.intervals || !chart.isDatasetVisible(number)) return;
      ctx.save();
      ctx.strokeStyle = set.borderColor;
      ctx.beginPath();
      for (const { x, y, low, high } of set.data) {
        const across = set.intervals === "x";
        const [from, to] = [low, high].map(value => scales[across ? "x" : "y"].getPixelForValue(value));
        const at = scales[across ? "y" : "x"].getPixelForValue(across ? y : x);
        if (across) { ctx.moveTo(from, at); ctx.lineTo(to, at); } else { ctx.moveTo(at, from); ctx.lineTo(at, to); }
      }
      ctx.stroke();
      ctx.restore();
    });
  },
};
function axis(text, look, more = {}) {
  return { title: { display: true, text, color: look.text }, grid: { color: look.grid }, border: { color: look.grid }, ...more, ticks: { color: look.text, ...more.ticks } };
}
function draw(canvas, configure) {
  let chart = null;
  const redraw = () => {
    const hidden = chart ? chart.data.datasets.map((_, number) => !chart.isDatasetVisible(number)) : [];
    chart?.destroy();
    const config = configure(colours());
    config.options = { animation: false, maintainAspectRatio: false, responsive: true, ...config.options };
    config.plugins = [intervals];
    chart = new Chart(canvas, config);
    hidden.forEach((each, number) => { if (each && number < config.data.datasets.length) chart.hide(number); });
  };
  charts.push(redraw);
  redraw();
  return redraw;
}
function drawn(element, spec) {
  const select = $("select[data-view]", element), names = Object.keys(spec.views);
  const across = spec.categories.length > 0, ticks = new Map(spec.ticks);
  if (across) $(".canvas", element).style.height = `${90 + spec.categories.length * Math.max(26, 7 * spec.views[names[0]].length)}px`;
  const configure = look => {
    const view = select ? select.value : names[0];
    const datasets = spec.views[view].map((series, number) => ({
      label: series.label,
      data: series.x.map((x, i) => {
        const value = 100 * series.y[i], span = { low: 100 * series.low[i], high: 100 * series.high[i] };
        const apart = (number - (spec.views[view].length - 1) / 2) * 0.7 / Math.max(spec.views[view].length, 3);
        return across ? { x: value, y: x + apart, ...span } : { x, y: value, ...span };
      }),
      showLine: !across, intervals: across ? "x" : "y", borderWidth: 1.5, pointRadius: 3.5, pointHoverRadius: 6,
      borderColor: look.series[number % 8], backgroundColor: look.series[number % 8], pointStyle: SHAPES[number % 8],
    }));
    const values = `${view} (${spec.unit})`;
    const place = value => across ? spec.categories[Math.round(value)] : ticks.get(value) ?? value.toLocaleString("en");
    const own = across
      ? { min: -0.6, max: spec.categories.length - 0.4, reverse: true, grid: { color: look.grid, drawOnChartArea: false },
          afterBuildTicks: scale => { scale.ticks = spec.categories.map((_, value) => ({ value })); },
          ticks: { callback: value => spec.categories[value], autoSkip: false } }
      : { type: spec.log ? "logarithmic" : "linear",
          ...(ticks.size && spec.log ? { min: Math.min(...ticks.keys()) / 1.06, max: Math.max(...ticks.keys()) * 1.06 } : {}),
          ...(ticks.size ? { afterBuildTicks: scale => { scale.ticks = [...ticks.keys()].map(value => ({ value })); } } : {}),
          ticks: { callback: place, autoSkip: ticks.size === 0, maxRotation: 0 } };
    const position = axis(spec.xLabel, look, own), spans = datasets.flatMap(set => set.data.flatMap(point => [point.low, point.high]));
    const value = axis(values, look, { suggestedMin: Math.min(...spans), suggestedMax: Math.max(...spans) });
    return {
      type: "scatter",
      data: { datasets },
      options: {
        interaction: { mode: "nearest", intersect: false },
        scales: across ? { x: value, y: position } : { x: position, y: value },
        plugins: {
          legend: { labels: { usePointStyle: true, boxWidth: 7, boxHeight: 7, padding: 14, color: look.text } },
          tooltip: { usePointStyle: true, callbacks: { label: ({ raw, dataset }) => {
            const at = place(across ? raw.y : raw.x), figure = across ? raw.x : raw.y;
            return `${dataset.label}, ${at}: ${figure.toFixed(1)} [${raw.low.toFixed(1)}, ${raw.high.toFixed(1)}]`;
          } } },
        },
      },
    };
  };
  const redraw = draw($("canvas", element), configure);
  select?.addEventListener("change", redraw);
}
function heated(element, spec) {
  const select = $("select[data-view]", element), names = Object.keys(spec.views);
  const paint = () => {
    const rows = spec.views[select ? select.value : names[0]];
    const known = rows.flat().filter(value => value !== null), low = Math.min(...known), high = Math.max(...known);
    $$("tbody tr", element).forEach((row, i) => [...row.cells].slice(1).forEach((cell, j) => {
      const value = rows[i][j];
      cell.textContent = percent(value);
      const share = value === null ? 0 : high > low ? Math.round(65 * (value - low) / (high - low)) : 30;
      cell.style.backgroundColor = `color-mix(in oklab, var(--heat) ${share}%, transparent)`;
    }));
  };
  select?.addEventListener("change", paint);
  paint();
}

// Queries one by one, and two systems side by side.
class Pool {
  constructor({ header, columns }) {
    Object.assign(this, header, { data: columns });
    this.count = columns.offsets.length - 1;
  }
  value(measure, system, query) { return this.data.values[(measure * this.systems.length + system) * this.count + query]; }
  paper(number) { return { id: this.data.paper_ids[number], title: this.data.paper_titles[number], year: this.data.paper_years[number] }; }
  positives(query) {
    const found = [], total = this.data.positives.length;
    for (let at = this.data.offsets[query]; at < this.data.offsets[query + 1]; at++) {
      found.push({ ...this.paper(this.data.positives[at]), number: this.data.positives[at], ranks: this.systems.map((_, s) => this.data.ranks[s * total + at]) });
    }
    return found;
  }
  best(system, query) {
    const start = (system * this.count + query) * this.top;
    return [...this.data.top.subarray(start, start + this.top)].filter(number => number < this.data.paper_ids.length);
  }
}
class Browser {
  constructor(root, pools) {
    Object.assign(this, { root, pools, form: $("form", root), opened: new Map(), sort: "difference", down: true, first: 0 });
    pools.forEach((pool, number) => this.form.pool.append(make("option", pool.label, { value: number })));
    this.form.addEventListener("submit", event => event.preventDefault());
    this.form.pool.addEventListener("change", () => this.open());
    for (const name of ["a", "b", "measure"]) this.form[name].addEventListener("change", () => this.update(true));
    this.form.filter.addEventListener("input", () => this.update(false));
    this.buttons = $$("th button", root);
    for (const button of this.buttons) button.addEventListener("click", () => {
      this.down = this.sort === button.dataset.key ? !this.down : button.dataset.key !== "title";
      this.sort = button.dataset.key;
      this.update(false);
    });
    for (const button of $$(".pager button", root)) button.addEventListener("click", () => {
      this.first += PAGE * Number(button.dataset.step);
      this.list();
    });
  }
  async open() {
    const chosen = this.pools[this.form.pool.value];
    if (!this.opened.has(chosen.block)) this.opened.set(chosen.block, new Pool(await unpack(chosen.block)));
    this.pool = this.opened.get(chosen.block);
    const { pool } = this, kept = [this.form.a.value, this.form.b.value, this.form.measure.value];
    for (const [name, names] of [["a", pool.systems], ["b", pool.systems], ["measure", pool.measures]]) {
      this.form[name].replaceChildren(...names.map((text, value) => make("option", text, { value })));
    }
    this.form.a.value = kept[0] && pool.systems[kept[0]] ? kept[0] : 0;
    this.form.b.value = kept[1] && pool.systems[kept[1]] ? kept[1] : Math.min(1, pool.systems.length - 1);
    if (kept[2] && pool.measures[kept[2]]) this.form.measure.value = kept[2];
    this.lower = pool.data.query_titles.map((title, i) => `${pool.data.query_ids[i]} ${title}`.toLowerCase());
    $("article", this.root).hidden = true;
    this.update(true);
  }
  get sides() { return [Number(this.form.a.value), Number(this.form.b.value)]; }
  update(redraw) {
    const { pool } = this, measure = Number(this.form.measure.value), [a, b] = this.sides;
    const words = this.form.filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    this.rows = [];
    for (let query = 0; query < pool.count; query++) {
      if (!words.every(word => this.lower[query].includes(word))) continue;
      const [first, second] = [pool.value(measure, a, query), pool.value(measure, b, query)];
      this.rows.push({
        query, title: pool.data.query_titles[query], year: pool.data.query_years[query] || NaN, a: first, b: second,
        positives: pool.data.offsets[query + 1] - pool.data.offsets[query], difference: second - first,
      });
    }
    this.rows.sort((one, other) => compare(one[this.sort], other[this.sort], this.down) || one.query - other.query);
    this.first = 0;
    mark(this.buttons, this.buttons.find(button => button.dataset.key === this.sort), this.down);
    this.summarise();
    this.list();
    if (redraw || words.length || this.filtered) this.scatter();
    this.filtered = words.length > 0;
    if (this.shown !== undefined && !$("article", this.root).hidden) this.show(this.shown, false);
  }
  summarise() {
    const known = this.rows.filter(row => !Number.isNaN(row.difference)), [a, b] = this.sides.map(side => this.pool.systems[side]);
    const mean = name => known.reduce((sum, row) => sum + row[name], 0) / known.length;
    const count = test => known.filter(row => test(row.difference)).length;
    $(".comparison", this.root).textContent = known.length
      ? `${this.pool.measures[this.form.measure.value]} of ${known.length.toLocaleString("en")} queries: ${a} ${percent(mean("a"))}, ${b} ${percent(mean("b"))}, ` +
        `difference ${signed(mean("difference"))}. ${b} is better on ${count(d => d > 0)}, the same on ${count(d => d === 0)}, worse on ${count(d => d < 0)}.`
      : "No query fits.";
  }
  scatter() {
    const [a, b] = this.sides.map(side => this.pool.systems[side]), canvas = $(".scatter canvas", this.root);
    canvas.setAttribute("aria-label", `Chart: each query's value by ${a} and by ${b}. The table below has its figures.`);
    this.points = this.rows.filter(row => !Number.isNaN(row.difference)).map(row => ({ x: 100 * row.a, y: 100 * row.b, row }));
    this.redraw ??= draw(canvas, look => {
      const [first, second] = this.sides.map(side => this.pool.systems[side]);
      const ends = { min: 0, max: 100 };
      return {
        type: "scatter",
        data: { datasets: [
          { data: this.points, backgroundColor: `${look.series[0]}99`, pointRadius: 3, pointHoverRadius: 6 },
          { data: [{ x: 0, y: 0 }, { x: 100, y: 100 }], showLine: true, borderColor: look.grid, borderWidth: 1, pointRadius: 0, pointHitRadius: 0 },
        ] },
        options: {
          onClick: (_, found) => { if (found.length && found[0].datasetIndex === 0) this.show(this.points[found[0].index].row.query, true); },
          scales: { x: axis(`${first} (%)`, look, ends), y: axis(`${second} (%)`, look, ends) },
          plugins: { legend: { display: false }, tooltip: {
            filter: item => item.datasetIndex === 0,
            callbacks: { label: ({ raw }) => [raw.row.title.slice(0, 80), `${first} ${raw.x.toFixed(1)}, ${second} ${raw.y.toFixed(1)}`] },
          } },
        },
      };
    });
    this.redraw();
  }
  list() {
    this.first = Math.max(0, Math.min(this.first, Math.floor((this.rows.length - 1) / PAGE) * PAGE));
    const [a, b] = this.sides.map(side => this.pool.systems[side]);
    for (const [name, text] of [["a", `A: ${a}`], ["b", `B: ${b}`]]) this.buttons.find(button => button.dataset.key === name).textContent = text;
    const shown = this.rows.slice(this.first, this.first + PAGE);
    $("tbody", this.root).replaceChildren(...shown.map(row => {
      const line = make("tr"), head = make("th", null, { scope: "row" }), button = make("button", row.title || this.pool.data.query_ids[row.query], { type: "button" });
      button.addEventListener("click", () => this.show(row.query, true));
      head.append(button);
      const cells = [row.year || "–", row.positives, percent(row.a), percent(row.b), signed(row.difference)].map(text => make("td", text));
      cells[4].className = row.difference > 0 ? "gain" : row.difference < 0 ? "loss" : "";
      line.append(head, ...cells);
      return line;
    }));
    const [back, on] = $$(".pager button", this.root), last = this.first + shown.length;
    [back.disabled, on.disabled] = [this.first === 0, last >= this.rows.length];
    $(".pager span", this.root).textContent = this.rows.length ? `${this.first + 1} to ${last} of ${this.rows.length.toLocaleString("en")}` : "none";
  }
  show(query, move) {
    const { pool } = this, article = $("article", this.root), sides = this.sides, year = pool.data.query_years[query];
    this.shown = query;
    article.replaceChildren(make("h3", pool.data.query_titles[query] || pool.data.query_ids[query]));
    article.append(make("p", `Query ${pool.data.query_ids[query]}${year ? `, ${year}` : ""}, ${this.form.pool.selectedOptions[0].textContent} candidates`, { class: "note" }));
    const positives = pool.positives(query), relevant = new Set(positives.map(each => each.number));
    article.append(this.positives(positives, sides), this.tops(query, relevant, sides), this.facts());
    article.hidden = false;
    if (move) {
      article.focus({ preventScroll: true });
      article.scrollIntoView({ block: "start", behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth" });
    }
  }
  positives(positives, sides) {
    const box = make("div", null, { class: "scroll" }), table = make("table", null, { class: "positives" }), head = make("tr");
    const far = rank => rank || Infinity;
    positives.sort((one, other) => Math.min(...sides.map(s => far(one.ranks[s]))) - Math.min(...sides.map(s => far(other.ranks[s]))));
    table.append(make("caption", `${positives.length} positives, and the rank of each (–: not retrieved)`));
    head.append(make("th", "paper", { scope: "col", class: "label" }), make("th", "year", { scope: "col" }));
    this.pool.systems.forEach((name, s) => head.append(make("th", name, { scope: "col", class: sides.includes(s) ? "chosen" : "" })));
    table.append(make("thead"), make("tbody"));
    table.tHead.append(head);
    for (const each of positives) {
      const line = make("tr");
      line.append(make("th", each.title || each.id, { scope: "row", title: each.id }), make("td", each.year || "–"));
      each.ranks.forEach((rank, s) => line.append(make("td", rank ? rank.toLocaleString("en") : "–", { class: sides.includes(s) ? "chosen" : "" })));
      line.hidden = table.tBodies[0].rows.length >= PAGE;
      table.tBodies[0].append(line);
    }
    box.append(table);
    if (positives.length > PAGE) {
      const more = make("button", `Show all ${positives.length}`, { type: "button", class: "more" });
      more.addEventListener("click", () => { for (const line of table.rows) line.hidden = false; more.remove(); });
      box.append(more);
    }
    return box;
  }
  tops(query, relevant, sides) {
    const box = make("div", null, { class: "sides" });
    for (const side of sides) {
      const column = make("section"), list = make("ol");
      column.append(make("h4", `${this.pool.systems[side]}: first ${this.pool.top}`));
      for (const number of this.pool.best(side, query)) {
        const paper = this.pool.paper(number), entry = make("li", null, { class: relevant.has(number) ? "relevant" : "", title: paper.id });
        entry.append(make("span", paper.title || paper.id), make("span", `${paper.year ? ` (${paper.year})` : ""}${relevant.has(number) ? " ✓ positive" : ""}`, { class: "year" }));
        list.append(entry);
      }
      column.append(list.children.length ? list : make("p", "Nothing was retrieved.", { class: "note" }));
      box.append(column);
    }
    return box;
  }
  facts() {
    const details = make("details"), list = make("dl");
    details.append(make("summary", "Provenance"), list);
    for (const [name, value] of Object.entries(this.pool.facts)) list.append(make("dt", name), make("dd", value));
    return details;
  }
}

async function start() {
  theme();
  $$("table.sortable").forEach(sortable);
  $$("section").forEach(filterable);
  if (globalThis.Chart) {
    Chart.defaults.font.family = getComputedStyle($(".bar")).fontFamily;
    Chart.defaults.font.size = 13;
  }
  if ($("script#main")) {
    const { header } = await unpack("main");
    $$("[data-chart]").forEach(element => drawn(element, header.charts[element.dataset.chart]));
    $$("[data-heat]").forEach(element => heated(element, header.heats[element.dataset.heat]));
    $$("button[data-file]").forEach(button => button.addEventListener("click", () => download(button.dataset.file, header.files[button.dataset.file])));
    $$("button[data-record]").forEach(button => button.addEventListener("click", () => provenance(header.records[button.dataset.record])));
    performance.mark("charts");
    // The rest of the page is painted before the first pool is unpacked.
    await new Promise(painted => requestAnimationFrame(() => setTimeout(painted)));
    for (const root of $$("[data-browser]")) await new Browser(root, header.pools.slice(root.dataset.first, root.dataset.end)).open();
  }
  performance.mark("ready");
  document.documentElement.dataset.ready = "yes";
}
start();
})();
