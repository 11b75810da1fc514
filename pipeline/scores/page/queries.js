// Queries one by one, and two systems side by side.
const FOLD = 200;  // characters of a heading
class Pool {
  constructor({ header, columns }) {
    Object.assign(this, header, { data: columns });
    this.count = columns.offsets.length - 1;
    this.positives = Array.from({ length: this.count }, (_, query) => columns.offsets[query + 1] - columns.offsets[query]);
  }
  value(measure, system, query) { return this.data.values[(measure * this.systems.length + system) * this.count + query]; }
  paper(number) { return { number, id: this.data.paper_ids[number], title: this.data.paper_titles[number], year: this.data.paper_years[number] }; }
  listed(query) {
    const found = [], total = this.data.listed.length;
    for (let at = this.data.offsets[query]; at < this.data.offsets[query + 1]; at++) {
      found.push({ ...this.paper(this.data.listed[at]), relevant: true, ranks: this.systems.map((_, s) => this.data.ranks[s * total + at]) });
    }
    return found;
  }
  // The best entries of a ranking.
  best(system, query, listed) {
    const start = (system * this.count + query) * this.top, known = new Map(listed.map(each => [each.number, each]));
    const numbers = [...this.data.top.subarray(start, start + this.top)].filter(number => number < this.data.paper_ids.length);
    return numbers.map(number => known.get(number) ?? this.paper(number));
  }
}
// A heading; of a long text, such as a citation context, its beginning, and the whole text folded.
function headed(text) {
  if (text.length <= FOLD) return [make("h3", text)];
  const details = make("details"), start = text.slice(0, FOLD).replace(/\s+\S*$/, "");
  details.append(make("summary", "Whole query"), make("p", text, { dir: "auto" }));
  return [make("h3", `${start} …`), details];
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
    this.form.a.value = kept[0] && pool.systems[kept[0]] ? kept[0] : pool.first[0];
    this.form.b.value = kept[1] && pool.systems[kept[1]] ? kept[1] : pool.first.at(-1);
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
        positives: pool.positives[query], difference: second - first,
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
    const sign = this.pool.signs[Number(this.form.measure.value)] ?? 1;
    const count = test => known.filter(row => test(sign * row.difference)).length;
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
    for (const [name, text] of [["a", breaking(`A: ${a}`)], ["b", breaking(`B: ${b}`)]]) this.buttons.find(button => button.dataset.key === name).textContent = text;
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
    const { pool } = this, article = $("article", this.root), year = pool.data.query_years[query], listed = pool.listed(query);
    this.shown = query;
    article.replaceChildren(...headed(pool.data.query_titles[query] || pool.data.query_ids[query]));
    const where = this.form.pool.selectedOptions[0].textContent;
    article.append(make("p", `Query ${pool.data.query_ids[query]}${year ? `, ${year}` : ""}, ${where} candidates`, { class: "note" }));
    article.append(this.table(listed), ...(pool.top ? [this.tops(query, listed)] : []), this.facts());
    article.hidden = false;
    if (move) {
      article.focus({ preventScroll: true });
      article.scrollIntoView({ block: "start", behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth" });
    }
  }
  table(listed) {
    const { sides, pool } = this, box = make("div", null, { class: "scroll" }), table = make("table", null, { class: "positives" }), head = make("tr");
    const far = rank => rank || Infinity;
    listed.sort((one, other) => Math.min(...sides.map(s => far(one.ranks[s]))) - Math.min(...sides.map(s => far(other.ranks[s]))));
    table.append(make("caption", `${listed.length} positives, and the rank of each (–: not retrieved)`));
    head.append(make("th", "paper", { scope: "col", class: "label" }));
    head.append(make("th", "year", { scope: "col" }));
    pool.systems.forEach((name, s) => head.append(make("th", breaking(name), { scope: "col", class: sides.includes(s) ? "chosen" : "" })));
    table.append(make("thead"), make("tbody"));
    table.tHead.append(head);
    for (const each of listed) {
      const line = make("tr");
      line.append(make("th", each.title || each.id, { scope: "row", title: each.id }));
      line.append(make("td", each.year || "–"));
      each.ranks.forEach((rank, s) => line.append(make("td", rank ? rank.toLocaleString("en") : "–", { class: sides.includes(s) ? "chosen" : "" })));
      line.hidden = table.tBodies[0].rows.length >= PAGE;
      table.tBodies[0].append(line);
    }
    box.append(table);
    fading(box);
    if (listed.length > PAGE) {
      const more = make("button", `Show all ${listed.length}`, { type: "button", class: "more" });
      more.addEventListener("click", () => { for (const line of table.rows) line.hidden = false; more.remove(); });
      box.append(more);
    }
    return box;
  }
  tops(query, listed) {
    const box = make("div", null, { class: "sides" }), { pool } = this;
    for (const side of this.sides) {
      const column = make("section"), list = make("ol"), best = pool.best(side, query, listed);
      column.append(make("h4", `${pool.systems[side]}: first ${pool.top}`));
      best.forEach((paper, place) => {
        const entry = make("li", null, { class: paper.relevant ? "relevant" : "", title: paper.id, value: place + 1 });
        entry.append(make("span", paper.title || paper.id), make("span", `${paper.year ? ` (${paper.year})` : ""}${paper.relevant ? " ✓ positive" : ""} `, { class: "year" }));
        list.append(entry);
      });
      column.append(best.length ? list : make("p", "Nothing was retrieved.", { class: "note" }));
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
