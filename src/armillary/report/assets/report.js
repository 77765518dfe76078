// Theme, filters, copying and charts of a report. No network, no dependency but vega.js.
(function () {
  "use strict";

  var root = document.documentElement;
  var systemDark = window.matchMedia("(prefers-color-scheme: dark)");

  function all(selector, within) {
    return Array.prototype.slice.call((within || document).querySelectorAll(selector));
  }

  // -- theme ---------------------------------------------------------------------------------

  var themeListeners = [];

  function showTheme(button) {
    button.querySelector("[data-theme-name]").textContent = root.dataset.theme || "auto";
  }

  function startTheme() {
    var button = document.getElementById("theme");
    if (!button) return;
    showTheme(button);
    button.addEventListener("click", function () {
      var next = { auto: "light", light: "dark", dark: "auto" }[root.dataset.theme || "auto"];
      if (next === "auto") delete root.dataset.theme;
      else root.dataset.theme = next;
      try {
        if (next === "auto") window.localStorage.removeItem("armillary-theme");
        else window.localStorage.setItem("armillary-theme", next);
      } catch (error) {
        // The choice then lasts as long as the page.
      }
      showTheme(button);
      themeListeners.forEach(function (listen) { listen(); });
    });
    systemDark.addEventListener("change", function () {
      themeListeners.forEach(function (listen) { listen(); });
    });
  }

  // -- filters -------------------------------------------------------------------------------

  function startFilters() {
    var form = document.getElementById("filters");
    if (!form) return;
    var text = form.querySelector("#filter-text");
    var field = form.querySelector("#filter-field");
    var source = form.querySelector("#filter-source");
    var states = all("button[data-state]");
    var said = document.getElementById("filter-count");
    var clear = document.getElementById("filter-clear");
    var empty = document.getElementById("filter-empty");
    var lines = all("tr[data-state]").map(function (line) {
      var group = line.closest("tbody");
      return {
        line: line,
        group: group,
        text: (group.dataset.text + " " + line.dataset.text).toLowerCase(),
      };
    });
    var groups = all("tbody[data-field]");
    var results = lines.length === 1 ? "1 result" : lines.length + " results";

    function pressed() {
      return states.filter(function (b) { return b.getAttribute("aria-pressed") === "true"; })
        .map(function (b) { return b.dataset.state; });
    }

    function remember(chosen) {
      var kept = new URLSearchParams();
      if (text.value) kept.set("q", text.value);
      if (field.value) kept.set("field", field.value);
      if (source && source.value) kept.set("source", source.value);
      if (chosen.length) kept.set("verdict", chosen.join(","));
      var hash = kept.toString();
      var place = window.location.pathname + window.location.search + (hash ? "#" + hash : "");
      window.history.replaceState(null, "", place);
    }

    function apply() {
      var words = text.value.toLowerCase().split(/\s+/).filter(Boolean);
      var chosen = pressed();
      var visible = 0;
      var open = new Set();
      lines.forEach(function (entry) {
        var shown =
          (!chosen.length || chosen.indexOf(entry.line.dataset.state) >= 0) &&
          (!field.value || entry.group.dataset.field === field.value) &&
          (!source || !source.value || entry.line.dataset.source === source.value) &&
          words.every(function (word) { return entry.text.indexOf(word) >= 0; });
        entry.line.hidden = !shown;
        if (shown) {
          visible += 1;
          open.add(entry.group);
        }
      });
      groups.forEach(function (group) { group.hidden = !open.has(group); });
      var filtered = words.length || chosen.length || field.value || (source && source.value);
      said.textContent = filtered
        ? visible + " of " + results + " shown"
        : results;
      clear.hidden = !filtered;
      empty.hidden = visible > 0 || !lines.length;
      remember(chosen);
    }

    function reset() {
      text.value = "";
      field.value = "";
      if (source) source.value = "";
      states.forEach(function (b) { b.setAttribute("aria-pressed", "false"); });
      apply();
    }

    function restore() {
      var kept = new URLSearchParams(window.location.hash.slice(1));
      var chosen = (kept.get("verdict") || "").split(",");
      text.value = kept.get("q") || "";
      field.value = kept.get("field") || "";
      if (field.selectedIndex < 0) field.value = "";
      if (source) {
        source.value = kept.get("source") || "";
        if (source.selectedIndex < 0) source.value = "";
      }
      states.forEach(function (b) {
        b.setAttribute("aria-pressed", String(chosen.indexOf(b.dataset.state) >= 0));
      });
      apply();
    }

    form.addEventListener("submit", function (event) { event.preventDefault(); });
    form.addEventListener("input", apply);
    form.addEventListener("change", apply);
    states.forEach(function (button) {
      button.addEventListener("click", function () {
        var on = button.getAttribute("aria-pressed") === "true";
        button.setAttribute("aria-pressed", String(!on));
        apply();
      });
    });
    clear.addEventListener("click", function () {
      reset();
      text.focus();
    });
    window.addEventListener("hashchange", restore);
    restore();
  }

  // -- copying -------------------------------------------------------------------------------

  function copyText(text) {
    if (!navigator.clipboard) return copySelected(text);
    return navigator.clipboard.writeText(text).catch(function () { return copySelected(text); });
  }

  function copySelected(text) {
    var area = document.createElement("textarea");
    area.value = text;
    area.className = "offscreen";
    document.body.appendChild(area);
    area.select();
    var done = document.execCommand("copy");
    area.remove();
    return done ? Promise.resolve() : Promise.reject(new Error("not copied"));
  }

  function startCopying() {
    all("button[data-copy]").forEach(function (button) {
      var before = button.textContent;
      button.addEventListener("click", function () {
        var text = button.parentElement.querySelector("code").textContent;
        copyText(text).then(
          function () { button.textContent = "Copied"; },
          function () { button.textContent = "Select and copy"; }
        ).then(function () {
          window.setTimeout(function () { button.textContent = before; }, 1600);
        });
      });
    });
  }

  // -- wide tables ---------------------------------------------------------------------------

  function startScrolling() {
    // Only what can be scrolled is a stop of the Tab key.
    function mark(box) {
      if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
      else box.removeAttribute("tabindex");
    }
    var watch = new ResizeObserver(function (entries) {
      entries.forEach(function (entry) { mark(entry.target); });
    });
    all(".scroll").forEach(function (box) { watch.observe(box); });
  }

  // -- charts --------------------------------------------------------------------------------

  function themeConfig() {
    var style = window.getComputedStyle(root);
    function colour(name) { return style.getPropertyValue("--" + name).trim(); }
    var font = window.getComputedStyle(document.body).fontFamily;
    var series = [];
    for (var i = 0; i < 64; i += 1) {
      series.push(colour("series-" + (i === 0 ? 1 : 2 + ((i - 1) % 7)))); // the first is ours alone
    }
    var ink = colour("ink");
    return {
      background: null,
      font: font,
      padding: { left: 2, right: 8, top: 4, bottom: 2 },
      range: { category: series },
      view: { stroke: null },
      mark: { aria: false },
      axis: {
        aria: false,
        domainColor: colour("line-strong"),
        tickColor: colour("line-strong"),
        gridColor: colour("line"),
        labelColor: colour("muted"),
        titleColor: colour("muted"),
        labelFontSize: 11.5,
        titleFontSize: 11.5,
        titleFontWeight: "normal",
        titlePadding: 6,
        labelLimit: 150,
        titleLimit: 420,
        labelOverlap: true,
        tickSize: 4,
      },
      axisY: { labelPadding: 6 },
      axisYQuantitative: { domain: false, ticks: false },
      axisYNominal: { domain: false, ticks: false, grid: false, labelOverlap: false },
      scale: { bandPaddingInner: 0.25, offsetBandPaddingOuter: 0.2, offsetBandPaddingInner: 0.1 },
      style: {
        good: { color: colour("accent"), opacity: 0.1 },
        bound: { color: colour("accent"), strokeWidth: 1.5 },
        neutral: { color: colour("muted"), strokeDash: [2, 3], strokeWidth: 1 },
        interval: { color: ink, strokeWidth: 1.75 },
        estimate: { color: ink, size: 60, filled: true, opacity: 1 },
        dot: { filled: true, size: 38, opacity: 1 },
        spread: { strokeWidth: 1.5, opacity: 0.75 },
        band: { opacity: 0.13 },
        trace: { strokeWidth: 1.5 },
      },
    };
  }

  function spelled(value, levels) {
    if (Array.isArray(value)) {
      return value.map(function (item) { return spelled(item, levels); });
    }
    if (value === null || typeof value !== "object") return value;
    var keys = Object.keys(value);
    if (keys.length === 1 && keys[0] === "level") return levels[value.level];
    var whole = {};
    keys.forEach(function (key) { whole[key] = spelled(value[key], levels); });
    return whole;
  }

  function unpacked(figure) {
    var text = figure.querySelector("script[type='application/json']").textContent;
    var chart = JSON.parse(text);
    var spec = spelled(chart.spec, chart.levels);
    spec.data = {
      values: chart.rows.map(function (row) {
        var value = {};
        chart.columns.forEach(function (column, at) {
          var names = chart.levels[column];
          value[column] = names ? names[row[at]] : row[at];
        });
        return value;
      }),
    };
    return spec;
  }

  function number(value) {
    // As the page's own figures are written: three digits, and none before the point is dropped.
    if (value === null || value === undefined) return "\u2013";
    var size = Math.abs(value);
    var text;
    if (size !== 0 && (size < 1e-4 || size >= 1e6)) {
      text = size.toExponential(2).replace("+", "");
    } else if (Number.isInteger(size)) {
      text = String(size);
    } else {
      var places = Math.max(2 - Math.floor(Math.log10(Number(size.toPrecision(3)))), 0);
      text = size.toFixed(places);
    }
    var parts = text.split(".");
    if (size < 1e6) parts[0] = parts[0].replace(/\B(?=(\d{3})+$)/g, "\u202f");
    return ((value < 0 ? "-" : "") + parts.join(".")).replace(/-/g, "\u2212");
  }

  function cell(row, tag, text, scope) {
    var made = document.createElement(tag);
    made.textContent = text;
    if (scope) made.scope = scope;
    row.appendChild(made);
  }

  function fillTable(holder) {
    var spec = unpacked(holder.closest("figure"));
    var values = spec.data.values;
    var names = spec.encoding.color.scale.domain;
    var along = values.length > 0 && "x" in values[0] ? "x" : "case";
    var lines = new Map();
    values.forEach(function (value) {
      if (!lines.has(value[along])) lines.set(value[along], new Map());
      lines.get(value[along]).set(value.who, value);
    });
    var table = document.createElement("table");
    table.className = "data numeric";
    var head = table.createTHead().insertRow();
    cell(head, "th", along === "x" ? spec.encoding.x.axis.title : "case", "col");
    names.forEach(function (name) { cell(head, "th", name, "col"); });
    var body = table.createTBody();
    lines.forEach(function (found, key) {
      var row = body.insertRow();
      cell(row, "th", along === "x" ? number(key) : key, "row");
      names.forEach(function (name) {
        var v = found.get(name);
        var band = v && v.n > 1 ? " [" + number(v.l) + ", " + number(v.h) + "]" : "";
        cell(row, "td", v ? number(v.m) + band : "\u2013");
      });
    });
    holder.replaceChildren(table);
  }

  function draw(figure) {
    var holder = figure.querySelector(".chart");
    return Promise.resolve().then(function () {
      return window.vegaEmbed(holder, unpacked(figure), {
        mode: "vega-lite",
        logLevel: 1, // errors alone
        renderer: "svg",
        actions: false,
        config: themeConfig(),
        tooltip: { theme: "report", disableDefaultStyle: true },
      });
    }).then(function (made) {
      if (figure.chart) figure.chart.finalize();
      figure.chart = made;
      figure.dataset.chart = "drawn";
    }).catch(function (error) {
      figure.dataset.chart = "failed";
      holder.textContent = "This chart could not be drawn; its figures are in the table below.";
      window.console.error(error);
    });
  }

  function startCharts() {
    var figures = all("figure[data-chart]");
    if (!figures.length || !window.vegaEmbed) return;
    var queue = [];
    var busy = false;

    function next() {
      var figure = queue.shift();
      if (!figure) {
        busy = false;
        return;
      }
      busy = true;
      draw(figure).then(function () { window.setTimeout(next, 0); });
    }

    function request(some) {
      some.forEach(function (figure) {
        // What is folded away has no width to draw in: it waits until it is opened.
        if (!figure.closest("details:not([open])") && queue.indexOf(figure) < 0) {
          queue.push(figure);
        }
      });
      if (!busy) next();
    }

    all("details").forEach(function (details) {
      details.addEventListener("toggle", function () {
        if (!details.open) return;
        all("[data-table]:empty", details).forEach(function (holder) {
          if (!holder.closest("details:not([open])")) fillTable(holder);
        });
        request(all("figure[data-chart='waiting']", details));
      });
    });
    themeListeners.push(function () { request(figures); });
    request(figures);
  }

  function start() {
    startTheme();
    startFilters();
    startCopying();
    startScrolling();
    startCharts();
  }

  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start);
  else start();
})();
