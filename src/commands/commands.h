// SPDX-License-Identifier: MIT
// A user's commands. Each function adds one command with its flags and its action; its code is in
// cmd_<name>.cc.
#pragma once

#include <memory>
#include <string>

namespace moestro {

class CommandLine;

// The command line with all commands of a user and the names of the laboratory's, in the order of
// 'moestro --help'. `version`: for example "0.1.0".
std::unique_ptr<CommandLine> MakeCommandLine(const std::string& version);

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
