// SPDX-License-Identifier: MIT
// Starts the laboratory's program in place of this one.
#pragma once

#include <sys/stat.h>

#include <string>

#include "base/result.h"

namespace moestro {

// The files around a program that may be started, as stat() describes them.
struct LabFiles {
  struct stat program = {};  // this one
  struct stat folder = {};   // in which both lie
  struct stat link = {};     // the laboratory's name: the file, or a link to it
  struct stat lab = {};      // the file
};

// Why the laboratory is not to be trusted as this program is; empty: it is. Its owner, its link's
// and the folder's are root, the process's user or this program's owner, and others may
// write to the file, or put another in its place, only where they may write to this program. So a
// program with rights of its own (sudo, a set-user-ID bit) starts no stranger's. Pure.
std::string ReasonForDistrust(const LabFiles& files, uid_t user);

// Becomes the program moestro-lab beside this one: the same process with its files, variables,
// signals and arguments, and its exit code. `version` is this program's. REQUIRES: argv[1] is a
// command of the laboratory. Returns kIo with the reason if it cannot be started, and how to get
// it.
Status StartLab(const std::string& version, char** argv);

}  // namespace moestro
