# Standards, warnings and sanitizers shared by all targets, and the functions that declare targets.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)     # static libraries end up in libplumbline_agent.so
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)

find_program(PLUMBLINE_CCACHE ccache)
if(PLUMBLINE_CCACHE)
  # ccache's manual on precompiled headers requires both sloppiness values and, for g++, -fpch-preprocess. In depend
  # mode ccache uses the compiler's list of headers instead of preprocessing, and hashes each header once: a miss costs
  # one compile (6.4 s instead of 9.1), a hit .03 s.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros CCACHE_DEPEND=1
      CCACHE_INODECACHE=1 ${PLUMBLINE_CCACHE})
  # Without depend mode ccache preprocesses for one architecture only, and a change for another one would be a hit: a
  # stale kernel. The key has no folder, and nvcc by its content, so that other presets and a reinstalled toolkit also
  # hit.
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_DEPEND=1 CCACHE_NOHASHDIR=1 CCACHE_COMPILERCHECK=content
      ${PLUMBLINE_CCACHE})
endif()

# Compiles with clang, not optimised: 0.45 of g++'s time (docs/measurements/build.md). tests/CMakeLists.txt and
# bench/CMakeLists.txt set this launcher, plumb_use_compiler() sets it for a target.
set(PLUMBLINE_TEST_LAUNCHER ${CMAKE_SOURCE_DIR}/cmake/other_compiler "${PLUMBLINE_TEST_COMPILER}" ${CMAKE_CXX_COMPILER_LAUNCHER} --)

# Returns whether the other compiler compiles the files of `target`, which is defined in this folder. Excluded are tests
# that draw many real numbers or parse much: they run longer than they compile. clang computes the logarithm of 2 again
# for each number that libstdc++ draws (30 % of routing_matrix_test). The first copy of a template in a program is the
# one that all of it uses.
# It also compiles benches, and libraries that wait for messages more than they compute. plumb_server is none of them: its
# server_parts_test took 30 CPU s instead of 9.
set(PLUMBLINE_COMPUTING_TESTS plumb_fuzz_audit attack_arithmetics_test departure_test checkpoint_test sums_fprev_test
    kernels_routing_host_test kernels_routing_core_test kernels_routing_evidence_test kernels_tensor_stats_test kernels_tensor_tile_test kernels_update_check_test kernels_logit_pair_test)
set(PLUMBLINE_WAITING_TARGETS plumb_command_line plumb_services plumb_transport plumb_live plumb_mcp plumb_finding_text)
function(plumb_by_other_compiler result target)
  set(${result} OFF PARENT_SCOPE)
  if(PLUMBLINE_TEST_COMPILER AND (target IN_LIST PLUMBLINE_WAITING_TARGETS OR CMAKE_CURRENT_SOURCE_DIR MATCHES "^${CMAKE_SOURCE_DIR}/bench(/|$)"))
    set(${result} ON PARENT_SCOPE)
    return()
  endif()
  if(NOT PLUMBLINE_TEST_COMPILER OR NOT CMAKE_CURRENT_SOURCE_DIR MATCHES "^${CMAKE_SOURCE_DIR}/tests/")
    return()
  endif()
  if(NOT CMAKE_CURRENT_SOURCE_DIR MATCHES "/tests/(agent|server|transport)(/|$)")  # those wait
    if(target IN_LIST PLUMBLINE_COMPUTING_TESTS)
      return()
    endif()
    get_target_property(sources ${target} SOURCES)
    foreach(source ${sources})
      cmake_path(ABSOLUTE_PATH source)
      if(EXISTS ${source})
        file(STRINGS ${source} draws LIMIT_COUNT 1 REGEX "(normal|real|exponential)_distribution")
        if(draws)
          return()
        endif()
      endif()
    endforeach()
  endif()
  set(${result} ON PARENT_SCOPE)
endfunction()

# Sets the compiler of a target: the other one if plumb_by_other_compiler chooses it, else the project's, in any folder.
function(plumb_use_compiler target)
  plumb_by_other_compiler(by_other ${target})
  if(by_other)
    set_target_properties(${target} PROPERTIES CXX_COMPILER_LAUNCHER "${PLUMBLINE_TEST_LAUNCHER}")
  elseif(CMAKE_CXX_COMPILER_LAUNCHER STREQUAL PLUMBLINE_TEST_LAUNCHER)
    set_target_properties(${target} PROPERTIES CXX_COMPILER_LAUNCHER "${PLUMBLINE_LAUNCHER}")
  endif()
endfunction()

