# Libraries of gpu_gemm and its tests, compiled once: gpu_gemm_host needs no CUDA; gpu_gemm_cublas is compiled against
# its headers and linked with the runtime or with a test's stubs. Some builds leave out bench/, others tests/.
include_guard(GLOBAL)
file(GLOB gemm_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/bench/gpu/gemm/gemm_*.cc)
plumb_library(gpu_gemm_host SOURCES ${gemm_sources} ${CMAKE_SOURCE_DIR}/tests/audit/dump_builder.cc
              DEPS plumb_sums plumb_base nlohmann_json::nlohmann_json PRECOMPILED standard)
find_path(PLUMBLINE_CUBLASLT_INCLUDE cublasLt.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
if(PLUMBLINE_HAVE_CUDA AND PLUMBLINE_CUBLASLT_INCLUDE)
  file(GLOB cublas_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/bench/gpu/gemm/cublas_*.cc)
  plumb_library(gpu_gemm_cublas SOURCES ${cublas_sources} DEPS gpu_gemm_host ${CMAKE_DL_LIBS} PRECOMPILED standard)
  target_include_directories(gpu_gemm_cublas SYSTEM PUBLIC ${PLUMBLINE_CUBLASLT_INCLUDE} ${CUDAToolkit_INCLUDE_DIRS})
endif()
