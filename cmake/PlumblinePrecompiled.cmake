# Headers that many files include, compiled once: cmake/precompiled/NAME.h, for plumb_library(... PRECOMPILED NAME) and for
# tests. A file still names what it uses: PLUMBLINE_PRECOMPILED=OFF builds without. Flags that g++ compares (language options, macros
# that the headers ask for) must be the users' own; files with others say SKIP_PRECOMPILE_HEADERS. Programs are compiled with -fPIC
# instead of -fPIE, which g++ compares too, so that they share what the libraries use.
function(plumb_precompile name deps)  # more options follow
  if(PLUMBLINE_PRECOMPILED)
    add_library(plumb_precompiled_${name} OBJECT ${CMAKE_SOURCE_DIR}/cmake/precompiled/empty.cc)
    target_include_directories(plumb_precompiled_${name} PRIVATE ${CMAKE_SOURCE_DIR})
    target_link_libraries(plumb_precompiled_${name} PRIVATE ${deps} absl::status absl::statusor absl::strings plumb_warnings)
    target_compile_options(plumb_precompiled_${name} PRIVATE ${ARGN})
    target_precompile_headers(plumb_precompiled_${name} PRIVATE ${CMAKE_SOURCE_DIR}/cmake/precompiled/${name}.h)
    if(PLUMBLINE_CCACHE)
      set_target_properties(plumb_precompiled_${name} PROPERTIES CXX_COMPILER_LAUNCHER
                            "${CMAKE_SOURCE_DIR}/cmake/precompiled/afresh;${CMAKE_CXX_COMPILER_LAUNCHER}")
    endif()
  endif()
endfunction()

function(plumb_use_precompiled target name)
  if(PLUMBLINE_PRECOMPILED AND NOT name STREQUAL none)
    target_precompile_headers(${target} REUSE_FROM plumb_precompiled_${name})
    get_target_property(type ${target} TYPE)
    if(type STREQUAL EXECUTABLE)
      target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-fPIC>)
    endif()
  endif()
endfunction()

plumb_precompile(standard "")
plumb_precompile(messages "plumb_messages")
plumb_precompile(services "plumb_services;gRPC::grpc++")
if(PLUMBLINE_TESTS)
  plumb_precompile(tests "plumb_messages;GTest::gtest;GTest::gmock")
  plumb_precompile(service_tests "plumb_services;gRPC::grpc++;nlohmann_json::nlohmann_json;GTest::gtest;GTest::gmock" -O0 -U_FORTIFY_SOURCE)
endif()
