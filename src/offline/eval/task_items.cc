// SPDX-License-Identifier: MIT
#include "offline/eval/task_items.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "base/json.h"
#include "base/text.h"

namespace moestro {
namespace {

constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
constexpr std::string_view kAnswerMark = "####";

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

class CsvReader {
 public:
  CsvReader(std::string_view text, const std::string& name) : text_(text), name_(name) {}

  bool at_end() const { return at_ == text_.size(); }

  Result<CsvRecord> Next() {
    CsvRecord record{.line = line_, .fields = {}};
    while (true) {
      TRY(std::string field, Peek() == '"' ? Quoted() : Plain());
      record.fields.push_back(std::move(field));
      if (at_end()) return record;
      const char separator = Take();
      if (separator == ',') continue;
      if (separator == '\r' && Peek() == '\n') Take();
      return record;
    }
  }

 private:
  char Peek() const { return at_end() ? '\0' : text_[at_]; }
  char Take() {
    const char c = text_[at_++];
    if (c == '\n') ++line_;
    return c;
  }
  bool IsAtSeparator() const {
    return at_end() || Peek() == ',' || Peek() == '\n' || Peek() == '\r';
  }

  Result<std::string> Plain() {
    std::string field;
    while (!IsAtSeparator()) {
      if (Peek() == '"') {
        return Fail(Errc::kInvalidRequest,
                    "{}:{}: a quote inside a field that does not begin with one", name_, line_);
      }
      field += Take();
    }
    return field;
  }

  Result<std::string> Quoted() {
    const size_t begin = line_;
    std::string field;
    Take();
    while (!at_end()) {
      const char c = Take();
      if (c != '"') {
        field += c;
      } else if (Peek() == '"') {
        field += Take();
      } else if (IsAtSeparator()) {
        return field;
      } else {
        return Fail(Errc::kInvalidRequest, "{}:{}: text after a field's closing quote", name_,
                    line_);
      }
    }
    return Fail(Errc::kInvalidRequest, "{}:{}: a quoted field that does not end", name_, begin);
  }

  std::string_view text_;
  const std::string& name_;
  size_t at_ = 0;
  size_t line_ = 1;
};

std::vector<std::string> SplitAnswers(std::string_view text) {
  std::vector<std::string> answers;
  while (!text.empty()) {
    const size_t end = text.find(';');
    const std::string_view answer = WithoutBlanks(text.substr(0, end));
    if (!answer.empty()) answers.emplace_back(answer);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return answers;
}

Result<size_t> ColumnOf(const CsvRecord& head, std::string_view title, const std::string& name) {
  const auto found = std::ranges::find(head.fields, title);
  if (found != head.fields.end()) return static_cast<size_t>(found - head.fields.begin());
  return Fail(Errc::kInvalidRequest, "{}: has no column '{}'; give TruthfulQA.csv as published",
              name, title);
}

// The number that begins at `begin`, and its end.
std::pair<std::string, size_t> NumberAt(std::string_view text, size_t begin) {
  std::string number;
  const bool has_dash = begin > 0 && text[begin - 1] == '-';
  const bool is_minus = has_dash && begin > 1 && IsDigit(text[begin - 2]);  // of a subtraction
  if (has_dash && !is_minus) number = "-";
  bool has_point = false;
  size_t at = begin;
  for (; at < text.size(); ++at) {
    const bool digit_follows = at + 1 < text.size() && IsDigit(text[at + 1]);
    if (IsDigit(text[at])) {
      number += text[at];
    } else if (text[at] == '.' && digit_follows && !has_point) {
      has_point = true;
      number += '.';
    } else if (text[at] != ',' || !digit_follows || has_point) {
      break;
    }
  }
  if (has_point) {
    number.erase(number.find_last_not_of('0') + 1);
    if (number.ends_with('.')) number.pop_back();
  }
  return {number, at};
}

}  // namespace

Result<std::vector<CsvRecord>> ParseCsv(std::string_view text, const std::string& name) {
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  CsvReader reader(text, name);
  std::vector<CsvRecord> records;
  while (!reader.at_end()) {
    TRY(CsvRecord record, reader.Next());
    const bool is_blank = record.fields.size() == 1 && record.fields.front().empty();
    if (!is_blank) records.push_back(std::move(record));
  }
  return records;
}

Result<std::vector<ChoiceItem>> ParseTruthfulQa(std::string_view text, const std::string& name) {
  TRY(const std::vector<CsvRecord> records, ParseCsv(text, name));
  const CsvRecord head = records.empty() ? CsvRecord{} : records.front();
  TRY(const size_t question, ColumnOf(head, "Question", name));
  TRY(const size_t best, ColumnOf(head, "Best Answer", name));
  TRY(const size_t incorrect, ColumnOf(head, "Incorrect Answers", name));
  std::vector<ChoiceItem> items;
  for (size_t i = 1; i < records.size(); ++i) {
    const CsvRecord& record = records[i];
    if (record.fields.size() != head.fields.size()) {
      return Fail(Errc::kInvalidRequest, "{}:{}: {} fields, the first line has {}", name,
                  record.line, record.fields.size(), head.fields.size());
    }
    ChoiceItem item{.question = std::string(WithoutBlanks(record.fields[question])),
                    .best = std::string(WithoutBlanks(record.fields[best])),
                    .incorrect = SplitAnswers(record.fields[incorrect])};
    if (item.question.empty() || item.best.empty() || item.incorrect.empty()) {
      return Fail(Errc::kInvalidRequest,
                  "{}:{}: needs a question, a best answer and an incorrect one", name, record.line);
    }
    items.push_back(std::move(item));
  }
  return items;
}

Result<std::vector<NumberItem>> ParseGsm8k(std::string_view text, const std::string& name) {
  std::vector<NumberItem> items;
  for (size_t line = 1; !text.empty(); ++line) {
    const size_t end = text.find('\n');
    const std::string_view json = WithoutBlanks(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (json.empty()) continue;
    const auto object = Json::Parse(json);
    if (!object) {
      return Fail(Errc::kInvalidRequest, "{}:{}: {}", name, line, object.error().message);
    }
    const auto question = object->Find("question");
    const auto answer = object->Find("answer");
    if (!question || !question->text() || !answer || !answer->text()) {
      return Fail(Errc::kInvalidRequest, "{}:{}: needs the texts \"question\" and \"answer\"", name,
                  line);
    }
    NumberItem item{.question = *question->text(), .answer = *answer->text(), .number = {}};
    const auto number = item.answer.contains(kAnswerMark) ? FinalNumber(item.answer) : std::nullopt;
    if (!number) {
      return Fail(Errc::kInvalidRequest, "{}:{}: the answer does not end with #### and a number",
                  name, line);
    }
    item.number = *number;
    items.push_back(std::move(item));
  }
  return items;
}

std::optional<std::string> FinalNumber(std::string_view text) {
  const size_t mark = text.rfind(kAnswerMark);
  const bool is_marked = mark != std::string_view::npos;
  if (is_marked) text.remove_prefix(mark + kAnswerMark.size());
  std::optional<std::string> found;
  for (size_t at = 0; at < text.size() && !(found && is_marked);) {
    if (!IsDigit(text[at])) {
      ++at;
      continue;
    }
    std::tie(found, at) = NumberAt(text, at);
  }
  return found;
}

}  // namespace moestro
