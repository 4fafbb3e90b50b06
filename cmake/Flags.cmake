add_library(moestro_flags INTERFACE)
target_compile_features(moestro_flags INTERFACE cxx_std_23)
target_compile_options(moestro_flags INTERFACE
  -Wall -Wextra -Wshadow -Wconversion -Wold-style-cast -Wformat=2
  -Wnon-virtual-dtor -Woverloaded-virtual
  $<$<CXX_COMPILER_ID:GNU>:-Wsuggest-override>
  $<$<CXX_COMPILER_ID:Clang>:-Wthread-safety>)
if(MOESTRO_SANITIZE)
  if("thread" IN_LIST MOESTRO_SANITIZE AND "address" IN_LIST MOESTRO_SANITIZE)
    message(FATAL_ERROR "MOESTRO_SANITIZE: address and thread exclude each other")
  endif()
  string(REPLACE ";" "," _list "${MOESTRO_SANITIZE}")
  target_compile_options(moestro_flags INTERFACE -fsanitize=${_list} -fno-omit-frame-pointer)
  target_link_options(moestro_flags INTERFACE -fsanitize=${_list})
endif()
