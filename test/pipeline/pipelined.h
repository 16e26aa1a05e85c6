#pragma once

#include "pipeline/serial.h"
#include "transport/loopback/loopback.h"

namespace pd {

/// Runs this rank's part of `c`, the whole pipeline being the ranks of `transport`: rank by rank,
/// stage by stage. Returns what all ranks hold at the end, on every rank; PD_CHECKs that replicas
/// agree bit for bit.
TrainingResult TrainPipelined(const TrainingCase& c, const Dataset& data, Transport& transport);

/// The same on threads of this process; `eager_bytes` and `copy` as
/// LoopbackHub's.
TrainingResult TrainOnThreads(const TrainingCase& c, const Dataset& data, size_t eager_bytes = 4096,
                              LoopbackHub::Copy copy = nullptr);

/// Where `got` is not `wanted`, bit for bit: the first name that differs, and how; "" when nowhere.
std::string Difference(const TrainingResult& got, const TrainingResult& wanted);

/// Images and labels in [0, classes), from a seed.
class RandomData final : public Dataset {
 public:
  RandomData(int64_t size, Shape image, int64_t classes, uint64_t seed);
  int64_t size() const override { return size_; }
  const std::vector<TensorSpec>& fields() const override { return fields_; }
  void Read(int64_t index, int field, uint64_t epoch, void* out) const override;

 private:
  int64_t size_, classes_;
  std::vector<TensorSpec> fields_;
  uint64_t seed_;
};

/// The plans that the runtime must train exactly: 1 to 4 stages straight, and replicas 2-1, 1-2,
/// 2-2, 3-2, 2-3-1 (and more), some on machines of several workers, of a network with convolution,
/// batch norm, pooling, dropout, and tensors that skip stages.
struct NamedCase {
  std::string name;
  TrainingCase c;
};
std::vector<NamedCase> OracleCases(const std::string& backend);
/// Data that fits them.
RandomData OracleData();

}  // namespace pd
