// The page: a model, a setting, and perhaps a second setting beside it. Whatever a person does changes one of these three;
// everything on the page follows. Names come from models, so they are only ever set as text.

const known = JSON.parse(document.getElementById("page-data").textContent);
const get = (id) => document.getElementById(id);
const PATIENCE_MS = 180; // a slider rests for so long before a plan is made

const state = { model: null, settings: {}, other: null };
const results = new Map(); // key -> { model, settings, figures, page }
const fronts = new Map(); // key -> { svg, settings }
let running = null;
let seen = null; // the state that the page shows
let drawnFront = null;
let usualCore = null;

const keyOf = (settings, model = state.model) => JSON.stringify([model.id, Object.entries(settings).sort(([a], [b]) => (a < b ? -1 : 1))]);
const size = (count) => (count < 1024 ? `${count} B` : `${(count / 1024).toFixed(1)} KB`);
const count = (number) => number.toLocaleString("en");
const wordsOf = (result) => result.figures.words || "default";

const views = mountViews(get("shown"));
const controls = mountSwitches(get("switches"), known, (settings, later) => choose(settings, later));

// ---- asking the server ----------------------------------------------------------------------------------------------

// Calls `parts[name](value)` for each part of the answer as it comes.
async function ask(body, parts, signal) {
  const response = await fetch("jobs", { method: "POST", body: JSON.stringify(body), signal });
  if (!response.ok) throw new TypeError("this page is out of date: open its new address");
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    lines.forEach((line) => Object.entries(JSON.parse(line)).forEach(([name, part]) => {
      if (name === "failed") throw new Error(part);
      parts[name]?.(part);
    }));
  }
}

// One job at a time: a new one takes the place of the one before, whose process then ends.
async function work(what, settings, choice, parts) {
  cancel();
  const mine = { controller: new AbortController(), late: setTimeout(() => { get("status").hidden = false; }, 120) };
  running = mine;
  fail("");
  get("glance").textContent = "";
  tell(["starting", 0, 0]);
  get("desk").setAttribute("aria-busy", "true");
  try {
    await ask({ what, model: state.model.id, settings, choice }, { told: tell, ...parts }, mine.controller.signal);
    return running === mine;
  } catch (error) {
    if (running === mine && error.name !== "AbortError") {
      fail(error instanceof TypeError ? "diagmem has ended: start `diagmem ui` again and open its new address" : error.message);
    }
    return false;
  } finally {
    if (running === mine) rest();
  }
}

function tell([stage, done, total]) {
  const bar = get("progress");
  if (total) [bar.max, bar.value] = [total, done];
  else bar.removeAttribute("value");
  get("doing").textContent = stage;
}

function rest() {
  clearTimeout(running?.late);
  running = null;
  get("status").hidden = true;
  get("desk").removeAttribute("aria-busy");
}

function cancel() {
  running?.controller.abort();
  rest();
}

function fail(message) {
  get("failure").textContent = message;
  get("failure").hidden = !message;
  if (message.includes("--shape")) askForShapes();
}

// Where a file leaves shapes open there is no plan yet; what it needs is a switch.
function askForShapes() {
  get("start").hidden = true;
  get("desk").hidden = false;
  get("panel").open = true;
  get("switch-shapes").focus();
}

// ---- a model --------------------------------------------------------------------------------------------------------

async function drop(file) {
  if (file.size > known.most_bytes) {
    fail(`${file.name}: ${size(file.size)} is too large for this page; the limit is ${size(known.most_bytes)}`);
    return;
  }
  try {
    const response = await fetch("models", { method: "POST", body: file, headers: { "X-Name": encodeURIComponent(file.name) } });
    const said = await response.json();
    if (said.failed) fail(said.failed);
    else open(said);
  } catch {
    fail("diagmem has ended, or the file cannot be read: start `diagmem ui` again and open its new address");
  }
}

function open(model, settings = {}, other = null) {
  cancel();
  state.model = model;
  state.other = other;
  get("zoo").value = model.id.startsWith("zoo:") ? model.id : "";
  get("model").textContent = ` · ${model.name}`;
  choose(settings);
}

// ---- a setting ------------------------------------------------------------------------------------------------------

let waiting = null;

function choose(settings, later = false) {
  clearTimeout(waiting);
  state.settings = controls.plain(settings);
  controls.show(state.settings);
  if (results.has(keyOf(state.settings))) {
    cancel();
    fail("");
    show();
  } else if (later) {
    waiting = setTimeout(plan, PATIENCE_MS);
  } else {
    plan();
  }
}

