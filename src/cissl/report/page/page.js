"use strict";
// The charts of the report: plain SVG and canvas from the data in the page. Nothing is loaded.
const data = JSON.parse(document.getElementById("data").textContent);
const COLOURS = ["#0a7cc4", "#e0650a", "#109a72", "#c868a0", "#a0703c", "#8468d0", "#c79a08", "#4fa8d8", "#d04848", "#7d8a2e"];
const colour = (method) => COLOURS[method % COLOURS.length];
const tip = document.getElementById("tip");

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function drawn(name, attributes = {}, text = null) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== null) made.textContent = text;
  return made;
}

function say(event, text) {
  tip.hidden = !text;
  if (!text) return;
  tip.textContent = text;
  const width = tip.offsetWidth, height = tip.offsetHeight;
  tip.style.left = `${Math.max(4, Math.min(event.clientX + 14, innerWidth - width - 4))}px`;
  tip.style.top = `${event.clientY + 18 + height > innerHeight ? event.clientY - height - 10 : event.clientY + 18}px`;
}

const short = (x) => x === 0 ? "0" : Math.abs(x) >= 1e5 || Math.abs(x) < 1e-3 ? x.toExponential(0).replace("e+", "e") : String(+x.toPrecision(3));
const number = (x) => Math.abs(x) >= 1000 ? Math.round(x).toLocaleString("en") : String(+x.toPrecision(4));

// ---- What is shown

const state = { setting: 0, methods: new Set(data.methods.keys()), seeds: new Set(), mean: true, networks: new Set(["student"]), quantity: "", log: false };
const seeds = [...new Set(data.groups.flatMap((group) => group.runs.map((run) => run.seed)))].sort((a, b) => a - b);
const hasTeacher = data.groups.some((group) => group.teacherRecall || group.runs.some((run) => run.teacher));
if (data.methods.length * seeds.length <= 24) seeds.forEach((seed) => state.seeds.add(seed));
const shown = () => (data.settings[state.setting]?.groups ?? []).filter(([method]) => state.methods.has(method)).map(([method, group]) => [method, data.groups[group]]);

function toggle(text, set, value, dot) {
  const button = element("button", { type: "button", "aria-pressed": set.has(value) }, text);
  if (dot) button.prepend(element("span", { class: "dot", style: `--dot: ${dot}` }));
  button.addEventListener("click", () => {
    set.has(value) ? set.delete(value) : set.add(value);
    button.setAttribute("aria-pressed", set.has(value));
    draw();
  });
  return button;
}

function group(name, ...children) {
  const made = element("div", { class: "group", role: "group", "aria-label": name }, element("span", { class: "name" }, name));
  made.append(...children);
  return made;
}

function controls() {
  const form = document.getElementById("controls");
  form.addEventListener("submit", (event) => event.preventDefault());
  if (data.settings.length > 1) {
    const select = element("select", { id: "setting" }, ...data.settings.map((setting, i) => element("option", { value: i }, setting.name)));
    select.addEventListener("change", () => { state.setting = +select.value; draw(); });
    form.append(element("label", {}, element("span", { class: "name" }, "Setting"), select));
  }
  form.append(group("Methods", ...data.methods.map((name, i) => toggle(name, state.methods, i, colour(i)))));
  if (hasTeacher) form.append(group("Network", toggle("Student", state.networks, "student"), toggle("Teacher", state.networks, "teacher")));
  if (seeds.length > 1) {
    const mean = element("button", { type: "button", "aria-pressed": true }, "Mean");
    mean.addEventListener("click", () => { state.mean = !state.mean; mean.setAttribute("aria-pressed", state.mean); draw(); });
    form.append(group("Seeds", mean, ...seeds.map((seed) => toggle(String(seed), state.seeds, seed))));
  }
}

// ---- A chart of lines and points

function ticks(low, high, log) {
  if (log) {
    const found = [];
    for (let e = Math.floor(Math.log10(low)); e <= Math.ceil(Math.log10(high)); e++)
      for (const m of [1, 2, 5]) { const t = m * 10 ** e; if (t >= low * 0.999 && t <= high * 1.001) found.push(t); }
    return found.length > 7 ? found.filter((t) => Math.abs(Math.log10(t) % 1) < 1e-9) : found;
  }
  const raw = (high - low || 1) / 5, unit = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((m) => m * unit).find((s) => s >= raw * 0.999);
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-6; i++) found.push(+(i * step).toPrecision(12));
  return found;
}

