# Generates the page as a .cc file for plumbd, page_source, and one for the HTML reports of plumb, report_source.
# esbuild bundles it from src/; `npm ci` in this folder installs esbuild (tools/setup does that), and the build fetches
# nothing. Without esbuild plumbd is still built, and reports that it has no page.
set(page_folder ${CMAKE_CURRENT_LIST_DIR})
set(page_source ${CMAKE_BINARY_DIR}/page/page_assets.cc)
set(report_source ${CMAKE_BINARY_DIR}/page/report_page.cc)
set(page_bundler ${page_folder}/node_modules/esbuild/package.json)
option(PLUMBLINE_PAGE "Put the page into plumbd when node and esbuild are found" ON)
find_program(PLUMBLINE_NODE node)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${page_folder}/package-lock.json)

set(page_absent "")
if(NOT PLUMBLINE_PAGE)
  set(page_absent "PLUMBLINE_PAGE is off")
elseif(NOT PLUMBLINE_NODE)
  set(page_absent "node was not found when it was built")
elseif(NOT EXISTS ${page_bundler} OR NOT EXISTS ${page_folder}/node_modules/uplot/package.json)
  set(page_absent "esbuild and uplot were not there when it was built (npm ci in dashboards/web)")
endif()

if(page_absent)
  message(STATUS "plumbd is built without its page: ${page_absent}")
  file(CONFIGURE OUTPUT ${page_source} CONTENT "#include \"server/web/page_assets.h\"

namespace plumbline::server {

std::span<const PageAsset> PageAssets() { return {}; }
std::string_view PageAbsentWhy() { return \"@page_absent@\"; }

}  // namespace plumbline::server
" @ONLY)
  file(CONFIGURE OUTPUT ${report_source} CONTENT "#include \"audit/render/report_page.h\"

namespace plumbline::audit {

const ReportPage* BundledReportPage() { return nullptr; }

}  // namespace plumbline::audit
" @ONLY)
else()
  file(GLOB page_files CONFIGURE_DEPENDS ${page_folder}/src/*.ts ${page_folder}/src/*.css ${page_folder}/src/*.html)
  add_custom_command(OUTPUT ${page_source} ${report_source}
    COMMAND ${PLUMBLINE_NODE} ${page_folder}/build.mjs ${page_source} ${report_source}
    DEPENDS ${page_files} ${page_folder}/build.mjs ${page_bundler}
    COMMENT "Bundling the page" VERBATIM)
  add_custom_target(plumb_page DEPENDS ${page_source} ${report_source})
endif()
set_source_files_properties(${page_source} ${report_source} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON SKIP_PRECOMPILE_HEADERS ON)
