# Tests of the emulated cuDNN and cuBLAS.
set(libraries_tests
  cublas_test.cc
  cudnn_convolution_test.cc
  cudnn_layers_test.cc
  cudnn_norm_test.cc
  cudnn_rnn_test.cc
  cudnn_tensor_test.cc)
pd_test(cuda_emulator_libraries SOURCES ${libraries_tests} LINKS cuda_emulator)
target_compile_definitions(cuda_emulator_libraries_test PRIVATE PD_SANITIZE="${PD_SANITIZE}")
# Wrong values of enums are among what is refused.
set_source_files_properties(${libraries_tests} PROPERTIES COMPILE_OPTIONS -fno-sanitize=enum)
