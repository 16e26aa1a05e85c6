#pragma once

#include <string>
#include <vector>

#include "data/dataset.h"

namespace pd {

/// Whether there is a train.txt.
bool LooksLikeText(const std::vector<std::string>& entries);

/// Opens train.txt and test.txt (or, where that is not there, valid.txt), UTF-8. Option "tokens":
/// "chars" (default: code points) or "words" (what stands between white space of ASCII).
/// The model has one i32 input [T] and one target [T]: sample s of a split are its tokens T·s to
/// T·s + T - 1, the targets the tokens one later; what is left at the end is not read.
/// Ids: 0 is every token that is not in the vocabulary; then the tokens of train.txt, the most
/// frequent first, of equal ones the first byte-wise, as many as the inputs' limit holds. Metadata:
/// {"format": "text", "tokens": …, "vocabulary": [null, …]}, a token at the place of its id.
DataSource OpenText(const std::string& directory, const std::vector<std::string>& entries,
                    const DataRequest& request);

}  // namespace pd
