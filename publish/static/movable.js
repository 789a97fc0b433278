// Movable figures: draws what rnnplot.movable computed, as the reader moves the controls or a cursor.
// A classic script without a framework, so that it runs on a page opened from a file. Two forms: a heat map (time to
// the right, a row a unit), and lines over a common x, with a linear or a logarithmic axis.
"use strict";
(() => {
  const FONT = 13; // px, as in recurrence.css
  const NO_VALUE = -128;

  const svg = (name, attributes = {}, ...children) => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const key in attributes) element.setAttribute(key, attributes[key]);
    element.append(...children);
    return element;
  };
  const text = (x, y, string, anchor = "start", turn = 0) =>
    svg("text", { "text-anchor": anchor, transform: `translate(${x} ${y}) rotate(${turn})` }, string);

  // A number as rnnplot.number writes it: −0.43, 3.2 · 10⁻⁷
  const power = (exponent) => "10" + `${exponent}`.replace(/./g, (sign) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[sign] ?? "⁻");
  const say = (value) => {
    if (value === null) return "no value";
    const [digits, exponent] = value.toExponential(2).split("e");
    const size = Math.abs(value);
    const plain = size === 0 || (size >= 1e-3 && size < 1e5);
    return (plain ? `${+value.toPrecision(3)}` : `${+digits}\u00a0·\u00a0${power(+exponent)}`).replace(/^-/, "−");
  };

  // Round numbers between two ends, at most so many, at least so far apart.
  const ticks = (low, high, most, least = 0) => {
    const apart = (high - low) / most;
    const unit = 10 ** Math.floor(Math.log10(apart));
    const step = Math.max(least, unit * [1, 2, 5, 10].find((k) => k * unit >= apart * 0.999));
    const found = [];
    for (let k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-9; k++) found.push(+(k * step).toPrecision(9));
    return found;
  };

  // A colour of the scale, share running from -1 to 1. In dark mode the stylesheet sets a dark zero.
  const mix = ([lowest, zero, highest], share) => {
    const percent = 100 * Math.min(1, Math.abs(share));
    return `fill: color-mix(in srgb, ${share < 0 ? lowest : highest} ${percent}%, var(--movable-zero, ${zero}))`;
  };

  // The axes of a plot: its labels, and ticks as [place, what it says].
  const axes = ({ left, right, top, bottom }, [xLabel, yLabel], xTicks, yTicks) => [
    ...xTicks.flatMap(([x, said]) => [
      svg("path", { class: "axis", d: `M${x} ${bottom}v4` }),
      text(x, bottom + FONT + 5, said, "middle"),
    ]),
    ...yTicks.flatMap(([y, said]) => [
      svg("path", { class: "axis", d: `M${left} ${y}h-4` }),
      text(left - 8, y + FONT * 0.35, said, "end"),
    ]),
    text((left + right) / 2, bottom + 2 * FONT + 14, xLabel, "middle"),
    text(FONT - 1, (top + bottom) / 2, yLabel, "middle", -90),
  ];

  // A form is made of the figure's data. The cursor's places, `size` of them to the right and down, count from 0;
  // `x` is a place's number on the axis, `nearest` the place at a share of the way. For a combination of the controls,
  // `draw` gives the plot's area and all elements, `at` says what the cursor reads, `mark` gives the cursor's shape.
  const heat = (data) => {
    const [T, H] = data.shape;
    const levels = new Int8Array(Uint8Array.from(atob(data.cells), (sign) => sign.charCodeAt(0)).buffer);
    const level = (combination, t, unit) => levels[(combination * T + t) * H + unit];
    const decimals = Math.max(0, -Math.floor(Math.log10(data.step)));
    const [xLabel, yLabel, label] = data.labels;
    const place = ({ left, right, top, bottom }) => {
      const [width, height] = [(right - left) / T, (bottom - top) / H];
      return { width, height, x: (t) => left + t * width, y: (unit) => top + unit * height };
    };
    return {
      size: [T, H],
      x: (t) => t + 1,
      nearest: (share) => Math.floor(share * T),
      draw(combination, width, height) {
        const area = { left: 46, right: width - 60, top: 6, bottom: height - 46 };
        const { left, right, top, bottom } = area;
        const cell = place(area);
        const paths = {}; // one path for each colour
        for (let t = 0; t < T; t++) {
          for (let unit = 0; unit < H; unit++) {
            const d = `M${cell.x(t)} ${cell.y(unit)}h${cell.width}v${cell.height}h${-cell.width}z`;
            const value = level(combination, t, unit);
            if (value !== NO_VALUE) paths[value] = (paths[value] ?? "") + d;
          }
        }
        const strip = (bottom - top) / 64;
        const side = Array.from({ length: 64 }, (_, k) => [1 - ((1 - data.low) * (k + 0.5)) / 64, `M${right + 12} ${top + k * strip}h12v${strip}h-12z`]);
        const cells = [...Object.entries(paths).map(([value, d]) => [(value * data.step) / data.limit, d]), ...side];
        return [area, [
          ...cells.map(([share, d]) => svg("path", { class: "cell", d, style: mix(data.scale, share) })),
          ...[...new Set([1, 0, data.low])].map((share) => text(right + 28, top + 9 + ((1 - share) / (1 - data.low)) * (bottom - top - 9), say(share * data.limit))),
          text(width - 3, (top + bottom) / 2, label, "middle", -90),
          ...axes(
            area,
            data.labels,
            ticks(1, T, (right - left) / 44, 1).map((t) => [cell.x(t - 0.5), t]),
            ticks(1, H, (bottom - top) / 36, 1).map((unit) => [cell.y(unit - 0.5), unit]),
          ),
        ]];
      },
      at(combination, t, unit) {
        const value = level(combination, t, unit);
        const said = value === NO_VALUE ? say(null) : (value * data.step).toFixed(decimals).replace("-", "−");
        return `${xLabel} = ${t + 1}, ${yLabel} = ${unit + 1}, ${label} = ${said}`;
      },
      mark(combination, area, t, unit) {
        const { x, y, width, height } = place(area);
        return [svg("rect", { x: x(t), y: y(unit), width, height })];
      },
    };
  };

  const lines = (data) => {
    const { x, log, names, labels } = data;
    const last = x.length - 1;
    const scale = log ? Math.log10 : (value) => value;
    const [low, high] = data.ylim.map(scale);
    const gap = (value) => value === null || (log && value <= 0);
    const style = (k) => ({ class: "line", stroke: data.colours[k], "stroke-dasharray": ["none", "9 6", "9 5 1 5", "1 5"][k] });
    const place = ({ left, right, top, bottom }) => ({
      x: (value) => left + ((value - x[0]) / (x[last] - x[0])) * (right - left),
      y: (value) => bottom - ((scale(value) - low) / (high - low)) * (bottom - top),
    });
    return {
      size: [last + 1, 1],
      x: (i) => x[i],
      nearest(share) {
        const value = x[0] + share * (x[last] - x[0]);
        return x.reduce((best, other, i) => (Math.abs(other - value) < Math.abs(x[best] - value) ? i : best), 0);
      },
      draw(combination, width, height) {
        // Names stand above, where no line crosses them whatever is moved, in as many rows as they need.
        const legend = [];
        let [right, row] = [54, FONT];
        if (names.length > 1) names.forEach((name, k) => {
          const room = 34 + name.length * FONT * 0.56;
          if (right > 54 && right + room > width) [right, row] = [54, row + FONT + 8];
          legend.push(svg("path", { ...style(k), d: `M${right} ${row - 4}h24` }), text(right + 30, row, name));
          right += room + 14;
        });
        const area = { left: 54, right: width - 12, top: legend.length ? row + 12 : 8, bottom: height - 46 };
        const at = place(area);
        const plot = { x: area.left, y: area.top, width: area.right - area.left, height: area.bottom - area.top };
        const inside = svg("svg", { ...plot, viewBox: Object.values(plot).join(" ") }); // cuts off what leaves the plot
        data.lines[combination].forEach((values, k) => {
          let [d, pen] = ["", "M"];
          values.forEach((value, i) => {
            // a value between two gaps is a dot: a line of no length
            if (!gap(value)) d += `${pen}${at.x(x[i])} ${at.y(value)}${pen === "M" ? "h0" : ""}`;
            pen = gap(value) ? "M" : "L";
          });
          inside.append(svg("path", { ...style(k), d }));
        });
        return [area, [
          ...legend,
          inside,
          svg("path", { class: "axis", d: `M${area.left} ${area.top}V${area.bottom}H${area.right}` }),
          ...axes(
            area,
            labels,
            ticks(x[0], x[last], plot.width / 44).map((value) => [at.x(value), say(value)]),
            ticks(low, high, plot.height / 26, log ? 1 : 0).map((value) =>
              log ? [at.y(10 ** value), power(value)] : [at.y(value), say(value)],
            ),
          ),
        ]];
      },
      at(combination, i) {
        const values = data.lines[combination].map((line) => say(line[i]));
        const named = names.length > 1 ? names : [labels[1]];
        return [`${labels[0]} = ${say(x[i])}`, ...named.map((name, k) => `${name} = ${values[k]}`)].join(", ");
      },
      mark(combination, area, i) {
        const at = place(area);
        const cx = at.x(x[i]);
        const heights = data.lines[combination].map((line) => line[i]).filter((value) => !gap(value)).map(at.y);
        const dots = heights.filter((cy) => cy >= area.top && cy <= area.bottom);
        return [svg("path", { d: `M${cx} ${area.top}V${area.bottom}` }), ...dots.map((cy) => svg("circle", { cx, cy, r: 4 }))];
      },
    };
  };

  const upgrade = (box) => {
    const find = (selector) => box.querySelector(selector);
    const data = JSON.parse(find("script").textContent);
    const form = { heat, lines }[data.form](data);
    const inputs = [...box.querySelectorAll("input, select")];
    const plot = find(".movable-plot");
    const picture = find("svg");
    const drawing = svg("svg", { class: "movable-drawing", role: "img", "aria-label": picture.getAttribute("aria-label") });
    const marks = svg("g");
    const cursor = document.createElement("div");
    let at = [0, 0]; // the cursor's place
    let area;

    const combination = () => inputs.reduce((index, input, k) => index * data.controls[k].options.length + +input.value, 0);
    const read = () => {
      const said = form.at(combination(), ...at);
      cursor.setAttribute("aria-valuenow", form.x(at[0]));
      cursor.setAttribute("aria-valuetext", said);
      if (!marks.isConnected) return; // nobody has used the cursor yet
      const shape = () => form.mark(combination(), area, ...at);
      marks.replaceChildren(svg("g", { class: "under" }, ...shape()), svg("g", { class: "over" }, ...shape()));
      find(".movable-at span").textContent = said;
    };
    const draw = () => {
      const [width, height] = [plot.clientWidth, plot.clientHeight];
      const [plotted, elements] = form.draw(combination(), width, height);
      area = plotted;
      if (marks.isConnected) elements.push(marks);
      drawing.setAttribute("viewBox", `0 0 ${width} ${height}`);
      drawing.replaceChildren(svg("rect", { class: "paper", width, height }), ...elements);
      cursor.style.inset = `${area.top}px ${width - area.right}px ${height - area.bottom}px ${area.left}px`;
      read();
    };
    const move = (...place) => {
      at = place.map((value, k) => Math.max(0, Math.min(form.size[k] - 1, value)));
      drawing.append(marks);
      read();
    };
    const point = (event) => {
      const { left, top, width, height } = cursor.getBoundingClientRect();
      move(form.nearest((event.clientX - left) / width), Math.floor(((event.clientY - top) / height) * form.size[1]));
    };
    const press = (event) => {
      const [x, y] = form.size[1] > 1 ? [0, 1] : [-1, 0]; // down is the next row; of one row, it is less
      const steps = {
        ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [x, y], ArrowUp: [-x, -y],
        PageUp: [10, 0], PageDown: [-10, 0], Home: [-Infinity, 0], End: [Infinity, 0],
      };
      const step = steps[event.key];
      if (!step || event.altKey || event.ctrlKey || event.metaKey) return;
      event.preventDefault();
      move(at[0] + step[0], at[1] + step[1]);
    };

    const [first, last] = [0, form.size[0] - 1].map(form.x);
    const role = { class: "movable-cursor", role: "slider", tabindex: 0, "aria-label": "Cursor in the figure" };
    for (const [key, value] of Object.entries({ ...role, "aria-valuemin": first, "aria-valuemax": last })) cursor.setAttribute(key, value);
    cursor.addEventListener("focus", () => move(...at));
    cursor.addEventListener("keydown", press);
    cursor.addEventListener("pointerdown", point);
    cursor.addEventListener("pointermove", point);
    inputs.forEach((input, k) => {
      input.disabled = false;
      input.addEventListener("input", () => {
        const chosen = data.controls[k].options[input.value];
        const said = data.says[combination()];
        if (input.type === "range") {
          input.setAttribute("aria-valuetext", chosen);
          input.nextElementSibling.textContent = chosen;
        }
        find("output").textContent = said;
        drawing.setAttribute("aria-label", said); // the picture's own text was about its start
        draw();
      });
    });
    draw();
    picture.replaceWith(drawing);
    plot.append(cursor);
    new ResizeObserver(draw).observe(plot);
  };

  document.querySelectorAll(".movable").forEach(upgrade);
})();
