# SPDX-License-Identifier: MIT
# What 'make install' and packages put where. Everything but the settings lies beneath the prefix,
# which may be chosen when installing. There are two components, of a package each: moestro, and lab.
include(GNUInstallDirs)
set(packaging ${PROJECT_SOURCE_DIR}/packaging)
# All may read what is installed, whatever umask root has ('make install' sets that, too).
set(CMAKE_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ
    GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)

# moestro_install_program(<program> <component> <folder>): with its documents, which lie there.
function(moestro_install_program program component folder)
  install(TARGETS ${program} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT ${component})
  install(DIRECTORY ${folder}/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT ${component}
          FILES_MATCHING PATTERN *.1)
  install(FILES ${folder}/${program}.bash RENAME ${program} COMPONENT ${component}
          DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
  install(FILES ${folder}/${program}.zsh RENAME _${program} COMPONENT ${component}
          DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
  install(FILES ${folder}/${program}.fish COMPONENT ${component}
          DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
endfunction()
moestro_install_program(moestro moestro ${MOESTRO_DOCUMENTS}/user)
moestro_install_program(moestro-lab lab ${MOESTRO_DOCUMENTS}/lab)
set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME moestro)
install(FILES ${packaging}/systemd/gpu.conf RENAME gpu.conf.example
        DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(FILES ${packaging}/moestro.conf RENAME moestro.conf.example
        DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(FILES ${packaging}/haproxy.cfg RENAME haproxy.cfg.example
        DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(FILES ${packaging}/prometheus.yml RENAME prometheus.yml.example
        DESTINATION ${CMAKE_INSTALL_DOCDIR})

# Units name the program by its path, which is known when installing. Settings are the machine's:
# what is there stays, and a prefix of a user's own has none. In units % is special, and so are
# blanks outside of quotes.
install(CODE "
  set(is_system FALSE)
  if(CMAKE_INSTALL_PREFIX MATCHES \"^/usr(/local)?/?\$\")
    set(is_system TRUE)
  endif()
  set(MOESTRO_PROGRAM \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_BINDIR}/moestro\")
  string(REPLACE \"%\" \"%%\" MOESTRO_PROGRAM \"\${MOESTRO_PROGRAM}\")
  if(MOESTRO_PROGRAM MATCHES \"[^A-Za-z0-9/._%+-]\")
    set(MOESTRO_PROGRAM \"\\\"\${MOESTRO_PROGRAM}\\\"\")
  endif()
  foreach(kind system user)
    set(from moestro.service.in)
    set(folder lib/systemd/system)
    if(kind STREQUAL user)
      set(from moestro-user.service.in)
      # A user's systemd reads ~/.local/share, but not ~/.local/lib.
      set(folder share/systemd/user)
      if(is_system)
        set(folder lib/systemd/user)
      endif()
    endif()
    set(to \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/\${folder}\")
    if(NOT IS_DIRECTORY \"\${to}\")
      file(INSTALL DESTINATION \"\${CMAKE_INSTALL_PREFIX}/\${folder}\" TYPE DIRECTORY FILES \"\")
    endif()
    string(APPEND to /moestro.service)
    configure_file(\"${packaging}/systemd/\${from}\" \"\${to}\" @ONLY NEWLINE_STYLE UNIX)
    file(CHMOD \"\${to}\" PERMISSIONS OWNER_READ OWNER_WRITE GROUP_READ WORLD_READ)
    message(STATUS \"Installing: \${to}\")
  endforeach()
  set(settings \"\$ENV{DESTDIR}/etc/moestro/moestro.conf\")
  if(NOT is_system)
    message(STATUS \"No settings for the machine: \${CMAKE_INSTALL_PREFIX} is not the system's\")
  elseif(EXISTS \"\${settings}\")
    message(STATUS \"Keeping: \${settings}\")
  else()
    file(INSTALL \"${packaging}/moestro.conf\" DESTINATION /etc/moestro)  # which puts DESTDIR in front
  endif()
" COMPONENT moestro)
