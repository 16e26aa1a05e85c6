// cuDNN's descriptors of RNNs, of their sequences and of dropout, and the sizes that follow.

#include "cudnn_rnn.h"

namespace cuda_emulator::library {

size_t RnnWorkBytes(const cudnnRNNStruct& rnn, const cudnnRNNDataStruct& x, bool training) {
  // Any size is as good as another: it is filled with NaN.
  const int64_t gates = x.batch * 4 * rnn.hidden;
  return static_cast<size_t>(gates * (training ? x.steps : 1) + 3) * sizeof(float);
}

size_t RnnReserveBytes(const cudnnRNNStruct& rnn, const cudnnRNNDataStruct& x) {
  const RnnReserve reserve{x.steps, x.batch, rnn.hidden, rnn.layers};
  return static_cast<size_t>(reserve.Count()) * sizeof(float);
}

namespace {

void RequireOnly(bool condition, const char* what, const char* emulated) {
  Require(condition, Fault::kNotSupported, what, emulated);
}

void CheckKind(cudnnRNNAlgo_t algo, cudnnRNNMode_t mode, cudnnRNNBiasMode_t bias,
               cudnnDirectionMode_t direction, cudnnRNNInputMode_t input) {
  RequireOnly(algo == CUDNN_RNN_ALGO_STANDARD, "algo", "other than STANDARD is not emulated");
  RequireOnly(mode == CUDNN_LSTM, "cellMode", "other than CUDNN_LSTM is not emulated");
  RequireOnly(bias == CUDNN_RNN_DOUBLE_BIAS, "biasMode", "other than DOUBLE_BIAS is not emulated");
  RequireOnly(direction == CUDNN_UNIDIRECTIONAL, "dirMode",
              "other than UNIDIRECTIONAL is not emulated");
  RequireOnly(input == CUDNN_LINEAR_INPUT, "inputMode", "other than LINEAR_INPUT is not emulated");
}

// The dimensions [1, rows, columns] of a matrix that GetRNNWeightParams reports.
void Report(cudnnTensorStruct* descriptor, const char* name, int64_t rows, int64_t columns) {
  Writable(descriptor, name) = {true, CUDNN_DATA_FLOAT, Dense({1, rows, columns})};
}

}  // namespace
}  // namespace cuda_emulator::library

using namespace cuda_emulator;
using namespace cuda_emulator::library;

