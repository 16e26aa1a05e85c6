// From top to bottom: title and legend, a panel of compute, a panel of bytes, names of layers, a
// band of stages with a lane a replica, and a table with a row a stage. Layers stand in the order
// of the stages, so that each stage is one span even where branches make its layers no interval of
// the model's order. Everything is placed by arithmetic on text lengths: nothing measures fonts.
#include "partition/picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <unordered_map>

#include "base/error.h"
#include "base/text.h"
#include "base/units.h"
#include "partition/replicas.h"

namespace pd {
namespace {

constexpr double kLeft = 88, kRight = 24;  // margins beside the panels
constexpr double kLeastWidth = 1000, kMostWidth = 3000, kLeastSlot = 2;
constexpr double kComputeTop = 92, kComputeHeight = 170;
constexpr double kHeadroom = 1.06;  // The tallest bar ends below the edge of its panel.
constexpr double kBytesTop = kComputeTop + kComputeHeight + 24, kBytesHeight = 170;
constexpr double kNameSlot = 11, kNameChar = 5.2;  // room for a turned name; of a character
constexpr size_t kMostNameChars = 26;
constexpr int kMostLanes = 8;
constexpr double kLane = 15, kRow = 19, kChar = 6.2;

constexpr const char* kForward = "#3b76af";
constexpr const char* kBackward = "#e8914a";
constexpr const char* kUpdate = "#5a9e5a";
constexpr const char* kOutput = "#8062a8";
constexpr const char* kWeights = "#808080";
constexpr std::array<const char*, 6> kStageColours = {"#c6dbef", "#fdd9b5", "#c7e9c0",
                                                      "#dadaeb", "#f7cfd6", "#d9d9d9"};

// ---- Text

// For XML 1.0, which has no place for U+FFFE and U+FFFF, escaped or not.
std::string Escaped(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const std::string_view rest = text.substr(i);
    if (rest[0] == '&') {
      out += "&amp;";
    } else if (rest[0] == '<') {
      out += "&lt;";
    } else if (rest[0] == '>') {
      out += "&gt;";
    } else if (rest[0] == '"') {
      out += "&quot;";
    } else if (rest.substr(0, 2) == "\xEF\xBF" && rest.size() > 2 && (rest[2] & 0xFE) == 0xBE) {
      out += "\xEF\xBF\xBD";
      i += 2;
    } else {
      out += rest[0];
    }
  }
  return out;
}

// At most `most` wide, the last an ellipsis where some is missing.
std::string Cut(const std::string& text, size_t most) {
  if (DisplayWidth(text) <= most) return text;
  const auto inside = [&](size_t at) { return (text[at] & 0xC0) == 0x80; };
  size_t end = text.size();
  do {
    do --end;
    while (inside(end));
  } while (DisplayWidth(std::string_view(text).substr(0, end)) >= most);
  return text.substr(0, end) + "…";
}

std::string Milliseconds(double ms) { return fmt::format("{:.4g} ms", ms); }
std::string Bytes(int64_t bytes) { return FormatBytes(static_cast<double>(bytes)); }

// "0-3, 6": ascending runs of consecutive numbers.
std::string Ranges(const std::vector<int>& numbers) {
  std::string out;
  for (size_t i = 0; i < numbers.size();) {
    size_t end = i + 1;
    while (end < numbers.size() && numbers[end] == numbers[end - 1] + 1) ++end;
    out += out.empty() ? "" : ", ";
    out += end - i == 1 ? fmt::format("{}", numbers[i])
                        : fmt::format("{}-{}", numbers[i], numbers[end - 1]);
    i = end;
  }
  return out;
}

/// A step of 1, 2 or 5 times a power of ten that divides `max` into two to five parts.
double TickStep(double max) {
  const double power = std::pow(10, std::floor(std::log10(max)));
  for (const double step : {0.2, 0.5, 1.0}) {
    if (max / (step * power) <= 5) return step * power;
  }
  return 2 * power;
}

// ---- What is drawn

struct Stage {
  size_t begin = 0, end = 0;  ///< Places of its layers.
  double compute_ms = 0;      ///< For a minibatch of the pipeline, by its slowest replica.
  int64_t weight_bytes = 0;
  int64_t out_bytes = 0;     ///< To later stages, each tensor once a stage that reads it.
  int64_t border_bytes = 0;  ///< Distinct tensors that cross its end.
  int64_t memory_bytes = 0;  ///< The largest of its workers; 0: unknown.
};

class Picture {
 public:
  explicit Picture(const Plan& plan) : plan_(plan) {
    Place();
    CountBorders();
  }

