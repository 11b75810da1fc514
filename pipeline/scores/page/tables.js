// Text that may come from a paper is only ever set as textContent.
const PAGE = 20;
const $ = (selector, root = document) => root.querySelector(selector);
const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];
const percent = value => value === null || Number.isNaN(value) ? "–" : (100 * value).toFixed(1);
const signed = value => Number.isNaN(value) ? "–" : (value > 0 ? "+" : value < 0 ? "−" : "") + (100 * Math.abs(value)).toFixed(1);

// Long names of systems may break behind a comma.
const breaking = name => name.replace(/,(?=\S)/g, ",\u200b");

function make(tag, text, options = {}) {
  const element = document.createElement(tag);
  if (text !== undefined && text !== null) element.textContent = text;
  for (const [name, value] of Object.entries(options)) element.setAttribute(name, value);
  return element;
}

// Blocks of packed data (browse.py).
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
  const choices = $$("th[data-choose]", section).map(header => choice(header, rows, input.closest(".tools")));
  const update = () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const row of rows) {
      const labels = $$("th, td.label", row).map(cell => cell.textContent).join(" ").toLowerCase();
      row.hidden = !words.every(word => labels.includes(word)) || !choices.every(({ fits }) => fits(row));
      shown += !row.hidden;
    }
    $(".found", section).textContent = shown < rows.length ? `${shown} of ${rows.length} rows` : "";
  };
  [input, ...choices.map(({ select }) => select)].forEach(each => each.addEventListener("input", update));
}
// A selection of the values of a column: rows that have one (=), or up to (≤) or from (≥) a limit.
function choice(header, rows, tools) {
  const side = header.dataset.choose, of = row => key(row.cells[header.cellIndex]), select = make("select");
  const values = [...new Set(rows.map(of))].filter(value => value !== "–").sort((a, b) => compare(a, b, side === "≥"));
  select.append(make("option", "any", { value: "" }));
  values.forEach((value, number) => select.append(make("option", `${side === "=" ? "" : `${side} `}${value}`, { value: number + 1 })));
  const label = make("label", `${header.textContent} `);
  label.append(select);
  tools.insertBefore(label, $(".found", tools));
  const fits = row => {
    if (!select.value) return true;
    const [value, limit] = [of(row), values[select.value - 1]];
    return side === "=" ? value === limit : value !== "–" && (side === "≤" ? value <= limit : value >= limit);
  };
  return { select, fits };
}
// What is wider than the page fades out at its right end until it is scrolled there; above a table a button scrolls it.
function fading(box) {
  const button = make("button", "More columns →", { type: "button", class: "onward" });
  button.addEventListener("click", () => box.scrollBy(0.8 * box.clientWidth, 0));
  const set = () => {
    const more = box.scrollWidth - box.clientWidth - box.scrollLeft > 1;
    box.classList.toggle("faded", more);
    if (!box.classList.contains("scroll")) return;
    if (more && !button.isConnected) box.before(button);
    button.disabled = !more;
    button.hidden = box.scrollWidth - box.clientWidth <= 1;
    if (button.hidden) box.removeAttribute("tabindex"); else box.tabIndex = 0;
  };
  box.addEventListener("scroll", set, { passive: true });
  const watch = new ResizeObserver(set);
  [box, ...box.children].forEach(each => watch.observe(each));
}
function download(name, text) {
  const link = make("a", null, { href: URL.createObjectURL(new Blob([text], { type: "text/plain;charset=utf-8" })), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
function tell(title, entries) {
  $("#record-title").textContent = title;
  $("#record dl").replaceChildren(...entries.flatMap(([name, value]) => [make("dt", name), value instanceof Node ? value : make("dd", value)]));
  $("#record").showModal();
  $("#record").scrollTop = 0;
}
function provenance(record) {
  const place = [record.label, record.field ?? "dataset level", record.measure].join(", ");
  const known = Object.entries(record).filter(([, value]) => value !== null && value !== "");
  const entries = known.map(([name, value]) => [name.replaceAll("_", " "), Array.isArray(value) ? value.join("\n") : String(value)]);
  tell(`${place}: ${percent(record.value)}`, entries);
}