async function plan() {
  const { settings, model } = state;
  const made = { model: model.id, settings }; // without its page it is a line of the list, to be made again if chosen
  const early = ({ ops, whole_bytes, weights_bytes }) => {
    get("glance").textContent = `${count(ops)} operations, ${size(whole_bytes)} in whole tensors; file: ${size(weights_bytes)} of weights`;
  };
  const is_done = await work("plan", settings, "", {
    early,
    figures: (figures) => {
      made.figures = figures;
      results.set(keyOf(settings, model), made);
      showFigures(made); // the pictures take a moment longer
    },
    page: (page) => { made.page = page; },
  });
  if (is_done && made.page) show();
}

// ---- what is seen ---------------------------------------------------------------------------------------------------

function show() {
  const result = results.get(keyOf(state.settings));
  const other = state.other && results.get(keyOf(state.other));
  const beside = other && other !== result && other.page ? other : null;
  if (!result.page) {
    plan(); // known by its figures only: from another tab, or cancelled before it was drawn
    return;
  }
  showFigures(result, beside);
  showFront();
  get("counted").textContent = result.counted ?? "";
  showDifferences(beside, result);
  views.show([beside, result].filter(Boolean).map((one) => ({ key: keyOf(one.settings), text: one.page, label: wordsOf(one) })));
  const { arena_bytes, baseline_bytes } = result.figures;
  get("said").textContent = `${wordsOf(result)}: ${count(arena_bytes)} bytes, before ${count(baseline_bytes)}`;
  seen = { ...state };
  history.replaceState(null, "", `#${encodeURIComponent(JSON.stringify(seen))}`);
}

function showFigures(result, beside = null) {
  const { baseline_bytes, arena_bytes, commands, core } = result.figures;
  get("start").hidden = true;
  get("desk").hidden = false;
  document.title = `${state.model.name}: ${size(baseline_bytes)} → ${size(arena_bytes)}`;
  showCommands(commands);
  if (core !== usualCore) get("core").value = usualCore = core; // that of the chip; what a person has chosen stays
  showLedger(result, beside);
}

function showCommands({ shell, python }) {
  const layout = get("layout").value;
  const line = (command) => (command.startsWith("diagmem emit c") && layout !== "plain" ? `${command} --layout ${layout}` : command);
  const call = (code) => (layout === "plain" ? code : code.replace("plan=made.to_json())", `plan=made.to_json(), layout="${layout}")`));
  // No line of it ends within a word, such as between -- and json.
  get("shell").replaceChildren(...shell.flatMap((command) => [...line(command).split(" ").flatMap((word) => [make("span", {}, word), " "]).slice(0, -1), "\n"]).slice(0, -1));
  get("python").textContent = python.map(call).join("\n");
}

// Stairs that lead down from the arena before.
function showLedger(shown, beside) {
  const tried = [...results.values()].filter((one) => one.model === state.model.id)
    .sort((a, b) => b.figures.arena_bytes - a.figures.arena_bytes || wordsOf(a).length - wordsOf(b).length);
  const most = Math.max(...tried.map(({ figures }) => Math.max(figures.baseline_bytes, figures.arena_bytes)), 1);
  const least = Math.min(...tried.map(({ figures }) => figures.arena_bytes));
  const best = tried.length > 1 && tried.find(({ figures }) => figures.arena_bytes === least);
  const macs = Math.min(...tried.map(({ figures }) => figures.macs)) || 1;
  const bar = (bytes, name) => make("td", { class: "bar", "aria-hidden": "true" },
    make("i", { class: name, style: `width: ${100 * bytes / most}%` }));
  const number = (words) => make("td", { class: "number" }, words);
  const before = make("tr", {}, make("td", { class: "soft" }, "before, in whole tensors"),
    bar(shown.figures.baseline_bytes, "before"), number(count(shown.figures.baseline_bytes)), number(""), number(""), make("td"));
  const rows = tried.map((one) => {
    const { figures, settings } = one;
    const is_shown = one === shown;
    const name = make("button", { type: "button", class: "link", "data-hold": keyOf(settings), "aria-current": String(is_shown), onclick: () => choose(settings) }, wordsOf(one));
    const second = make("button", { type: "button", "data-hold": `beside ${keyOf(settings)}`, "aria-pressed": String(one === beside), "aria-label": `Compare with ${wordsOf(one)}`,
      onclick: () => compare(one === beside ? null : settings) }, "Compare");
    const mark = one === best ? [make("span", { class: "yes" }, " smallest")] : [];
    return make("tr", { class: is_shown ? "current" : "" }, make("td", {}, name, ...mark),
      bar(figures.arena_bytes, is_shown ? "after" : "after pale"), number(count(figures.arena_bytes)),
      number(figures.macs ? `${(figures.macs / macs).toFixed(2)} ×` : ""), number(`${figures.chips.length} of ${figures.judged.length}`),
      make("td", {}, ...(is_shown || tried.length < 2 ? [] : [second])));
  });
  const held = document.activeElement?.dataset.hold;
  get("ledger").tBodies[0].replaceChildren(before, ...rows);
  // Who came here with the keyboard stays where they are.
  if (held) [...get("ledger").querySelectorAll("[data-hold]")].find((button) => button.dataset.hold === held)?.focus();
}

