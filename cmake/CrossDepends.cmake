# SPDX-License-Identifier: MIT
# What the packages for another architecture depend on, once their programs are built.
if(CPACK_MOESTRO_DEBS)
  foreach(component program IN ZIP_LISTS CPACK_COMPONENTS_ALL CPACK_MOESTRO_PROGRAMS)
    execute_process(
      COMMAND ${CPACK_MOESTRO_SCRIPTS}/cross_depends.sh ${CPACK_DEBIAN_PACKAGE_ARCHITECTURE}
              ${CPACK_MOESTRO_DEBS} ${program}
      OUTPUT_VARIABLE depends COMMAND_ERROR_IS_FATAL ANY)
    string(TOUPPER ${component} name)
    string(JOIN ", " CPACK_DEBIAN_${name}_PACKAGE_DEPENDS ${CPACK_DEBIAN_${name}_PACKAGE_DEPENDS}
           ${depends})
  endforeach()
endif()
