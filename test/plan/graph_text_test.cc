#include "plan/graph_text.h"

#include "plan/documents.h"
#include "support/catch.h"
#include "support/error_of.h"

namespace pd {
namespace {

using Names = std::vector<std::string>;

// Two branches from an input, joined; lines in no order, as in the published files.
constexpr const char* kText =
    "node10 -- Concat(1) -- forward_compute_time=0.000, backward_compute_time=0.000, "
    "activation_size=80.000, parameter_size=0.000\n"
    "node1 -- Input -- forward_compute_time=17.972, backward_compute_time=0.000, "
    "activation_size=77.000, parameter_size=0.000\n"
    "node3 -- ReLU(inplace) -- forward_compute_time=1.250, backward_compute_time=2.500, "
    "activation_size=40.000, parameter_size=0.000\n"
    "node2 -- Conv2d(3, 64, kernel_size=(3, 3), stride=(1, 1)) -- forward_compute_time=22.307, "
    "backward_compute_time=24.613, activation_size=1.6e3, parameter_size=7168.000\n"
    "node9 -- LSTM(2048, 1024) -- forward_compute_time=3.000, backward_compute_time=5.000, "
    "activation_size=[6291456.0; 131072.0; 131072.4], parameter_size=50364416.000\n"
    "\tnode2 -- node3\n"
    "\tnode3 -- node10\n"
    "\tnode2 -- node9\n"
    "\tnode1 -- node2\n"
    "\tnode9 -- node10\n";

Profile Read(const std::string& text) { return ReadGraphText(text, "net.graph.txt", 64); }

Names NamesOf(const Profile& profile) {
  Names names;
  for (const LayerCost& layer : profile.layers) names.push_back(layer.name);
  return names;
}

std::string Line(const std::string& node) {
  return node +
         " -- forward_compute_time=1, backward_compute_time=1, activation_size=1, "
         "parameter_size=0\n";
}

TEST_CASE("a text profile becomes layers with their times, bytes and inputs") {
  const Profile profile = Read(kText);
  CHECK(profile.batch_size == 64);
  CHECK_FALSE(profile.model.has_value());
  REQUIRE(NamesOf(profile) == Names{"node2 Conv2d", "node3 ReLU", "node9 LSTM", "node10 Concat"});
  const LayerCost& conv = profile.layers[0];
  CHECK(conv.inputs == Names{"node1 Input"});
  CHECK(conv.forward_ms == 22.307);
  CHECK(conv.backward_ms == 24.613);
  CHECK(conv.activation_bytes == 1600);
  CHECK(conv.parameter_bytes == 7168);
  CHECK_FALSE(conv.update_ms.has_value());
  CHECK(profile.layers[2].activation_bytes == 6291456 + 2 * 131072);
  CHECK(profile.layers[3].inputs == Names{"node3 ReLU", "node9 LSTM"});
}

TEST_CASE("a profile from text is written as profile/1 and read back") {
  const std::string written = WriteProfile(Read(kText));
  const Profile again = ReadProfile(ParseText(written));
  CHECK(WriteProfile(again) == written);
  CHECK(again.layers[0].inputs == Names{"node1 Input"});
}

TEST_CASE("layers stand in topological order, of those possible the smallest number first") {
  const std::string text = Line("node9 -- A") + Line("node4 -- B") + Line("node7 -- C") +
                           Line("node5 -- D") + "\tnode9 -- node4\n\tnode7 -- node5\n";
  CHECK(NamesOf(Read(text)) == Names{"node7 C", "node5 D", "node9 A", "node4 B"});
}

TEST_CASE("several inputs are graph inputs, and so is what a root without input reads") {
  const std::string text = Line("node1 -- Input0") + Line("node2 -- Input1") +
                           Line("node3 -- Embedding(5, 6)") + Line("node4 -- hidden") +
                           Line("node5 -- InputNorm") +
                           "\tnode1 -- node3\n\tnode3 -- node5\n\tnode2 -- node5\n";
  const Profile profile = Read(text);
  REQUIRE(NamesOf(profile) == Names{"node3 Embedding", "node4 hidden", "node5 InputNorm"});
  CHECK(profile.layers[0].inputs == Names{"node1 Input0"});
  CHECK(profile.layers[1].inputs == Names{"input of node4"});
  CHECK(profile.layers[2].inputs == Names{"node3 Embedding", "node2 Input1"});
}

TEST_CASE("line ends of other systems, blank lines and stages of the authors' optimizer are fine") {
  std::string text = kText;
  for (size_t at = 0; (at = text.find('\n', at)) != std::string::npos; at += 3) {
    text.replace(at, 1, "\r\n\n");
  }
  CHECK(WriteProfile(Read(text)) == WriteProfile(Read(kText)));
  CHECK(WriteProfile(Read(
            With(kText, "parameter_size=7168.000", "parameter_size=7168.000 -- stage_id=0"))) ==
        WriteProfile(Read(kText)));
}

TEST_CASE("text profiles are told from JSON") {
  CHECK(LooksLikeGraphText(kText));
  CHECK(LooksLikeGraphText("\n\n\tnode1 -- node2\n"));
  CHECK(LooksLikeGraphText("node1"));
  for (const char* const other : {"", "\n", "{\"format\": 1}", "nodes -- 1", "node -- 1", "7"}) {
    CAPTURE(other);
    CHECK_FALSE(LooksLikeGraphText(other));
  }
}

TEST_CASE("a text profile needs a batch size") {
  CHECK(ErrorOf([] { ReadGraphText(kText, "net.graph.txt", std::nullopt); }) ==
        "net.graph.txt: expected -b N, the samples of a minibatch, which a text profile does not "
        "say, found none");
  CHECK(ErrorOf([] { ReadGraphText(kText, "net.graph.txt", 0); }).find("batch size: expected") !=
        std::string::npos);
}

TEST_CASE("damaged text profiles are refused with their place") {
  const auto refused = [](const std::string& from, const std::string& to,
                          const std::string& message) {
    CAPTURE(from, to);
    CHECK_THAT(ErrorOf([&] { Read(With(kText, from, to)); }),
               ContainsSubstring("net.graph.txt:" + message));
  };
  const std::string time = "forward_compute_time=1.250";
  for (const char* const value : {"-1", "nan", "inf", "1e10", "1e400", "", "0x10", "1.5ms", " 1"}) {
    refused(time, std::string("forward_compute_time=") + value,
            "3: expected forward_compute_time: a number from 0 to 1e+09, found \"");
  }
  const std::string size = "activation_size=40.000";
  for (const char* const value :
       {"-1", "nan", "1e19", "[40.000", "[]", "[1; -1]", "[1; ; 2]", "[1; 2", "[[1]]"}) {
    refused(size, std::string("activation_size=") + value, "3: expected activation_size: a number");
  }
  refused(size, "activation_size=[9e17; 9e17]", "3: expected activation_size: a sum up to 1e+18");
  refused(time, "forward_time=1", "3: expected fields forward_compute_time, backward_");
  refused(time, "forward_compute_time", "3: expected fields");
  refused(", activation_size=40.000", "", "3: expected activation_size=NUMBER, found none");
  refused("activation_size=40.000", "parameter_size=1", "3: expected parameter_size once");
  refused("parameter_size=0.000\nnode2", "parameter_size=0.000, gpu=1\nnode2",
          "3: expected fields");
  refused("parameter_size=0.000\nnode2", "parameter_size=0.000 -- gpu=1\nnode2",
          "3: expected nothing more, or stage_id=N, found \"gpu=1\"");
  refused("node3 -- ReLU(inplace)", "node3 --  ", "3: expected a description");
  refused("node3 -- ReLU(inplace)", "node3 -- Re\x01LU", "3: expected a description in printable");
  refused("node3 -- ReLU", "layer3 -- ReLU", "3: expected \"node\" and a number up to 1000000000");
  refused("node3 -- ReLU", "node03 -- ReLU", "3: expected \"node\" and a number");
  refused("node3 -- ReLU", "node2000000000 -- ReLU", "3: expected \"node\" and a number");
  refused("node3 -- ReLU", "node2 -- ReLU",
          "4: expected a node that stands in no other line, found node2, as in line 3");
  refused("node9 -- LSTM", "node8 -- LSTM", "8: expected an edge between two nodes of this file");
  refused("node9 -- node10", "node9 - node10", "10: expected nodeN -- DESCRIPTION");
  refused("node9 -- node10", "node9 -- node10 -- node2", "10: expected fields");
  refused("node9 -- node10", "node2 -- node9",
          "10: expected each edge once, found node2 -- node9 again");
  refused("node9 -- node10", "node9 -- node1",
          "10: expected an input that reads nothing, found an edge to node1, which is an Input");
  refused(
      "node9 -- node10", "node10 -- node2",
      "4: expected a graph without cycles, found node2 Conv2d -> node3 ReLU -> node10 Concat -> "
      "node2 Conv2d");
  refused("node9 -- node10", "node9 -- node9",
          "5: expected a graph without cycles, found node9 LSTM -> node9 LSTM");
}

TEST_CASE("a text profile that lost its edges is refused, not planned as independent layers") {
  const std::string text = kText;
  const size_t edges = text.find("\tnode");
  CHECK_THAT(ErrorOf([&] { Read(text.substr(0, edges)); }),
             ContainsSubstring("net.graph.txt:1: expected edges (is the file cut short?), found 5 "
                               "nodes and none"));
}

TEST_CASE("a cycle is named layer by layer, from its smallest number on") {
  const std::string text = Line("node5 -- E") + Line("node1 -- A") + Line("node3 -- C") +
                           Line("node2 -- B") + Line("node4 -- D") +
                           "\tnode1 -- node2\n\tnode2 -- node3\n\tnode3 -- node4\n\tnode4 -- "
                           "node2\n\tnode4 -- node5\n";
  CHECK(ErrorOf([&] { Read(text); }) ==
        "net.graph.txt:4: expected a graph without cycles, found node2 B -> node3 C -> node4 D -> "
        "node2 B");
}

TEST_CASE("of a long cycle the ends are named") {
  std::string text;
  for (int n = 1; n <= 30; ++n) text += Line("node" + std::to_string(n) + " -- L");
  for (int n = 1; n <= 30; ++n) {
    text += "\tnode" + std::to_string(n) + " -- node" + std::to_string(n % 30 + 1) + "\n";
  }
  CHECK_THAT(
      ErrorOf([&] { Read(text); }),
      ContainsSubstring("found node1 L -> node2 L -> node3 L -> node4 L -> 22 more -> node27 "
                        "L -> node28 L -> node29 L -> node30 L -> node1 L"));
}

TEST_CASE("a text profile without layers is refused") {
  CHECK_THAT(ErrorOf([] { Read(""); }), ContainsSubstring("expected one or more layers, found no"));
  CHECK_THAT(ErrorOf([] { Read(Line("node1 -- Input")); }), ContainsSubstring("found inputs only"));
}

}  // namespace
}  // namespace pd
