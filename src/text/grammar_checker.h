// SPDX-License-Identifier: MIT
// Tries grammars out while the engine runs. libllama may abort on a hostile grammar, so a trial is
// a process of its own; but a process of many GB and many threads cannot be forked well. So a small
// one is forked at the start, and forks for each trial in its place, and for each text with a
// grammar.
//
// Thread rule: any thread; one trial runs at a time, the others wait. What Open() gives is one
// thread's.
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
  // Forks: call it before the engine starts its threads, and from a thread that lives as long as
  // the process does, since the child ends with that thread. `vocab` must outlive this; n_tokens as
  // for Sampler: logits per call. kIo if there can be no child.
  static Result<std::unique_ptr<GrammarChecker>> Start(
      const Vocab& vocab, uint32_t n_tokens, std::chrono::milliseconds limit = kGrammarTrial);
  GrammarChecker(const GrammarChecker&) = delete;
  GrammarChecker& operator=(const GrammarChecker&) = delete;
  ~GrammarChecker();

  // kInvalidRequest: the grammar is malformed, too deep, allows nothing, or needs too much time or
  // memory. kIo: the child is gone, now and for all grammars that are not remembered. What was
  // tried lately is answered from memory.
  Status Check(const Grammar& grammar);
  // The grammar for one text, in a process of its own (grammar_process.h). Fails as Check() does.
  Result<std::unique_ptr<TokenFilter>> Open(const Grammar& grammar);
  int process_id() const { return child_; }  // the child's

 private:
  struct Known {
    std::string request;
    Status verdict;
  };

  GrammarChecker(const Vocab& vocab, int child, MessageSocket socket,
                 std::chrono::milliseconds limit);
  const Status* Recall(const std::string& request);
  void Remember(std::string request, const Status& verdict);
  Result<Trial> Ask(const std::string& request);
  Status SendOpening(const std::string& request, const MessageSocket& end);
  std::unexpected<Error> Gone();
  void EndChild();

  const Vocab& vocab_;
  const int child_;
  const std::chrono::milliseconds limit_;
  std::mutex mutex_;        // held while the child works: it takes one grammar at a time
  MessageSocket socket_;    // closed: the child is gone
  std::list<Known> known_;  // the latest first
};

}  // namespace moestro