extern "C" {

cudnnStatus_t cudnnCreateDropoutDescriptor(cudnnDropoutDescriptor_t* dropoutDesc) {
  return CreateDescriptor(__func__, dropoutDesc);
}

cudnnStatus_t cudnnDestroyDropoutDescriptor(cudnnDropoutDescriptor_t dropoutDesc) {
  return DestroyDescriptor(__func__, dropoutDesc);
}

// "If the states argument is equal to NULL, then the random number generator states won't be
// initialized, and only the dropout value will be set."
cudnnStatus_t cudnnSetDropoutDescriptor(cudnnDropoutDescriptor_t dropoutDesc, cudnnHandle_t handle,
                                        float dropout, void* states, size_t /*stateSizeInBytes*/,
                                        unsigned long long /*seed*/) {
  return CudnnCall(__func__, [&] {
    const HandleUse use = Use(handle);
    Require(dropout >= 0 && dropout <= 1, Fault::kBadParam, "dropout", "is outside [0, 1]");
    RequireOnly(states == nullptr, "states", "are not emulated");
    Writable(dropoutDesc, "dropoutDesc") = {true, dropout};
  });
}

cudnnStatus_t cudnnCreateRNNDescriptor(cudnnRNNDescriptor_t* rnnDesc) {
  return CreateDescriptor(__func__, rnnDesc);
}

cudnnStatus_t cudnnDestroyRNNDescriptor(cudnnRNNDescriptor_t rnnDesc) {
  return DestroyDescriptor(__func__, rnnDesc);
}

cudnnStatus_t cudnnSetRNNDescriptor_v8(cudnnRNNDescriptor_t rnnDesc, cudnnRNNAlgo_t algo,
                                       cudnnRNNMode_t cellMode, cudnnRNNBiasMode_t biasMode,
                                       cudnnDirectionMode_t dirMode, cudnnRNNInputMode_t inputMode,
                                       cudnnDataType_t dataType, cudnnDataType_t mathPrec,
                                       cudnnMathType_t mathType, int32_t inputSize,
                                       int32_t hiddenSize, int32_t projSize, int32_t numLayers,
                                       cudnnDropoutDescriptor_t dropoutDesc, uint32_t auxFlags) {
  return CudnnCall(__func__, [&] {
    CheckKind(algo, cellMode, biasMode, dirMode, inputMode);
    RequireOnly(dataType == CUDNN_DATA_FLOAT && mathPrec == CUDNN_DATA_FLOAT, "dataType",
                "other than CUDNN_DATA_FLOAT is not emulated");
    RequireOnly(mathType == CUDNN_DEFAULT_MATH || mathType == CUDNN_FMA_MATH, "mathType",
                "other than DEFAULT and FMA is not emulated");
    Require(inputSize > 0 && hiddenSize > 0 && numLayers > 0, Fault::kBadParam,
            "inputSize, hiddenSize, numLayers", "are not all positive");
    Require(projSize <= hiddenSize, Fault::kBadParam, "projSize", "is larger than hiddenSize");
    RequireOnly(projSize == hiddenSize, "projSize", "other than hiddenSize is not emulated");
    const cudnnDropoutStruct& dropout = Described(dropoutDesc, "dropoutDesc");
    RequireOnly(dropout.dropout == 0, "dropout", "is not emulated");
    Require((auxFlags & ~CUDNN_RNN_PADDED_IO_ENABLED) == 0, Fault::kBadParam, "auxFlags",
            "has unknown bits");
    cudnnRNNStruct& rnn = Writable(rnnDesc, "rnnDesc");
    rnn.set = true;
    rnn.input = inputSize;
    rnn.hidden = hiddenSize;
    rnn.layers = numLayers;
    rnn.padded_io = (auxFlags & CUDNN_RNN_PADDED_IO_ENABLED) != 0;
    rnn.may_use_tf32 = mathType == CUDNN_DEFAULT_MATH;
  });
}

cudnnStatus_t cudnnCreateRNNDataDescriptor(cudnnRNNDataDescriptor_t* rnnDataDesc) {
  return CreateDescriptor(__func__, rnnDataDesc);
}

cudnnStatus_t cudnnDestroyRNNDataDescriptor(cudnnRNNDataDescriptor_t rnnDataDesc) {
  return DestroyDescriptor(__func__, rnnDataDesc);
}

cudnnStatus_t cudnnSetRNNDataDescriptor(cudnnRNNDataDescriptor_t rnnDataDesc,
                                        cudnnDataType_t dataType, cudnnRNNDataLayout_t layout,
                                        int maxSeqLength, int batchSize, int vectorSize,
                                        const int seqLengthArray[], void* paddingFill) {
  return CudnnCall(__func__, [&] {
    RequireOnly(dataType == CUDNN_DATA_FLOAT, "dataType",
                "other than CUDNN_DATA_FLOAT is not emulated");
    RequireOnly(layout == CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED ||
                    layout == CUDNN_RNN_DATA_LAYOUT_BATCH_MAJOR_UNPACKED,
                "layout", "that is packed, or none, is not emulated");
    Require(maxSeqLength > 0 && batchSize > 0 && vectorSize > 0, Fault::kBadParam,
            "maxSeqLength, batchSize, vectorSize", "are not all positive");
    // cuDNN 9.19 answers so; its documentation does not say it.
    Require(maxSeqLength <= 65535, Fault::kNotSupported, "maxSeqLength", "is more than 65535");
    RequireHost(seqLengthArray, "seqLengthArray");
    RequireOnly(paddingFill == nullptr, "paddingFill", "is not emulated");
    const std::vector<int> lengths(seqLengthArray, seqLengthArray + batchSize);
    for (const int length : lengths) {
      Require(length >= 0 && length <= maxSeqLength, Fault::kBadParam, "seqLengthArray",
              "has a length outside [0, maxSeqLength]");
      RequireOnly(length == maxSeqLength, "seqLengthArray",
                  "with a length below maxSeqLength is not emulated");
    }
    Writable(rnnDataDesc, "rnnDataDesc") = {true,      layout,     maxSeqLength,
                                            batchSize, vectorSize, lengths};
  });
}

cudnnStatus_t cudnnGetRNNTempSpaceSizes(cudnnHandle_t handle, cudnnRNNDescriptor_t rnnDesc,
                                        cudnnForwardMode_t fwdMode, cudnnRNNDataDescriptor_t xDesc,
                                        size_t* workSpaceSize, size_t* reserveSpaceSize) {
  return CudnnCall(__func__, [&] {
    const HandleUse use = Use(handle);
    const cudnnRNNStruct& rnn = Described(rnnDesc, "rnnDesc");
    const cudnnRNNDataStruct& x = Described(xDesc, "xDesc");
    Require(fwdMode == CUDNN_FWD_MODE_INFERENCE || fwdMode == CUDNN_FWD_MODE_TRAINING,
            Fault::kBadParam, "fwdMode", "is no cudnnForwardMode_t");
    Require(x.width == rnn.input, Fault::kBadParam, "xDesc", "has another size than inputSize");
    const bool training = fwdMode == CUDNN_FWD_MODE_TRAINING;
    Put(workSpaceSize, RnnWorkBytes(rnn, x, training));
    Put(reserveSpaceSize, training ? RnnReserveBytes(rnn, x) : size_t{0});
  });
}

cudnnStatus_t cudnnGetRNNWeightSpaceSize(cudnnHandle_t handle, cudnnRNNDescriptor_t rnnDesc,
                                         size_t* weightSpaceSize) {
  return CudnnCall(__func__, [&] {
    const HandleUse use = Use(handle);
    RequireHost(weightSpaceSize, "weightSpaceSize");
    const RnnWeights weights(Described(rnnDesc, "rnnDesc"));
    *weightSpaceSize = static_cast<size_t>(weights.Count()) * sizeof(float);
  });
}

// linLayerID 0 to 3: input gate, forget gate, new cell, output gate, applied to the layer's input;
// 4 to 7: the same, applied to h of the step before.
cudnnStatus_t cudnnGetRNNWeightParams(cudnnHandle_t handle, cudnnRNNDescriptor_t rnnDesc,
                                      int32_t pseudoLayer, size_t weightSpaceSize,
                                      const void* weightSpace, int32_t linLayerID,
                                      cudnnTensorDescriptor_t mDesc, void** mAddr,
                                      cudnnTensorDescriptor_t bDesc, void** bAddr) {
  static constexpr const char* kApi = "cudnnGetRNNWeightParams";
  return CudnnCall(kApi, [&] {
    const HandleUse use = Use(handle);
    const cudnnRNNStruct& rnn = Described(rnnDesc, "rnnDesc");
    const RnnWeights weights(rnn);
    Require(pseudoLayer >= 0 && pseudoLayer < rnn.layers, Fault::kBadParam, "pseudoLayer",
            "is no layer");
    RequireOnly(linLayerID >= 0 && linLayerID < RnnWeights::kLinear, "linLayerID",
                "outside [0, 7] is not emulated");
    const size_t bytes = static_cast<size_t>(weights.Count()) * sizeof(float);
    Require(weightSpaceSize >= bytes, Fault::kBadParam, "weightSpaceSize", "is too small");
    if (!CheckRange(kApi, Read(weightSpace, bytes, "weightSpace"))) {
      throw Refused{Fault::kExecution, {}};
    }
    RequireHost(mAddr, "mAddr");
    RequireHost(bAddr, "bAddr");
    Report(mDesc, "mDesc", rnn.hidden, weights.Columns(pseudoLayer, linLayerID));
    Report(bDesc, "bDesc", rnn.hidden, 1);
    const float* space = static_cast<const float*>(weightSpace);
    *mAddr = const_cast<float*>(space + weights.Matrix(pseudoLayer, linLayerID));
    *bAddr = const_cast<float*>(space + weights.Bias(pseudoLayer, linLayerID));
  });
}

}  // extern "C"
