"""A line chart as SVG, by hand: no library is needed to draw one."""
import math
from xml.sax.saxutils import escape

# Okabe and Ito's palette: distinct for colour-blind readers too.
COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"]
DASHES = ["", "7 4", "2 3", "9 3 2 3", "", "7 4"]
WIDTH, HEIGHT = 860, 500
LEFT, RIGHT, TOP, BOTTOM = 76, 28, 104, 62
LEGEND_COLUMNS = 3
LOG_SPAN = 8  # times this far apart are drawn on a logarithmic axis


def nice_step(span, count):
    """The step of 1, 2 or 5 times a power of ten that cuts `span` into about `count` parts."""
    raw = span / count
    power = 10 ** math.floor(math.log10(raw))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw * 0.999)


class Axis:
    """Maps values to positions; knows its ticks."""

    def __init__(self, low, high, start, end, parts, log=False):
        self.start, self.end, self.log = start, end, log
        if log:
            self.low, self.high = low, high
            decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
            self.ticks = [factor * 10.0 ** power for power in decades for factor in (1, 2, 5)
                          if low <= factor * 10.0 ** power <= high]
        else:
            step = nice_step(high - low, parts)
            first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
            self.low, self.high = first * step, last * step
            self.ticks = [i * step for i in range(first, last + 1)]

    def at(self, value):
        low, high = self.low, self.high
        if self.log:
            low, high, value = math.log(low), math.log(high), math.log(max(value, self.low))
        return self.start + (value - low) / (high - low) * (self.end - self.start)


def text(x, y, words, anchor="middle", size=13, fill="#333", extra=""):
    return (f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" '
            f'fill="{fill}"{extra}>{escape(words)}</text>')


def line(x1, y1, x2, y2, stroke, extra=""):
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{stroke}"{extra}/>'


def axes_of(series, target):
    """x fits the times (logarithmic when the lines' ends lie far apart), y the accuracies and the target."""
    xs = [x for one in series for x, _ in one["points"] if x > 0]
    ys = [y for one in series for _, y in one["points"]] + ([] if target is None else [target])
    ends = [one["points"][-1][0] for one in series]
    log = min(ends) > 0 and max(ends) / min(ends) > LOG_SPAN
    x_axis = Axis(min(xs) * 0.9 if log else 0, max(xs) * (1.1 if log else 1.02), LEFT, WIDTH - RIGHT, 6, log)
    y_axis = Axis(min(ys) - 0.01, max(ys) + 0.01, HEIGHT - BOTTOM, TOP, 8)
    return x_axis, y_axis


def draw_frame(x_axis, y_axis, title, subtitle, x_label, y_label):
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    out = [text(LEFT, 28, title, "start", 17, "#111", ' font-weight="600"'),
           text(LEFT, 48, subtitle, "start", 13, "#555")]
    for tick in y_axis.ticks:
        y = y_axis.at(tick)
        out += [line(LEFT, y, right, y, "#e4e4e4"), text(LEFT - 9, y + 4.5, f"{tick:.6g}", "end")]
    for tick in x_axis.ticks:
        x = x_axis.at(tick)
        out += [line(x, bottom, x, bottom + 5, "#555"), text(x, bottom + 21, f"{tick:.6g}")]
    out += [line(LEFT, bottom, right, bottom, "#555"),
            text((LEFT + right) / 2, HEIGHT - 16, x_label + (", logarithmic" if x_axis.log else "")),
            text(22, (TOP + bottom) / 2, y_label,
                 extra=f' transform="rotate(-90 22 {(TOP + bottom) / 2:.1f})"')]
    return out


def draw_series(number, one, x_axis, y_axis):
    colour, dash = COLOURS[number % len(COLOURS)], DASHES[number % len(DASHES)]
    style = f' stroke-dasharray="{dash}"' if dash else ""
    points = " ".join(f"{x_axis.at(x):.1f},{y_axis.at(y):.1f}" for x, y in one["points"])
    out = [f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2.2" '
           f'stroke-linejoin="round"{style}/>']
    x, y = one["points"][-1]
    fill = colour if one.get("reached") else "#fff"
    out.append(f'<circle cx="{x_axis.at(x):.1f}" cy="{y_axis.at(y):.1f}" r="4.5" fill="{fill}" '
               f'stroke="{colour}" stroke-width="2"/>')
    return out


def draw_legend(series):
    """Rows between the titles and the plot."""
    out, share = [], (WIDTH - LEFT - RIGHT) / LEGEND_COLUMNS
    for number, one in enumerate(series):
        colour, dash = COLOURS[number % len(COLOURS)], DASHES[number % len(DASHES)]
        x, y = LEFT + number % LEGEND_COLUMNS * share, 70 + number // LEGEND_COLUMNS * 19
        style = f' stroke-width="2.6" stroke-dasharray="{dash}"' if dash else ' stroke-width="2.6"'
        out += [line(x, y, x + 30, y, colour, style), text(x + 37, y + 4.5, one["label"], "start", 12.5)]
    return out


def line_chart(series, title, subtitle, x_label, y_label, target=None):
    """The SVG's text. `series`: a dict a line: label, points [(x, y)…] in order of x, and reached,
    whether its last point is where the target was met (a filled dot; a hollow one otherwise)."""
    series = [one for one in series if one["points"]]
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" '
           f'height="{HEIGHT}" font-family="Helvetica, Arial, DejaVu Sans, sans-serif">',
           f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>']
    if series:
        x_axis, y_axis = axes_of(series, target)
        out += draw_frame(x_axis, y_axis, title, subtitle, x_label, y_label)
        if target is not None:
            y = y_axis.at(target)
            out += [line(LEFT, y, WIDTH - RIGHT, y, "#888", ' stroke-dasharray="4 4"'),
                    text(LEFT + 6, y - 6, f"target {target:g}", "start", 12, "#666",
                         ' stroke="#fff" stroke-width="4" paint-order="stroke"')]
        for number, one in enumerate(series):
            out += draw_series(number, one, x_axis, y_axis)
        out += draw_legend(series)
    else:
        out.append(text(WIDTH / 2, HEIGHT / 2, "no evaluation to draw"))
    return "\n".join(out + ["</svg>", ""])
