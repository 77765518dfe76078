// Runs before the page is drawn: the chosen theme is set without a flash.
(function () {
  "use strict";
  var root = document.documentElement;
  root.classList.add("js");
  try {
    var chosen = window.localStorage.getItem("armillary-theme");
    if (chosen === "light" || chosen === "dark") root.dataset.theme = chosen;
  } catch (error) {
    // Storage is closed to this page: the system's scheme is used.
  }
})();