// ---- two plans side by side -----------------------------------------------------------------------------------------

async function compare(settings) {
  state.other = settings;
  const other = settings && results.get(keyOf(settings));
  if (other && !other.page) {
    await work("plan", settings, "", { page: (page) => { other.page = page; } });
  }
  show();
  if (settings) get("compared").scrollIntoView({ block: "nearest" });
}

// What each memory holds, where there are several.
function pools(a, b) {
  const names = [...new Set([...(a.pools ?? []), ...(b.pools ?? [])].map(({ name }) => name))];
  const used = ({ pools: all }, name) => all?.find((pool) => pool.name === name)?.used_bytes;
  const words = (bytes) => (bytes === undefined ? "–" : count(bytes));
  return names.map((name) => [`in ${name}, bytes`, words(used(a, name)), words(used(b, name)), ""]);
}

// From one plan to the one that is shown.
function showDifferences(base, shown) {
  get("compared").hidden = !base;
  if (!base) return;
  const [a, b] = [base.figures, shown.figures];
  const change = (from, to) => (from === to ? "the same" : `${to > from ? "+" : "−"}${count(Math.abs(to - from))}${from ? ` (${to > from ? "+" : "−"}${(100 * Math.abs(to - from) / from).toFixed(1)} %)` : ""}`);
  const known = (value) => value !== null && value !== undefined;
  const row = (words, from, to) => [words, known(from) ? count(from) : "–", known(to) ? count(to) : "–", ...(known(from) && known(to) ? [change(from, to), to - from] : [""])];
  const figure = (words, name) => row(words, a[name], b[name]);
  const costs = a.cost.map(([words, from], n) => row(words, from, b.cost[n][1])).filter(([, from, to]) => ![from, to].every((shown) => shown === "–" || shown === "0"));
  const only = (one, two) => one.chips.filter((chip) => two.judged.includes(chip) && !two.chips.includes(chip)).join(", ") || "none";
  const rows = [
    ...costs,
    figure("lower bound", "bound_bytes"),
    figure("operations", "ops").slice(0, 4),
    figure("steps", "steps").slice(0, 4),
    ...pools(a, b),
    ...(a.speedup || b.speedup ? [["times as fast with its cores, about", String(a.speedup ?? 1), String(b.speedup ?? 1), ""]] : []),
    ["proven optimal", a.optimal ? "yes" : "no", b.optimal ? "yes" : "no", ""],
    ["the peak is set by", a.peak, b.peak, ""],
    ["chips that fit only with it", only(a, b), only(b, a), ""],
  ];
  const heading = (words) => make("th", { scope: "col", class: words ? "number" : "" }, words);
  get("differences").tHead.replaceChildren(make("tr", {}, heading(""), heading(wordsOf(base)), heading(wordsOf(shown)), heading("change")));
  get("differences").tBodies[0].replaceChildren(...rows.map(([words, left, right, changed, by]) => make("tr", {},
    make("th", { scope: "row" }, words), make("td", { class: "number" }, left), make("td", { class: "number" }, right),
    make("td", { class: `number ${by < 0 ? "yes" : by > 0 ? "no" : ""}` }, changed))));
}

// ---- memory against work --------------------------------------------------------------------------------------------

// The front is that of the other settings: it goes through these three by itself.
function frontKey() {
  const { schedule, input_rows, recompute, ...others } = state.settings;
  return { key: keyOf({ ...others, ...(input_rows ? { input_rows } : {}) }), settings: { ...others, ...(input_rows ? { schedule, input_rows } : {}) } };
}

async function drawFront() {
  const { key, settings } = frontKey();
  if (!fronts.has(key)) await work("pareto", settings, "", { front: (front) => fronts.set(key, front) });
  showFront();
}

function showFront() {
  const front = fronts.get(frontKey().key);
  get("draw-front").hidden = Boolean(front);
  if (front !== drawnFront) drawPoints(front);
  drawnFront = front;
  get("front").querySelectorAll(".point").forEach((point) => {
    const settings = controls.plain(front.settings[Number(point.dataset.point)]);
    point.setAttribute("aria-pressed", String(keyOf(settings) === keyOf(state.settings)));
  });
}

function drawPoints(front) {
  get("front").replaceChildren();
  if (!front) return;
  const drawn = new DOMParser().parseFromString(front.svg, "text/html").body.firstElementChild;
  get("front").append(drawn);
  drawn.removeAttribute("role"); // its points are buttons, not parts of an image
  drawn.querySelectorAll(".point").forEach((point) => {
    const press = () => choose(front.settings[Number(point.dataset.point)]);
    point.setAttribute("role", "button");
    point.setAttribute("tabindex", "0");
    point.setAttribute("aria-label", point.querySelector("title").textContent);
    point.addEventListener("click", press);
    point.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      press();
    });
  });
}

