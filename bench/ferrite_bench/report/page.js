// Values under the pointer, for every plot that carries its data.
(function () {
  var tip = document.getElementById('tip');
  function at(data, px) {
    var share = (px - data.left) / (data.right - data.left);
    if (!data.log) return data.low + share * (data.high - data.low);
    return Math.exp(Math.log(data.low) + share * (Math.log(data.high) - Math.log(data.low)));
  }
  function nearest(points, x) {
    return points.reduce(function (best, p) { return Math.abs(p[0] - x) < Math.abs(best[0] - x) ? p : best; });
  }
  function row(line, point) {
    var item = document.createElement('div'), dot = document.createElement('i');
    dot.style.background = 'var(--' + line.color + ')';
    item.append(dot, line.label + '  ' + point[2]);
    return item;
  }
  document.querySelectorAll('[data-plot]').forEach(function (plot) {
    var data = JSON.parse(plot.dataset.plot), svg = plot.ownerSVGElement;
    var lines = data.lines.filter(function (l) { return l.points.length; });
    plot.addEventListener('mousemove', function (event) {
      if (!lines.length) return;
      var point = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
      var x = at(data, point.x), head = nearest(lines[0].points, x)[0];
      tip.replaceChildren(document.createTextNode(head + ' ' + data.unit));
      lines.forEach(function (l) { tip.append(row(l, nearest(l.points, x))); });
      tip.style.display = 'block';
      tip.style.left = Math.min(event.clientX + 16, innerWidth - tip.offsetWidth - 8) + 'px';
      tip.style.top = Math.max(8, event.clientY - tip.offsetHeight - 12) + 'px';
    });
    plot.addEventListener('mouseleave', function () { tip.style.display = 'none'; });
  });
  document.documentElement.dataset.ready = 'yes';
})();
