# SPDX-License-Identifier: MIT
# moestro_flags (INTERFACE): language level, warnings and sanitizers of our own code.

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Debug, Release, RelWithDebInfo" FORCE)
endif()

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
endif()

add_library(moestro_flags INTERFACE)
target_compile_features(moestro_flags INTERFACE cxx_std_23)
target_compile_options(moestro_flags INTERFACE
  -Wall -Wextra -Wshadow -Wconversion -Wold-style-cast -Wformat=2
  -Wnon-virtual-dtor -Woverloaded-virtual
  # A type of an anonymous namespace inside another: a group of sources looks like a header to it.
  $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>
  $<$<CXX_COMPILER_ID:GNU>:-Wsuggest-override>
  $<$<CXX_COMPILER_ID:Clang>:-Wthread-safety>)

# Where products and sums become one instruction by themselves, results would differ from those of
# processors whose plain instruction set has none.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
  target_compile_options(moestro_flags INTERFACE -ffp-contract=off)
endif()

# Optimising and generating code takes 39 to 66 % of a unit's compile time (decision 55). These
# lower the level where a token's time does not go, in builds that optimise at all: a debug or
# sanitizer build has its own level.
set(MOESTRO_COLD_OPTIONS $<$<CONFIG:Release>:-O1>)
set(MOESTRO_TEST_OPTIONS $<$<CONFIG:Release>:-O0>)

if(MOESTRO_SANITIZE)
  if("thread" IN_LIST MOESTRO_SANITIZE AND "address" IN_LIST MOESTRO_SANITIZE)
    message(FATAL_ERROR "MOESTRO_SANITIZE: address and thread exclude each other")
  endif()
  string(REPLACE ";" "," _list "${MOESTRO_SANITIZE}")
  # An undefined operation must fail its test, not print a line and go on.
  # GCC's manual: instrumented code makes -Wmaybe-uninitialized guess wrong.
  target_compile_options(moestro_flags INTERFACE -fsanitize=${_list} -fno-sanitize-recover=all
                         -fno-omit-frame-pointer $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
  target_compile_definitions(moestro_flags INTERFACE _GLIBCXX_ASSERTIONS)
  target_link_options(moestro_flags INTERFACE -fsanitize=${_list})
endif()

if("thread" IN_LIST MOESTRO_SANITIZE)
  # Shared and always linked, so that ggml's plug-ins find it before libgomp.
  add_library(moestro_tsan_openmp SHARED ${PROJECT_SOURCE_DIR}/tests/support/tsan_openmp.cc)
  target_compile_features(moestro_tsan_openmp PRIVATE cxx_std_23)
  target_compile_options(moestro_tsan_openmp PRIVATE -fsanitize=thread)
  target_link_options(moestro_tsan_openmp PRIVATE -fsanitize=thread)
  target_link_libraries(moestro_tsan_openmp PRIVATE ${CMAKE_DL_LIBS})
  target_link_libraries(moestro_flags INTERFACE
    -Wl,--push-state,--no-as-needed moestro_tsan_openmp -Wl,--pop-state)
endif()
