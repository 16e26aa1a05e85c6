#pragma once

#include <string>

#include "partition/pipeline.h"

namespace pd {

/// A device or one direction of a link, and how long it is busy for each minibatch of the pipeline:
/// no schedule is faster.
struct Bottleneck {
  std::string what;  ///< "compute of stage 0", "links of stage 1", "links of machine 2".
  double ms = 0;
};

/// The busiest resource of a pipeline under this project's runtime: exact bytes, headers and labels
/// included. The first of equals, devices before links.
Bottleneck BusiestResource(const PipelineShape& shape, const SimulatedPipeline& pipeline);

}  // namespace pd
