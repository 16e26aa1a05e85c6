# The emulated cuDNN and cuBLAS, parts of cuda_emulator.
set(emulated_libraries
  convolution.cc
  convolution_algorithms.cc
  cublas_handle.cc
  cublas_matrix.cc
  cublas_vector.cc
  cudnn_activation.cc
  cudnn_convolution.cc
  cudnn_convolution_descriptor.cc
  cudnn_handle.cc
  cudnn_lrn.cc
  cudnn_norm.cc
  cudnn_op_tensor.cc
  cudnn_pooling.cc
  cudnn_reduce.cc
  cudnn_rnn.cc
  cudnn_rnn_descriptor.cc
  cudnn_softmax.cc
  cudnn_tensor.cc
  library.cc
  tensor_view.cc)
target_sources(cuda_emulator PRIVATE ${emulated_libraries})
# The enums of a C API hold whatever the caller gives.
set_source_files_properties(${emulated_libraries} PROPERTIES COMPILE_OPTIONS -fno-sanitize=enum)
set_source_files_properties(convolution.cc cublas_matrix.cc PROPERTIES
  COMPILE_OPTIONS "-fno-sanitize=enum;-O3")
