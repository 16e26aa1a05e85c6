"""Reads the metrics that pd-train writes: JSON Lines, first field `event`."""
import json
import math


class BadMetrics(Exception):
    """A metrics file that cannot be used; the text names file, line, expected and found."""


def _no_constant(word):
    raise ValueError(f"{word} is not JSON")


def read_events(path, growing=False):
    """All events of a file, in order. With `growing` the file may not exist yet, and what follows
    the last line end, which a running program is still writing, is left out."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except FileNotFoundError:
        if growing:
            return []
        raise BadMetrics(f"{path}: no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise BadMetrics(f"{path}: {error}") from None
    lines = text.split("\n")
    if growing or lines[-1] == "":
        lines.pop()
    events = []
    for number, line in enumerate(lines, 1):
        try:
            event = json.loads(line, parse_constant=_no_constant)
        except (ValueError, RecursionError) as error:
            raise BadMetrics(f"{path}:{number}: expected a JSON object, found bad JSON ({error})") from None
        if not isinstance(event, dict) or not isinstance(event.get("event"), str):
            raise BadMetrics(f"{path}:{number}: expected a JSON object with \"event\"")
        event["line"] = number
        events.append(event)
    return events


def is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def end_event(path):
    """The last `end` event, with its targets, reached and time_to_accuracy_s checked."""
    ends = [event for event in read_events(path) if event["event"] == "end"]
    if not ends:
        raise BadMetrics(f"{path}: expected an \"end\" event, found none (did the run finish?)")
    end = ends[-1]

    def expect(holds, field, wanted):
        if not holds:
            found = json.dumps(end.get(field)) if field in end else "nothing"
            raise BadMetrics(f"{path}:{end['line']}: /{field}: expected {wanted}, found {found}")

    if not is_number(end.get("target_perplexity")):
        expect(is_number(end.get("target_accuracy")), "target_accuracy",
               "a number (was --target-accuracy or --target-perplexity given?)")
    expect(isinstance(end.get("reached"), bool), "reached", "true or false")
    time_s = end.get("time_to_accuracy_s")
    if end["reached"]:
        expect(is_number(time_s) and time_s > 0, "time_to_accuracy_s", "a number above 0")
    else:
        expect(time_s is None, "time_to_accuracy_s", "null, as the target was not reached")
    return end
