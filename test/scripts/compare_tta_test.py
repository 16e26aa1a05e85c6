"""compare-tta: every exit status, and what it says of bad input."""
import json
import unittest

from script_test import SCRIPTS, ScriptTest, run


def end(time_s, target=0.88):
    return json.dumps({"event": "end", "reached": time_s is not None, "target_accuracy": target,
                       "time_to_accuracy_s": time_s})


class CompareTtaTest(ScriptTest):
    def compare(self, a, b, *options):
        start = '{"event":"start"}\n'
        paths = [self.write(name, start + text) for name, text in (("a.jsonl", a), ("b.jsonl", b))]
        return run(SCRIPTS / "compare-tta", *paths, *options)

    def test_a_speedup_that_is_reached_passes(self):
        done = self.compare(end(10.0) + "\n", end(25.0) + "\n", "--min-speedup", "2.5")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout, "target accuracy 0.88: A 10.000 s, B 25.000 s, speed-up 2.500, wanted 2.5: passes\n")

    def test_a_speedup_that_falls_short_is_status_3(self):
        done = self.compare(end(10.0) + "\n", end(24.9) + "\n", "--min-speedup", "2.5")
        self.assertEqual(done.returncode, 3)
        self.assertIn("falls short", done.stdout)

    def test_without_a_wish_it_only_reports(self):
        done = self.compare(end(10.0) + "\n", end(5.0) + "\n")
        self.assertEqual(done.returncode, 0)
        self.assertIn("speed-up 0.500\n", done.stdout)

    def test_b_that_never_got_there_is_infinitely_slow(self):
        done = self.compare(end(10.0) + "\n", end(None) + "\n", "--min-speedup", "1000")
        self.assertEqual(done.returncode, 0)
        self.assertIn("infinite", done.stdout)

    def test_a_that_never_got_there_falls_short(self):
        for b in (end(10.0), end(None)):
            self.assertEqual(self.compare(end(None) + "\n", b + "\n", "--min-speedup", "0.1").returncode, 3)
            self.assertEqual(self.compare(end(None) + "\n", b + "\n").returncode, 3)

    def test_runs_with_a_target_perplexity_compare_as_well(self):
        a, b = (json.dumps({"event": "end", "reached": True, "target_accuracy": None, "target_perplexity": 9.5,
                            "time_to_accuracy_s": time_s}) for time_s in (4.0, 6.0))
        done = self.compare(a + "\n", b + "\n")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout, "target perplexity 9.5: A 4.000 s, B 6.000 s, speed-up 1.500\n")
        self.assertEqual(self.compare(a + "\n", end(6.0) + "\n").returncode, 2)

    def test_bad_files_are_refused_with_file_and_line(self):
        good = end(10.0) + "\n"
        for bad, said in (('{"event":"train"}\n', 'expected an "end" event'),
                          ("", 'expected an "end" event'),
                          ('{"event":"end"\n', "b.jsonl:2: expected a JSON object"),
                          ('{"event":"end"', "b.jsonl:2: expected a JSON object"),
                          ('{"event":"train","loss":NaN}\n' + good, "b.jsonl:2:"),
                          ("[]\n" + good, "b.jsonl:2:"),
                          (good.replace("10.0", "-1"), "/time_to_accuracy_s: expected a number above 0, found -1"),
                          (good.replace("10.0", '"10"'), "/time_to_accuracy_s"),
                          (good.replace("true", "false"), "/time_to_accuracy_s: expected null"),
                          (good.replace("true", "1"), "/reached: expected true or false, found 1"),
                          (good.replace("0.88", "null"), "/target_accuracy"),
                          (end(10.0, 0.9) + "\n", "expected target accuracy 0.88, as in")):
            done = self.compare(good, bad, "--min-speedup", "1")
            self.assertEqual(done.returncode, 2, (bad, done.stdout))
            self.assertIn(said, done.stderr)
            self.assertEqual(done.stdout, "")
            self.assertEqual(done.stderr.count("\n"), 1)

    def test_a_missing_file_or_a_folder_is_refused(self):
        a = self.write("a.jsonl", end(10.0) + "\n")
        for b in (self.folder / "none.jsonl", self.folder):
            self.assertEqual(run(SCRIPTS / "compare-tta", a, b).returncode, 2)

    def test_bad_wishes_are_refused(self):
        for wish in ("0", "-1", "nan", "inf", "1x", ""):
            done = self.compare(end(1.0) + "\n", end(1.0) + "\n", "--min-speedup", wish)
            self.assertEqual(done.returncode, 2, wish)


if __name__ == "__main__":
    unittest.main()
