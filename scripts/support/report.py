"""Turns bench-tta's measurements into a table, a JSON file and a chart."""
import json

from chart import line_chart


def describe_plan(plan):
    """Replicas a stage and where the cuts are: "1-1, cut before fc2"."""
    stages = plan["stages"]
    replicas = "-".join(str(len(stage["workers"])) for stage in stages)
    if len(stages) == 1:
        return f"1 stage × {replicas}"
    return f"{replicas}, cut before " + ", ".join(stage["layers"][0] for stage in stages[1:])


def format_bytes(count):
    for unit in ("B", "kB", "MB"):
        if count < 999.5:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} GB"


def format_speedup(ratio):
    """Three digits: 5.90, 12.3, 0.847."""
    return f"{ratio:#.3g}".rstrip(".") if 1e-4 <= ratio < 999.5 else f"{ratio:.0f}"


def cell(value, form):
    return "–" if value is None else form(value)


def best_run(runs):
    """The rule: the shortest time to the target; where none reached it, the highest accuracy. Of equals, the
    first of the grid."""
    reached = [run for run in runs if run["reached"]]
    if reached:
        return min(reached, key=lambda run: run["time_to_accuracy_s"])
    seen = [run for run in runs if run["accuracy"] is not None]
    return max(seen, key=lambda run: run["accuracy"]) if seen else None


def speedup_over(base, result, field, larger_is_better):
    """How many times better than the base strategy; None where either is unknown."""
    if base is None or base.get(field) is None or result.get(field) is None:
        return None
    ratio = result[field] / base[field]
    return ratio if larger_is_better else 1 / ratio


def add_speedups(results, samples_only):
    base = next((result for result in results if result["strategy"] == "data-parallel"), None)
    field = "samples_per_s" if samples_only else "time_to_accuracy_s"
    for result in results:
        result["speedup_over_data_parallel"] = speedup_over(base, result, field, samples_only)


def table(results, samples_only):
    rows = [["strategy", "plan", "samples/s", "bytes/sample"]]
    if not samples_only:
        rows[0] += ["lr", "accuracy", "time to accuracy"]
    rows[0].append("× data parallel")
    for result in results:
        row = [result["strategy"], result["plan"], cell(result["samples_per_s"], "{:.1f}".format),
               cell(result["bytes_per_sample"], format_bytes)]
        if not samples_only:
            time_s = result["time_to_accuracy_s"]
            row += [cell(result["lr"], "{:g}".format), cell(result["accuracy"], "{:.4f}".format),
                    "not reached" if time_s is None else f"{time_s:.1f} s"]
        row.append(cell(result["speedup_over_data_parallel"], format_speedup))
        rows.append(row)
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    left = (0, 1)
    lines = ["  ".join(word.ljust(width) if column in left else word.rjust(width)
                       for column, (word, width) in enumerate(zip(row, widths))).rstrip() for row in rows]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])


def grid_lines(results):
    """Every run of the grid, so that the choice of learning rates can be judged."""
    lines = []
    for result in results:
        for run in result["runs"]:
            outcome = f"{run['time_to_accuracy_s']:.1f} s" if run["reached"] else run["outcome"]
            chosen = "  <- chosen" if run["lr"] == result["lr"] else ""
            accuracy = cell(run["accuracy"], "{:.4f}".format)
            lines.append(f"  {result['strategy']:<15} lr {run['lr']:<7g} accuracy {accuracy:<7} {outcome}{chosen}")
    return "\n".join(lines)


def chart(results, title, subtitle, target):
    series = []
    for result in results:
        run = next((run for run in result["runs"] if run["lr"] == result["lr"]), None)
        if run is None:
            continue
        outcome = f"{run['time_to_accuracy_s']:.1f} s" if run["reached"] else "not reached"
        series.append({"label": f"{result['strategy']}, lr {run['lr']:g}: {outcome}", "reached": run["reached"],
                       "points": [(point["train_time_s"], point["accuracy"]) for point in run["evaluations"]]})
    return line_chart(series, title, subtitle, "training time (s)", "test accuracy", target)


def write_json(path, value):
    with open(path, "w", encoding="utf-8") as file:
        json.dump(value, file, indent=1, allow_nan=False)
        file.write("\n")
