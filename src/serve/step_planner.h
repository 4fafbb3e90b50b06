// SPDX-License-Identifier: MIT
// Which rows a server's next step computes: texts that are being written want one row each, prompts
// want as many as a chunk holds. Two aims pull apart: a text's next token must not wait long, and a
// prompt's rows are cheap only in large numbers, because a chunk of them reads most experts once.
//
// The rule. While both are there, prompts and texts take turns, each with as much time as the
// other's last turn took. A prompt's turn is one step of so many rows as fit `gap_seconds` by what
// steps have cost, but never so few that rows cost more than twice what they cost in a whole chunk.
// Where that takes longer than `gap_seconds` texts get a token between two layers of it.
// Within a step the oldest prompt gets half the rows, the shortest ones the rest, so that neither a
// long prompt holds up short ones nor many short ones a long one.
//
// Pure: told what steps took.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace moestro {

class StepPlanner {
 public:
  struct Limits {
    uint32_t chunk = 512;      // most rows of a step
    double gap_seconds = 1.0;  // a text's next token should not wait longer for a prompt
  };
  // One text, prompts first come first.
  struct Text {
    bool is_prompt = false;
    uint32_t waiting = 1;  // tokens that are not computed yet; a text that is written has one
  };

  explicit StepPlanner(Limits limits) : limits_(limits) {}

  // Rows of each, 0: it waits. REQUIRES: texts are in order of arrival, each has waiting > 0, and
  // not more than `chunk` are being written.
  std::vector<uint32_t> Plan(std::span<const Text> texts) const;
  // The step that was planned last has been computed: `prompt_rows` of prompts in it, 0: it was a
  // step of texts alone. `others_wait`: texts were being written meanwhile.
  void StepDone(uint32_t prompt_rows, double seconds, bool others_wait);
  // Texts had so many seconds of the prompts' step that is done; they count as their turn.
  void TextsHad(double seconds);
  // Before a layer of a prompt's step: whether texts get a token first. `waited`: seconds since one
  // of them had its last token; `piece`: the longest time from layer to layer so far. Prompts get
  // as much time between two tokens as one takes.
  bool is_time_for_texts(double waited, double piece) const {
    return waited + piece + text_seconds_ > limits_.gap_seconds && waited >= text_seconds_;
  }
  // Rows that a prompt's step has while texts are being written.
  uint32_t rows_beside_texts() const;

 private:
  Limits limits_;
  double texts_turn_ = 0.0;    // seconds that texts may go on before prompts are next
  double text_seconds_ = 0.0;  // of the last step of texts alone
  // Fading sums over prompts' steps, for seconds = fixed + rows * each.
  double weight_ = 0.0;
  double rows_ = 0.0;
  double seconds_ = 0.0;
  double rows_squared_ = 0.0;
  double rows_seconds_ = 0.0;
};

}  // namespace moestro
