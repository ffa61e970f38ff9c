# Finds the CUDA toolkit of wheels that `tools/setup cuda` stores outside the tree (docs/decisions/0108). Sets
#   PLUMBLINE_TOOLKIT     its folder, which has bin/nvcc; empty if it does not exist
#   PLUMBLINE_LIBCUBLAS, PLUMBLINE_LIBCUBLASLT, PLUMBLINE_LIBNCCL, PLUMBLINE_LIBCUPTI
#                         the libraries that trainers call, for tests; empty if there is none
# Runs at each configuration, so that an added or removed toolkit is noticed.
execute_process(COMMAND ${CMAKE_SOURCE_DIR}/tools/toolkit/install --where
                OUTPUT_VARIABLE PLUMBLINE_TOOLKIT OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
if(failed)
  set(PLUMBLINE_TOOLKIT "")
endif()

function(plumb_find_real variable)
  find_file(found NAMES ${ARGN} NO_CACHE
            HINTS ${PLUMBLINE_TOOLKIT}/lib ${PLUMBLINE_TOOLKIT}/../nccl/lib /usr/local/cuda/lib64 /usr/local/cuda/extras/CUPTI/lib64
            PATHS /usr/lib/${CMAKE_LIBRARY_ARCHITECTURE} /usr/lib64 NO_DEFAULT_PATH)
  if(NOT found)
    set(found "")
  endif()
  set(${variable} "${found}" PARENT_SCOPE)
endfunction()
plumb_find_real(PLUMBLINE_LIBCUBLAS libcublas.so.13 libcublas.so.12)
plumb_find_real(PLUMBLINE_LIBCUBLASLT libcublasLt.so.13 libcublasLt.so.12)
plumb_find_real(PLUMBLINE_LIBNCCL libnccl.so.2)
plumb_find_real(PLUMBLINE_LIBCUPTI libcupti.so.13 libcupti.so.12)
