# Hardens shipped code, so that a memory error ends the process instead of serving an attacker: stack canaries, checked
# copies, a random address layout at each start, read-only function tables. On in release builds.
# packaging/bundle/checks.py checks for each of them in the packages.
if(CMAKE_BUILD_TYPE STREQUAL Release AND NOT PLUMBLINE_SANITIZE)
  set(hardened ON)
else()
  set(hardened OFF)
endif()
option(PLUMBLINE_HARDEN "Stack protector, checked copies, PIE, full RELRO" ${hardened})
if(PLUMBLINE_HARDEN)
  add_compile_options($<$<COMPILE_LANGUAGE:C,CXX>:-fstack-protector-strong>
                      $<$<COMPILE_LANGUAGE:C,CXX>:-U_FORTIFY_SOURCE> $<$<COMPILE_LANGUAGE:C,CXX>:-D_FORTIFY_SOURCE=2>)
  add_link_options(LINKER:-z,relro LINKER:-z,now LINKER:-z,noexecstack)
  include(CheckPIESupported)
  check_pie_supported()  # CMAKE_POSITION_INDEPENDENT_CODE then links programs with -pie
endif()
