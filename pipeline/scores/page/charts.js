// Charts, heat maps, and the theme they follow.
// Okabe and Ito (2008), and lighter tones of it for a dark page.
const LIGHT = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#777777", "#B2A400"];
const DARK = ["#4DA6E0", "#F08A3C", "#2FC79A", "#E3A0C6", "#F2BC4B", "#9AD4F5", "#B0B0B0", "#D9CB3A"];
const SHAPES = ["circle", "rect", "triangle", "rectRot", "star", "crossRot", "cross", "dash"];
// Points up to which systems stand side by side, and from which on a line has no marks; characters of an axis.
const FEW = 7, MANY = 40, LONG = 30;
// Theme.
const charts = [];
function colours() {
  const text = getComputedStyle(document.body).color, light = Number(/\d+/.exec(text)[0]) < 128;
  const rule = getComputedStyle($("footer")).borderTopColor, grid = rule.replace(/rgb\((.*)\)/, "rgba($1, 0.55)");
  return { text, rule, grid, series: light ? LIGHT : DARK };
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

// Charts.
const underneath = {
  id: "underneath",
  beforeDatasetsDraw(chart) {
    const { ctx, scales } = chart;
    chart.data.datasets.forEach((set, number) => {
      if (!set.intervals || !chart.isDatasetVisible(number)) return;
      ctx.save();
      ctx.strokeStyle = set.borderColor;
      ctx.beginPath();
      set.curve.forEach(([x, y], at) => ctx[at ? "lineTo" : "moveTo"](scales.x.getPixelForValue(x), scales.y.getPixelForValue(100 * y)));
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
  return { title: { display: true, text, color: look.text }, grid: { color: look.grid }, border: { color: look.rule }, ...more, ticks: { color: look.text, ...more.ticks } };
}
function draw(canvas, configure) {
  let chart = null;
  const redraw = () => {
    const hidden = chart ? chart.data.datasets.map((_, number) => !chart.isDatasetVisible(number)) : [];
    chart?.destroy();
    const config = configure(colours());
    config.options = { animation: false, maintainAspectRatio: false, responsive: true, ...config.options };
    config.plugins = [underneath];
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
  if (across) $(".canvas", element).style.height = `${90 + spec.categories.length * Math.max(34, 9 * spec.views[names[0]].length)}px`;
  const places = [...ticks.keys(), ...Object.values(spec.views).flat().flatMap(series => series.x)];
  const ends = [Math.min(...places), Math.max(...places)];
  // Width of the position axis, of its logarithm where it has one; a single position has a width too.
  const width = (spec.log ? Math.log(ends[1] / ends[0]) : ends[1] - ends[0]) || 1;
  const moved = (x, share) => spec.log ? x * Math.exp(share * width) : x + share * width;
  const configure = look => {
    const view = select ? select.value : names[0];
    const datasets = spec.views[view].map((series, number) => ({
      label: series.label,
      data: series.x.map((x, i) => {
        const value = 100 * series.values[i], end = ends => 100 * (ends[i] ?? series.values[i]);
        const bounds = { at: x, low: end(series.low), high: end(series.high) };
        // Systems stand side by side, so that their intervals do not cover each other.
        const apart = (number - (spec.views[view].length - 1) / 2) * 0.7 / Math.max(spec.views[view].length, 3);
        if (across) return { x: value, y: x + apart, ...bounds };
        return { x: series.x.length < FEW && !series.curve.length ? moved(x, 0.1 * apart) : x, y: value, ...bounds };
      }),
      showLine: !across && !series.curve.length, curve: series.curve, intervals: across ? "x" : "y", borderWidth: 1.5, pointHoverRadius: 6,
      pointRadius: series.x.length > MANY ? 0 : 3.5,
      borderColor: look.series[number % 8], backgroundColor: look.series[number % 8],
      pointStyle: SHAPES[(number + Math.floor(number / 8)) % 8],
    }));
    const values = select && view.length > LONG ? spec.unit : `${view} (${spec.unit})`;
    const place = value => across ? spec.categories[value] : ticks.get(value) ?? value.toLocaleString("en");
    const own = across
      ? { min: -0.6, max: spec.categories.length - 0.4, reverse: true, grid: { color: look.grid, drawOnChartArea: false },
          afterBuildTicks: scale => { scale.ticks = spec.categories.map((_, value) => ({ value })); },
          ticks: { callback: value => spec.categories[value], autoSkip: false } }
      : { type: spec.log ? "logarithmic" : "linear",
          ...(ticks.size && spec.log ? { min: moved(ends[0], -0.05), max: moved(ends[1], 0.05) } : {}),
          afterBuildTicks: scale => {
            const round = scale.ticks.filter(({ value }) => ["1", "2", "5"].includes(value.toExponential().split("e")[0]));
            if (ticks.size) scale.ticks = [...ticks.keys()].map(value => ({ value }));
            else if (spec.log && round.length > 2) scale.ticks = round;
          },
          ticks: { callback: place, autoSkip: ticks.size === 0, maxRotation: 0 } };
    const spans = datasets.flatMap(set => [...set.data.flatMap(point => [point.low, point.high]), ...set.curve.map(([, y]) => 100 * y)]);
    const least = Math.min(...spans), zero = { color: ({ tick }) => least < 0 && tick.value === 0 ? look.text : look.grid };
    const position = axis(spec.x_label, look, own);
    const value = axis(values, look, { suggestedMin: least, suggestedMax: Math.max(...spans), grid: zero });
    return {
      type: "scatter",
      data: { datasets },
      options: {
        interaction: { mode: "nearest", intersect: false },
        scales: across ? { x: value, y: position } : { x: position, y: value },
        plugins: {
          legend: { labels: { usePointStyle: true, boxWidth: 7, boxHeight: 7, padding: 14, color: look.text } },
          tooltip: { usePointStyle: true, callbacks: { label: ({ raw, dataset }) => {
            const figure = across ? raw.x : raw.y, bounds = raw.low < raw.high ? ` [${raw.low.toFixed(1)}, ${raw.high.toFixed(1)}]` : "";
            return `${dataset.label}, ${place(raw.at)}: ${figure.toFixed(1)}${bounds}`;
          } } },
        },
      },
    };
  };
  const redraw = draw($("canvas", element), configure);
  select?.addEventListener("change", redraw);
}