  std::string Draw() {
    Title();
    ComputePanel();
    BytesPanel();
    Borders();
    const double band = Names(kBytesTop + kBytesHeight + 10);
    const double table = Band(band + 6);
    const double bottom = Table(table + 34);
    const double width = kLeft + width_ + kRight;
    return fmt::format(
               "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" "
               "viewBox=\"0 0 {0:.0f} {1:.0f}\" font-family=\"sans-serif\" font-size=\"11\" "
               "fill=\"#222\">\n<rect width=\"{0:.0f}\" height=\"{1:.0f}\" fill=\"#fff\"/>\n",
               width, bottom + 16) +
           out_ + "</svg>\n";
  }

 private:
  double X(size_t place) const { return kLeft + static_cast<double>(place) * slot_; }
  const LayerCost& Layer(size_t place) const { return plan_.layers[order_[place]]; }
  std::string NameOf(size_t place) const { return Printable(Layer(place).name); }
  static const char* ColourOf(size_t stage) { return kStageColours[stage % kStageColours.size()]; }

  void Rect(double x, double y, double width, double height, std::string_view fill,
            std::string_view more = "") {
    if (height <= 0 || width <= 0) return;
    out_ += fmt::format(
        "<rect x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\" fill=\"{}\"{}/>\n", x,
        y, width, height, fill, more);
  }

  void Line(double x1, double y1, double x2, double y2, std::string_view more) {
    out_ += fmt::format("<line x1=\"{:.2f}\" y1=\"{:.2f}\" x2=\"{:.2f}\" y2=\"{:.2f}\" {}/>\n", x1,
                        y1, x2, y2, more);
  }

  // `more`: attributes, such as text-anchor.
  void Text(double x, double y, std::string_view text, std::string_view more = "") {
    out_ += fmt::format("<text x=\"{:.2f}\" y=\"{:.2f}\"{}{}>{}</text>\n", x, y,
                        more.empty() ? "" : " ", more, Escaped(text));
  }

  void Place() {
    std::unordered_map<std::string, size_t> index;
    for (size_t l = 0; l < plan_.layers.size(); ++l) index[plan_.layers[l].name] = l;
    stage_of_.resize(plan_.layers.size());
    for (size_t s = 0; s < plan_.stages.size(); ++s) {
      const StagePlan& from = plan_.stages[s];
      Stage stage;
      stage.begin = order_.size();
      double speed = 1;
      for (const int worker : from.workers) {
        const auto w = static_cast<size_t>(worker);
        if (plan_.cluster && w < plan_.cluster->speeds.size()) {
          const double its = plan_.cluster->speeds[w];
          speed = worker == from.workers[0] ? its : std::min(speed, its);
        }
        if (plan_.predicted && w < plan_.predicted->memory_bytes.size()) {
          stage.memory_bytes = std::max(stage.memory_bytes, plan_.predicted->memory_bytes[w]);
        }
      }
      for (const std::string& name : from.layers) {
        const auto found = index.find(name);
        PD_REQUIRE(found != index.end(),
                   "a picture needs the costs of every layer, found none of \"{}\"", name);
        const LayerCost& layer = plan_.layers[found->second];
        stage_of_[found->second] = s;
        order_.push_back(found->second);
        stage.compute_ms += layer.compute_ms() + (from.recompute ? layer.forward_ms : 0);
        stage.weight_bytes += layer.parameter_bytes;
      }
      stage.compute_ms /= static_cast<double>(from.workers.size()) * speed;
      stage.end = order_.size();
      stages_.push_back(stage);
    }
    PD_REQUIRE(!order_.empty(), "a picture needs a plan with layers and their costs, found none");
    const auto layers = static_cast<double>(order_.size());
    width_ = std::clamp(kLeastSlot * layers, kLeastWidth, kMostWidth);
    slot_ = width_ / layers;
    bar_ = std::min(slot_ > 6 ? slot_ * 0.8 : slot_, 40.0);
  }

