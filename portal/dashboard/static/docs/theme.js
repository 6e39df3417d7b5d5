// The portal's choice of light and dark, before the first paint.
(function () {
  var choice = "auto";
  try {
    choice = localStorage.getItem("mantine-color-scheme-value") || "auto";
  } catch (e) {
    /* storage is off: follow the system */
  }
  var dark = choice === "dark" || (choice === "auto" && matchMedia("(prefers-color-scheme: dark)").matches);
  document.documentElement.classList.toggle("dark-mode", dark);
})();
