#include "layer/embedding.h"

namespace pd {
namespace {

class Embedding : public Layer {
 public:
  explicit Embedding(const LayerReader& reader) : Layer(reader.name(), reader.type()) {
    reader.CheckKeys({"num_embeddings", "embedding_dim", "init"});
    reader.RequireInputs(1);
    if (reader.Spec(0).dtype != DType::kI32) reader.FailInput(0, "indices i32 […]");
    desc_.count = reader.Int("num_embeddings", 1);
    desc_.dim = reader.Int("embedding_dim", 1);
    Shape shape = reader.Spec(0).shape;
    shape.push_back(desc_.dim);
    output_ = reader.Output(std::move(shape));
    params_ = reader.Params({{"weight", {desc_.count, desc_.dim}, {Init::Kind::kNormal, 1}}});
  }

  int64_t limit() const override { return desc_.count; }

  std::unique_ptr<Op> Plan(Backend& backend, const OpRequest& request, uint64_t) const override {
    return backend.PlanEmbedding(desc_, request);
  }

 private:
  EmbeddingDesc desc_;
};

}  // namespace

std::unique_ptr<Layer> MakeEmbedding(const LayerReader& reader) {
  return std::make_unique<Embedding>(reader);
}

}  // namespace pd