  // A layer without inputs reads the one before it, as everywhere in planning.
  void CountBorders() {
    std::unordered_map<std::string, size_t> index;
    std::vector<std::set<size_t>> readers(plan_.layers.size());  // stages
    for (size_t l = 0; l < plan_.layers.size(); ++l) {
      const LayerCost& layer = plan_.layers[l];
      if (layer.inputs.empty() && l > 0) readers[l - 1].insert(stage_of_[l]);
      for (const std::string& input : layer.inputs) {
        const auto found = index.find(input);
        if (found != index.end()) readers[found->second].insert(stage_of_[l]);
      }
      index[layer.name] = l;
    }
    for (size_t l = 0; l < plan_.layers.size(); ++l) {
      const size_t home = stage_of_[l];
      const int64_t bytes = plan_.layers[l].activation_bytes;
      if (readers[l].empty()) continue;
      for (const size_t reader : readers[l]) stages_[home].out_bytes += reader > home ? bytes : 0;
      for (size_t s = home; s < *readers[l].rbegin(); ++s) stages_[s].border_bytes += bytes;
    }
  }

  std::string Replicas() const {
    std::vector<int> replicas;
    for (const StagePlan& stage : plan_.stages) {
      replicas.push_back(static_cast<int>(stage.workers.size()));
    }
    const std::string out = FormatReplicas(replicas);
    constexpr size_t kMost = 60;
    return out.size() > kMost ? fmt::format("of {} stages", stages_.size()) : out;
  }

  void Title() {
    size_t used = 0;
    for (const StagePlan& stage : plan_.stages) used += stage.workers.size();
    std::string text = fmt::format("plan {}: {}, {}", Replicas(),
                                   Counted(static_cast<int64_t>(order_.size()), "layer"),
                                   Counted(static_cast<int64_t>(used), "worker"));
    const int idle = plan_.world_size() - static_cast<int>(used);
    if (idle > 0) text += fmt::format(" and {} idle", idle);
    text += fmt::format(", batch {}, schedule {}", plan_.batch_size, plan_.schedule);
    Text(kLeft, 26, text, "font-size=\"17\" font-weight=\"bold\"");
    if (plan_.predicted) {
      const Predicted& predicted = *plan_.predicted;
      text = fmt::format("predicted: {} a minibatch, {:.4g} samples/s",
                         Milliseconds(predicted.minibatch_ms), predicted.samples_per_s);
      if (predicted.data_parallel_samples_per_s > 0) {
        text +=
            fmt::format("; data parallel {:.4g} samples/s", predicted.data_parallel_samples_per_s);
      }
      Text(kLeft, 44, text);
    }
    double x = kLeft;
    for (const auto& [colour, name] :
         {std::pair(kForward, "forward"), std::pair(kBackward, "backward"),
          std::pair(kUpdate, "update"), std::pair(kOutput, "output"),
          std::pair(kWeights, "parameters")}) {
      Rect(x, 54, 10, 10, colour);
      Text(x + 14, 63, name);
      x += 30 + kChar * static_cast<double>(std::string_view(name).size());
    }
    Text(
        x + 6, 63,
        "of one minibatch; dashed: a border, and the bytes that cross it each way; bars of compute "
        "have tooltips");
  }

  // The stages as a tint behind a panel.
  void Tint(double top, double height) {
    for (size_t s = 0; s < stages_.size(); ++s) {
      Rect(X(stages_[s].begin), top, X(stages_[s].end) - X(stages_[s].begin), height, ColourOf(s),
           " fill-opacity=\"0.35\"");
    }
  }

