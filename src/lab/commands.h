// SPDX-License-Identifier: MIT
// The commands of the laboratory. Each function adds one command with its flags and its action; its
// code is in cmd_<name>.cc.
#pragma once

#include <memory>
#include <string>

namespace moestro {

class CommandLine;

// The command line with all commands of the laboratory, in the order of 'moestro-lab --help', and
// the names of a user's. `program`: the name before the command in messages and help: "moestro" if
// that started this one. "0.1.0" is a version.
std::unique_ptr<CommandLine> MakeLabCommandLine(const std::string& program,
                                                const std::string& version);

void AddConvert(CommandLine& line);   // a Hugging Face folder as a GGUF file
void AddEval(CommandLine& line);      // perplexity, and the difference from the exact run
void AddFit(CommandLine& line);       // a width for each expert, fitted to a tolerance
void AddImatrix(CommandLine& line);   // measures which weights of the experts matter
void AddLogits(CommandLine& line);    // logits after some tokens, as JSON
void AddMerge(CommandLine& line);     // puts the shards of a run together
void AddProfile(CommandLine& line);   // counts which experts follow which
void AddQuantize(CommandLine& line);  // writes the experts at a lower type
void AddSim(CommandLine& line);       // replays a trace against policies and cache sizes
void AddSynth(CommandLine& line);     // writes a GGUF of a real model's shape
void AddTrace(CommandLine& line);     // records which experts a text is routed to

}  // namespace moestro
