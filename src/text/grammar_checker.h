// SPDX-License-Identifier: MIT
// Tries grammars out while the engine runs, and begins them for texts, each in a process of its
// own: libllama may abort on a hostile grammar, or never return. But a process of many GB and many
// threads cannot be forked well. So a small one is forked at the start, which does nothing but fork
// for each trial and each text.
//
// There are at most `most_texts` processes of texts at a time and one trial, each with at most
// kGrammarMemory beyond its parent's.
//
// Thread rule: any thread; one trial runs at a time, the others wait, and no text waits for them.
// What Open() gives is one thread's.
#pragma once

#include <chrono>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>

#include "base/result.h"
#include "model/vocab.h"
#include "text/grammar_state.h"
#include "text/message_socket.h"
#include "text/token_filter.h"

namespace moestro {

class GrammarChecker {
 public:
  struct Limits {
    uint32_t n_tokens = 0;                    // as for Sampler: logits per call
    uint32_t most_texts = 1;                  // that have a grammar at a time
    std::chrono::milliseconds trial{20'000};  // on a machine that is busy elsewhere
  };
  // Forks: call it before the engine starts its threads, and from a thread that lives as long as
  // the process does, since the child ends with that thread. `vocab` must outlive this. kIo if
  // there can be no child.
  static Result<std::unique_ptr<GrammarChecker>> Start(const Vocab& vocab, Limits limits);
  GrammarChecker(const GrammarChecker&) = delete;
  GrammarChecker& operator=(const GrammarChecker&) = delete;
  ~GrammarChecker();

  // kInvalidRequest: the grammar is malformed, too deep, allows nothing, or needs too much time or
  // memory. kIo: the child is gone, now and for all grammars that are not remembered. What was
  // tried lately is answered from memory.
  Status Check(const Grammar& grammar);
  // The grammar for one text, at once: its process begins meanwhile, and what it cannot do is said
  // when it is asked (grammar_process.h). When there are most_texts already it does not begin until
  // one of them has ended. kIo: the child is gone. REQUIRES: Check() has passed it.
  Result<std::unique_ptr<TokenFilter>> Open(const Grammar& grammar);
  int process_id() const { return child_; }  // the child's

 private:
  struct Known {
    std::string request;
    Status verdict;
  };

  GrammarChecker(const Vocab& vocab, int child, MessageSocket socket,
                 std::chrono::milliseconds trial);
  const Status* Recall(const std::string& request);
  void Remember(std::string request, const Status& verdict);
  Result<Trial> Try(const std::string& request);
  Result<MessageSocket> Begin(char what, const std::string& request);
  void EndChild();

  const Vocab& vocab_;
  const int child_;
  const std::chrono::milliseconds trial_;
  std::mutex trial_mutex_;   // held during a trial
  std::list<Known> known_;   // the latest first; under trial_mutex_
  std::mutex socket_mutex_;  // held while the child is told what to begin
  MessageSocket socket_;     // closed: the child is gone
};

}  // namespace moestro
