// Dark or light: as the reader's system has it, until the button turns it over.

document.getElementById("theme").addEventListener("click", () => {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const page = document.documentElement;
  page.dataset.theme = (page.dataset.theme || (dark ? "dark" : "light")) === "dark" ? "light" : "dark";
});