function chart(host, series, { x, y, logX = false, logY = false, from = null, to = null, height = 320 }) {
  const width = Math.max(260, host.clientWidth), left = 52, right = 12, top = 10, bottom = 42;
  const good = ([px, py]) => px !== null && py !== null && (!logX || px > 0) && (!logY || py > 0);
  const points = series.flatMap((line) => line.points.filter(good));
  if (!points.length) { host.replaceChildren(element("p", { class: "nothing" }, "Nothing to show for this choice.")); return; }
  const extent = (at, log, low, high) => {
    const values = points.map((point) => point[at]);
    let [least, most] = [low ?? values.reduce((a, b) => Math.min(a, b)), high ?? values.reduce((a, b) => Math.max(a, b))];
    if (least === most) [least, most] = log ? [least / 2, most * 2] : [least - 0.5, most + 0.5];
    return [least, most];
  };
  const [x0, x1] = extent(0, logX, null, null), [y0, y1] = extent(1, logY, logY ? null : from, to);
  const place = (v, low, high, log) => log ? Math.log(v / low) / Math.log(high / low) : (v - low) / (high - low);
  const px = (v) => left + place(v, x0, x1, logX) * (width - left - right);
  const py = (v) => height - bottom - place(v, y0, y1, logY) * (height - top - bottom);
  const svg = drawn("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img", "aria-label": `${y} against ${x}` });
  for (const t of ticks(y0, y1, logY)) {
    svg.append(drawn("line", { class: "grid", x1: left, x2: width - right, y1: py(t), y2: py(t) }));
    svg.append(drawn("text", { x: left - 6, y: py(t) + 4, "text-anchor": "end" }, short(t)));
  }
  let free = -Infinity;
  for (const t of ticks(x0, x1, logX)) {
    if (px(t) - free < 46) continue;
    free = px(t);
    svg.append(drawn("line", { class: "axis", x1: px(t), x2: px(t), y1: height - bottom, y2: height - bottom + 4 }));
    svg.append(drawn("text", { x: Math.min(px(t), width - 20), y: height - bottom + 17, "text-anchor": "middle" }, short(t)));
  }
  svg.append(drawn("line", { class: "axis", x1: left, x2: width - right, y1: height - bottom, y2: height - bottom }));
  svg.append(drawn("text", { x: (left + width - right) / 2, y: height - 6, "text-anchor": "middle" }, x));
  svg.append(drawn("text", { x: 0, y: 0, "text-anchor": "middle", transform: `translate(13 ${(top + height - bottom) / 2}) rotate(-90)` }, y));
  for (const line of series) {
    const seen = line.points.filter(good);
    for (const [a, b, spread] of seen) if (spread) svg.append(drawn("line", { x1: px(a), x2: px(a), y1: py(Math.max(y0, b - spread)), y2: py(Math.min(y1, b + spread)), stroke: line.colour, "stroke-opacity": 0.35 }));
    if (seen.length > 1) svg.append(drawn("polyline", { points: seen.map(([a, b]) => `${px(a).toFixed(1)},${py(b).toFixed(1)}`).join(" "), fill: "none", stroke: line.colour, "stroke-width": line.width ?? 2, "stroke-opacity": line.opacity ?? 1, "stroke-linejoin": "round", ...(line.dash ? { "stroke-dasharray": line.dash } : {}) }));
    if (line.dots || seen.length === 1) for (const [a, b] of seen) svg.append(drawn("circle", { cx: px(a), cy: py(b), r: 3.4, fill: line.hollow ? "var(--card)" : line.colour, stroke: line.colour, "stroke-width": 1.5 }));
  }
  const near = drawn("circle", { r: 4.5, fill: "none", stroke: "var(--ink)", "stroke-width": 2, visibility: "hidden" });
  svg.append(near);
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect(), mx = (event.clientX - box.left) * width / box.width, my = (event.clientY - box.top) * height / box.height;
    let best = null, least = 900;
    for (const line of series) for (const point of line.points) if (good(point)) {
      const d = (px(point[0]) - mx) ** 2 + (py(point[1]) - my) ** 2;
      if (d < least) [least, best] = [d, [line, point]];
    }
    near.setAttribute("visibility", best ? "visible" : "hidden");
    if (best) { near.setAttribute("cx", px(best[1][0])); near.setAttribute("cy", py(best[1][1])); }
    say(event, best && (best[0].tell ? best[0].tell(best[1]) : `${best[0].name}: ${number(best[1][1])} at ${number(best[1][0])}`));
  });
  svg.addEventListener("pointerleave", (event) => { near.setAttribute("visibility", "hidden"); say(event, null); });
  host.replaceChildren(svg);
}

