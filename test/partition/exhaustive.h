#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "partition/search.h"
#include "plan/plan.h"

namespace pd {

/// A planner that looks at every plan of a few layers: every chain of downward-closed sets, every
/// replica count, every place. Written from the cost models' definitions on the layers themselves,
/// with bit masks for stages; traffic between machines by dealing minibatches one by one.
class Exhaustive {
 public:
  struct Placed {
    unsigned layers = 0;  ///< Bit mask.
    int first = 0, replicas = 1;
    bool recompute = false;
  };
  struct Candidate {
    int64_t ps = 0;
    int workers = 0;
    std::vector<Placed> stages;
  };

  Exhaustive(const std::vector<LayerCost>& layers, const SearchOptions& options);

  std::optional<Candidate> Best();
  /// Over all plans, of the largest need of a stage. Only where no candidate is left out.
  int64_t least_memory() const { return least_memory_; }

 private:
  struct Stage {  // what a mask of layers means as a stage
    double forward = 0, backward = 0, update = 0, weights = 0, in = 0, out = 0;
    double sends = 0, receives = 0;  // Tensors and gradients.
    double copies = 0;               // Of what is received, in the device's own order.
    int64_t sent_stash = 0;          // What sent outputs change of the stash.
    int64_t stash = 0, largest = 0, heaviest = 0;
  };

  void Extend(unsigned done, int next_worker);
  void Consider();
  const Stage& Of(unsigned mask);
  bool Separates(unsigned mask) const;
  int64_t ComputePs(const Placed& placed);
  double Slowest(const Placed& placed) const;
  int64_t WorkerLinkPs(const Placed& placed);
  int64_t AllReducePs(const Placed& placed);
  struct Sent {  // one m-th of the weights
    int from = 0, to = 0;
  };
  struct Traffic {
    bool inside_first = false;
    std::vector<Sent> sent;
  };
  Traffic AllReduce(const Placed& placed) const;
  int64_t StagePs(const Placed& placed);
  int Messages(int layer, unsigned mask) const;
  int64_t MachineLinksPs();
  int64_t BorderPs(unsigned done);
  int64_t Memory(const Placed& placed, int depth, bool recompute);
  static bool Earlier(const Candidate& a, const Candidate& b);

  const std::vector<LayerCost>& layers_;
  const SearchOptions& options_;
  int count_, workers_;
  bool places_ = false, arxiv_ = false;
  std::vector<unsigned> reads_;    // by layer: the layers that it reads
  std::vector<unsigned> readers_;  // by layer
  std::vector<bool> trained_;      // by layer: whether a gradient flows to its output
  std::vector<std::optional<Stage>> stages_;
  std::vector<Placed> plan_;
  std::optional<Candidate> best_;
  int64_t least_memory_ = INT64_MAX;
};

}  // namespace pd
