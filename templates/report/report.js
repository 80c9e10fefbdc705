"use strict";
// Everything here adds to a page that is complete without it. The run's words reach the page as text only.
(() => {
  const SVG = "http://www.w3.org/2000/svg";
  const make = (tag, attributes = {}, text = "") => {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.textContent = text;
    return element;
  };
  const shape = (tag, attributes) => {
    const element = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    return element;
  };

  // Times in the reader's own zone, beside UTC or instead of it.
  function zones() {
    const zone = Intl.DateTimeFormat().resolvedOptions().timeZone || "";
    const moments = [...document.querySelectorAll("time[datetime]")];
    const away = moments.some((time) => new Date(time.dateTime).getTimezoneOffset() !== 0);
    if (!away) return;
    const clock = { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" };
    const full = new Intl.DateTimeFormat(undefined, { ...clock, day: "numeric", month: "short", timeZoneName: "short" });
    const tenths = new Intl.DateTimeFormat(undefined, { ...clock, fractionalSecondDigits: 1 });
    const clocks = [];
    for (const time of moments) {
      const at = new Date(time.dateTime);
      if (time.className === "moment") time.after(make("span", { class: "local" }, ` (${full.format(at)})`));
      else clocks.push([time, time.textContent, tenths.format(at)]);
    }
    const button = make("button", { type: "button", class: "zone", "aria-pressed": "false" });
    const show = (local) => {
      button.textContent = local ? `Clock times in ${zone}; show UTC` : `Clock times in UTC; show ${zone}`;
      button.setAttribute("aria-pressed", String(local));
      for (const [time, utc, here] of clocks) time.textContent = local ? here : utc;
    };
    button.addEventListener("click", () => show(button.getAttribute("aria-pressed") === "false"));
    show(false);
    document.querySelector(".byline").after(button);
  }

  const seconds = (t) => {
    const size = Math.abs(t);
    return `T${t < 0 ? "−" : "+"}${size < 120 ? `${size.toFixed(size < 10 ? 2 : 1)} s` : `${Math.floor(size / 60)} min ${Math.round(size % 60)} s`}`;
  };
  const number = new Intl.NumberFormat("en", { maximumSignificantDigits: 6 });

  function niceTicks(from, to) {
    const raw = (to - from) / 5;
    const power = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 5, 10].map((n) => n * power).find((n) => raw <= n * 1.0001);
    const ticks = [];
    for (let n = Math.ceil(from / step); n * step <= to && ticks.length < 12; n += 1) ticks.push(Number((n * step).toPrecision(12)));
    return ticks;
  }

  function nearest(times, t) {
    let low = 0, high = times.length - 1;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (times[middle] < t) low = middle; else high = middle;
    }
    return Math.abs(times[low] - t) <= Math.abs(times[high] - t) ? low : high;
  }

  // All charts of one node share the view, the cursor and which GPUs are shown.
  function nodeCharts(root) {
    const charts = [...root.querySelectorAll("svg.chart-svg")].map((svg) => {
      const plot = svg.querySelector("svg.plot");
      const figure = svg.closest("figure");
      const data = figure.querySelector("script[type='application/json']");
      const box = plot.getAttribute("viewBox").split(" ").map(Number);
      const cursor = shape("path", { class: "cursor", d: "" });
      plot.append(cursor);
      const readout = make("p", { class: "readout", "aria-live": "polite" });
      svg.after(readout);
      return {
        svg, plot, cursor, readout, height: box[3], left: Number(plot.getAttribute("x")), width: Number(plot.getAttribute("width")),
        samples: data ? JSON.parse(data.textContent) : null, ticks: svg.querySelector(".x-ticks"), firstTicks: [...svg.querySelectorAll(".x-ticks text")],
      };
    });
    if (!charts.length) return;
    const [start, , width] = charts[0].plot.getAttribute("viewBox").split(" ").map(Number);
    const whole = [start, start + width];
    let view = whole;
    let at = null;
    const hidden = new Set();

    const x = (chart, t) => chart.left + chart.width * (t - view[0]) / (view[1] - view[0]);

    function setView(from, to) {
      if (to - from < width / 500) return;
      view = [Math.max(from, whole[0]), Math.min(to, whole[1])];
      const same = view[0] === whole[0] && view[1] === whole[1];
      for (const chart of charts) {
        chart.plot.setAttribute("viewBox", `${view[0]} 0 ${view[1] - view[0]} ${chart.height}`);
        const y = chart.firstTicks[0]?.getAttribute("y") ?? 0;
        chart.ticks.replaceChildren(...(same ? chart.firstTicks : niceTicks(...view).map((t) => {
          const label = shape("text", { class: "tick", "text-anchor": "middle", "data-t": t, y });
          label.textContent = t === 0 ? "T" : `${t < 0 ? "−" : "+"}${number.format(Math.abs(t))} s`;
          return label;
        })));
        for (const text of chart.svg.querySelectorAll("text[data-t]")) {
          const t = Number(text.dataset.t);
          text.setAttribute("x", x(chart, t) + Number(text.dataset.dx || 0));
          text.style.display = t < view[0] || t > view[1] ? "none" : "";
        }
      }
      reset.hidden = same;
    }

    function setCursor(t) {
      at = t === null ? null : Math.min(Math.max(t, whole[0]), whole[1]);
      for (const chart of charts) {
        chart.cursor.setAttribute("d", at === null ? "" : `M${at} 0V${chart.height}`);
        chart.readout.textContent = at === null || !chart.samples ? "" : values(chart);
      }
    }

    function curveName(of) {
      return of ? (/^\d+$/.test(of) ? `GPU ${of}` : of) : "node";
    }

    function values(chart) {
      const near = (view[1] - view[0]) / 40;
      const shown = [...chart.samples.series].sort((a, b) => b.target - a.target).filter((one) => !hidden.has(one.gpu));
      const parts = shown.flatMap((one) => {
        if (one.steps) {
          const place = one.t.findLastIndex((t) => t <= at);
          return place < 0 ? [] : [`${one.gpu} ${number.format(one.v[place])}`];
        }
        const place = nearest(one.t, at);
        return Math.abs(one.t[place] - at) <= near ? [`${curveName(one.gpu)} ${number.format(one.v[place])}`] : [];
      });
      const more = parts.length > 9 ? ` and ${parts.length - 9} more` : "";
      return `${seconds(at)}: ${parts.length ? `${parts.slice(0, 9).join(", ")}${more} ${chart.samples.unit}` : "no sample here"}`;
    }

    const reset = make("button", { type: "button" }, "Whole run");
    reset.hidden = true;
    reset.addEventListener("click", () => setView(...whole));

    function toggles() {
      const series = charts.flatMap((chart) => chart.samples ? chart.samples.series : []);
      const counted = new Set(series.filter((one) => one.steps).map((one) => one.gpu));
      const gpus = [...new Set(series.map((one) => one.gpu))];
      gpus.sort((a, b) => a.length - b.length || (a < b ? -1 : 1));
      return gpus.map((gpu) => {
        const button = make("button", { type: "button", "aria-pressed": "true" }, counted.has(gpu) ? gpu : gpu ? curveName(gpu) : "whole node");
        button.addEventListener("click", () => {
          const hide = button.getAttribute("aria-pressed") === "true";
          button.setAttribute("aria-pressed", String(!hide));
          if (hide) hidden.add(gpu); else hidden.delete(gpu);
          for (const curve of root.querySelectorAll("path.curve")) if (curve.dataset.gpu === gpu) curve.style.display = hide ? "none" : "";
          setCursor(at);
        });
        return button;
      });
    }

    for (const chart of charts) {
      const time = (event) => {
        const box = chart.svg.getBoundingClientRect();
        const inside = (event.clientX - box.left) * chart.svg.viewBox.baseVal.width / box.width - chart.left;
        return view[0] + Math.min(Math.max(inside / chart.width, 0), 1) * (view[1] - view[0]);
      };
      const selection = shape("rect", { class: "selection", y: 0, height: chart.height, x: 0, width: 0 });
      chart.plot.append(selection);
      let from = null;
      const mark = (a, b) => { selection.setAttribute("x", Math.min(a, b)); selection.setAttribute("width", Math.abs(a - b)); };
      chart.svg.addEventListener("pointerdown", (event) => { if (event.button === 0) { from = time(event); chart.svg.setPointerCapture(event.pointerId); } });
      chart.svg.addEventListener("pointermove", (event) => { setCursor(time(event)); if (from !== null) mark(from, time(event)); });
      chart.svg.addEventListener("pointerup", (event) => {
        const to = time(event);
        if (from !== null && Math.abs(to - from) > (view[1] - view[0]) / 60) setView(Math.min(from, to), Math.max(from, to));
        from = null; mark(0, 0);
      });
      chart.svg.addEventListener("pointercancel", () => { from = null; mark(0, 0); });
      chart.svg.addEventListener("pointerleave", () => { if (from === null) setCursor(null); });
      chart.svg.addEventListener("dblclick", () => setView(...whole));
      chart.svg.setAttribute("tabindex", "0");
      chart.svg.addEventListener("keydown", (event) => {
        const step = (view[1] - view[0]) / 50;
        const here = at ?? view[0];
        const keys = {
          ArrowLeft: () => setCursor(Math.max(here - step, view[0])), ArrowRight: () => setCursor(Math.min(here + step, view[1])),
          Home: () => setCursor(view[0]), End: () => setCursor(view[1]),
          "+": () => setView(here - 12 * step, here + 12 * step), "-": () => setView(here - 50 * step, here + 50 * step),
          Escape: () => { setView(...whole); setCursor(null); },
        };
        if (keys[event.key] && !event.ctrlKey && !event.metaKey && !event.altKey) { event.preventDefault(); keys[event.key](); }
      });
      chart.svg.addEventListener("blur", () => setCursor(null));
    }
    const hint = make("span", { class: "soft small" }, "Point at a chart for values, drag over it to zoom; with the keyboard: arrows, + and −, Escape.");
    root.querySelector(".controls").append(...toggles(), reset, hint);
  }

  // A filter over any table marked for it.
  function filters() {
    for (const table of document.querySelectorAll("table[data-filter]")) {
      const rows = [...table.tBodies[0].rows].map((row) => [row, row.textContent.toLowerCase()]);
      const input = make("input", { type: "search", placeholder: table.dataset.filter, "aria-label": table.dataset.filter });
      const count = make("span", { class: "soft small", "aria-live": "polite" });
      input.addEventListener("input", () => {
        const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
        let shown = 0;
        for (const [row, text] of rows) {
          row.hidden = !words.every((word) => text.includes(word));
          shown += row.hidden ? 0 : 1;
        }
        count.textContent = words.length ? `${shown} of ${rows.length}` : "";
      });
      const bar = make("p", { class: "filter" });
      bar.append(input, count);
      table.closest(".scroll").before(bar);
    }
  }

  // A link into a folded section opens it; paper gets what is open, and everything only on request.
  function unfold() {
    const target = location.hash.length > 1 && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target) return;
    const depth = target.closest("details.depth") || target.querySelector(":scope > details.depth");
    if (!depth || depth.open) return;
    depth.open = true;
    target.scrollIntoView();
  }
  function openAll() {
    const depths = [...document.querySelectorAll("details.depth")];
    const contents = document.querySelector(".contents");
    if (!depths.length || !contents) return;
    const button = make("button", { type: "button", class: "open-all" }, "Open all sections");
    button.addEventListener("click", () => {
      const opens = depths.some((one) => !one.open);
      for (const one of depths) one.open = opens;
      button.textContent = opens ? "Fold the evidence" : "Open all sections";
    });
    contents.append(button);
  }
  let folded = [];
  addEventListener("beforeprint", () => { folded = [...document.querySelectorAll("details:not([open]):not(.depth)")]; for (const one of folded) one.open = true; });
  addEventListener("afterprint", () => { for (const one of folded) one.open = false; });

  zones();
  for (const root of document.querySelectorAll(".node-charts")) nodeCharts(root);
  filters();
  openAll();
  unfold();
  addEventListener("hashchange", unfold);
})();
