// SPDX-License-Identifier: MIT
// Reports for the user: standard output, errors, the summary of a run, --json.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/output_file.h"
#include "base/result.h"
#include "base/terminal.h"
#include "decide/ahead/prefetch_planner.h"
#include "engine/run_report.h"
#include "text/draft_control.h"

namespace moestro {

// Standard output, unbuffered, with its errors reported, and small files. Reports are written as
// VisibleLines(), because names in them may come from anywhere.

// REQUIRES: SIGPIPE is ignored. One thread.
class Output {
 public:
  explicit Output(int fd) : fd_(fd) {}

  // Writes all of `text`. A closed pipe or terminal is no error: closed() becomes true and further
  // text is dropped. kIo for any other fault, for example a full disk; then, too, nothing more is
  // written.
  Status Write(std::string_view text);
  // Writes a model's or a user's text, part by part: to a file or a pipe as it is, to a terminal as
  // VisibleStream.
  Status WriteGenerated(std::string_view part);
  bool closed() const { return closed_; }
  const Status& status() const { return status_; }  // the first fault, if any

 private:
  Status WriteBytes(std::string_view bytes);

  int fd_;
  VisibleStream generated_;
  bool closed_ = false;
  Status status_;
};

// Writes a file with `text`. The file appears only when it is complete. kIo.
Status WriteFile(const OutputPath& path, std::string_view text);

// Prints "moestro: <message>" to stderr and returns the exit code: 2 for kUsage, else 1.
int PrintError(const Error& error);
// 0, or the result of PrintError().
int ExitCode(const Status& status);

// Several lines for people, with a final newline.
std::string SummaryText(const RunReport& report);
// Times of a token with drafts and without, as a line; empty where no plain step has counted.
std::string DraftFiguresText(const DraftControl::Figures& figures);
// Adds the report's numbers under the names of `bench --json`, to `object`.
void AddReport(Json& object, const RunReport& report);

// One line, or one array item, for each distance with predictions, the nearest first.
std::string ScoresText(std::string_view begin, const std::vector<PredictionScore>& scores);
Json ScoresAsJson(const std::vector<PredictionScore>& scores);

}  // namespace moestro
