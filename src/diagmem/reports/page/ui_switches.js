// Controls for the options of a plan, as the server lists them. A setting that is as by default is not held at all.

const same = (a, b) => JSON.stringify(a) === JSON.stringify(b);

function make(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  Object.entries(attributes).forEach(([key, value]) => {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value === true || value === false) made.toggleAttribute(key, value);
    else made.setAttribute(key, value);
  });
  made.append(...children);
  return made;
}

const MOST_POWER = 13; // of 2, in KB: sliders of memories are in powers, so that small ones can be set too
const POWER_STEP = 0.0625;

// `memories`: those of chips that have several. `changed(settings)` is called whenever a person has changed one; `later`: while a slider is being moved.
function mountSwitches(form, { groups, switches, memories }, changed) {
  const byName = new Map(switches.map((one) => [one.name, one]));
  let settings = {};
  const controls = new Map();

  const value = (name) => (name in settings ? settings[name] : byName.get(name).default);

  function set(name, wanted, later = false) {
    const next = { ...settings, [name]: wanted };
    if (!same(wanted, byName.get(name).default)) Object.assign(next, byName.get(name).needs);
    changed(plain(next), later);
  }

  // Without what is as by default, and without what has no meaning beside the rest.
  function plain(wanted) {
    const found = {};
    switches.forEach(({ name, default: usual, needs }) => {
      const met = Object.entries(needs).every(([other, needed]) => same(other in wanted ? wanted[other] : byName.get(other).default, needed));
      if (name in wanted && met && !same(wanted[name], usual)) found[name] = wanted[name];
    });
    return found;
  }

  function check(one, id) {
    const box = make("input", { type: "checkbox", role: "switch", id, onchange: () => set(one.name, box.checked) });
    controls.set(one.name, () => { box.checked = value(one.name); });
    return [make("span", { class: "line" }, box, make("label", { for: id }, one.label))];
  }

  function choice(one, id) {
    const list = make("select", { id, onchange: () => set(one.name, one.choices[list.selectedIndex]?.[0] ?? value(one.name)) });
    controls.set(one.name, () => {
      const chosen = one.choices.findIndex(([key]) => same(key, value(one.name)));
      const choices = chosen < 0 ? [...one.choices, [value(one.name), value(one.name)]] : one.choices;
      list.replaceChildren(...choices.map(([, words]) => make("option", {}, String(words))));
      list.selectedIndex = chosen < 0 ? choices.length - 1 : chosen;
    });
    return [make("span", { class: "line" }, make("label", { for: id }, one.label), list)];
  }

  function range(one, id) {
    const words = () => `${value(one.name)}${one.unit}`;
    const shown = make("output", { for: id });
    const slider = make("input", { type: "range", id, min: one.least, max: one.most, step: one.step,
      oninput: () => set(one.name, Number(slider.value), true) });
    controls.set(one.name, () => {
      slider.value = value(one.name);
      shown.textContent = words();
    });
    return [make("span", { class: "line" }, make("label", { for: id }, one.label), shown), slider];
  }

  function text(one, id) {
    const box = make("input", { type: "text", id, autocomplete: "off", spellcheck: "false", onchange: () => set(one.name, box.value.trim()) });
    controls.set(one.name, () => { box.value = value(one.name); });
    if (one.choices.length) box.setAttribute("list", `${id}-known`);
    const known = make("datalist", { id: `${id}-known` }, ...one.choices.map(([key]) => make("option", { value: key })));
    return [make("label", { for: id, class: "above" }, one.label), box, known];
  }

  // Names, with semicolons between.
  function words(one, id) {
    const parsed = () => box.value.split(";").map((word) => word.trim()).filter(Boolean);
    const box = make("input", { type: "text", id, autocomplete: "off", spellcheck: "false", placeholder: "name; name", onchange: () => set(one.name, parsed()) });
    controls.set(one.name, () => { box.value = value(one.name).join("; "); });
    return [make("label", { for: id, class: "above" }, one.label), box];
  }

  // Memories of a chip, NAME:BYTES[:COST] each: a slider for the size of each, and a chip to begin with.
  function listed(one, id) {
    const rows = make("ul", { class: "memories" });
    const chips = make("select", { id, onchange: () => {
      const chosen = memories[chips.selectedIndex - 1];
      if (chosen) set(one.name, chosen[1]);
      chips.selectedIndex = 0;
    } }, make("option", {}, "take a chip's …"), ...memories.map(([name]) => make("option", {}, name)));
    const add = make("button", { type: "button", onclick: () => set(one.name, [...now(), `memory${now().length + 1}:64K`]) }, "Add one");
    const now = () => value(one.name);
    const parsed = (word) => {
      const [name, size, ...cost] = word.split(":");
      return { name, kb: size.endsWith("K") ? Number(size.slice(0, -1)) : Number(size) / 1024, cost: cost.join(":") };
    };
    const written = ({ name, kb, cost }) => [name, `${kb}K`, ...(cost ? [cost] : [])].join(":");
    const change = (number, part, later) => set(one.name, now().map((word, place) => (place === number ? written({ ...parsed(word), ...part }) : word)), later);
    const row = (word, number) => {
      const { name, kb } = parsed(word);
      const shown = make("output", {}, `${kb} KB`);
      const slider = make("input", { type: "range", min: 0, max: MOST_POWER, step: POWER_STEP, value: Math.log2(kb), "aria-label": `KB of ${name}`,
        oninput: () => change(number, { kb: Math.max(1, Math.round(2 ** slider.value)) }, true) });
      const gone = make("button", { type: "button", "aria-label": `Without ${name}`, onclick: () => {
        set(one.name, now().filter((_, place) => place !== number));
        add.focus();
      } }, "×");
      const label = make("input", { type: "text", value: name, "aria-label": `Name of memory ${number + 1}`, onchange: () => change(number, { name: label.value.trim() }) });
      return make("li", { "data-name": name }, label, shown, gone, slider);
    };
    controls.set(one.name, () => {
      // A slider that is being moved stays where it is: only what it says is new.
      if (rows.contains(document.activeElement) && rows.children.length === now().length) {
        now().forEach((word, number) => { rows.children[number].querySelector("output").textContent = `${parsed(word).kb} KB`; });
      } else {
        rows.replaceChildren(...now().map(row));
      }
    });
    return [make("span", { class: "line" }, make("label", { for: id }, one.label), chips), rows, add];
  }

  // Some of many: all of them by default.
  function several(one, id) {
    const every = one.choices.map(([key]) => key);
    const now = () => every.filter((key) => !value(one.name).includes(key));
    const boxes = one.choices.map(([key, words, without], number) => {
      const box = make("input", { type: "checkbox", id: `${id}-${number}`, onchange: () => {
        set(one.name, every.filter((other) => (other === key ? !box.checked : !now().includes(other))));
      } });
      return { key, box, line: make("li", { title: `Otherwise: ${without}` }, box, make("label", { for: `${id}-${number}` }, words)) };
    });
    const all = make("input", { type: "checkbox", role: "switch", id, onchange: () => set(one.name, all.checked ? [] : every) });
    const count = make("summary", {});
    controls.set(one.name, () => {
      boxes.forEach(({ key, box }) => { box.checked = now().includes(key); });
      all.checked = now().length > 0;
      all.indeterminate = now().length > 0 && now().length < every.length;
      count.textContent = `${now().length} of ${every.length} kinds`;
    });
    return [make("span", { class: "line" }, all, make("label", { for: id }, one.label)),
      make("details", {}, count, make("ul", {}, ...boxes.map(({ line }) => line)))];
  }

  const kinds = { check, choice, range, text, words, memories: listed, set: several };
  form.replaceChildren(...groups.map((group) => make("fieldset", {}, make("legend", {}, group),
    ...switches.filter((one) => one.group === group).map((one) => {
      const id = `switch-${one.name}`;
      const made = make("div", { class: "switch", title: one.meaning }, ...kinds[one.kind](one, id),
        make("p", { class: "meaning", id: `${id}-meaning` }, one.meaning));
      made.querySelector(`#${id}`).setAttribute("aria-describedby", `${id}-meaning`);
      return made;
    }))));
  form.addEventListener("submit", (event) => event.preventDefault());

  function show(wanted) {
    settings = plain(wanted);
    controls.forEach((refresh, name) => {
      refresh();
      const line = form.querySelector(`#switch-${name}`).closest(".switch");
      line.classList.toggle("changed", name in settings);
    });
  }

  show({});
  return { show, plain };
}
