# SPDX-License-Identifier: MIT
# What 'make install' and packages put where. Everything but the settings lies beneath the prefix,
# which may be chosen when installing.
include(GNUInstallDirs)
set(packaging ${PROJECT_SOURCE_DIR}/packaging)

install(TARGETS moestro RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(DIRECTORY ${MOESTRO_DOCUMENTS}/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 FILES_MATCHING PATTERN *.1)
install(FILES ${MOESTRO_DOCUMENTS}/moestro.bash RENAME moestro
        DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
install(FILES ${MOESTRO_DOCUMENTS}/moestro.zsh RENAME _moestro
        DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
install(FILES ${MOESTRO_DOCUMENTS}/moestro.fish
        DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
install(FILES ${packaging}/systemd/gpu.conf RENAME gpu.conf.example
        DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(FILES ${packaging}/moestro.conf RENAME moestro.conf.example
        DESTINATION ${CMAKE_INSTALL_DOCDIR})

# Units name the program by its path, which is known when installing. Settings are the machine's:
# what is there stays, and a prefix of a user's own has none.
install(CODE "
  set(MOESTRO_BINDIR \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_BINDIR}\")
  foreach(kind system user)
    set(unit moestro.service)
    set(from moestro.service.in)
    if(kind STREQUAL user)
      set(from moestro-user.service.in)
    endif()
    set(to \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/lib/systemd/\${kind}/\${unit}\")
    configure_file(\"${packaging}/systemd/\${from}\" \"\${to}\" @ONLY NEWLINE_STYLE UNIX)
    file(CHMOD \"\${to}\" PERMISSIONS OWNER_READ OWNER_WRITE GROUP_READ WORLD_READ)
    message(STATUS \"Installing: \${to}\")
  endforeach()
  set(settings \"\$ENV{DESTDIR}/etc/moestro/moestro.conf\")
  if(NOT CMAKE_INSTALL_PREFIX MATCHES \"^/usr(/local)?/?\$\")
    message(STATUS \"No settings for the machine: \${CMAKE_INSTALL_PREFIX} is not the system's\")
  elseif(EXISTS \"\${settings}\")
    message(STATUS \"Keeping: \${settings}\")
  else()
    file(INSTALL \"${packaging}/moestro.conf\" DESTINATION /etc/moestro)  # which puts DESTDIR in front
  endif()
")
