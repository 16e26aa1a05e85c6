#include "stage/cut.h"

#include <algorithm>
#include <tuple>

#include "base/error.h"
#include "support/catch.h"

namespace pd {
namespace {

// a feeds b, d and e; the image feeds a and c.
constexpr const char* kModel = R"({"format":"pipedream.model/1","name":"skips",
  "inputs":[{"name":"image","shape":[4]},{"name":"label","shape":[],"dtype":"i32"}],
  "layers":[
    {"name":"a","type":"linear","inputs":["image"],"out_features":4},
    {"name":"b","type":"linear","out_features":4},
    {"name":"c","type":"add","inputs":["b","image"]},
    {"name":"d","type":"add","inputs":["c","a"]},
    {"name":"e","type":"add","inputs":["d","a"]},
    {"name":"f","type":"linear","out_features":4},
    {"name":"loss","type":"softmax_cross_entropy","inputs":["f","label"]}]})";

Model TheModel() { return Model::Parse(JsonView::Parse(kModel, "model")); }

// (tensor, from, to, gradient, consumers)
using Message = std::tuple<std::string, int, int, bool, std::vector<std::string>>;

std::vector<Message> MessagesOf(const std::vector<std::vector<std::string>>& stages) {
  const Model model = TheModel();
  const Cut cut = MakeCut(model, stages);
  std::vector<Message> messages;
  for (size_t i = 0; i < cut.messages.size(); ++i) {
    const BorderMessage& m = cut.messages[i];
    CHECK(m.tag == static_cast<int>(i));
    std::vector<std::string> consumers;
    for (const int l : m.consumers) consumers.push_back(model.layers()[l].layer->name());
    messages.emplace_back(model.tensor_name(m.tensor), m.from, m.to, m.gradient, consumers);
  }
  std::sort(messages.begin(), messages.end());
  return messages;
}

TEST_CASE("a tensor goes once to each stage that reads it, straight over all borders") {
  // Graph inputs come from stage 0 and want no gradient.
  const std::vector<Message> expected = {{"a", 0, 1, false, {}},     {"a", 0, 2, false, {}},
                                         {"a", 1, 0, true, {"b"}},   {"a", 2, 0, true, {"d", "e"}},
                                         {"c", 1, 2, false, {}},     {"c", 2, 1, true, {"d"}},
                                         {"e", 2, 3, false, {}},     {"e", 3, 2, true, {"f"}},
                                         {"image", 0, 1, false, {}}, {"label", 0, 3, false, {}}};
  CHECK(MessagesOf({{"a"}, {"b", "c"}, {"d", "e"}, {"f", "loss"}}) == expected);
}

TEST_CASE("the last consumers' gradients come as one sum, those before one by one") {
  // b and d lie in stage 1, e in stage 2: the order of the sum is e, d, b.
  const std::vector<Message> expected = {
      {"a", 0, 1, false, {}},   {"a", 0, 2, false, {}},     {"a", 1, 0, true, {"b"}},
      {"a", 1, 0, true, {"d"}}, {"a", 2, 0, true, {"e"}},   {"d", 1, 2, false, {}},
      {"d", 2, 1, true, {"e"}}, {"image", 0, 1, false, {}}, {"label", 0, 2, false, {}}};
  CHECK(MessagesOf({{"a"}, {"b", "c", "d"}, {"e", "f", "loss"}}) == expected);
  // All of a's later consumers in one stage: one message.
  const std::vector<Message> sum = {{"a", 0, 1, false, {}},
                                    {"a", 1, 0, true, {"b", "d", "e"}},
                                    {"image", 0, 1, false, {}},
                                    {"label", 0, 1, false, {}}};
  CHECK(MessagesOf({{"a"}, {"b", "c", "d", "e", "f", "loss"}}) == sum);
}

TEST_CASE("consumers in the producer's own stage send nothing") {
  // b stays with a; d and e come back as a sum.
  const std::vector<Message> expected = {{"a", 0, 1, false, {}},
                                         {"a", 1, 0, true, {"d", "e"}},
                                         {"c", 0, 1, false, {}},
                                         {"c", 1, 0, true, {"d"}},
                                         {"label", 0, 1, false, {}}};
  CHECK(MessagesOf({{"a", "b", "c"}, {"d", "e", "f", "loss"}}) == expected);
  CHECK(MessagesOf({{"a", "b", "c", "d", "e", "f", "loss"}}).empty());
}

TEST_CASE("incoming and outgoing messages are those of the stage and direction") {
  const Model model = TheModel();
  const Cut cut = MakeCut(model, {{"a"}, {"b", "c"}, {"d", "e"}, {"f", "loss"}});
  size_t in = 0, out = 0;
  for (int s = 0; s < cut.num_stages(); ++s) {
    for (const bool gradient : {false, true}) {
      for (const int m : cut.Incoming(s, gradient)) {
        CHECK(cut.messages[m].to == s);
        CHECK(cut.messages[m].gradient == gradient);
        ++in;
      }
      for (const int m : cut.Outgoing(s, gradient)) {
        CHECK(cut.messages[m].from == s);
        CHECK(cut.messages[m].gradient == gradient);
        ++out;
      }
    }
  }
  CHECK(in == cut.messages.size());
  CHECK(out == cut.messages.size());
}

TEST_CASE("cuts that are not partitions in order are refused") {
  const Model model = TheModel();
  CHECK_THROWS_AS(MakeCut(model, {{"a", "b", "c", "d", "e", "f"}}), Error);
  CHECK_THROWS_AS(MakeCut(model, {{"a", "b", "c"}, {"c", "d", "e", "f", "loss"}}), Error);
  CHECK_THROWS_AS(MakeCut(model, {{"a", "b", "c", "d", "e", "f", "loss", "g"}}), Error);
  CHECK_THROWS_AS(MakeCut(model, {{"d", "e", "f", "loss"}, {"a", "b", "c"}}), Error);
}

}  // namespace
}  // namespace pd
