// SPDX-License-Identifier: MIT
// Messages about a command or a flag that does not exist. Pure; each is one line for Errc::kUsage.
// The typed word appears cut and without control characters.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace moestro {

struct KnownCommands {
  std::string program;
  std::span<const std::string> names;
  std::string for_files = {};      // "moestro run", for a user who typed a model; empty: none
  std::string other_program = {};  // with commands that this one does not have; empty: none
  std::string other_start = {};    // typed before one of them: "moestro"
  std::span<const std::string> other_names = {};
};

// `typed` stands where a command should; empty: nothing does.
std::string UnknownCommand(std::string_view typed, const KnownCommands& known);

// `command` is the text before --help, "moestro run"; `flags` are the command's long names,
// "--prompt". A value after "=" is not part of the name.
std::string UnknownFlag(std::string_view typed, std::string_view command,
                        std::span<const std::string> flags);

}  // namespace moestro