// ---- Learning curves

const METRICS = { error: "Validation error in %", balanced_error: "Balanced validation error in %", map: "Validation mAP in %" };
const pairs = (xs, ys) => xs.map((x, i) => [x, ys[i]]);

function quantities() {
  const found = new Map();
  for (const group of data.groups) for (const run of group.runs) {
    if (run.metric) found.set("validation", METRICS[run.metric] ?? `Validation ${run.metric.replaceAll("_", " ")}`);
    for (const name of Object.keys(run.losses ?? {})) found.set(name, name === "loss" ? "Loss, all terms" : `Loss, ${name.replaceAll("_", " ")}`);
  }
  return [...found].sort(([a], [b]) => (b === "validation") - (a === "validation"));
}

function mean(lines) {
  const longest = lines.reduce((a, b) => b.length > a.length ? b : a, []);
  return longest.map(([x], i) => {
    const values = lines.filter((line) => line.length === longest.length && line[i][1] !== null).map((line) => line[i][1]);
    return [x, values.length ? values.reduce((a, b) => a + b, 0) / values.length : null];
  });
}

function drawCurves() {
  const series = [], networks = state.quantity === "validation" ? ["student", "teacher"].filter((n) => state.networks.has(n)) : ["loss"];
  for (const [method, group] of shown()) for (const network of networks) {
    const points = (run) => network === "loss" ? (run.losses?.[state.quantity] ? pairs(run.steps, run.losses[state.quantity]) : null) : (run[network] ? pairs(run.validated, run[network]) : null);
    const who = `${data.methods[method]}${network === "loss" ? "" : `, ${network}`}`, dash = network === "teacher" ? "6 4" : null;
    const found = group.runs.map((run) => [run, points(run)]).filter(([, line]) => line);
    const several = seeds.length > 1;
    for (const [run, line] of found) if (!several || state.seeds.has(run.seed))
      series.push({ name: `${who}, seed ${run.seed}${run.status === "diverged" ? " (diverged)" : ""}`, colour: colour(method), points: line, dash, ...(several && state.mean ? { width: 1, opacity: 0.35 } : { width: 1.6, opacity: 0.9 }) });
    const finished = found.filter(([run]) => run.status === "done").map(([, line]) => line);
    if (several && state.mean && finished.length) series.push({ name: `${who}, mean of ${finished.length}`, colour: colour(method), points: mean(finished), dash, width: 2.4 });
  }
  for (const line of series) line.tell = ([x, y]) => `${line.name}: ${number(y)} at step ${number(x)}`;
  const name = quantities().find(([key]) => key === state.quantity)?.[1] ?? "";
  chart(document.querySelector("#curves .plot"), series, { x: "Step", y: name, logY: state.log });
}

function prepareCurves() {
  const known = quantities(), card = document.getElementById("curves");
  if (!known.length) return;
  card.hidden = false;
  state.quantity = known[0][0];
  const select = element("select", { "aria-label": "What the curves show" }, ...known.map(([key, name]) => element("option", { value: key }, name)));
  select.addEventListener("change", () => { state.quantity = select.value; drawCurves(); });
  const log = element("button", { type: "button", "aria-pressed": false }, "Logarithmic");
  log.addEventListener("click", () => { state.log = !state.log; log.setAttribute("aria-pressed", state.log); drawCurves(); });
  card.querySelector(".bar").append(select, log, element("span", { class: "note" }, hasTeacher ? "Dashed: the teacher." : ""));
}

// ---- Recall against frequency

const average = (rows, i) => { const v = rows.map((row) => row[i]).filter((x) => x !== null); return v.length ? v.reduce((a, b) => a + b, 0) / v.length : null; };
const deviation = (rows, i) => { const v = rows.map((row) => row[i]).filter((x) => x !== null), m = average(rows, i); return v.length > 1 ? Math.sqrt(v.reduce((a, b) => a + (b - m) ** 2, 0) / (v.length - 1)) : 0; };

