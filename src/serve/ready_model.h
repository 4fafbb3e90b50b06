// SPDX-License-Identifier: MIT
// A model that is ready to answer, as the threads see it that talk to clients.
//
// Thread rule: any thread; nothing here changes once it is made.
#pragma once

#include <cstdint>

#include "api/server_bodies.h"
#include "chat/chat_format.h"
#include "grammar/grammar_checker.h"
#include "model/vocab.h"
#include "serve/preparing.h"
#include "serve/scheduler.h"

namespace moestro {

// What reports say beside what happens.
struct ServerFacts {
  uint32_t n_expert_layers = 0;
  uint32_t n_experts = 0;         // of a layer
  uint64_t ram = 0;               // the budget
  double disk_bandwidth = 0.0;    // bytes per second by the probes of the start; 0: not known
  double memory_bandwidth = 0.0;  // the same
};

// What is borrowed outlives this.
struct ReadyModel {
  ServedModel card;
  ServerFacts facts;
  const Vocab& vocab;
  const ChatFormat& format;
  GrammarChecker& grammars;
  Scheduler& scheduler;
  Preparing& preparing;
  double request_seconds = 0.0;  // what any request may take; 0: any time
};

}  // namespace moestro
