# SPDX-License-Identifier: MIT
# moestro_module(<name> [COLD] [GGML_CPU] SOURCES <cc...> [DEPENDS <module...>] [LINK <target...>]
#                [TESTS <cc...>])
# A static library moestro_<name> and, with TESTS, an executable moestro_<name>_test known to ctest.
# Its sources are compiled in groups of MOESTRO_UNITY (the option says why).
# COLD: a token spends no measurable time in it. GGML_CPU: its tests are as in moestro_test().
# DEPENDS are modules seen through this one's headers; LINK are foreign targets (SYSTEM includes).
function(moestro_module name)
  cmake_parse_arguments(M "COLD;GGML_CPU" "" "SOURCES;DEPENDS;LINK;TESTS" ${ARGN})
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
    if(M_GGML_CPU)
      set(kind GGML_CPU)
    endif()
    moestro_test(${name} ${kind} SOURCES ${M_TESTS} DEPENDS ${name})
    set_property(GLOBAL APPEND PROPERTY MOESTRO_UNIT_TESTS ${name})
  endif()
endfunction()

# main() of tests that compute with ggml.
if(MOESTRO_TESTS)
  add_library(moestro_cpu_variant_main STATIC
              ${PROJECT_SOURCE_DIR}/tests/support/cpu_variant_main.cc)
  target_link_libraries(moestro_cpu_variant_main PUBLIC GTest::gtest ggml::ggml
                        PRIVATE moestro_flags)
  target_compile_options(moestro_cpu_variant_main PRIVATE ${MOESTRO_TEST_OPTIONS})
endif()

# moestro_test(<name> [GGML_CPU] [ONE_THREAD] [DEVICE] SOURCES <cc...> DEPENDS <module...>
#              [TIMEOUT <s>] [ENVIRONMENT <NAME=VALUE...>]): one gtest executable.
# GGML_CPU: it computes with ggml, so the target test_variants runs it with each plug-in.
# ONE_THREAD: teams of threads are no subject of its tests (docs/decisions/0063): ctest gives each team
# one thread, but where races are looked for.
# DEVICE: it computes on a device. ctest begins with these programs and runs one of their tests at a
# time, beside others: a wait for a device keeps a core busy.
function(moestro_test name)
  cmake_parse_arguments(T "GGML_CPU;ONE_THREAD;DEVICE" "TIMEOUT" "SOURCES;DEPENDS;ENVIRONMENT" ${ARGN})
  if(NOT T_TIMEOUT)
    set(T_TIMEOUT 120)
  endif()
  add_executable(moestro_${name}_test ${T_SOURCES})
  list(TRANSFORM T_DEPENDS PREPEND moestro_)
  target_link_libraries(moestro_${name}_test PRIVATE ${T_DEPENDS} moestro_flags)
  if(T_GGML_CPU)
    target_link_libraries(moestro_${name}_test PRIVATE moestro_cpu_variant_main)
    set_property(GLOBAL APPEND PROPERTY MOESTRO_GGML_CPU_TESTS moestro_${name}_test)
  else()
    target_link_libraries(moestro_${name}_test PRIVATE GTest::gtest_main)
  endif()
  target_compile_options(moestro_${name}_test PRIVATE ${MOESTRO_TEST_OPTIONS})
  if(MOESTRO_UNITY GREATER 1)
    set_target_properties(moestro_${name}_test PROPERTIES
      UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${MOESTRO_UNITY})
  endif()
  if(T_ENVIRONMENT)
    set(environment ENVIRONMENT "${T_ENVIRONMENT}")
  endif()
  if(T_ONE_THREAD AND NOT MOESTRO_SANITIZE)
    set(one_thread ENVIRONMENT_MODIFICATION OMP_THREAD_LIMIT=set:1)
  endif()
  if(T_DEVICE)
    set(device RESOURCE_LOCK device COST 1000)
  endif()
  include(GoogleTest)
  # Listed when ctest runs: under its environment, which the sanitizers need.
  gtest_discover_tests(moestro_${name}_test DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60
                       PROPERTIES LABELS ${name} TIMEOUT ${T_TIMEOUT}
                                  ${environment} ${one_thread} ${device})
endfunction()
