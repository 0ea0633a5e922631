"use strict";
// A plan as the report shows it, in `root`: the report's own page, or a part of a page that shows several. One state:
// the step. Everything follows from it. Names come from the model, so they are only ever set as text, never as markup.
// The function is the whole file, so its body is not indented.

function mountPlan(root) {
const data = JSON.parse(root.getElementById("data").textContent);
function element(name, text, className) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

const byId = (id) => root.getElementById(id);
const slider = byId("step");
const maps = [byId("map-before"), byId("map-after")].map((box, which) => ({
  box,
  svg: box.querySelector("svg"),
  cursor: box.querySelector(".cursor"),
  blocks: [...box.querySelectorAll(".block")],
  stepOf: which === 0 ? (step) => data.before[step] : (step) => step,
  spans: data.spans[which],
  words: data.words[which],
  scale: element("div", undefined, "scale"),
  rows: element("div", undefined, "rows"),
  now: [],
}));
const rowsByOp = new Map([...root.querySelectorAll("#table tbody tr")].map((row) => [Number(row.dataset.op), row]));
const FIT_FROM_STEPS = 48; // more rows than this do not fit on a screen
const FIT_VH = 72; // height of a whole model in view, in parts of the window's
const TICK_PX = 48; // between two labels across, and
const LINE_PX = 15; // down

// ---- the step -------------------------------------------------------------------------------------------------------

function show(step) {
  if (data.schedule[step] === undefined) return; // a model without operations
  slider.value = step;
  maps.forEach((map) => showOnMap(map, map.stepOf(step)));
  root.querySelector("#table tr.current")?.classList.remove("current");
  rowsByOp.get(data.schedule[step])?.classList.add("current");
  byId("now").textContent = sentence(step);
  showOperation(step);
}

function showOnMap(map, step) {
  const top = Number(map.cursor.dataset.top) + step * map.rowHeight;
  map.cursor.setAttribute("y", top);
  map.now.forEach((block) => block.classList.remove("now"));
  map.now = map.blocks.filter((block) => {
    const [first, end] = map.spans[Number(block.dataset.block)];
    return first <= step && step < end;
  });
  map.now.forEach((block) => block.classList.add("now"));
  map.box.scrollTop = top * map.svg.clientHeight / map.svg.viewBox.baseVal.height - map.box.clientHeight / 2;
}

function sentence(step) {
  const outputs = data.ops[data.schedule[step]]?.[2] ?? [];
  const name = outputs.length ? `, ${data.tensors[outputs[0]][0]}` : "";
  return `Step ${step}: ${data.words[1][step]}${name}. ` +
    `Whole tensors ${bytes(data.whole[step])}; as planned ${bytes(data.needed[step])}.`;
}

const bytes = (count) => (count < 1024 ? `${count} B` : `${(count / 1024).toFixed(1)} KB`);
const figure = (value) => (value === null ? "–" : value.toLocaleString("en"));

// ---- the operation at the step --------------------------------------------------------------------------------------

function tableOf(headings, rows) {
  const table = element("table");
  const head = table.createTHead().insertRow();
  headings.forEach((words, column) => {
    const cell = element("th", words, column ? "number" : "");
    cell.scope = "col";
    head.append(cell);
  });
  const body = table.createTBody();
  rows.forEach((cells) => {
    const row = body.insertRow();
    cells.forEach((words, column) => row.append(element("td", words, column ? "number" : "name")));
  });
  return table;
}

function showOperation(step) {
  const op = data.ops[data.schedule[step]];
  const details = byId("details");
  if (!op) {
    details.replaceChildren(element("p", "The caller hands over the next row of the input."));
    byId("overlap").replaceChildren();
    return;
  }
  const [kind, inputs, outputs, sort, fileIndex, turns] = op;
  if (turns) {
    showRows(op);
    return;
  }
  const figures = data.sorts[sort];
  const place = (role) => (index) => {
    const [name, shape, type, size, offset] = data.tensors[index];
    return [`${role} ${name}`, `${shape} ${type}`, figure(size), offset === null ? "–" : figure(offset)];
  };
  details.replaceChildren(
    element("h3", `op ${fileIndex}: ${kind}`),
    tableOf(["tensor", "shape", "bytes", "address"], [...inputs.map(place("in:")), ...outputs.map(place("out:"))]),
  );
  if (figures.pairs.length) {
    const pairs = figures.pairs.map((pair, number) => {
      const input = data.tensors[inputs[Math.floor(number / outputs.length)]][0];
      const paper = figure(pair.paper) + (pair.paper_unsafe ? " unsafe" : "");
      return [input, figure(pair.exact), figure(pair.algorithmic), figure(pair.analytical), paper];
    });
    details.append(
      element("h3", "Safe overlap O_s in bytes, by method"),
      tableOf(["input", "exact", "algorithmic", "analytical", "paper"], pairs),
      element("p", "exact: closed form, used for the plan · algorithmic: loops replayed (– where too long for this page) · " +
        "analytical: the paper's line, corrected · paper: as printed", "soft"),
    );
  }
  byId("overlap").replaceChildren(...overlapPicture(inputs, outputs, figures));
}

// Of an operation that runs row by row: its rows lie in many places, and O_s, which is about whole tensors, does not apply.
function showRows([kind, inputs, outputs, , fileIndex, turns]) {
  const told = (role) => (index) => {
    const [name, shape, type, size] = data.tensors[index];
    return [`${role} ${name}`, `${shape} ${type}`, figure(size)];
  };
  byId("details").replaceChildren(
    element("h3", `op ${fileIndex}: ${kind}, row by row in ${turns} steps`),
    tableOf(["tensor", "shape", "bytes if whole"], [...inputs.map(told("in:")), ...outputs.map(told("out:"))]),
  );
  byId("overlap").replaceChildren();
}

// The operation in slow motion: addresses across, time down; the output grows, the inputs are used up.
function overlapPicture(inputs, outputs, figures) {
  const shapes = [];
  const add = (index, className, front, grows) => {
    const [name, , , size, offset] = data.tensors[index];
    if (offset !== null) shapes.push({ name, className, size, offset, front, grows });
  };
  outputs.forEach((index, number) => add(index, "made", figures.written[number], true));
  inputs.forEach((index, number) => add(index, "used", figures.needed[number], false));
  if (!shapes.length) return [element("p", "Its tensors lie with the caller, or row by row in the arena.", "soft")];

  const low = Math.min(...shapes.map((s) => s.offset));
  const high = Math.max(...shapes.map((s) => s.offset + s.size), low + 1);
  const width = 640, height = 240, top = 24 + 18 * shapes.length;
  const x = (at) => 10 + (width - 20) * (at - low) / (high - low);
  const y = (done) => top + height * done;
  const svg = svgElement("svg", { viewBox: `0 0 ${width} ${top + height + 24}`, class: "figure", role: "img" });
  svg.append(svgElement("title", {}, "Which bytes of input and output matter while the operation runs"));
  shapes.forEach((s, row) => {
    const right = s.offset + s.size;
    svg.append(svgElement("rect", { x: x(s.offset), y: top, width: x(right) - x(s.offset), height, class: `${s.className} alloc` }));
    const edge = (s.front && s.front.length ? s.front : [[0, s.grows ? s.size : 0], [1, s.grows ? s.size : 0]])
      .map(([done, at]) => `${x(s.offset + at)} ${y(done)}`);
    const back = s.grows ? [`${x(s.offset)} ${y(1)}`, `${x(s.offset)} ${y(0)}`] : [`${x(right)} ${y(1)}`, `${x(right)} ${y(0)}`];
    svg.append(svgElement("path", { d: `M${[...edge, ...back].join("L")}Z`, class: `${s.className} live` }));
    const level = 22 + 18 * row;
    svg.append(svgElement("path", { d: `M${x(s.offset)} ${level}H${x(right)}`, class: s.grows ? "curve2" : "curve3" }));
    const label = svgElement("text", { x: (x(s.offset) + x(right)) / 2, y: level - 4, class: "small mid" }, `${s.grows ? "out" : "in"}: ${s.name}`);
    svg.append(label);
  });
  const outs = shapes.filter((s) => s.grows), ins = shapes.filter((s) => !s.grows);
  outs.forEach((o) => ins.forEach((i) => {
    const start = Math.max(o.offset, i.offset), end = Math.min(o.offset + o.size, i.offset + i.size);
    if (start < end) svg.append(svgElement("rect", { x: x(start), y: top, width: x(end) - x(start), height, class: "shared" }));
  }));
  svg.append(svgElement("text", { x: 10, y: top + height + 18, class: "small soft" }, `addresses ${low} to ${high} →, time ↓`));
  return [svg];
}

function svgElement(name, attributes, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  Object.entries(attributes).forEach(([key, value]) => made.setAttribute(key, value));
  if (text !== undefined) made.textContent = text;
  return made;
}

// ---- maps: hover and click ------------------------------------------------------------------------------------------

const tip = element("div", "", "tip");
tip.hidden = true;
(root.body ?? root).append(tip);

maps.forEach((map) => {
  map.cursor.dataset.top = map.cursor.getAttribute("y");
  map.rowHeight = Number(map.cursor.getAttribute("height"));
  map.ticks = [...map.svg.querySelectorAll("text.tick")].map((tick) => [Number(tick.getAttribute("x")), tick.textContent]);
  map.box.prepend(map.scale);
  map.box.append(map.rows);
  map.svg.setAttribute("preserveAspectRatio", "none");
  // The browser's own tooltips would stand beside ours.
  map.svg.querySelectorAll("g.block > title, rect > title").forEach((title) => {
    title.parentNode.dataset.note = title.textContent;
    title.remove();
  });
  map.svg.addEventListener("pointermove", (event) => {
    const note = event.target.closest("[data-note]")?.dataset.note;
    tip.hidden = !note;
    if (!note) return;
    tip.textContent = note;
    tip.style.left = `${Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8)}px`;
    tip.style.top = `${Math.min(event.clientY + 14, innerHeight - tip.offsetHeight - 8)}px`;
  });
  map.svg.addEventListener("pointerleave", () => { tip.hidden = true; });
  map.svg.addEventListener("click", (event) => {
    const box = map.svg.getBoundingClientRect();
    const at = (event.clientY - box.top) * map.svg.viewBox.baseVal.height / box.height;
    const row = Math.floor((at - Number(map.cursor.dataset.top)) / map.rowHeight);
    const steps = data.schedule.map((_, step) => map.stepOf(step));
    const step = steps.indexOf(Math.max(0, Math.min(steps.length - 1, row)));
    if (step >= 0) show(step);
    if (map === maps[1]) explain(event.target.closest(".block"));
  });
});

// Why a buffer lies where it does: the chain of those below it, each with the distance that a step asks for.
function explain(block) {
  const chain = block ? data.why[Number(block.dataset.block)] ?? [] : [];
  const inside = new Set(chain.map(([index]) => index));
  maps[1].blocks.forEach((other) => other.classList.toggle("chain", inside.has(Number(other.dataset.block))));
  const lines = chain.map(([index, offset, distance, step, free], n) => {
    const words = data.words[1][step] ?? (step < 0 ? "before the run" : "after the run");
    const below = step === null ? "" : `, ${distance} B above ${data.names[chain[n + 1][0]]} at step ${step} (${words})`;
    return element("span", `${offset} B: ${data.names[index]}${below}${free ? `, ${free} B free below` : ""}`, "link");
  });
  if (lines.length) byId("why").replaceChildren(...lines);
}

let fittedWidth = 0;

// Squeezed text cannot be read: a picture that is fitted has its axes outside of it.
function fit(on) {
  fittedWidth = maps[1].box.clientWidth;
  const zoom = Number(byId("zoom").value);
  byId("fit").checked = on;
  byId("zoomer").hidden = !on;
  maps.forEach((map) => {
    map.box.classList.toggle("fit", on);
    map.svg.style.height = on ? `${FIT_VH * zoom}vh` : "";
    if (on) drawAxes(map);
  });
  show(Number(slider.value));
}

// A plan that is not in view has no size to be fitted to; one that has the size that it was fitted to is left alone.
function refit() {
  const width = maps[1].box.clientWidth;
  if (width && width !== fittedWidth) fit(byId("fit").checked);
}

function resized() {
  fittedWidth = 0;
  refit();
}

function drawAxes(map) {
  const view = map.svg.viewBox.baseVal;
  const apart = map.ticks.length > 1 ? (map.ticks[1][0] - map.ticks[0][0]) * map.svg.clientWidth / view.width : TICK_PX;
  const tick = ([x, words]) => placed(words, "left", x / view.width);
  map.scale.replaceChildren(...map.ticks.filter((_, n) => n % Math.ceil(TICK_PX / apart) === 0).map(tick));
  const every = Math.max(1, Math.ceil(LINE_PX * view.height / map.rowHeight / map.svg.clientHeight));
  const at = (step) => (Number(map.cursor.dataset.top) + (step + 0.5) * map.rowHeight) / view.height;
  map.rows.style.height = `${map.svg.clientHeight}px`;
  map.rows.replaceChildren(...map.words.flatMap((words, step) => (step % every ? [] : [placed(`${step}  ${words}`, "top", at(step))])));
}

function placed(words, side, share) {
  const made = element("span", words);
  made.style[side] = `${100 * share}%`;
  return made;
}

// ---- controls -------------------------------------------------------------------------------------------------------

slider.addEventListener("input", () => show(Number(slider.value)));
byId("fit").addEventListener("change", (event) => fit(event.target.checked));
byId("zoom").addEventListener("input", () => fit(true));
addEventListener("resize", resized);
byId("peak").addEventListener("click", () => show(data.needed.indexOf(Math.max(...data.needed))));

let timer = null;
byId("play").addEventListener("click", (event) => {
  const stop = timer !== null;
  clearInterval(timer);
  timer = stop ? null : setInterval(() => show((Number(slider.value) + 1) % data.schedule.length), 400);
  event.target.setAttribute("aria-pressed", String(!stop));
  event.target.textContent = stop ? "Play" : "Pause";
});

byId("download").addEventListener("click", () => {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([byId("plan").textContent], { type: "application/json" }));
  link.download = "plan.json";
  link.click();
  URL.revokeObjectURL(link.href);
});

