# SPDX-License-Identifier: MIT
# Debian's own files, in the folder that CPack makes a package of.
set(root ${CPACK_TEMPORARY_INSTALL_DIRECTORY})
set(doc ${root}/usr/share/doc/moestro)
# Not file(INSTALL), which would put DESTDIR in front of all this.
configure_file(${CPACK_MOESTRO_DEBIAN}/copyright ${doc}/copyright COPYONLY)
configure_file(${CPACK_MOESTRO_DEBIAN}/changelog ${doc}/changelog.Debian COPYONLY)
configure_file(${CPACK_MOESTRO_DEBIAN}/lintian-overrides
               ${root}/usr/share/lintian/overrides/moestro COPYONLY)
# Debian's zsh looks for packages' functions there.
file(MAKE_DIRECTORY ${root}/usr/share/zsh/vendor-completions)
file(RENAME ${root}/usr/share/zsh/site-functions/_moestro
     ${root}/usr/share/zsh/vendor-completions/_moestro)
file(REMOVE_RECURSE ${root}/usr/share/zsh/site-functions)
# The settings themselves are there.
file(REMOVE ${doc}/moestro.conf.example)
file(GLOB pages ${root}/usr/share/man/man1/*.1)
execute_process(COMMAND gzip -9nf ${doc}/changelog.Debian ${pages} COMMAND_ERROR_IS_FATAL ANY)
