# SPDX-License-Identifier: MIT
# Packages for Debian, one of each program: 'make deb'. Their versions of libraries are those of the
# machine that builds.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME moestro)
set(CPACK_PACKAGE_VENDOR Moestro)
set(CPACK_PACKAGE_CONTACT "Moestro maintainers <maintainers@moestro.invalid>")
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_COMPONENTS_ALL moestro lab)
set(CPACK_DEBIAN_MOESTRO_PACKAGE_NAME moestro)
set(CPACK_DEBIAN_LAB_PACKAGE_NAME moestro-lab)
# The first line of each is its summary.
set(CPACK_DEBIAN_MOESTRO_DESCRIPTION "runs Mixture-of-Experts models that do not fit into memory
The dense part of a model stays in memory, its experts are read from the GGUF
file when they are asked for, with what the disk and the processor can do.
.
'moestro run' writes text or holds a conversation, 'moestro serve' answers
clients of OpenAI, Anthropic and Ollama over HTTP, and a systemd service runs
it once a model is named. A small model for a first try is part of the program.")
set(CPACK_DEBIAN_LAB_DESCRIPTION "measures, records and writes models for moestro
What researchers do with Mixture-of-Experts models: perplexity and how far a
run is from the exact one, recorded routing and simulated caches, importances,
experts at lower bit widths, synthetic models of a real one's shape.
.
'moestro eval' and the like start this program, which lies beside moestro.")
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
set(CPACK_STRIP_FILES ON)
# The settings lie outside the prefix.
set(CPACK_SET_DESTDIR ON)
set(CPACK_INSTALL_PREFIX /usr)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)

# moestro_same_release(<package>, <out>): dependencies that keep its upstream version. libggml's
# interface between its own libraries changes in every release under one soname.
function(moestro_same_release package out)
  execute_process(COMMAND dpkg-query -W -f "\${Version}" ${package}
                  OUTPUT_VARIABLE version ERROR_QUIET RESULT_VARIABLE failed)
  if(failed OR NOT version MATCHES "^([0-9]+:)?([0-9.]*\\.)?([0-9]+)")
    set(${out} "" PARENT_SCOPE)
    return()
  endif()
  set(beginning "${CMAKE_MATCH_1}${CMAKE_MATCH_2}")
  math(EXPR next "${CMAKE_MATCH_3} + 1")
  set(${out} "${package} (>= ${beginning}${CMAKE_MATCH_3}), ${package} (<< ${beginning}${next}~)"
      PARENT_SCOPE)
endfunction()

if(CMAKE_CROSSCOMPILING)
  # This machine's packages say nothing of those of another architecture.
  set(CPACK_DEBIAN_PACKAGE_ARCHITECTURE arm64)
  set(CPACK_MOESTRO_DEBS ${CMAKE_SYSROOT}/.debs)
  set(CPACK_MOESTRO_PROGRAMS ${PROJECT_BINARY_DIR}/moestro ${PROJECT_BINARY_DIR}/moestro-lab)
  set(CPACK_MOESTRO_SCRIPTS ${PROJECT_SOURCE_DIR}/scripts)
  set(CPACK_PROJECT_CONFIG_FILE ${PROJECT_SOURCE_DIR}/cmake/CrossDepends.cmake)
else()
  moestro_same_release(libggml0 ggml_release)
  moestro_same_release(libllama0 llama_release)
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
endif()
set(of_moestro "moestro (= ${PROJECT_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE})")
set(CPACK_DEBIAN_LAB_PACKAGE_DEPENDS "${of_moestro}")
if(ggml_release AND llama_release)
  set(CPACK_DEBIAN_MOESTRO_PACKAGE_DEPENDS "${ggml_release}, ${llama_release}")
  set(CPACK_DEBIAN_LAB_PACKAGE_DEPENDS "${of_moestro}, ${ggml_release}, ${llama_release}")
endif()
set(CPACK_DEBIAN_MOESTRO_PACKAGE_SUGGESTS "moestro-lab, libggml0-backend-vulkan")

set(debian ${PROJECT_SOURCE_DIR}/packaging/debian)
set(CPACK_DEBIAN_MOESTRO_PACKAGE_CONTROL_EXTRA
    "${debian}/conffiles;${debian}/postinst;${debian}/prerm;${debian}/postrm")
# Runs on the folder whose folders become the packages.
set(CPACK_PRE_BUILD_SCRIPTS ${PROJECT_SOURCE_DIR}/cmake/PackageFolder.cmake)
set(CPACK_MOESTRO_DEBIAN ${debian})
set(CPACK_MOESTRO_PACKAGES moestro moestro-lab)
include(CPack)
