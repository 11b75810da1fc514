// Texts one by one, with marked spans.
class Texts {
  constructor(root, header) {
    Object.assign(this, header, { head: make("h3", null, { "aria-live": "polite" }), body: make("div") });
    const form = make("form", null, { class: "tools", "aria-label": "Choose a text" });
    form.addEventListener("submit", event => event.preventDefault());
    this.selects = [...this.choosers, "Text"].map(name => {
      const label = make("label", `${name} `), select = label.appendChild(make("select"));
      form.append(label);
      return select;
    });
    this.text = this.selects.pop();
    this.selects.forEach((select, place) => {
      const values = new Set(this.readings.map(each => each.chosen[this.choosers[place]]));
      select.append(...[...values].map(value => make("option", value, { value })));
      select.addEventListener("change", () => this.choose());
    });
    this.text.addEventListener("change", () => this.show());
    this.steps = [["Previous", -1], ["Next", 1]].map(([name, step]) => {
      const button = form.appendChild(make("button", name, { type: "button" }));
      button.addEventListener("click", () => { this.text.selectedIndex += step; this.show(); });
      return button;
    });
    const legend = make("p", null, { class: "note" }), article = make("article", null, { class: "query" });
    for (const [mark, meaning] of Object.entries(this.marks)) legend.append(make("mark", meaning, { class: mark }), " ");
    article.append(this.head, this.body);
    root.append(form, legend, article);
    this.choose();
  }
  // A text of the same heading stays in sight when another choice has it.
  choose() {
    const kept = this.head.textContent;
    this.found = this.readings.filter(each => this.choosers.every((name, place) => each.chosen[name] === this.selects[place].value));
    this.text.replaceChildren(...this.found.map(each => make("option", each.heading)));
    this.text.selectedIndex = Math.max(0, this.found.findIndex(each => each.heading === kept));
    this.show();
  }
  show() {
    const at = this.text.selectedIndex, reading = this.found[at];
    this.steps.forEach((button, on) => { button.disabled = on ? at + 1 >= this.found.length : at < 1; });
    this.head.textContent = reading?.heading ?? "No text fits.";
    this.body.replaceChildren();
    if (!reading) return;
    const facts = Object.entries(reading.facts).map(([name, value]) => `${name}: ${value}`).join("; ");
    this.body.append(make("p", facts, { class: "note" }), this.marked("p", reading.spans), ...reading.listings.map(each => this.listing(each)));
  }
  marked(tag, spans) {
    const element = make(tag, null, { dir: "auto" });
    element.append(...spans.map(([piece, mark]) => mark ? make("mark", this.pieces[piece], { class: mark }) : this.pieces[piece]));
    return element;
  }
  listing({ title, columns, rows, texts }) {
    const box = make("div", null, { class: "scroll" }), table = box.appendChild(make("table", null, { class: "sortable" }));
    table.append(make("caption", title), make("thead"), make("tbody"));
    table.tHead.append(this.row(columns.map(text => make("button", text, { type: "button", "data-sort": "" })), "col"));
    table.tBodies[0].append(...rows.map((cells, number) => {
      if (!texts.length) return this.row(cells);
      const button = make("button", cells[0], { type: "button" });
      const told = columns.slice(1).map((name, at) => [name, cells[at + 1]]);
      button.addEventListener("click", () => tell(cells[0], [["text", this.marked("dd", texts[number])], ...told]));
      return this.row([button, ...cells.slice(1)]);
    }));
    sortable(table);
    fading(box);
    return box;
  }
  row(cells, scope = "row") {
    const line = make("tr");
    cells.forEach((content, at) => {
      const head = scope === "col" || at === 0;
      line.appendChild(make(head ? "th" : "td", null, head ? { scope, class: at ? "" : "label" } : {})).append(content);
    });
    return line;
  }
}
