// Controls for the options of a plan, as the server lists them. A setting that is as by default is not held at all.

const SLIDER_STEP = 0.01;

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

// `changed(settings)` is called whenever a person has changed one; `later`: while a slider is being moved.
function mountSwitches(form, groups, switches, changed) {
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
    const shown = make("output", { for: id });
    const slider = make("input", { type: "range", id, min: one.least, max: one.most, step: SLIDER_STEP,
      oninput: () => { shown.textContent = `${slider.value} ×`; set(one.name, Number(slider.value), true); } });
    controls.set(one.name, () => {
      if (document.activeElement !== slider || Number(slider.value) !== value(one.name)) slider.value = value(one.name);
      shown.textContent = `${value(one.name)} ×`;
    });
    return [make("span", { class: "line" }, make("label", { for: id }, one.label), shown), slider];
  }

  // Some of many: all of them by default.
  function several(one, id) {
    const every = one.choices.map(([key]) => key);
    const now = () => value(one.name) ?? every;
    const boxes = one.choices.map(([key, words, without], number) => {
      const box = make("input", { type: "checkbox", id: `${id}-${number}`, onchange: () => {
        const wanted = every.filter((other) => (other === key ? box.checked : now().includes(other)));
        set(one.name, wanted.length === every.length ? null : wanted);
      } });
      return { key, box, line: make("li", { title: `If not: ${without}` }, box, make("label", { for: `${id}-${number}` }, words)) };
    });
    const all = make("input", { type: "checkbox", role: "switch", id, onchange: () => set(one.name, all.checked ? null : []) });
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

  const kinds = { check, choice, range, set: several };
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