  void Grid(double y, std::string_view label) {
    Line(kLeft, y, kLeft + width_, y, "stroke=\"#bbb\" stroke-width=\"0.5\"");
    Text(kLeft - 6, y + 4, label, "text-anchor=\"end\"");
  }

  void AxisTitle(std::string_view text, double y) {
    Text(0, 0, text,
         fmt::format("text-anchor=\"middle\" transform=\"translate(12 {:.2f}) rotate(-90)\"", y));
  }

  void ComputePanel() {
    double max = 0;
    for (const LayerCost& layer : plan_.layers) max = std::max(max, layer.compute_ms());
    if (max <= 0) max = 1;
    const double scale = kComputeHeight / max / kHeadroom;
    const double bottom = kComputeTop + kComputeHeight;
    Tint(kComputeTop, kComputeHeight);
    AxisTitle("compute", kComputeTop + kComputeHeight / 2);
    const double step = TickStep(max);
    for (int i = 0; i * step <= max; ++i) {
      Grid(bottom - i * step * scale, Milliseconds(i * step));
    }
    for (size_t place = 0; place < order_.size(); ++place) {
      const LayerCost& layer = Layer(place);
      const double x = X(place) + (slot_ - bar_) / 2;
      out_ += fmt::format("<g><title>{}</title>\n", Escaped(Tooltip(place)));
      double y = bottom;
      for (const auto& [ms, colour] :
           {std::pair(layer.forward_ms, kForward), std::pair(layer.backward_ms, kBackward),
            std::pair(layer.update_ms.value_or(0), kUpdate)}) {
        const double height = ms * scale;
        Rect(x, y - height, bar_, height, colour);
        y -= height;
      }
      out_ += "</g>\n";
    }
  }

  std::string Tooltip(size_t place) const {
    const LayerCost& layer = Layer(place);
    std::string text = fmt::format("{}: forward {}, backward {}", NameOf(place),
                                   Milliseconds(layer.forward_ms), Milliseconds(layer.backward_ms));
    if (layer.update_ms) text += fmt::format(", update {}", Milliseconds(*layer.update_ms));
    return text + fmt::format(", output {}, parameters {}", Bytes(layer.activation_bytes),
                              Bytes(layer.parameter_bytes));
  }

  // Outputs upwards, parameters downwards from one line, on one scale.
  void BytesPanel() {
    int64_t output = 0, weights = 0;
    for (const LayerCost& layer : plan_.layers) {
      output = std::max(output, layer.activation_bytes);
      weights = std::max(weights, layer.parameter_bytes);
    }
    const double all = std::max(1.0, static_cast<double>(output) + static_cast<double>(weights));
    const double scale = kBytesHeight / all / kHeadroom;
    const double margin = kBytesHeight * (1 - 1 / kHeadroom) / 2;
    const double zero = kBytesTop + margin + static_cast<double>(output) * scale;
    Tint(kBytesTop, kBytesHeight);
    AxisTitle("output and parameters", kBytesTop + kBytesHeight / 2);
    const double step =
        TickStep(std::max<double>(1, static_cast<double>(std::max(output, weights))));
    for (int i = 0; i * step <= static_cast<double>(output); ++i) {
      Grid(zero - i * step * scale, FormatBytes(i * step));
    }
    for (int i = 1; i * step <= static_cast<double>(weights); ++i) {
      Grid(zero + i * step * scale, FormatBytes(i * step));
    }
    for (size_t place = 0; place < order_.size(); ++place) {
      const LayerCost& layer = Layer(place);
      const double x = X(place) + (slot_ - bar_) / 2;
      const double up = static_cast<double>(layer.activation_bytes) * scale;
      Rect(x, zero - up, bar_, up, kOutput);
      Rect(x, zero, bar_, static_cast<double>(layer.parameter_bytes) * scale, kWeights);
    }
  }