function drawRecall() {
  const card = document.getElementById("recall"), series = [], groups = shown().filter(([, group]) => group.studentRecall);
  card.hidden = !data.groups.some((group) => group.studentRecall);
  if (card.hidden) return;
  const of = groups[0]?.[1].of ?? "recall", Of = of[0].toUpperCase() + of.slice(1);
  card.querySelector("h3").textContent = `${Of} of a class against its frequency`;
  card.querySelector(".note").textContent = `${Of} in % on test samples, mean over the seeds; upright lines: ± one standard deviation (ddof 1).${hasTeacher ? " Hollow: the teacher." : ""}`;
  for (const [method, group] of groups) for (const network of ["student", "teacher"]) {
    const rows = group[`${network}Recall`];
    if (!rows || !state.networks.has(network)) continue;
    const points = group.labeled.map((n, i) => [n, average(rows, i) === null ? null : 100 * average(rows, i), 100 * deviation(rows, i), i]);
    series.push({ name: `${data.methods[method]}, ${network}`, colour: colour(method), points, dots: true, hollow: network === "teacher", dash: network === "teacher" ? "6 4" : null, width: 1.6,
      tell: ([n, value, spread, i]) => `${data.methods[method]}, ${network}: ${of} ${number(value)} ± ${number(spread)} % of the class ranked ${i + 1}, with ${number(n)} labeled samples` });
  }
  chart(card.querySelector(".plot"), series, { x: "Labeled samples of the class", y: `${Of} in %`, logX: true, from: 0, to: 100 });
}

// ---- Confusion, and samples per class

function drawConfusion() {
  const card = document.getElementById("confusion"), host = card.querySelector(".panels"), panels = [];
  card.hidden = !data.groups.some((group) => group.studentConfusion);
  for (const [method, group] of shown()) for (const network of ["student", "teacher"]) {
    const table = group[`${network}Confusion`];
    if (!table || !state.networks.has(network)) continue;
    const k = table.length, size = 240, cell = size / k, svg = drawn("svg", { viewBox: `0 0 ${size} ${size}`, role: "img", "aria-label": `Confusion of ${data.methods[method]}, ${network}` });
    table.forEach((row, i) => {
      const total = row.reduce((a, b) => a + b, 0) || 1;
      row.forEach((n, j) => {
        const part = n / total;
        const box = drawn("rect", { x: j * cell, y: i * cell, width: cell + 0.3, height: cell + 0.3, fill: i === j ? "#1f8a5b" : "#c8453b", "fill-opacity": (part ? 0.06 + 0.94 * part : 0).toFixed(3) });
        box.addEventListener("pointermove", (event) => say(event, `${n} of ${total} (${(100 * part).toFixed(1)} %) of the class ranked ${i + 1} (${number(group.labeled[i])} labels) ${i === j ? "found" : `taken for the class ranked ${j + 1}`}`));
        svg.append(box);
        if (k <= 6) svg.append(drawn("text", { x: (j + 0.5) * cell, y: (i + 0.5) * cell + 4, "text-anchor": "middle", style: "fill: var(--ink); pointer-events: none" }, `${(100 * part).toFixed(0)} %`));
      });
    });
    svg.append(drawn("rect", { x: 0.5, y: 0.5, width: size - 1, height: size - 1, fill: "none", class: "axis" }));
    svg.addEventListener("pointerleave", (event) => say(event, null));
    panels.push(element("div", { class: "panel" }, element("h4", {}, `${data.methods[method]}${hasTeacher ? `, ${network}` : ""}`), svg));
  }
  host.replaceChildren(...(panels.length ? panels : [element("p", { class: "nothing" }, "Nothing to show for this choice.")]));
}

function bars(title, counts, fill) {
  const width = 300, height = 150, top = Math.max(...counts, 1), step = (width - 8) / counts.length;
  const svg = drawn("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": title });
  counts.forEach((n, i) => {
    const h = n / top * (height - 40);
    const bar = drawn("rect", { x: 4 + i * step + step * 0.1, y: height - 20 - h, width: step * 0.8, height: Math.max(h, 0.7), fill, rx: 1.5 });
    bar.addEventListener("pointermove", (event) => say(event, `${number(n)} samples of the class ranked ${i + 1}`));
    svg.append(bar);
    if (counts.length <= 12) svg.append(drawn("text", { x: 4 + (i + 0.5) * step, y: height - 6, "text-anchor": "middle" }, i + 1));
    if (counts.length <= 10) svg.append(drawn("text", { x: 4 + (i + 0.5) * step, y: height - 24 - h, "text-anchor": "middle", style: "font-size: 10px" }, short(Math.round(n))));
  });
  svg.append(drawn("line", { class: "axis", x1: 0, x2: width, y1: height - 20, y2: height - 20 }));
  svg.addEventListener("pointerleave", (event) => say(event, null));
  return element("div", { class: "panel" }, element("h4", {}, title), svg);
}

