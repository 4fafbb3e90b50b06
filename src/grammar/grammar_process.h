// SPDX-License-Identifier: MIT
// A grammar that is not trusted, in a process of its own. A single call of libllama's grammars may
// take minutes and any amount of memory: the stacks of an ambiguous grammar are multiplied by each
// character, and nothing ends such a call but the end of its process. So the owner waits for at
// most kLongestStall for an answer, and the process ends itself when a token has taken
// GrammarLimits::token of processor time, or the text kGrammarMemory.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "grammar/grammar_state.h"
#include "model/vocab.h"
#include "sandbox/message_socket.h"

namespace moestro {

// Bytes beyond the parent's. A large schema takes 1.5 MiB.
inline constexpr uint64_t kGrammarMemory = uint64_t{16} << 20U;
// Time for a machine so busy that the process does not get its processor time.
inline constexpr std::chrono::milliseconds kLongestStall{2'000};

// The owner's side. A question without an answer in time gives kInvalidRequest, then and ever
// after.
class GrammarProcess final : public TokenFilter {
 public:
  using Opener = std::function<Result<MessageSocket>()>;

  // The process begins meanwhile; the first question waits for it. `again` opens another process,
  // if the first one died before it began.
  explicit GrammarProcess(MessageSocket socket, Opener again = {})
      : socket_(std::move(socket)), again_(std::move(again)) {}

  Result<bool> Take(Token token) override;
  Result<std::vector<bool>> Allowed(uint32_t n_tokens) override;
  void Restart() override;

 private:
  Status AwaitReady();
  Result<std::string> Ask(char verb, uint32_t number);
  bool Await(std::chrono::milliseconds time) const;

  bool HasAnswer();

  MessageSocket socket_;
  Opener again_;
  bool is_ready_ = false;
};

// The child's side, after the empty message that it may begin: answers until the owner closes its
// end.
[[noreturn]] void ServeGrammar(MessageSocket socket, const Grammar& grammar, const Vocab& vocab,
                               GrammarLimits limits);

}  // namespace moestro