  void Borders() {
    double free = 0;  // right end of the last label
    for (size_t s = 0; s + 1 < stages_.size(); ++s) {
      const double x = X(stages_[s].end);
      Line(x, kComputeTop - 6, x, kBytesTop + kBytesHeight + 6,
           "stroke=\"#444\" stroke-width=\"1\" stroke-dasharray=\"4 3\"");
      const std::string label = Bytes(stages_[s].border_bytes);
      const double half = kChar / 2 * static_cast<double>(label.size());
      if (x - half < free) continue;  // the table has them all
      Text(x, kComputeTop - 10, label, "text-anchor=\"middle\"");
      free = x + half + 6;
    }
  }

  // Turned names of as many layers as there is room for, those with the largest bars first. Returns
  // the y where they end.
  double Names(double top) {
    std::vector<size_t> places(order_.size());
    for (size_t i = 0; i < places.size(); ++i) places[i] = i;
    double max_ms = 0, max_bytes = 0;
    const auto bytes = [&](const LayerCost& layer) {
      return static_cast<double>(std::max(layer.activation_bytes, layer.parameter_bytes));
    };
    for (const LayerCost& layer : plan_.layers) {
      max_ms = std::max(max_ms, layer.compute_ms());
      max_bytes = std::max(max_bytes, bytes(layer));
    }
    const auto weight = [&](size_t place) {
      const LayerCost& layer = Layer(place);
      return std::max(max_ms > 0 ? layer.compute_ms() / max_ms : 0,
                      max_bytes > 0 ? bytes(layer) / max_bytes : 0);
    };
    std::stable_sort(places.begin(), places.end(),
                     [&](size_t a, size_t b) { return weight(a) > weight(b); });
    std::set<double> taken;
    size_t longest = 0;
    for (const size_t place : places) {
      const double x = X(place) + slot_ / 2;
      const auto next = taken.lower_bound(x);
      if (next != taken.end() && *next - x < kNameSlot - 1e-6) continue;
      if (next != taken.begin() && x - *std::prev(next) < kNameSlot - 1e-6) continue;
      taken.insert(x);
      const std::string name = Cut(NameOf(place), kMostNameChars);
      longest = std::max(longest, DisplayWidth(name));
      Text(0, 0, name,
           fmt::format("font-size=\"9\" text-anchor=\"end\" transform=\"translate({:.2f} {:.2f}) "
                       "rotate(-90)\"",
                       x + 3, top));
    }
    return top + kNameChar * static_cast<double>(longest) + 4;
  }

  // A lane a replica over the layers of its stage. Returns the y where they end.
  double Band(double top) {
    size_t most = 1;
    for (const StagePlan& stage : plan_.stages) most = std::max(most, stage.workers.size());
    const double height = kLane * static_cast<double>(std::min<size_t>(most, kMostLanes));
    Text(kLeft - 6, top + 11, "workers", "text-anchor=\"end\"");
    for (size_t s = 0; s < stages_.size(); ++s) {
      const std::vector<int>& workers = plan_.stages[s].workers;
      const double x = X(stages_[s].begin), width = X(stages_[s].end) - x;
      const size_t lanes = std::min<size_t>(workers.size(), kMostLanes);
      for (size_t lane = 0; lane < lanes; ++lane) {
        const double y = top + kLane * static_cast<double>(lane);
        Rect(x, y, width, kLane - 1, ColourOf(s), " stroke=\"#888\" stroke-width=\"0.5\"");
        // With more replicas than lanes the last lane stands for all that are left.
        const bool rest = lane + 1 == lanes && workers.size() > lanes;
        const std::string label = rest ? fmt::format("{} more", workers.size() - lanes + 1)
                                       : fmt::format("{}", workers[lane]);
        if (kChar * static_cast<double>(label.size()) + 2 <= width) {
          Text(x + width / 2, y + 11, label, "text-anchor=\"middle\"");
        }
      }
    }
    return top + height;
  }

