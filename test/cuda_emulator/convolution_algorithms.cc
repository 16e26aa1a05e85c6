// Which convolutions each algorithm supports, as the tables under cudnnConvolutionForward,
// -BackwardData and -BackwardFilter say for f32 and filters in NCHW, and what workspace it asks:
// odd sizes of no meaning, different for each algorithm and math type.

#include <iterator>

#include "convolution.h"

namespace cuda_emulator::library {
namespace {

TensorView Checked4d(const cudnnTensorStruct* descriptor, const char* name) {
  const TensorView view = FloatTensor(descriptor, name);
  Require(view.rank == 4, Fault::kNotSupported, name,
          "is not 4D: only 2D convolutions are emulated");
  Require(!view.Overlaps(), Fault::kNotSupported, name, "has overlapping strides");
  return view;
}

// What restricts an algorithm.
struct Needs {
  bool unit_stride = false;
  bool unit_dilation = false;
  bool packed_planes = false;  // x and y HW-packed
  bool three_by_three = false;
  bool or_five_by_five = false;
  bool kernel_above_padding = false;
  int64_t largest_input = 0;  // padded height and width; 0: any
  int64_t largest_kernel = 0;
};

bool Meets(const Convolution& v, const Needs& needs) {
  const int64_t h = v.x.dims[2] + 2 * v.rows.padding, w = v.x.dims[3] + 2 * v.columns.padding;
  const int64_t r = v.rows.size, s = v.columns.size;
  if (needs.unit_stride && (v.rows.stride != 1 || v.columns.stride != 1)) return false;
  if (needs.unit_dilation && (v.rows.dilation != 1 || v.columns.dilation != 1)) return false;
  if (needs.packed_planes && !(v.x.PackedFrom(2) && v.y.PackedFrom(2))) return false;
  if (needs.three_by_three) {
    const bool three = r == 3 && s == 3, five = r == 5 && s == 5;
    if (!three && !(needs.or_five_by_five && five)) return false;
  }
  if (needs.kernel_above_padding && (r <= v.rows.padding || s <= v.columns.padding)) return false;
  if (needs.largest_input > 0 && (h > needs.largest_input || w > needs.largest_input)) return false;
  if (needs.largest_kernel > 0 && (r > needs.largest_kernel || s > needs.largest_kernel)) {
    return false;
  }
  return true;
}

enum class Kind { kNone, kDirect, kPrecomputed, kGemm, kFft, kFftTiling, kWinograd, kNonfused };

struct Entry {
  Kind kind;
  bool deterministic;
};

constexpr Entry kForward[] = {
    {Kind::kDirect, true},   {Kind::kPrecomputed, true},
    {Kind::kGemm, true},     {Kind::kNone, true},  // DIRECT: "has no current implementation"
    {Kind::kFft, true},      {Kind::kFftTiling, true},
    {Kind::kWinograd, true}, {Kind::kNonfused, true}};
constexpr Entry kBackwardData[] = {{Kind::kDirect, false},  {Kind::kPrecomputed, true},
                                   {Kind::kFft, true},      {Kind::kFftTiling, true},
                                   {Kind::kWinograd, true}, {Kind::kNonfused, true}};
constexpr Entry kBackwardFilter[] = {{Kind::kDirect, false},  {Kind::kPrecomputed, true},
                                     {Kind::kFft, true},      {Kind::kPrecomputed, false},
                                     {Kind::kNone, true},  // WINOGRAD: "not implemented"
                                     {Kind::kNonfused, true}, {Kind::kFftTiling, true}};

Needs NeedsOf(Kind kind) {
  Needs needs;
  switch (kind) {
    case Kind::kNone:
    case Kind::kDirect:
    case Kind::kPrecomputed:
      break;
    case Kind::kGemm:
      needs.unit_dilation = true;
      break;
    case Kind::kFft:
      needs.unit_stride = needs.unit_dilation = needs.packed_planes = true;
      needs.kernel_above_padding = true;
      needs.largest_input = 256;
      break;
    case Kind::kFftTiling:
      needs.unit_stride = needs.unit_dilation = needs.packed_planes = true;
      needs.kernel_above_padding = true;
      needs.largest_kernel = 32;
      break;
    case Kind::kWinograd:
      needs.unit_stride = needs.unit_dilation = needs.three_by_three = true;
      break;
    case Kind::kNonfused:
      needs.unit_stride = needs.unit_dilation = needs.three_by_three = true;
      needs.or_five_by_five = true;
      break;
  }
  return needs;
}

size_t WorkspaceBytes(Kind kind, int id, const Convolution& v) {
  const auto filters = static_cast<size_t>(v.w.Count());
  const auto inputs = static_cast<size_t>(v.x.Count()), outputs = static_cast<size_t>(v.y.Count());
  const size_t odd = 2 * static_cast<size_t>(id) + 64 * static_cast<size_t>(v.math) + 1;
  switch (kind) {
    case Kind::kNone:
    case Kind::kDirect:
      return 0;
    case Kind::kPrecomputed: {
      // With tensor cores both tensors may be copied to another order of their elements.
      const bool copies = v.math != CUDNN_FMA_MATH;
      return (filters + (copies ? inputs + outputs : 0)) * 4 + 12 + odd;
    }
    case Kind::kGemm:
      return static_cast<size_t>(v.w.Count() / v.w.dims[0] * v.y.dims[2] * v.y.dims[3]) * 4 + odd;
    case Kind::kFft:
      return (inputs + outputs + filters) * 32 + odd;
    case Kind::kFftTiling:
      return (inputs + filters) * 16 + odd;
    case Kind::kWinograd:
      return filters * 8 + odd;
    case Kind::kNonfused:
      return (inputs + outputs) * 8 + filters * 8 + odd;
  }
  return 0;
}

const Entry* Entries(Pass pass) {
  return pass == Pass::kForward        ? kForward
         : pass == Pass::kBackwardData ? kBackwardData
                                       : kBackwardFilter;
}

}  // namespace

static_assert(std::size(kForward) == CUDNN_CONVOLUTION_FWD_ALGO_COUNT);
static_assert(std::size(kBackwardData) == CUDNN_CONVOLUTION_BWD_DATA_ALGO_COUNT);
static_assert(std::size(kBackwardFilter) == CUDNN_CONVOLUTION_BWD_FILTER_ALGO_COUNT);

Convolution::Convolution(const cudnnTensorStruct* x_descriptor,
                         const cudnnFilterStruct* w_descriptor,
                         const cudnnConvolutionStruct* convolution,
                         const cudnnTensorStruct* y_descriptor)
    : x(Checked4d(x_descriptor, "the input's descriptor")),
      y(Checked4d(y_descriptor, "the output's descriptor")) {
  const cudnnFilterStruct& filter = Described(w_descriptor, "the filter's descriptor");
  const cudnnConvolutionStruct& conv = Described(convolution, "convDesc");
  Require(filter.type == CUDNN_DATA_FLOAT && conv.compute_type == CUDNN_DATA_FLOAT,
          Fault::kNotSupported, "filter or computeType", "is not CUDNN_DATA_FLOAT");
  Require(filter.format == CUDNN_TENSOR_NCHW, Fault::kNotSupported, "filter",
          "is not of CUDNN_TENSOR_NCHW");
  Require(filter.view.rank == 4 && conv.spatial_rank == 2, Fault::kNotSupported, "convolution",
          "is not 2D");
  w = filter.view;
  rows = conv.windows[0];
  columns = conv.windows[1];
  rows.size = w.dims[2];
  columns.size = w.dims[3];
  groups = conv.groups;
  flip = conv.mode == CUDNN_CONVOLUTION;
  math = conv.math_type;
  Require(x.dims[1] % groups == 0 && w.dims[0] % groups == 0, Fault::kBadParam, "groupCount",
          "does not divide the input's and the output's channels");
  Require(w.dims[1] == x.dims[1] / groups, Fault::kBadParam, "filter",
          "has another number of input channels than the input over groupCount");
  const int64_t dims[] = {x.dims[0], w.dims[0], rows.Outputs(x.dims[2]),
                          columns.Outputs(x.dims[3])};
  for (int i = 0; i < 4; ++i) {
    Require(dims[i] > 0, Fault::kBadParam, "filter", "is larger than the padded input");
    Require(y.dims[i] == dims[i], Fault::kBadParam, "the output's descriptor",
            "has not the output's dimensions");
  }
}

int AlgorithmCount(Pass pass) {
  switch (pass) {
    case Pass::kForward:
      return static_cast<int>(std::size(kForward));
    case Pass::kBackwardData:
      return static_cast<int>(std::size(kBackwardData));
    case Pass::kBackwardFilter:
      break;
  }
  return static_cast<int>(std::size(kBackwardFilter));
}

Algorithm DescribeAlgorithm(Pass pass, int id, const Convolution& convolution) {
  Require(id >= 0 && id < AlgorithmCount(pass), Fault::kBadParam, "algo", "is no algorithm");
  const Entry& entry = Entries(pass)[id];
  Algorithm algorithm;
  algorithm.id = id;
  algorithm.deterministic = entry.deterministic;
  algorithm.supported = entry.kind != Kind::kNone && Meets(convolution, NeedsOf(entry.kind));
  algorithm.workspace_bytes = WorkspaceBytes(entry.kind, id, convolution);
  return algorithm;
}

}  // namespace cuda_emulator::library
