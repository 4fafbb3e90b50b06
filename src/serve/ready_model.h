// SPDX-License-Identifier: MIT
// A model that is ready to answer, as the threads of clients use it.
//
// Thread rule: any thread; the values do not change.
#pragma once

#include <cstdint>
#include <string>

#include "api/server_bodies.h"
#include "base/result.h"
#include "chat/chat_format.h"
#include "grammar/grammar_checker.h"
#include "model/vocab.h"
#include "serve/helper_processes.h"
#include "serve/preparing.h"
#include "serve/response_store.h"
#include "serve/scheduler.h"

namespace moestro {

// The chat template that a server uses.

// The template for --chat-template: the name of a known template, else a file. `asked` empty: the
// model's own template, which may be empty, too. A warning names a file that is empty. kUsage:
// `asked` is neither a name nor a file, or the template cannot be used; the message names the
// reason.
Result<std::string> ChosenTemplate(const std::string& asked, const Vocab& vocab);

// Constant figures for reports.
struct ServerFacts {
  uint32_t n_expert_layers = 0;
  uint32_t n_experts = 0;         // in a layer
  uint64_t ram = 0;               // the budget
  double disk_bandwidth = 0.0;    // bytes per second by the probes of the start; 0: not known
  double memory_bandwidth = 0.0;  // bytes per second; 0: not known
};

// The references must outlive this.
struct ReadyModel {
  ServedModel card;
  ServerFacts facts;
  const Vocab& vocab;
  const ChatFormat& format;
  GrammarChecker& grammars;
  Scheduler& scheduler;
  Preparing& preparing;
  const HelperWatch& helpers;
  ResponseStore* responses = nullptr;  // nullptr: no answer is stored
  bool keeps_states = false;           // a text cannot be cut back to every position
  double request_seconds = 0.0;        // most for one request; 0: no limit
};

}  // namespace moestro
