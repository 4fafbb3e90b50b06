// SPDX-License-Identifier: MIT
#include "forward/dense/carried_rows.h"

#include <gtest/gtest.h>

#include <vector>

namespace moestro {
namespace {

StepRow RowAt(uint32_t sequence, uint32_t position) {
  return {.position = position, .visible = {}, .sequence = SequenceId{sequence}};
}

// A row's output: its sequence and its position, from 1 on.
std::vector<float> Outputs(const std::vector<StepRow>& rows) {
  std::vector<float> outputs;
  for (const StepRow& row : rows) {
    outputs.push_back(static_cast<float>(row.sequence.value));
    outputs.push_back(static_cast<float>(row.position + 1));
  }
  return outputs;
}

std::vector<float> Shifted(CarriedRows& carried, const std::vector<StepRow>& rows) {
  std::vector<float> outputs = Outputs(rows);
  carried.Shift(rows, outputs);
  return outputs;
}

TEST(CarriedRowsTest, EachRowGetsTheOutputOfTheRowBeforeIt) {
  CarriedRows carried(2);
  // Sequences are mixed, and the first row of each has nothing before it.
  EXPECT_EQ(Shifted(carried, {RowAt(1, 0), RowAt(2, 0), RowAt(1, 1), RowAt(2, 1), RowAt(1, 2)}),
            (std::vector<float>{0, 0, 0, 0, 1, 1, 2, 1, 1, 2}));
  // The next step's rows follow those.
  EXPECT_EQ(Shifted(carried, {RowAt(2, 2), RowAt(1, 3)}), (std::vector<float>{2, 2, 1, 3}));
}

TEST(CarriedRowsTest, ASequenceThatWasCutBackGoesOnFromItsNewestRow) {
  CarriedRows carried(2);
  (void)Shifted(carried, {RowAt(1, 0), RowAt(1, 1), RowAt(1, 2), RowAt(1, 3)});
  // Cut back to two tokens, and other tokens follow.
  std::vector<float> others = {70, 71};
  carried.Shift(std::vector<StepRow>{RowAt(1, 2)}, others);
  EXPECT_EQ(others, (std::vector<float>{1, 2}));
  std::vector<float> out(2);
  carried.Read(SequenceId{1}, 2, out);
  EXPECT_EQ(out, (std::vector<float>{70, 71}));
}

TEST(CarriedRowsTest, WhatIsForgottenIsZeros) {
  CarriedRows carried(2);
  std::vector<StepRow> prompt;
  for (uint32_t p = 0; p < 2 * CarriedRows::kOfSequence; ++p) prompt.push_back(RowAt(1, p));
  (void)Shifted(carried, prompt);
  std::vector<float> out = {5, 5};
  carried.Read(SequenceId{1}, CarriedRows::kOfSequence - 1, out);
  EXPECT_EQ(out, (std::vector<float>{0, 0}));
  carried.Read(SequenceId{1}, CarriedRows::kOfSequence, out);
  EXPECT_EQ(out, (std::vector<float>{1, CarriedRows::kOfSequence + 1}));
  for (uint32_t s = 2; s < 2 + CarriedRows::kRows; ++s) (void)Shifted(carried, {RowAt(s, 0)});
  carried.Read(SequenceId{1}, CarriedRows::kOfSequence, out);
  EXPECT_EQ(out, (std::vector<float>{0, 0}));
  // The oldest one that is left.
  carried.Read(SequenceId{2}, 0, out);
  EXPECT_EQ(out, (std::vector<float>{2, 1}));
}

}  // namespace
}  // namespace moestro