// ---- handing over ---------------------------------------------------------------------------------------------------

function save(name, ...content) {
  const link = make("a", { href: URL.createObjectURL(new Blob(content)), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

async function saveFile({ name, base64 }) {
  save(name, Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0)));
}

const stem = () => state.model.name.replace(/^zoo:/, "").replace(/\.[^.]*$/, "").replace(/[^\w.-]+/g, "_") || "model";

const takes = {
  c: () => work("c", state.settings, get("layout").value, { file: saveFile }),
  tflm: () => work("tflm", state.settings, "", { file: saveFile }),
  json: () => work("json", state.settings, "", { file: saveFile }),
  report: ({ page }) => save(`${stem()}-report.html`, page),
};

async function countInstructions(result) {
  const { settings, model } = state;
  const found = {};
  await work("profile", settings, get("core").value, {
    page: (page) => { found.page = page; },
    instructions: ({ on, instructions }) => { found.counted = `${count(instructions)} instructions on ${on}`; },
  });
  if (found.counted && state.model === model) {
    Object.assign(result, found);
    show();
  }
}

async function copy(button) {
  await navigator.clipboard.writeText(get(button.dataset.copy).textContent);
  button.textContent = "Copied";
  setTimeout(() => { button.textContent = "Copy"; }, 1500);
}

// ---- what a person does ---------------------------------------------------------------------------------------------

// Calls it with the plan that is shown, if there is one.
const withPlan = (call) => () => {
  const result = results.get(keyOf(state.settings));
  if (result?.page) call(result);
  else fail("there is no plan yet: see what stands above, or change the settings");
};

document.querySelectorAll("[data-take]").forEach((button) => button.addEventListener("click", withPlan(takes[button.dataset.take])));
document.querySelectorAll("[data-copy]").forEach((button) => button.addEventListener("click", () => copy(button)));
document.querySelectorAll("[data-zoo]").forEach((button) => {
  button.addEventListener("click", () => open({ id: button.dataset.zoo, name: button.dataset.zoo }));
});
get("zoo").addEventListener("change", (event) => {
  if (event.target.value) open({ id: event.target.value, name: event.target.value });
});
get("file").addEventListener("change", (event) => {
  if (event.target.files[0]) drop(event.target.files[0]);
  event.target.value = "";
});
get("cancel").addEventListener("click", cancelled);
get("defaults").addEventListener("click", () => choose({}));
get("layout").addEventListener("change", withPlan(({ figures }) => showCommands(figures.commands)));
get("draw-front").addEventListener("click", drawFront);
get("count").addEventListener("click", withPlan(countInstructions));
get("alone").addEventListener("click", () => compare(null));

// Model and switches go back to what is seen.
function cancelled() {
  cancel();
  if (seen) open(seen.model, seen.settings, seen.other);
}

addEventListener("keydown", (event) => {
  if (event.key === "Escape" && running) cancelled();
});

let above = 0; // elements under the file that is being dragged
addEventListener("dragenter", (event) => {
  event.preventDefault();
  above += 1;
  get("veil").hidden = !event.dataTransfer.types.includes("Files");
});
addEventListener("dragleave", () => {
  above -= 1;
  if (above <= 0) get("veil").hidden = true;
});
addEventListener("dragover", (event) => event.preventDefault());
addEventListener("drop", (event) => {
  event.preventDefault();
  above = 0;
  get("veil").hidden = true;
  if (event.dataTransfer.files[0]) drop(event.dataTransfer.files[0]);
});

// ---- the beginning: what this tab showed before it was loaded anew, and what other tabs have tried -------------------

async function begin() {
  get("panel").open = innerWidth > 900;
  const kept = await (await fetch("kept")).json();
  kept.results.forEach((one) => {
    const model = { id: one.model };
    results.set(keyOf(one.settings, model), one);
  });
  let place = null;
  try {
    place = JSON.parse(decodeURIComponent(location.hash.slice(1)));
  } catch { /* none, or one that was typed in */ }
  const named = kept.models.find(({ id }) => id === known.first) ?? (known.first && { id: known.first, name: known.first });
  const is_known = (id) => typeof id === "string" && (id.startsWith("zoo:") || kept.models.some((model) => model.id === id));
  if (is_known(place?.model?.id)) open(kept.models.find(({ id }) => id === place.model.id) ?? { id: place.model.id, name: place.model.id }, place.settings ?? {}, place.other ?? null);
  else if (named) open(named);
}

begin();
