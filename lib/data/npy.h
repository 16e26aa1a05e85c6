#pragma once

#include <string>
#include <vector>

#include "data/dataset.h"

namespace pd {

/// Whether one of the names is train-INPUT.npy or test-INPUT.npy.
bool LooksLikeNpy(const std::vector<std::string>& entries);

/// Opens NumPy arrays: train-INPUT.npy and test-INPUT.npy for each graph input INPUT, of shape
/// [samples] + the input's shape, in C order. Header versions 1 to 3, little-endian. An f32 input
/// takes f4, f8 (rounded) and u1; an i32 input takes i4, i8 and u1. Values are used as they are,
/// samples are read from the files one by one. Refuses headers that do not agree with the file's
/// length, files of a split with different numbers of samples, integers outside their input's
/// limit (with the sample's index).
/// Source: numpy.lib.format, "Format Specification".
DataSource OpenNpy(const std::string& directory, const DataRequest& request);

}  // namespace pd
