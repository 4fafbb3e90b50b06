// SPDX-License-Identifier: MIT
// The rows that the next step of a loop of texts computes. A text that is being written needs one
// row, a prompt can use as many rows as a chunk holds. Two aims pull apart. A text's next token
// must not wait long. A prompt's rows are cheap only in large numbers, because a chunk reads most
// experts once.
//
// The rule. While prompts and texts wait, they take turns, each with as much time as the last turn
// of the other took. A prompt's turn is one step with as many rows as fit `gap_seconds`, by the
// cost of earlier steps. The step never has so few rows that a row costs more than twice a row of a
// whole chunk. Where such a step takes longer than `gap_seconds`, texts get a token between two
// layers. Within a step the oldest prompt gets half the rows, the shortest prompts get the rest. So
// a long prompt does not hold up short prompts, and many short prompts do not hold up a long one.
//
// Pure: the caller passes the times of steps.
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
  // One text.
  struct Text {
    bool is_prompt = false;
    uint32_t waiting = 1;  // tokens that are not computed yet; 1 for a text that is being written
  };

  explicit StepPlanner(Limits limits) : limits_(limits) {}

  // The rows of each text; 0: the text waits. REQUIRES: texts are in order of arrival, each text
  // has waiting > 0, and not more than `chunk` texts are being written.
  std::vector<uint32_t> Plan(std::span<const Text> texts) const;
  // The step that was planned last has been computed. `prompt_rows`: rows of prompts; 0: the step
  // had texts only. `others_wait`: texts were being written meanwhile.
  void StepDone(uint32_t prompt_rows, double seconds, bool others_wait);
  // Texts had `seconds` of the prompts' step, which count as the texts' turn.
  void TextsHad(double seconds);
  // Before a layer of a prompt's step: whether texts get a token first. `waited`: seconds since a
  // text had its last token. `piece`: the longest time from layer to layer so far. Between two
  // tokens of texts, prompts get as much time as a token takes.
  bool is_time_for_texts(double waited, double piece) const {
    return waited + piece + text_seconds_ > limits_.gap_seconds && waited >= text_seconds_;
  }
  // The rows of a prompt's step while texts are being written.
  uint32_t rows_beside_texts() const;

 private:
  Limits limits_;
  double texts_turn_ = 0.0;    // seconds that texts may go on before prompts are next
  double text_seconds_ = 0.0;  // seconds of the last step of texts alone
  // Fading sums over prompts' steps, for seconds = fixed + rows * each.
  double weight_ = 0.0;
  double rows_ = 0.0;
  double seconds_ = 0.0;
  double rows_squared_ = 0.0;
  double rows_seconds_ = 0.0;
};

}  // namespace moestro