# -ffp-contract=off: a replay that fuses a multiply and an add is not bit-exact.
add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off>)
# gRPC's users get -pthread from it, and a precompiled header is valid only for files with the same options.
add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-pthread>)
if(PLUMBLINE_CCACHE AND PLUMBLINE_PRECOMPILED)
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fpch-preprocess>)
endif()
# By default g++ collects garbage in its own memory at 128 MiB: an eighth of the time, for memory that every machine
# has.
add_compile_options("$<$<COMPILE_LANG_AND_ID:CXX,GNU>:SHELL:--param ggc-min-heapsize=1000000>")
if(PLUMBLINE_SANITIZE)
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${PLUMBLINE_SANITIZE}>
                      $<$<COMPILE_LANGUAGE:CXX>:-fno-omit-frame-pointer>
                      $<$<COMPILE_LANGUAGE:CXX>:-fno-sanitize-recover=all>)
  # g++ 12 reports instrumented code as uninitialised where it is not; the sanitizers check that themselves.
  add_compile_options($<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-maybe-uninitialized>)
  # Protobuf's maps have another layout if they assume that the library is instrumented too.
  if(PLUMBLINE_SANITIZE STREQUAL thread)
    add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-U__SANITIZE_THREAD__>)
  endif()
  add_link_options(-fsanitize=${PLUMBLINE_SANITIZE})
  add_compile_definitions(PLUMBLINE_SANITIZED=1)
endif()

include(PlumblineHarden)

# The address sanitizer forbids deep binding, with which the agent library is opened, so Python cannot observe anything
# under it.
set(PLUMBLINE_NEEDS_AGENT "")
if(PLUMBLINE_SANITIZE MATCHES "address|thread")
  set(PLUMBLINE_NEEDS_AGENT "no-sanitizer")
endif()

# For loops that must be vectorised, whatever the build type. Quick (the preset demo) compiles them like everything
# else.
set(PLUMBLINE_O3 $<$<NOT:$<CONFIG:Quick>>:-O3>)

add_library(plumb_warnings INTERFACE)
target_compile_options(plumb_warnings INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic -Wnon-virtual-dtor -Wcast-align
    -Wno-missing-field-initializers>)
if(NOT PLUMBLINE_UNITY_JOIN)  # with several folders in a compilation, a local name may equal a global one of another
                              # folder; with several files, one of another file, which is no error
  target_compile_options(plumb_warnings INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wshadow -Wno-error=shadow>)
endif()
# g++ 12 reports false overlaps and overruns inside std::string (GCC's PR 105329, 105651); with precompiled headers it
# reports them for our files. The address sanitizer finds real ones.
target_compile_options(plumb_warnings INTERFACE
  $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-restrict -Wno-array-bounds -Wno-stringop-overflow -Wno-stringop-overread>)
if(PLUMBLINE_DEVELOPER)
  target_compile_options(plumb_warnings INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Werror>)
endif()

# Compiles the files of a folder together (CMake's unity build), at most PLUMBLINE_UNITY_MOST at a time; folders of
# fewer than four files share one compilation. Headers are read and templates instantiated once for all of them, which
# halves the time of a full build (docs/decisions/0062). PLUMBLINE_UNITY_JOIN combines whole folders of a target up to
# that number of files: a full build compiles less, an incremental one more. Names in the .cc files of a group may not
# clash; tools/lint reads each file alone. Tests are compiled one by one, because each has its own names.
function(plumb_compile_together target)
  if(NOT PLUMBLINE_UNITY OR CMAKE_CURRENT_SOURCE_DIR MATCHES "^${CMAKE_SOURCE_DIR}/tests/")
    return()
  endif()
  get_target_property(sources ${target} SOURCES)
  list(FILTER sources INCLUDE REGEX "\\.cc$")
  set(folders)
  foreach(source ${sources})
    cmake_path(ABSOLUTE_PATH source)
    cmake_path(GET source PARENT_PATH folder)
    list(APPEND folders ${folder})
    list(APPEND "in_${folder}" ${source})
  endforeach()
  list(REMOVE_DUPLICATES folders)
  set(joined 0)  # groups of several folders, and the number of files in the last one
  set(files_joined 0)
  foreach(folder ${folders})
    list(LENGTH "in_${folder}" count)
    if(PLUMBLINE_UNITY_JOIN)
      set(most ${PLUMBLINE_UNITY_JOIN})
    else()
      set(most ${PLUMBLINE_UNITY_MOST})
    endif()
    math(EXPR groups "(${count} + ${most} - 1) / ${most}")
    math(EXPR in_each "(${count} + ${groups} - 1) / ${groups}")
    math(EXPR files_joined "${files_joined} + ${count}")
    if(files_joined GREATER most)
      set(files_joined ${count})
      math(EXPR joined "${joined} + 1")
    endif()
    set(at 0)
    foreach(source ${in_${folder}})
      math(EXPR group "${at} / ${in_each}")
      math(EXPR at "${at} + 1")
      cmake_path(RELATIVE_PATH folder BASE_DIRECTORY ${CMAKE_SOURCE_DIR} OUTPUT_VARIABLE name)
      if(PLUMBLINE_UNITY_JOIN AND groups EQUAL 1)
        set(name "joined_${joined}")
      elseif(count LESS 4)
        set(name small_folders)
      endif()
      string(REPLACE "/" "_" name "${name}_${group}")
      set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${name})
    endforeach()
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  # In a unity build, g++ treats a type of a .cc file like one of a header.
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-subobject-linkage>)
endfunction()

