#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "backend/cuda/cuda_op.h"
#include "backend/cuda/ops.h"
#include "base/error.h"

// Three cuDNN routines, each with an algorithm of its own. cuDNN's heuristics order the algorithms
// by the speed that they expect; taken is the first that is deterministic and whose workspace is
// within the limit. They see shapes only, so a plan is the same in every run on one kind of device,
// which measuring (cudnnFind…) would not promise. Without TF32 the convolution's math type forbids
// it (CUDNN_DEFAULT_MATH would use it); what the heuristics give is asked for its workspace under
// the very math type that the call will have. Algorithms with TF32 may need more room than those
// without, to order elements otherwise; a routine that finds no room keeps to full f32.

namespace pd::cuda {
namespace {

template <typename Algo>
struct Chosen {
  cudnnConvolutionDescriptor_t conv = nullptr;
  Algo algo{};
  size_t workspace_bytes = 0;
};

/// From the first of `convs` that has one. `list(conv, asked, &count, perfs)` fills the heuristics'
/// answers; `workspace(conv, algo, &bytes)` asks for one's need.
template <typename Perf, typename List, typename Workspace>
auto Choose(const char* what, size_t limit_bytes, int most, std::span<const UniqueConvDesc> convs,
            List list, Workspace workspace) {
  using Algo = decltype(Perf::algo);
  std::string refused;
  for (const UniqueConvDesc& conv : convs) {
    std::vector<Perf> found(static_cast<size_t>(std::max(most, 1)));
    int count = 0;
    list(conv.get(), static_cast<int>(found.size()), &count, found.data());
    found.resize(static_cast<size_t>(std::clamp(count, 0, static_cast<int>(found.size()))));
    for (const Perf& perf : found) {
      Chosen<Algo> chosen{.conv = conv.get(), .algo = perf.algo};
      const char* why = nullptr;
      if (perf.status != CUDNN_STATUS_SUCCESS) {
        why = cudnnGetErrorString(perf.status);
      } else if (perf.determinism != CUDNN_DETERMINISTIC) {
        why = "not deterministic";
      } else if (workspace(conv.get(), perf.algo, &chosen.workspace_bytes) !=
                 CUDNN_STATUS_SUCCESS) {
        why = "not for this shape and math type";
      } else if (chosen.workspace_bytes > limit_bytes) {
        why = "too large a workspace";
      }
      if (why == nullptr) return chosen;
      refused += fmt::format("; algorithm {}: {}", static_cast<int>(perf.algo), why);
    }
  }
  Throw(ErrorCode::kInvalidInput,
        "{}: cuDNN has no deterministic algorithm within {} bytes of workspace{}", what,
        limit_bytes, refused);
}

class Conv2d : public CudaOp {
 public:
  Conv2d(const Context& context, const Conv2dDesc& desc, const OpRequest& request)
      : CudaOp(context), bias_(desc.bias) {
    const Layout& x = DenseInput(request, 0, "conv2d");
    PD_CHECK(x.dims.size() == 4 && desc.groups > 0 && x.dims[1] % desc.groups == 0 &&
                 desc.out_channels % desc.groups == 0,
             "conv2d: input {} to {} channels in {} groups", ToString(x.dims), desc.out_channels,
             desc.groups);
    const int64_t n = x.dims[0];
    const int64_t c = x.dims[1];
    x_ = MakeTensorDesc(n, c, x.dims[2], x.dims[3], "conv2d");
    Describe(desc, c / desc.groups);
    const Shape y = OutputShape(n, desc.out_channels);
    y_ = MakeTensorDesc(y[0], y[1], y[2], y[3], "conv2d");
    info_.y = DenseLayout(y, DType::kF32);
    info_.params.push_back(DenseLayout(
        {desc.out_channels, c / desc.groups, desc.kernel[0], desc.kernel[1]}, DType::kF32));
    if (bias_) info_.params.push_back(DenseLayout({desc.out_channels}, DType::kF32));
    info_.backward_reads_x = true;
    CheckParams(request, info_, "conv2d");
    ChooseForward();
    ChooseBackwardWeights();
    if (request.wants_dx.at(0)) ChooseBackwardData();
    info_.workspace_bytes =
        std::max({forward_.workspace_bytes, data_.workspace_bytes, weights_.workspace_bytes});
  }

  void Forward(const OpArgs& args) override {
    PD_CUDNN(cudnnConvolutionForward(context_.dnn(), &kOne, x_.get(), args.x[0], w_.get(),
                                     args.params[0], forward_.conv, forward_.algo, args.workspace,
                                     forward_.workspace_bytes, &kZero, y_.get(), args.y));
    if (bias_) {
      PD_CUDA(LaunchAddBias(Floats(args.y), Floats(args.params[1]), ChannelsOf(info_.y.dims),
                            stream()));
    }
  }

  void BackwardData(const OpArgs& args) override {
    PD_CUDNN(cudnnConvolutionBackwardData(context_.dnn(), &kOne, w_.get(), args.params[0], y_.get(),
                                          args.dy, data_.conv, data_.algo, args.workspace,
                                          data_.workspace_bytes, &kZero, x_.get(), args.dx[0]));
  }

  void BackwardWeights(const OpArgs& args) override {
    PD_CUDNN(cudnnConvolutionBackwardFilter(
        context_.dnn(), &kOne, x_.get(), args.x[0], y_.get(), args.dy, weights_.conv, weights_.algo,
        args.workspace, weights_.workspace_bytes, &kZero, w_.get(), args.dparams[0]));
    if (bias_) {
      PD_CUDA(LaunchBiasGradient(Floats(args.dy), Floats(args.dparams[1]), ChannelsOf(info_.y.dims),
                                 stream()));
    }
  }

