// SPDX-License-Identifier: MIT
#include "trace/import_jsonl.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <istream>
#include <string>
#include <vector>

#include "base/json.h"

namespace moestro {
namespace {

// Longest line in bytes: enough for 1000 layers with 200 experts each.
constexpr size_t kLongestLine = size_t{1} << 20U;

struct Row {
  size_t line = 0;
  size_t layers = 0;
  size_t used = 0;
  std::vector<ExpertId> experts = {};
};

Result<ExpertId> ParseId(std::optional<JsonView> value) {
  const std::optional<double> number = value ? value->number() : std::nullopt;
  if (!number || *number < 0 || *number > UINT16_MAX || *number != std::floor(*number)) {
    return Fail(Errc::kInvalidFile, "an expert is not a number from 0 to {}", UINT16_MAX);
  }
  return ExpertId{static_cast<uint16_t>(*number)};
}

Result<Row> ParseRow(const std::string& text) {
  TRY(const Json object, Json::Parse(text));
  const std::optional<JsonView> layers = object.Find("layers");
  if (!layers || layers->size() == 0) return Fail(Errc::kInvalidFile, "no list \"layers\"");
  Row row{.layers = layers->size()};
  for (size_t l = 0; l < row.layers; ++l) {
    const std::optional<JsonView> ids = layers->At(l);
    const size_t n = ids ? ids->size() : 0;
    if (n == 0 || (row.used != 0 && n != row.used)) {
      return Fail(Errc::kInvalidFile, "layer {} has {} experts, the ones before have {}", l, n,
                  row.used);
    }
    row.used = n;
    for (size_t k = 0; k < n; ++k) {
      TRY(const ExpertId id, ParseId(ids->At(k)));
      row.experts.push_back(id);
    }
  }
  return row;
}

// Reads a line up to kLongestLine bytes and one more, by which the caller recognises a longer line.
// false: the file has ended.
bool ReadLine(std::istream& file, std::string& line) {
  line.clear();
  char c = 0;
  while (line.size() <= kLongestLine && file.get(c) && c != '\n') line += c;
  return file || !line.empty();
}

Result<std::vector<Row>> ReadRows(const std::string& path) {
  std::ifstream file(path);
  if (!file) return Fail(Errc::kIo, "cannot open {}: {}", path, std::strerror(errno));
  std::vector<Row> rows;
  std::string text;
  for (size_t line = 1; ReadLine(file, text); ++line) {
    if (text.size() > kLongestLine) {
      return Fail(Errc::kInvalidFile,
                  "{}, line {}: more than {} bytes; a line is the routing of "
                  "one token",
                  path, line, kLongestLine);
    }
    if (text.find_first_not_of(" \t\r") == std::string::npos) continue;
    Result<Row> row = ParseRow(text);
    if (!row) {
      return Fail(Errc::kInvalidFile, "{}, line {}: {}", path, line, row.error().message);
    }
    row->line = line;
    if (!rows.empty() && (row->layers != rows[0].layers || row->used != rows[0].used)) {
      return Fail(Errc::kInvalidFile, "{}, line {}: {} layers of {} experts, line {} has {} of {}",
                  path, line, row->layers, row->used, rows[0].line, rows[0].layers, rows[0].used);
    }
    rows.push_back(*std::move(row));
  }
  if (file.bad()) return Fail(Errc::kIo, "cannot read {}: {}", path, std::strerror(errno));
  if (rows.empty()) return Fail(Errc::kInvalidFile, "{} holds no line with routing", path);
  return rows;
}

}  // namespace

Result<Trace> ImportJsonl(const std::string& path, std::optional<uint32_t> experts) {
  TRY(const std::vector<Row> rows, ReadRows(path));
  uint32_t highest = 0;
  for (const Row& row : rows) {
    for (const ExpertId expert : row.experts) highest = std::max<uint32_t>(highest, expert.value);
  }
  const TraceInfo info{.model = {.name = std::filesystem::path(path).stem().string(),
                                 .shape = {.n_layer = static_cast<uint32_t>(rows[0].layers),
                                           .n_expert = experts.value_or(highest + 1),
                                           .n_used = static_cast<uint32_t>(rows[0].used)}},
                       .expert_bytes = 0,
                       .has_weights = false,
                       .experts_guessed = !experts.has_value()};
  Result<Trace> trace = Trace::Create(info);
  if (!trace) return Fail(Errc::kInvalidFile, "{}: {}", path, trace.error().message);
  for (const Row& row : rows) {
    const Status added = trace->Add(
        {.phase = Phase::kDecode, .starts_sequence = trace->tokens() == 0, .experts = row.experts});
    if (!added) {
      return Fail(Errc::kInvalidFile, "{}, line {}: {}", path, row.line, added.error().message);
    }
  }
  return trace;
}

}  // namespace moestro
