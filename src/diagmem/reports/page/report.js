// The report: a page about one plan.

const { data, byId, slider, maps, show } = mountPlan(document);
