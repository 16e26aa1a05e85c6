#pragma once

#include <string>
#include <vector>

#include "data/images.h"

namespace pd {

/// Whether one of the names is one that CIFAR-10's or CIFAR-100's binary files have.
bool LooksLikeCifar(const std::vector<std::string>& entries);

/// Opens the binary version of CIFAR-10 (data_batch_1.bin to data_batch_5.bin and test_batch.bin)
/// or CIFAR-100 (train.bin and test.bin; the labels are the 100 fine ones). Images [3, 32, 32].
/// Refuses files that do not have exactly the published length.
/// Source: https://www.cs.toronto.edu/~kriz/cifar.html, "Binary version".
DataSource OpenCifar(const std::string& directory, const std::vector<std::string>& entries,
                     const DataRequest& request);

}  // namespace pd
