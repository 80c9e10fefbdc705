// Search and filter for the table of runs. Without it every row is shown.
(function () {
  "use strict";
  var form = document.getElementById("filter");
  var rows = Array.prototype.slice.call(document.querySelectorAll("#runs tbody tr[data-outcome]"));
  var shown = document.getElementById("shown");
  if (!form || !rows.length) { return; }
  var texts = rows.map(function (row) { return row.textContent.toLowerCase(); });
  function apply() {
    var words = form.elements.search.value.toLowerCase().split(/\s+/).filter(Boolean);
    var outcome = form.elements.outcome.value;
    var cluster = form.elements.cluster.value;
    var count = 0;
    rows.forEach(function (row, i) {
      var fits = (!outcome || row.dataset.outcome === outcome) && (!cluster || row.dataset.cluster === cluster) &&
        words.every(function (word) { return texts[i].indexOf(word) >= 0; });
      row.hidden = !fits;
      count += fits ? 1 : 0;
    });
    shown.textContent = count + " of " + rows.length + " runs shown";
  }
  form.hidden = false;
  form.addEventListener("input", apply);
  form.addEventListener("submit", function (event) { event.preventDefault(); });
  apply();
})();