  std::string LayersOf(const Stage& stage, bool recompute) const {
    const size_t count = stage.end - stage.begin;
    const char* const again = recompute ? ", recomputed" : "";
    const std::string first = NameOf(stage.begin);
    if (count == 1) return fmt::format("{} (1{})", Cut(first, 30), again);
    return fmt::format("{} … {} ({}{})", Cut(first, 16), Cut(NameOf(stage.end - 1), 16), count,
                       again);
  }

  // A row a stage. Returns the y of its end.
  double Table(double top) {
    constexpr double kCompute = 470, kMemory = 830, kBar = 90;
    double most_ms = 0, most_bytes = 0;
    for (const Stage& stage : stages_) {
      most_ms = std::max(most_ms, stage.compute_ms);
      most_bytes = std::max(most_bytes, static_cast<double>(stage.memory_bytes));
    }
    const bool limited = plan_.cluster && plan_.cluster->memory_bytes;
    const double limit = limited ? static_cast<double>(*plan_.cluster->memory_bytes) : 0;
    most_bytes = std::max(most_bytes, std::min(limit, 4 * most_bytes));
    const auto cell = [&](double x, double y, const std::string& text, bool head = false) {
      Text(kLeft + x, y, text, head ? "font-weight=\"bold\"" : "");
    };
    const double head = top - 6;
    for (const auto& [x, text] :
         {std::pair(0.0, "stage"), std::pair(44.0, "layers"), std::pair(340.0, "workers"),
          std::pair(kCompute, "compute a minibatch"), std::pair(640.0, "sends on"),
          std::pair(730.0, "all-reduce"), std::pair(kMemory, "memory a worker")}) {
      cell(x, head, text, true);
    }
    for (size_t s = 0; s < stages_.size(); ++s) {
      const Stage& stage = stages_[s];
      const double y = top + kRow * static_cast<double>(s), base = y + 13;
      const std::vector<int>& workers = plan_.stages[s].workers;
      const auto replicas = static_cast<double>(workers.size());
      Rect(kLeft - 2, y, 30, kRow - 3, ColourOf(s), " stroke=\"#888\" stroke-width=\"0.5\"");
      cell(6, base, fmt::format("{}", s));
      cell(44, base, LayersOf(stage, plan_.stages[s].recompute));
      cell(340, base,
           Cut(workers.size() == 1
                   ? Ranges(workers)
                   : fmt::format("{} ({} replicas)", Ranges(workers), workers.size()),
               20));
      Rect(kLeft + kCompute, y + 3, most_ms > 0 ? stage.compute_ms / most_ms * kBar : 0, kRow - 9,
           kForward);
      cell(kCompute + kBar + 6, base, Milliseconds(stage.compute_ms));
      cell(640, base, Bytes(stage.out_bytes));
      cell(730, base,
           FormatBytes(2 * (replicas - 1) / replicas * static_cast<double>(stage.weight_bytes)));
      if (stage.memory_bytes == 0) {
        cell(kMemory, base, "unknown");
        continue;
      }
      const auto memory = static_cast<double>(stage.memory_bytes);
      Rect(kLeft + kMemory, y + 3, memory / most_bytes * kBar, kRow - 9, kOutput);
      cell(kMemory + kBar + 6, base, Bytes(stage.memory_bytes));
    }
    const double bottom = top + kRow * static_cast<double>(stages_.size());
    if (limited && limit <= most_bytes && most_bytes > 0) {
      const double x = kLeft + kMemory + limit / most_bytes * kBar;
      Line(x, top, x, bottom - 3, "stroke=\"#b00\" stroke-width=\"1\"");
    }
    if (limited) {
      cell(kMemory, bottom + 12, fmt::format("limit {}", FormatBytes(limit)));
      return bottom + 14;
    }
    return bottom;
  }

  const Plan& plan_;
  std::vector<size_t> order_;     ///< Layers in the order of places.
  std::vector<size_t> stage_of_;  ///< Of each layer.
  std::vector<Stage> stages_;
  double width_ = 0, slot_ = 0, bar_ = 0;
  std::string out_;
};

}  // namespace

std::string PlanPicture(const Plan& plan) { return Picture(plan).Draw(); }

}  // namespace pd