function drawClasses() {
  const card = document.getElementById("classes");
  // Of those that learn from unlabeled samples, if there is one: what it has of them is what the setting says.
  const groups = (data.settings[state.setting]?.groups ?? []).map(([, group]) => data.groups[group]).filter((group) => group.labeled);
  const told = groups.find((group) => group.runs.some((run) => Object.keys(run.losses ?? {}).some((name) => name.startsWith("consistency")))) ?? groups[0];
  card.hidden = !data.groups.some((group) => group.labeled);
  card.querySelector(".panels").replaceChildren(...(told ? [bars("Labeled, by rank", told.labeled, "var(--soft)"), ...(told.unlabeled ? [bars("Unlabeled, by rank of the labeled", told.unlabeled, "var(--accent)")] : [])] : []));
}

// ---- Decision boundaries by step

function boundaries() {
  const section = document.getElementById("boundaries");
  if (!data.boundaries.length) return;
  section.hidden = false;
  const [select, slider, output, play, host] = ["select", "input", "output", "button", ".panels"].map((what) => section.querySelector(what));
  const available = [...new Set(data.boundaries.map((film) => film.seed))];
  select.append(...available.map((seed) => element("option", { value: seed }, seed)));
  slider.max = Math.max(...data.boundaries.map((film) => film.steps.length)) - 1;
  slider.value = slider.max;
  let panels = [];

  function paint() {
    const part = slider.max > 0 ? slider.value / slider.max : 0;
    const steps = panels.map(([film]) => film.steps[Math.round(part * (film.steps.length - 1))]);
    output.value = steps.length ? number(Math.max(...steps)) : "";
    for (const [film, canvas, image] of panels) if (image.complete && image.naturalWidth) {
      const [w, h] = film.size, ink = canvas.getContext("2d"), { width, height } = canvas;
      ink.imageSmoothingEnabled = true;
      ink.drawImage(image, 0, Math.round(part * (film.steps.length - 1)) * h, w, h, 0, 0, width, height);
      ink.fillStyle = "rgba(70, 76, 80, 0.45)";
      for (const [x, y] of film.unlabeled) ink.fillRect(x * width - 1, y * height - 1, 2.4, 2.4);
      film.labeled.forEach(([x, y], i) => {
        ink.beginPath();
        ink.arc(x * width, y * height, 7, 0, 2 * Math.PI);
        ink.fillStyle = data.classColours[film.classes[i] % data.classColours.length];
        ink.strokeStyle = "#ffffff";
        ink.lineWidth = 2;
        ink.fill();
        ink.stroke();
      });
      canvas.dataset.step = film.steps[Math.round(part * (film.steps.length - 1))];
    }
  }

  function choose() {
    panels = [];
    host.replaceChildren();
    let before = null;
    for (const film of data.boundaries.filter((film) => String(film.seed) === select.value)) {
      if (film.setting !== before) host.append(element("div", { class: "row" }, film.setting));
      before = film.setting;
      const canvas = element("canvas", { width: 460, height: 400, role: "img", "aria-label": `${film.setting}, ${film.method}` }), image = new Image();
      image.addEventListener("load", paint);
      image.src = `data:image/png;base64,${film.png}`;
      panels.push([film, canvas, image]);
      host.append(element("div", { class: "panel" }, element("h4", {}, film.method), canvas));
    }
    paint();
  }

  let playing = null;
  play.addEventListener("click", () => {
    if (playing) { clearInterval(playing); playing = null; play.textContent = "Play"; return; }
    if (slider.value === slider.max) slider.value = 0;
    play.textContent = "Stop";
    playing = setInterval(() => {
      if (slider.value === slider.max) { clearInterval(playing); playing = null; play.textContent = "Play"; return; }
      slider.value = +slider.value + 1;
      paint();
    }, 200);
    paint();
  });
  slider.addEventListener("input", paint);
  select.addEventListener("change", choose);
  choose();
}

// ---- All of it

function draw() {
  if (!document.getElementById("curves").hidden) drawCurves();
  drawRecall();
  drawConfusion();
  drawClasses();
}

if (data.groups.some((group) => group.runs.length)) {
  document.getElementById("charts").hidden = false;
  controls();
  prepareCurves();
  draw();
  let width = innerWidth;
  addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; draw(); } });
}
boundaries();
document.documentElement.dataset.ready = "yes";
