# The values of BuildVersion() and plumbline.__version__ (tools/version). The files are written at each build, and only
# if their content changes: a commit compiles one small file and links the four targets that have plumb_build_version.
set(version_source ${CMAKE_BINARY_DIR}/version/build_version.cc)
set(PLUMBLINE_PYTHON_VERSION ${CMAKE_BINARY_DIR}/python/plumbline/_version.py)  # in the package, for tests and examples
add_custom_target(plumb_version_files ALL
  COMMAND ${CMAKE_SOURCE_DIR}/tools/version --write ${version_source} ${PLUMBLINE_PYTHON_VERSION}
  BYPRODUCTS ${version_source} ${PLUMBLINE_PYTHON_VERSION} COMMENT "Looking at the version" VERBATIM)
add_library(plumb_build_version OBJECT ${version_source})
target_include_directories(plumb_build_version PRIVATE ${CMAKE_SOURCE_DIR})
add_dependencies(plumb_build_version plumb_version_files)
