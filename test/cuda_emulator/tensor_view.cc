#include "tensor_view.h"

#include <algorithm>
#include <array>

namespace cuda_emulator::library {
namespace {

// Axes with more than one index, the smallest stride first.
std::vector<int> AxesByStride(const TensorView& view) {
  std::vector<int> axes;
  for (int i = 0; i < view.rank; ++i) {
    if (view.dims[i] > 1) axes.push_back(i);
  }
  std::sort(axes.begin(), axes.end(),
            [&](int a, int b) { return view.strides[a] < view.strides[b]; });
  return axes;
}

}  // namespace

bool TensorView::ChannelsLast() const {
  if (rank < 3 || strides[1] != 1) return false;
  int64_t expected = dims[1];
  for (int i = rank - 1; i >= 2; --i) {
    if (strides[i] != expected) return false;
    expected *= dims[i];
  }
  return strides[0] == expected;
}

bool TensorView::Overlaps() const {
  int64_t reach = 0;  // offset of the last element of the axes seen so far
  for (const int axis : AxesByStride(*this)) {
    if (strides[axis] <= reach) return true;
    reach += (dims[axis] - 1) * strides[axis];
  }
  return false;
}

TensorView::Runs TensorView::ContiguousRuns() const {
  constexpr int64_t kMaxRuns = 256;
  Runs runs;
  runs.run_length = 1;
  TensorView outer;
  for (const int axis : AxesByStride(*this)) {
    if (outer.rank == 0 && strides[axis] == runs.run_length) {
      runs.run_length *= dims[axis];
    } else {
      outer.dims[outer.rank] = dims[axis];
      outer.strides[outer.rank] = strides[axis];
      ++outer.rank;
    }
  }
  if (outer.Count() > kMaxRuns) return {Extent(), {0}};
  ForEachIndex<1>(outer.rank, outer.dims, {outer.strides},
                  [&](const int64_t* offsets) { runs.offsets.push_back(offsets[0]); });
  std::sort(runs.offsets.begin(), runs.offsets.end());
  return runs;
}

TensorView Dense(const std::vector<int64_t>& dims) {
  TensorView view;
  view.rank = static_cast<int>(dims.size());
  int64_t stride = 1;
  for (int i = view.rank - 1; i >= 0; --i) {
    view.dims[i] = dims[static_cast<size_t>(i)];
    view.strides[i] = stride;
    stride *= view.dims[i];
  }
  return view;
}

}  // namespace cuda_emulator::library
