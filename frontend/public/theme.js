// Runs before the first paint, so that a dark page never flashes white.
(function () {
  var choice = "auto";
  try {
    choice = localStorage.getItem("mantine-color-scheme-value") || "auto";
  } catch (e) {
    /* storage is off: follow the system */
  }
  var dark = choice === "dark" || (choice === "auto" && matchMedia("(prefers-color-scheme: dark)").matches);
  document.documentElement.setAttribute("data-mantine-color-scheme", dark ? "dark" : "light");
})();
