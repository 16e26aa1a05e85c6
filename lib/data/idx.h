#pragma once

#include <string>
#include <vector>

#include "data/images.h"

namespace pd {

/// Whether one of the names is one that MNIST's files have (FindIdxFile), of either split.
bool LooksLikeIdx(const std::vector<std::string>& entries);

/// Opens the four files of MNIST, Fashion-MNIST and their kin: train- and t10k-images-idx3-ubyte
/// (shape [1, rows, columns]) and -labels-idx1-ubyte, each also with '.' before idx and with .gz
/// behind. Where a file is there more than once, the unpacked one is read. Source:
/// http://yann.lecun.com/exdb/mnist, "the IDX file format".
DataSource OpenIdx(const std::string& directory, const std::vector<std::string>& entries,
                   const DataRequest& request);

}  // namespace pd
