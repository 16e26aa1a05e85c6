#pragma once

#include <fmt/format.h>

#include <initializer_list>
#include <string>
#include <vector>

#include "schedule/schedule.h"

namespace pd {

/// A shape with `replicas` a stage and the default depths.
inline PipelineShape ShapeOf(const std::vector<int>& replicas) {
  PipelineShape shape;
  for (const int r : replicas) shape.stages.push_back({r, 1});
  for (int s = 0; s < shape.num_stages(); ++s)
    shape.stages[s].in_flight = DefaultInFlight(shape, s);
  return shape;
}

inline PipelineShape ShapeOf(const std::vector<int>& replicas, const std::vector<int>& depths) {
  PipelineShape shape;
  for (size_t s = 0; s < replicas.size(); ++s) shape.stages.push_back({replicas[s], depths[s]});
  return shape;
}

inline std::string TextOf(const PipelineShape& shape) {
  std::string text;
  for (const auto& stage : shape.stages)
    text += fmt::format(" {}x{}", stage.replicas, stage.in_flight);
  return text;
}

/// Straight pipelines and replicated ones with the default depths.
inline std::vector<PipelineShape> DefaultShapes() {
  std::vector<PipelineShape> shapes;
  for (int n = 1; n <= 6; ++n) shapes.push_back(ShapeOf(std::vector<int>(n, 1)));
  for (int n = 2; n <= 5; ++n) shapes.push_back(ShapeOf({n}));
  for (const auto& replicas : std::initializer_list<std::vector<int>>{{2, 1},
                                                                      {1, 2},
                                                                      {2, 2},
                                                                      {3, 2},
                                                                      {2, 3},
                                                                      {2, 3, 1},
                                                                      {7, 1},
                                                                      {1, 3},
                                                                      {1, 7},
                                                                      {3, 1, 2},
                                                                      {2, 1, 1},
                                                                      {9, 5, 1, 1},
                                                                      {1, 4, 1},
                                                                      {4, 3, 2, 1},
                                                                      {1, 2, 3, 4},
                                                                      {5, 3}}) {
    shapes.push_back(ShapeOf(replicas));
  }
  return shapes;
}

/// The same with depths raised: the first stage's alone, or each as far as the stage before can
/// feed it.
inline std::vector<PipelineShape> RaisedShapes() {
  std::vector<PipelineShape> shapes{ShapeOf({2, 3, 1}, {6, 2, 1}), ShapeOf({1, 1}, {2, 2}),
                                    ShapeOf({1, 1, 1}, {7, 7, 7}), ShapeOf({2, 1}, {3, 5})};
  for (PipelineShape shape : DefaultShapes()) {
    shape.stages[0].in_flight += 3;
    shapes.push_back(shape);
    // Every stage may be as deep as the stage before feeds it.
    for (int s = 1; s < shape.num_stages(); ++s) {
      const auto& feeder = shape.stages[s - 1];
      shape.stages[s].in_flight =
          (feeder.in_flight - 1) * feeder.replicas / shape.stages[s].replicas + 1;
    }
    shapes.push_back(shape);
  }
  return shapes;
}

}  // namespace pd