// ---- the table: sort, search, choose --------------------------------------------------------------------------------

const body = root.querySelector("#table tbody");
body.addEventListener("click", (event) => {
  const row = event.target.closest("tr");
  if (row) show(Number(row.dataset.step));
});

root.querySelectorAll("#table thead button").forEach((button, column) => {
  button.addEventListener("click", () => {
    const heading = button.parentNode;
    const numeric = heading.classList.contains("number");
    const was = heading.getAttribute("aria-sort");
    const direction = was ? (was === "ascending" ? -1 : 1) : numeric && column > 1 ? -1 : 1;
    const key = (row) => (numeric ? row.cells[column].textContent.replace(/[^\d.]/g, "") : row.cells[column].textContent);
    const compare = numeric ? (a, b) => key(a) - key(b) : (a, b) => key(a).localeCompare(key(b));
    body.append(...[...body.rows].sort((a, b) => direction * compare(a, b)));
    root.querySelectorAll("#table th").forEach((th) => th.removeAttribute("aria-sort"));
    heading.setAttribute("aria-sort", direction > 0 ? "ascending" : "descending");
  });
});

byId("search").addEventListener("input", (event) => {
  const wanted = event.target.value.trim().toLowerCase();
  let hits = 0;
  for (const row of body.rows) {
    const hit = row.cells[2].textContent.toLowerCase().includes(wanted) || row.cells[3].textContent.toLowerCase().includes(wanted);
    row.hidden = !hit;
    hits += hit;
  }
  byId("hits").textContent = wanted ? `${hits} of ${body.rows.length}` : "";
  maps.forEach((map) => map.blocks.forEach((block) => {
    block.classList.toggle("found", wanted !== "" && block.dataset.note.toLowerCase().includes(wanted));
  }));
});

fit(data.schedule.length > FIT_FROM_STEPS);

return { data, byId, slider, maps, show, refit, unmount: () => removeEventListener("resize", resized) };
}