 private:
  void Describe(const Conv2dDesc& desc, int64_t group_channels) {
    const auto small = [](int64_t value) { return ToInt(value, "conv2d", "a size"); };
    w_ = Make<UniqueFilterDesc>(cudnnCreateFilterDescriptor, "cudnnCreateFilterDescriptor");
    PD_CUDNN(cudnnSetFilter4dDescriptor(w_.get(), CUDNN_DATA_FLOAT, CUDNN_TENSOR_NCHW,
                                        small(desc.out_channels), small(group_channels),
                                        small(desc.kernel[0]), small(desc.kernel[1])));
    const auto add = [&](cudnnMathType_t math) {
      auto conv = Make<UniqueConvDesc>(cudnnCreateConvolutionDescriptor,
                                       "cudnnCreateConvolutionDescriptor");
      PD_CUDNN(cudnnSetConvolution2dDescriptor(
          conv.get(), small(desc.padding[0]), small(desc.padding[1]), small(desc.stride[0]),
          small(desc.stride[1]), small(desc.dilation[0]), small(desc.dilation[1]),
          CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT));
      PD_CUDNN(cudnnSetConvolutionGroupCount(conv.get(), small(desc.groups)));
      PD_CUDNN(cudnnSetConvolutionMathType(conv.get(), math));
      convs_.push_back(std::move(conv));
    };
    if (context_.tf32()) add(CUDNN_DEFAULT_MATH);
    add(CUDNN_FMA_MATH);
  }

  Shape OutputShape(int64_t samples, int64_t channels) const {
    int n = 0, k = 0, p = 0, q = 0;
    PD_CUDNN(
        cudnnGetConvolution2dForwardOutputDim(convs_[0].get(), x_.get(), w_.get(), &n, &k, &p, &q));
    PD_CHECK(n == samples && k == channels, "conv2d: cuDNN's output is [{}, {}, {}, {}]", n, k, p,
             q);
    return {n, k, p, q};
  }

  void ChooseForward() {
    int most = 0;
    PD_CUDNN(cudnnGetConvolutionForwardAlgorithmMaxCount(context_.dnn(), &most));
    forward_ = Choose<cudnnConvolutionFwdAlgoPerf_t>(
        "conv2d forward", context_.workspace_limit_bytes(), most, convs_,
        [&](cudnnConvolutionDescriptor_t conv, int asked, int* count, auto* found) {
          PD_CUDNN(cudnnGetConvolutionForwardAlgorithm_v7(context_.dnn(), x_.get(), w_.get(), conv,
                                                          y_.get(), asked, count, found));
        },
        [&](cudnnConvolutionDescriptor_t conv, cudnnConvolutionFwdAlgo_t algo, size_t* bytes) {
          return cudnnGetConvolutionForwardWorkspaceSize(context_.dnn(), x_.get(), w_.get(), conv,
                                                         y_.get(), algo, bytes);
        });
  }

  void ChooseBackwardData() {
    int most = 0;
    PD_CUDNN(cudnnGetConvolutionBackwardDataAlgorithmMaxCount(context_.dnn(), &most));
    data_ = Choose<cudnnConvolutionBwdDataAlgoPerf_t>(
        "conv2d backward data", context_.workspace_limit_bytes(), most, convs_,
        [&](cudnnConvolutionDescriptor_t conv, int asked, int* count, auto* found) {
          PD_CUDNN(cudnnGetConvolutionBackwardDataAlgorithm_v7(
              context_.dnn(), w_.get(), y_.get(), conv, x_.get(), asked, count, found));
        },
        [&](cudnnConvolutionDescriptor_t conv, cudnnConvolutionBwdDataAlgo_t algo, size_t* bytes) {
          return cudnnGetConvolutionBackwardDataWorkspaceSize(context_.dnn(), w_.get(), y_.get(),
                                                              conv, x_.get(), algo, bytes);
        });
  }

  void ChooseBackwardWeights() {
    int most = 0;
    PD_CUDNN(cudnnGetConvolutionBackwardFilterAlgorithmMaxCount(context_.dnn(), &most));
    weights_ = Choose<cudnnConvolutionBwdFilterAlgoPerf_t>(
        "conv2d backward weights", context_.workspace_limit_bytes(), most, convs_,
        [&](cudnnConvolutionDescriptor_t conv, int asked, int* count, auto* found) {
          PD_CUDNN(cudnnGetConvolutionBackwardFilterAlgorithm_v7(
              context_.dnn(), x_.get(), y_.get(), conv, w_.get(), asked, count, found));
        },
        [&](cudnnConvolutionDescriptor_t conv, cudnnConvolutionBwdFilterAlgo_t algo,
            size_t* bytes) {
          return cudnnGetConvolutionBackwardFilterWorkspaceSize(context_.dnn(), x_.get(), y_.get(),
                                                                conv, w_.get(), algo, bytes);
        });
  }

  bool bias_;
  UniqueTensorDesc x_, y_;  // of values and gradients
  UniqueFilterDesc w_;
  std::vector<UniqueConvDesc> convs_;  // by math type, the preferred one first
  Chosen<cudnnConvolutionFwdAlgo_t> forward_;
  Chosen<cudnnConvolutionBwdDataAlgo_t> data_;
  Chosen<cudnnConvolutionBwdFilterAlgo_t> weights_;
};

}  // namespace

std::unique_ptr<Op> MakeConv2d(const Context& context, const Conv2dDesc& desc,
                               const OpRequest& request) {
  return std::make_unique<Conv2d>(context, desc, request);
}

}  // namespace pd::cuda
