// SPDX-License-Identifier: MIT
// Questions with known answers, from the files that TruthfulQA and GSM8K are published as. Pure.
//
// Errors are kInvalidRequest and begin with `name` and the line.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace moestro {

struct CsvRecord {
  size_t line = 0;  // line where the record begins, from 1
  std::vector<std::string> fields;
};
// RFC 4180: quoted fields may hold commas, line breaks and doubled quotes. A byte order mark is
// left out, and so are empty lines.
Result<std::vector<CsvRecord>> ParseCsv(std::string_view text, const std::string& name);

// A question with one right answer and at least one wrong one.
struct ChoiceItem {
  std::string question;
  std::string best;
  std::vector<std::string> incorrect;
};
// Columns "Question", "Best Answer" and "Incorrect Answers", of which ';' separates the last.
Result<std::vector<ChoiceItem>> ParseTruthfulQa(std::string_view text, const std::string& name);

// A question whose answer is a number.
struct NumberItem {
  std::string question;
  std::string answer;  // the whole answer, steps included
  std::string number;  // the number that FinalNumber() finds in the answer
};
// An object per line with "question" and "answer", which ends with "#### NUMBER".
Result<std::vector<NumberItem>> ParseGsm8k(std::string_view text, const std::string& name);

// The final number of a text: the first after the last "####", or without that mark the last
// number. Commas between digits and redundant zeros are left out: "1,050.0" is "1050".
std::optional<std::string> FinalNumber(std::string_view text);

}  // namespace moestro
