#pragma once

#include "data/images.h"

namespace pd {

/// Data made up on the spot, for trying things out without files: 6,400 training and 1,000 test
/// samples of any shape, each the pattern of its class plus noise that is nearly Gaussian. Depends
/// on the seed only. Mean about 0, deviation about 1; class of sample i: i mod classes.
DataSource OpenSynthetic(const DataRequest& request);

}  // namespace pd
