# SPDX-License-Identifier: MIT
# Debian's own files, in the folders that CPack makes packages of: one of each component.
foreach(component package IN ZIP_LISTS CPACK_COMPONENTS_ALL CPACK_MOESTRO_PACKAGES)
  set(root ${CPACK_TEMPORARY_INSTALL_DIRECTORY}/${component})
  set(doc ${root}/usr/share/doc/${package})
  # Not file(INSTALL), which would put DESTDIR in front of all this.
  configure_file(${CPACK_MOESTRO_DEBIAN}/copyright ${doc}/copyright COPYONLY)
  configure_file(${CPACK_MOESTRO_DEBIAN}/changelog ${doc}/changelog.Debian COPYONLY)
  set(overrides ${root}/usr/share/lintian/overrides/${package})
  file(READ ${CPACK_MOESTRO_DEBIAN}/lintian-overrides text)
  string(REPLACE "moestro:" "${package}:" text "${text}")
  file(WRITE ${overrides} "${text}")
  # Debian's zsh looks for packages' functions there.
  file(MAKE_DIRECTORY ${root}/usr/share/zsh/vendor-completions)
  file(RENAME ${root}/usr/share/zsh/site-functions/_${package}
       ${root}/usr/share/zsh/vendor-completions/_${package})
  file(REMOVE_RECURSE ${root}/usr/share/zsh/site-functions)
  # The settings themselves are there.
  file(REMOVE ${doc}/moestro.conf.example)
  file(GLOB pages ${root}/usr/share/man/man1/*.1)
  execute_process(COMMAND gzip -9nf ${doc}/changelog.Debian ${pages} COMMAND_ERROR_IS_FATAL ANY)
endforeach()
