// SPDX-License-Identifier: MIT
// Tries grammars out while the engine runs, and begins them for texts, each in a process of its own
// (sandbox/child_starter.h): libllama may abort on a hostile grammar, or never return.
//
// At most `most_texts` processes serve texts at a time (processes of a helper that has died are not
// counted), and two run trials, each with at most kGrammarMemory beyond its parent's.
//
// Thread rule: any thread. Two trials run at a time: a short one for each grammar, then a long one
// for those that need more time; so an expensive grammar holds up others for an eighth of the time
// that it may take. No text waits for trials. The result of Open() is one thread's.
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
#include "model/vocab.h"
#include "sandbox/child_starter.h"
#include "sandbox/trial.h"

namespace moestro {

class GrammarChecker {
 public:
  struct Limits {
    uint32_t n_tokens = 0;                    // as for Sampler: logits per call
    uint32_t most_texts = 1;                  // texts with a grammar at a time
    std::chrono::milliseconds trial{20'000};  // long, since the machine may be busy
  };
  // Forks: call it before the process has a second thread, and from a thread that lives as long as
  // the process does, since the spawner ends with that thread. `vocab` must outlive this. kIo if no
  // child can be started.
  static Result<std::unique_ptr<GrammarChecker>> Start(const Vocab& vocab, Limits limits);

  // kInvalidRequest: the grammar is malformed, too deep, allows nothing, or needs too much time or
  // memory. kInterrupted: `is_over` has become true. kIo: helper and spawner are gone. Verdicts on
  // the latest grammars are kept and returned at once.
  Status Check(const Grammar& grammar, const std::function<bool()>& is_over = {});
  // The grammar for one text, at once: its process begins meanwhile, and errors appear in the
  // filter's methods (grammar_process.h). While most_texts processes run, the new one waits until
  // one of them has ended. kIo: helper and spawner are gone. REQUIRES: Check() has passed the
  // grammar; this outlives the result.
  Result<std::unique_ptr<TokenFilter>> Open(const Grammar& grammar);
  ChildStarter& starter() { return *starter_; }
  int spawner_id() const { return starter_->spawner_id(); }  // for reports and tests
  int helper_id() const { return starter_->helper_id(); }

 private:
  struct Known {
    std::string request;
    Status verdict;
  };

  using IsOver = std::function<bool()>;

  GrammarChecker(const Vocab& vocab, std::unique_ptr<ChildStarter> starter,
                 std::chrono::milliseconds trial);
  std::optional<Status> Recall(const std::string& request);
  void Remember(const std::string& request, const Status& verdict);
  Result<std::optional<Status>> TryIn(std::mutex& lane, char what, const std::string& request,
                                      const IsOver& is_over);
  Result<Trial> Try(char what, const std::string& request, const IsOver& is_over);

  const Vocab& vocab_;
  const std::chrono::milliseconds trial_;
  std::mutex short_trial_;  // held during a short trial
  std::mutex long_trial_;   // held during a long trial
  std::mutex known_mutex_;
  std::list<Known> known_;  // the latest first; under known_mutex_
  const std::unique_ptr<ChildStarter> starter_;
};

}  // namespace moestro
