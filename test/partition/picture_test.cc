#include "partition/picture.h"

#include <array>
#include <cstdio>

#include "support/catch.h"
#include "support/error_of.h"

namespace pd {
namespace {

int Count(const std::string& text, const std::string& word) {
  int count = 0;
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++count;
  return count;
}

LayerCost Layer(const std::string& name, double forward_ms, int64_t activation_bytes,
                int64_t parameter_bytes, std::vector<std::string> inputs = {}) {
  LayerCost layer;
  layer.name = name;
  layer.inputs = std::move(inputs);
  layer.forward_ms = forward_ms;
  layer.backward_ms = 2 * forward_ms;
  layer.activation_bytes = activation_bytes;
  layer.parameter_bytes = parameter_bytes;
  return layer;
}

StagePlan Stage(std::vector<std::string> layers, int worker) {
  StagePlan stage;
  stage.layers = std::move(layers);
  stage.workers = {worker};
  return stage;
}

// A chain of `layers` layers, cut into stages of equal length with `replicas` workers each.
Plan Chain(int layers, int stages, int replicas) {
  Plan plan;
  plan.batch_size = 8;
  int worker = 0;
  for (int s = 0; s < stages; ++s) {
    StagePlan stage;
    for (int l = s * layers / stages; l < (s + 1) * layers / stages; ++l) {
      plan.layers.push_back(Layer("layer" + std::to_string(l) + "_", 1 + l % 7, 1000 + l, 500));
      stage.layers.push_back(plan.layers.back().name);
    }
    for (int r = 0; r < replicas; ++r) stage.workers.push_back(worker++);
    plan.stages.push_back(stage);
  }
  return plan;
}

// Checks that every element is closed in order and that no text or attribute holds a bare < or &;
// returns the number of elements.
int CheckXml(const std::string& text) {
  std::vector<std::string> open;
  int elements = 0;
  for (size_t at = 0; at < text.size();) {
    if (text[at] == '&') {
      const std::string entity = text.substr(at, text.find(';', at) - at);
      CHECK((entity == "&amp" || entity == "&lt" || entity == "&gt" || entity == "&quot"));
    }
    if (text[at] != '<') {
      ++at;
      continue;
    }
    const size_t end = text.find('>', at);
    REQUIRE(end != std::string::npos);
    const std::string tag = text.substr(at + 1, end - at - 1);
    CHECK(tag.find('<') == std::string::npos);
    CHECK(Count(tag, "\"") % 2 == 0);
    if (tag[0] == '/') {
      REQUIRE_FALSE(open.empty());
      CHECK(open.back() == tag.substr(1));
      open.pop_back();
    } else {
      ++elements;
      if (tag.back() != '/') open.push_back(tag.substr(0, tag.find(' ')));
    }
    at = end + 1;
  }
  CHECK(open.empty());
  return elements;
}

TEST_CASE("a picture of 10 to 1,000 layers is one SVG that names each layer and stage once") {
  for (const auto& [layers, stages, replicas] :
       {std::array{10, 2, 1}, std::array{40, 1, 16}, std::array{100, 3, 2}, std::array{1000, 64, 1},
        std::array{1, 1, 1}}) {
    CAPTURE(layers, stages, replicas);
    const std::string svg = PlanPicture(Chain(layers, stages, replicas));
    CHECK(svg.rfind("<svg xmlns=\"http://www.w3.org/2000/svg\"", 0) == 0);
    CHECK(CheckXml(svg) > layers);
    CHECK(Count(svg, "<title>") == layers);
    for (int l = 0; l < layers; ++l) {
      CHECK(Count(svg, "<title>layer" + std::to_string(l) + "_: forward") == 1);
    }
    for (int s = 0; s < stages; ++s) {
      const std::string first = "layer" + std::to_string(s * layers / stages) + "_";
      CHECK(Count(svg, ">" + first + (layers / stages == 1 ? " (1" : " … ")) == 1);
    }
    for (const char* const outside : {"<script", "href", "<image", "url(", "@import"}) {
      CHECK(Count(svg, outside) == 0);
    }
    CHECK(svg.find("nan") == std::string::npos);
    CHECK(svg.find("inf") == std::string::npos);
  }
}

TEST_CASE("the same plan gives the same picture") {
  CHECK(PlanPicture(Chain(200, 5, 3)) == PlanPicture(Chain(200, 5, 3)));
}

TEST_CASE("names are escaped, and characters that XML has no place for replaced") {
  Plan plan = Chain(3, 1, 1);
  const std::vector<std::string> names = {"<script>&\"'", "µ…\xEF\xBF\xBF", "]]>"};
  for (size_t l = 0; l < names.size(); ++l) {
    plan.layers[l].name = plan.stages[0].layers[l] = names[l];
  }
  const std::string svg = PlanPicture(plan);
  CheckXml(svg);
  CHECK(Count(svg, "<title>&lt;script&gt;&amp;&quot;': forward") == 1);
  CHECK(Count(svg, "<title>µ…\xEF\xBF\xBD: forward") == 1);
  CHECK(Count(svg, "<title>]]&gt;: forward") == 1);
}

TEST_CASE("names that turn or hide the text around them are shown by their numbers") {
  Plan plan = Chain(2, 1, 1);
  plan.layers[0].name = plan.stages[0].layers[0] = "a\u202Eb\u0085";
  const std::string svg = PlanPicture(plan);
  CHECK(Count(svg, "\u202E") == 0);
  CHECK(Count(svg, "\u0085") == 0);
  CHECK(Count(svg, "<title>a\\u202eb\\u0085: forward") == 1);
  CHECK(Count(svg, ">a\\u202eb\\u0085<") == 1);
}

TEST_CASE("bars stay clear of the edges of their panels") {
  const std::string svg = PlanPicture(Chain(3, 1, 1));
  // The stage's tint fills each panel; everything with a bar's colour lies inside it.
  struct Box {
    double x = 0, y = 0, width = 0, height = 0;
    char colour[8] = "";
  };
  std::vector<Box> panels, bars;
  for (size_t at = svg.find("<rect "); at != std::string::npos; at = svg.find("<rect ", at + 1)) {
    Box box;
    if (std::sscanf(svg.c_str() + at,
                    "<rect x=\"%lf\" y=\"%lf\" width=\"%lf\" height=\"%lf\" fill=\"%7s", &box.x,
                    &box.y, &box.width, &box.height, box.colour) != 5) {
      continue;
    }
    const std::string tag = svg.substr(at, svg.find('>', at) - at);
    if (Count(tag, "fill-opacity") == 1) {
      panels.push_back(box);
    } else if (Count(tag, "stroke") == 0) {
      bars.push_back(box);
    }
  }
  REQUIRE(panels.size() == 2);
  int inside = 0;
  for (const Box& panel : panels) {
    for (const Box& bar : bars) {
      if (bar.y + bar.height < panel.y || bar.y > panel.y + panel.height) continue;
      ++inside;
      CHECK(bar.y > panel.y + 2);
      CHECK(bar.y + bar.height < panel.y + panel.height + 0.01);
    }
  }
  CHECK(inside == 3 * 4);  // forward, backward; output, parameters
}

TEST_CASE("a border shows each tensor that crosses it once, a row what its stage sends") {
  Plan plan;
  plan.batch_size = 1;
  plan.layers = {Layer("a", 1, 1000, 0), Layer("b", 1, 20'000, 0, {"a"}),
                 Layer("c", 1, 300'000, 0, {"a", "b"}), Layer("d", 1, 1, 0, {"c", "a"})};
  plan.stages = {Stage({"a"}, 0), Stage({"b", "c"}, 1), Stage({"d"}, 2)};
  const std::string svg = PlanPicture(plan);
  // a crosses both borders, c the second. a goes to two stages.
  CHECK(Count(svg, ">1.00 kB<") == 1);
  CHECK(Count(svg, ">301 kB<") == 1);
  CHECK(Count(svg, ">2.00 kB<") == 1);
  CHECK(Count(svg, ">300 kB<") >= 1);
}

TEST_CASE("a stage of layers that lie apart in the model is drawn as one span") {
  Plan plan = Chain(4, 1, 1);
  for (LayerCost& layer : plan.layers) layer.inputs = {"image"};
  const auto& name = plan.layers;
  plan.stages = {Stage({name[0].name, name[2].name}, 0), Stage({name[1].name, name[3].name}, 1)};
  const std::string svg = PlanPicture(plan);
  CHECK(Count(svg, ">layer0_ … layer2_ (2)<") == 1);
  CHECK(Count(svg, "stroke-dasharray") == 1);
}

TEST_CASE("compute of a stage is shared by its replicas, at the pace of the slowest") {
  Plan plan = Chain(1, 1, 2);  // 3 ms
  CHECK(Count(PlanPicture(plan), ">1.5 ms<") == 1);
  plan.cluster = Cluster{{{2, 1e9, 0}}, std::nullopt, {2, 0.5}};
  CHECK(Count(PlanPicture(plan), ">3 ms<") >= 1);
  CHECK(Count(PlanPicture(plan), ">1.5 ms<") == 0);
}

TEST_CASE("prediction, memory and its limit are shown where the plan has them") {
  Plan plan = Chain(2, 2, 1);
  CHECK(Count(PlanPicture(plan), ">unknown<") == 2);
  plan.predicted = Predicted{};
  plan.predicted->minibatch_ms = 12.5;
  plan.predicted->samples_per_s = 640;
  plan.predicted->memory_bytes = {123'000'000, 45'600'000};
  plan.cluster = Cluster{{{3, 1e9, 0}}, 789'000'000, {}};
  const std::string svg = PlanPicture(plan);
  CHECK(Count(svg, "predicted: 12.5 ms a minibatch, 640 samples/s<") == 1);
  CHECK(Count(svg, ">123 MB<") == 1);
  CHECK(Count(svg, ">45.6 MB<") == 1);
  CHECK(Count(svg, ">limit 789 MB<") == 1);
  CHECK(Count(svg, "2 workers and 1 idle") == 1);
}

TEST_CASE("a plan without costs has no picture") {
  Plan plan = Chain(2, 1, 1);
  plan.layers.pop_back();
  CHECK_THAT(ErrorOf([&] { PlanPicture(plan); }), ContainsSubstring("found none of \"layer1_\""));
  CHECK_THAT(ErrorOf([] { PlanPicture(Plan{}); }), ContainsSubstring("found none"));
}

}  // namespace
}  // namespace pd
