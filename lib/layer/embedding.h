#pragma once

#include <memory>

#include "layer/layer.h"
#include "layer/reader.h"

namespace pd {

/// embedding: indices […], i32, from 0 to num_embeddings - 1 → their rows of the weight,
/// […, embedding_dim]. Keys num_embeddings, embedding_dim. Parameter weight [num_embeddings,
/// embedding_dim].
std::unique_ptr<Layer> MakeEmbedding(const LayerReader& reader);

}  // namespace pd
