#pragma once

#include <string>
#include <vector>

#include "data/images.h"

namespace pd {

/// Whether `directory` holds a directory "train".
bool LooksLikeImageFolder(const std::string& directory, const std::vector<std::string>& entries);

inline constexpr int64_t kMeasuredImages = 512;

/// Opens images sorted into folders: DIRECTORY/train/CLASS/NAME.png (or .jpg, .jpeg, in any case)
/// and the same below test, or where there is none, val. Classes are the folders of train in
/// byte-wise order; hidden ones (.NAME) are none. A file's first bytes tell what it is
/// (ImageFileReader); it is decoded when it is read, and made to the model's 1 or 3 channels. Mean
/// and deviation are measured on kMeasuredImages training images, chosen by the seed, unless
/// options give them.
///
/// When opened, the header and the end of each file are looked at, and what is bad is refused with
/// its path, or with the option skip_bad left out and counted in a warning. Damage that only
/// decoding shows ends the run with the path. Refuses classes that only test has, classes without
/// images, more classes than the model has, folders in a class, images outside a class, and images
/// that do not fit the model.
DataSource OpenImageFolder(const std::string& directory, const DataRequest& request);

}  // namespace pd
