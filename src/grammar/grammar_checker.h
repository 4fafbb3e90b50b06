// SPDX-License-Identifier: MIT
// Tries grammars out while the engine runs, and begins them for texts, each in a process of its
// own: libllama may abort on a hostile grammar, or never return. But a process of many GB and many
// threads cannot be forked well. So a small one is forked at the start, the spawner. It forks a
// helper, which does nothing but fork for each trial and each text. A helper that has died is
// replaced, and that is logged; texts that run have processes of their own and go on.
//
// There are at most `most_texts` processes of texts at a time (those of a helper that has died are
// not counted) and two trials, each with at most kGrammarMemory beyond its parent's.
//
// Thread rule: any thread. Two trials run at a time: a short one for each grammar, then a long one
// for those that need more time; so an expensive grammar holds up others for an eighth of the time
// that it may take. No text waits for trials. What Open() gives is one thread's.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "base/result.h"
#include "grammar/grammar_state.h"
#include "grammar/message_socket.h"
#include "grammar/token_filter.h"
#include "model/vocab.h"

namespace moestro {

class GrammarChecker {
 public:
  struct Limits {
    uint32_t n_tokens = 0;                    // as for Sampler: logits per call
    uint32_t most_texts = 1;                  // that have a grammar at a time
    std::chrono::milliseconds trial{20'000};  // on a machine that is busy elsewhere
  };
  // Forks: call it before the process has a second thread, and from a thread that lives as long as
  // the process does, since the spawner ends with that thread. `vocab` must outlive this. kIo if
  // there can be no child.
  static Result<std::unique_ptr<GrammarChecker>> Start(const Vocab& vocab, Limits limits);
  GrammarChecker(const GrammarChecker&) = delete;
  GrammarChecker& operator=(const GrammarChecker&) = delete;
  ~GrammarChecker();

  // kInvalidRequest: the grammar is malformed, too deep, allows nothing, or needs too much time or
  // memory. kInterrupted: `is_over` has become true. kIo: helper and spawner are gone. What was
  // tried lately is answered from memory.
  Status Check(const Grammar& grammar, const std::function<bool()>& is_over = {});
  // The grammar for one text, at once: its process begins meanwhile, and what it cannot do is said
  // when it is asked (grammar_process.h). When there are most_texts already it does not begin until
  // one of them has ended. kIo: helper and spawner are gone. REQUIRES: Check() has passed it. This
  // must outlive what it gives.
  Result<std::unique_ptr<TokenFilter>> Open(const Grammar& grammar);
  int spawner_id() const { return spawner_; }  // process numbers, for reports and tests
  int helper_id() const;

 private:
  struct Known {
    std::string request;
    Status verdict;
  };

  using IsOver = std::function<bool()>;

  GrammarChecker(const Vocab& vocab, int spawner, MessageSocket socket,
                 std::chrono::milliseconds trial);
  std::optional<Status> Recall(const std::string& request);
  void Remember(const std::string& request, const Status& verdict);
  Result<std::optional<Status>> TryIn(std::mutex& lane, char what, const std::string& request,
                                      const IsOver& is_over);
  Result<Trial> Try(char what, const std::string& request, const IsOver& is_over);
  Result<MessageSocket> Begin(char what, const std::string& request);
  bool StartHelper();

  const Vocab& vocab_;
  const int spawner_;
  const std::chrono::milliseconds trial_;
  std::mutex short_trial_;  // held during one
  std::mutex long_trial_;   // likewise
  std::mutex known_mutex_;
  std::list<Known> known_;           // the latest first; under known_mutex_
  mutable std::mutex socket_mutex_;  // held while a process is told what to begin
  MessageSocket to_spawner_;         // under socket_mutex_, and what follows
  MessageSocket to_helper_;          // closed: there is none
  int helper_ = -1;
  bool has_said_lost_ = false;
};

}  // namespace moestro
