// Links to folded tables open them; so does printing.
function unfolding() {
  const open = () => { const folded = location.hash && $(`${location.hash} > details.folded`); if (folded) folded.open = true; };
  addEventListener("hashchange", open);
  addEventListener("beforeprint", () => $$("details.folded").forEach(each => { each.open = true; }));
  open();
}
async function start() {
  theme();
  $$("table.sortable").forEach(sortable);
  $$("section").forEach(filterable);
  $$(".scroll, nav div").forEach(fading);
  if (globalThis.Chart) {
    Chart.defaults.font.family = getComputedStyle($(".bar")).fontFamily;
    Chart.defaults.font.size = 13;
  }
  if ($("script#main")) {
    const { header } = await unpack("main");
    $$("[data-chart]").forEach(element => drawn(element, header.charts[element.dataset.chart]));
    $$("button[data-file]").forEach(button => button.addEventListener("click", () => download(button.dataset.file, header.files[button.dataset.file])));
    $$("button[data-record]").forEach(button => button.addEventListener("click", () => provenance(header.records[button.dataset.record])));
    performance.mark("charts");
    // The rest of the page is painted before the first pool is unpacked.
    await new Promise(painted => requestAnimationFrame(() => setTimeout(painted)));
    for (const root of $$("[data-browser]")) await new Browser(root, header.pools.slice(root.dataset.first, root.dataset.end)).open();
  }
  unfolding();
  performance.mark("ready");
  document.documentElement.dataset.ready = "yes";
}
start();
