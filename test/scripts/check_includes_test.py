"""check-includes catches each kind of include that it forbids, and lets the others through."""
import unittest

from script_test import SCRIPTS, ScriptTest, run

ONCE = "#pragma once\n"


class CheckIncludesTest(ScriptTest):
    def setUp(self):
        super().setUp()
        self.write("lib/CMakeLists.txt", "foreach(folder base\n    tensor transport)\nendforeach()\n")
        self.write("lib/base/a.h", ONCE)
        self.write("lib/tensor/t.h", ONCE + '#include "base/a.h"\n#include <vector>\n')
        self.write("lib/transport/mpi/m.cc", '#include <mpi.h>\n#include "tensor/t.h"\n')
        self.write("tools/tool.cc", '#include "transport/mpi/m.h"\n')
        self.write("lib/transport/mpi/m.h", ONCE)
        self.write("test/base/a_test.cc", '#include "support/s.h"\n#include "tensor/t.h"\n')
        self.write("test/support/s.h", ONCE)

    def check(self):
        return run(SCRIPTS / "check-includes", self.folder)

    def assert_caught(self, path, text, said):
        bad = self.write(path, text)
        done = self.check()
        self.assertEqual(done.returncode, 1, text)
        self.assertIn(said, done.stderr)
        self.assertIn("1 problems", done.stderr)
        bad.unlink()

    def test_a_tree_in_order_passes(self):
        done = self.check()
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_each_bad_include_is_caught_with_file_and_line(self):
        self.assert_caught("lib/base/b.cc", '\n#include "tensor/t.h"\n',
                           'lib/base/b.cc:2: "tensor/t.h": base stands below tensor')
        self.assert_caught("lib/base/b.cc", '  #  include "tensor/t.h"\n', "lib/base/b.cc:1:")
        self.assert_caught("lib/base/b.cc", '#include "vector"\n', "is no header of lib/")
        self.assert_caught("lib/tensor/b.cc", "#include <mpi.h>\n", "belongs under lib/transport/mpi only")
        self.assert_caught("lib/transport/b.cc", "#include <mpi.h>\n", "belongs under lib/transport/mpi only")
        self.assert_caught("tools/b.cc", "#include <oneapi/dnnl/dnnl.hpp>\n", "belongs under lib/backend/cpu only")
        self.assert_caught("lib/base/b.cc", "#include <cudnn.h>\n", "belongs under lib/backend/cuda only")
        self.assert_caught("lib/base/b.h", ONCE + "#include <nlohmann/json.hpp>\n", "use json_fwd.hpp")
        self.assert_caught("lib/base/b.h", "int x;\n", "expected #pragma once")
        self.assert_caught("lib/other/b.cc", "", "folder other is not in lib/CMakeLists.txt's list")

    def test_a_tree_without_the_list_is_bad_usage(self):
        self.write("lib/CMakeLists.txt", "")
        self.assertEqual(self.check().returncode, 2)
        self.assertEqual(run(SCRIPTS / "check-includes", "a", "b").returncode, 2)

    def test_the_project_itself_passes(self):
        done = run(SCRIPTS / "check-includes")
        self.assertEqual(done.returncode, 0, done.stderr)


if __name__ == "__main__":
    unittest.main()
