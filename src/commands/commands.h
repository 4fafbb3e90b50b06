// SPDX-License-Identifier: MIT
// A user's commands, and the laboratory's program, which is started for its own.
#pragma once

#include <sys/stat.h>

#include <memory>
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

class CommandLine;

// The command line with all commands of a user and the names of the laboratory's, in the order of
// 'moestro --help'. `version`: for example "0.1.0".
std::unique_ptr<CommandLine> MakeCommandLine(const std::string& version);

// Each function adds one command with its flags and its action, from cmd_<name>.cc; those that
// fetch, list and remove models from cmd_models.cc.
void AddBench(CommandLine& line);    // prefill and decode speed, and their share of the bound
void AddDevices(CommandLine& line);  // devices that can compute, and their speed
void AddDoctor(CommandLine& line);   // faults and causes of slowness of this machine
void AddHealth(CommandLine& line);   // whether a server is ready
void AddInspect(CommandLine& line);  // parts of a model, and the slots that fit in memory
void AddList(CommandLine& line);     // models in the cache
void AddPlan(CommandLine& line);     // whether a model fits, and how fast it will be
void AddPull(CommandLine& line);     // fetches a model by its name
void AddRemove(CommandLine& line);   // removes a model from the cache
void AddRun(CommandLine& line);      // text or a conversation
void AddServe(CommandLine& line);    // a server for OpenAI's and Anthropic's clients

}  // namespace moestro
