# SPDX-License-Identifier: MIT
# Toolchain of the preset aarch64: g++ for arm64 and the packages that scripts/aarch64_root.sh
# unpacked. What the build runs, and tests, run under qemu-user.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
get_filename_component(MOESTRO_ROOT "${CMAKE_CURRENT_LIST_DIR}/../build/aarch64-root" ABSOLUTE)
set(CMAKE_SYSROOT "${MOESTRO_ROOT}")
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_CROSSCOMPILING_EMULATOR "qemu-aarch64;-L;${MOESTRO_ROOT}")
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(ENV{PKG_CONFIG_SYSROOT_DIR} "${MOESTRO_ROOT}")
set(ENV{PKG_CONFIG_LIBDIR}
    "${MOESTRO_ROOT}/usr/lib/aarch64-linux-gnu/pkgconfig:${MOESTRO_ROOT}/usr/share/pkgconfig")
