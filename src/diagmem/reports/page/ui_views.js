// Plans as their reports show them, each in a tree of its own, so that two may stand side by side. Those that were looked
// at lately are kept ready: to go back is only to show them again.

const MOST_VIEWS = 6;

// Where two plans stand side by side, the arena before is the same for both, or not what is compared.
const IN_PAGE = ".headline b { font-size: 2rem; } :host([data-half]) :is(.maps, .step) { grid-template-columns: 1fr; } " +
  ":host([data-half]) :is(.maps figure:first-child, #arena + p) { display: none; } * { scrollbar-width: thin; }";

function mountViews(place) {
  const views = new Map(); // in the order of use

  function mounted(key, text) {
    const host = make("div", { class: "view" });
    const root = host.attachShadow({ mode: "open" });
    // What is parsed is not run: scripts of the report do nothing here, and the page's policy forbids all but ours.
    const page = new DOMParser().parseFromString(text, "text/html");
    const body = make("div", {}, ...page.querySelector("main").childNodes);
    root.append(page.querySelector("style"), make("style", {}, IN_PAGE), page.querySelector("svg.offscreen"), body,
      page.getElementById("data"), page.getElementById("plan"));
    // The address names what the page shows: a link to a part of the report only goes there.
    body.addEventListener("click", (event) => {
      const link = event.target.closest("a[href^='#']");
      if (!link) return;
      event.preventDefault();
      root.getElementById(link.hash.slice(1))?.scrollIntoView({ block: "center" });
    });
    place.append(host);
    const view = { host, text, plan: mountPlan(root) };
    views.set(key, view);
    return view;
  }

  function dropped(key) {
    views.get(key)?.plan.unmount();
    views.get(key)?.host.remove();
    views.delete(key);
  }

  // `wanted`: key and report of each plan that is to be seen, with a heading if there are several.
  function show(wanted) {
    views.forEach(({ host }) => { host.hidden = true; });
    place.classList.toggle("two", wanted.length > 1);
    wanted.forEach(({ key, text, label }, number) => {
      let view = views.get(key);
      if (view && view.text !== text) dropped(key);
      view = view && view.text === text ? view : mounted(key, text);
      views.delete(key);
      views.set(key, view);
      view.host.hidden = false;
      view.host.style.order = number;
      view.host.setAttribute("role", "group");
      view.host.setAttribute("aria-label", label);
      view.host.toggleAttribute("data-half", wanted.length > 1);
      view.plan.refit();
    });
    [...views.keys()].slice(0, -MOST_VIEWS).forEach(dropped);
  }

  return { show };
}
