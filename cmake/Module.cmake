# SPDX-License-Identifier: MIT
# moestro_module(<name> [COLD] SOURCES <cc...> [DEPENDS <module...>] [LINK <target...>]
#                [TESTS <cc...>])
# A static library moestro_<name> and, with TESTS, an executable moestro_<name>_test known to ctest.
# Its sources are compiled in groups of MOESTRO_UNITY (the option says why).
# COLD: nothing of it runs per token. DEPENDS are modules seen through this one's headers; LINK are
# foreign targets (SYSTEM includes).
function(moestro_module name)
  cmake_parse_arguments(M "COLD" "" "SOURCES;DEPENDS;LINK;TESTS" ${ARGN})
  add_library(moestro_${name} STATIC ${M_SOURCES})
  target_include_directories(moestro_${name} PUBLIC ${PROJECT_SOURCE_DIR}/src)
  list(TRANSFORM M_DEPENDS PREPEND moestro_)
  target_link_libraries(moestro_${name} PUBLIC ${M_DEPENDS} PRIVATE moestro_flags PUBLIC ${M_LINK})
  if(MOESTRO_UNITY GREATER 1)
    set_target_properties(moestro_${name} PROPERTIES
      UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${MOESTRO_UNITY})
  endif()
  if(M_COLD)
    target_compile_options(moestro_${name} PRIVATE ${MOESTRO_COLD_OPTIONS})
  endif()
  if(MOESTRO_TESTS AND M_TESTS)
    moestro_test(${name} SOURCES ${M_TESTS} DEPENDS ${name})
  endif()
endfunction()

# moestro_test(<name> SOURCES <cc...> DEPENDS <module...> [TIMEOUT <s>]): one gtest executable.
function(moestro_test name)
  cmake_parse_arguments(T "" "TIMEOUT" "SOURCES;DEPENDS" ${ARGN})
  if(NOT T_TIMEOUT)
    set(T_TIMEOUT 120)
  endif()
  add_executable(moestro_${name}_test ${T_SOURCES})
  list(TRANSFORM T_DEPENDS PREPEND moestro_)
  target_link_libraries(moestro_${name}_test PRIVATE ${T_DEPENDS} moestro_flags GTest::gtest_main)
  target_compile_options(moestro_${name}_test PRIVATE ${MOESTRO_TEST_OPTIONS})
  include(GoogleTest)
  # Listed when ctest runs: under its environment, which the sanitizers need.
  gtest_discover_tests(moestro_${name}_test DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60
                       PROPERTIES LABELS ${name} TIMEOUT ${T_TIMEOUT})
endfunction()