# plumb_library(NAME SOURCES a.cc b.cc DEPS x y [PRECOMPILED standard|messages|services|none]): a static library of this
# project, with the source tree as its include root.
function(plumb_library name)
  cmake_parse_arguments(ARG "" "PRECOMPILED" "SOURCES;DEPS" ${ARGN})
  if(NOT ARG_PRECOMPILED)
    set(ARG_PRECOMPILED messages)
  endif()
  if(ARG_SOURCES)
    add_library(${name} STATIC ${ARG_SOURCES})
    target_include_directories(${name} PUBLIC ${CMAKE_SOURCE_DIR})
    target_link_libraries(${name} PUBLIC ${ARG_DEPS} PRIVATE plumb_warnings)
    plumb_use_precompiled(${name} ${ARG_PRECOMPILED})
    plumb_compile_together(${name})
  else()
    add_library(${name} INTERFACE)
    target_include_directories(${name} INTERFACE ${CMAKE_SOURCE_DIR})
    target_link_libraries(${name} INTERFACE ${ARG_DEPS})
  endif()
endfunction()

# plumb_test(NAME SOURCES a_test.cc DEPS x [LABELS l] [TIMEOUT s]): one GoogleTest program, one CTest case. A folder may
# set PLUMB_TEST_PRECOMPILED to other headers than `tests`, and PLUMB_TEST_OPTIONS to the options with which those are
# compiled. Label `threads`: also runs under the thread sanitizer.
find_program(PLUMBLINE_GOLD ld.gold)
function(plumb_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;DEPS;LABELS;ARGS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} plumb_warnings GTest::gtest GTest::gmock GTest::gtest_main)
  target_compile_definitions(${name} PRIVATE PLUMBLINE_SOURCE_DIR="${CMAKE_SOURCE_DIR}"
                                             PLUMBLINE_BINARY_DIR="${CMAKE_BINARY_DIR}")
  # A test's own code runs once, so it is barely optimised, which saves a seventh of its compile time; the tested code
  # is optimised as usual. At -O1 g++ 12 reports unset values in std::optional and the like; the sanitizers would find
  # real ones.
  if(NOT PLUMB_TEST_OPTIONS)
    set(PLUMB_TEST_OPTIONS -O1)
  endif()
  target_compile_options(${name} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:${PLUMB_TEST_OPTIONS}>
                                         $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-maybe-uninitialized>)
  # Takes half the time of the default linker for 200 programs. Shipped programs are linked by the default one.
  if(PLUMBLINE_DEVELOPER AND PLUMBLINE_GOLD AND NOT PLUMBLINE_SANITIZE)
    target_link_options(${name} PRIVATE -fuse-ld=gold)
  endif()
  if(NOT PLUMB_TEST_PRECOMPILED)
    set(PLUMB_TEST_PRECOMPILED tests)
  endif()
  plumb_use_precompiled(${name} ${PLUMB_TEST_PRECOMPILED})
  add_test(NAME ${name} COMMAND ${name} ${ARG_ARGS})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  if("threads" IN_LIST ARG_LABELS)
    add_dependencies(threads_tests ${name})
  endif()
  set_tests_properties(${name} PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABELS "${ARG_LABELS}" SKIP_RETURN_CODE 77)
endfunction()

# plumb_look_beside(NAME): a program that tools/gpu_check copies finds its libraries, and theirs, in ../lib. This needs
# an RPATH, because a RUNPATH, the linker's default, is not used for the libraries' own dependencies.
function(plumb_look_beside name)
  set_target_properties(${name} PROPERTIES BUILD_RPATH "$ORIGIN/../lib")
  target_link_options(${name} PRIVATE -Wl,--disable-new-dtags)
endfunction()
