#pragma once

#include <memory>

#include "backend/op.h"

namespace pd::ref {

/// T float or double; shapes at EmbeddingDesc. Forward throws kInvalidInput, before it writes
/// anything, when an index has no row.
template <typename T>
std::unique_ptr<Op> MakeEmbedding(const EmbeddingDesc& desc, const OpRequest& request);

/// y = x + weight for each sample. Shapes: x [N, …], weight […] → y [N, …].
template <typename T>
std::unique_ptr<Op> MakePositionEmbedding(const OpRequest& request);

}  // namespace pd::ref
