// SPDX-License-Identifier: MIT
// All that goes to a terminal: visible text, messages, the progress bar.
//
// Thread rule: none, any thread may call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "base/text.h"

namespace moestro {

// Text for a terminal. Names, files and peers can bring anything, escape sequences among it, so
// everything that is printed goes through a function or class of this header.

// Replaces characters that a terminal obeys instead of showing (control characters, line ends,
// marks that turn the direction of text) by "\u001b", and bytes that are no UTF-8 by "\xff". JSON
// keeps its meaning.
std::string Visible(std::string_view text);
// Like Visible(), but keeps line ends and tabs, for text that is laid out in lines.
std::string VisibleLines(std::string_view text);

// Makes a model's text fit for a terminal: keeps line ends, tabs and all scripts, replaces control
// characters. Takes the text in parts, and gives out each byte as it comes.
class VisibleStream {
 public:
  std::string Add(std::string_view part);

 private:
  bool may_be_control_ = false;  // the last byte began a character of which some are controls
};

// Onto standard error, laid out in lines.
void PrintOnStderr(std::string_view text);
// The same as far as it goes without waiting for whoever reads. False: the rest is left out.
bool PrintOnStderrAtOnce(std::string_view text);

// Text from a file made fit for a one-line message on a terminal.

// Everything but printable ASCII becomes '?'; longer text is cut and ends in "...".
inline std::string Printable(std::string_view text, size_t limit = 96) {
  std::string out(text.substr(0, limit));
  for (char& c : out) {
    if (c < ' ' || c > '~') c = '?';
  }
  if (text.size() > limit) out += "...";
  return out;
}

// Messages for the user who started the program, on stderr: warnings always, the others only with
// --verbose. Errors are not logged, they travel as Result. Any thread may log.

enum class LogLevel { kDebug, kInfo, kWarning };

// Messages below `level` are dropped. The start value is kWarning.
void SetLogLevel(LogLevel level);
// From now on lines that stderr does not take at once are left out, and the next line that stderr
// takes counts those: for servers, whose threads must not stand still with a stopped terminal or a
// pipe that nobody reads.
void LogWithoutWaiting();
void LogLine(LogLevel level, std::string_view line);

template <class... Args>
void LogInfo(std::format_string<Args...> text, Args&&... args) {
  LogLine(LogLevel::kInfo, Format(text, std::forward<Args>(args)...));
}
template <class... Args>
void LogWarning(std::format_string<Args...> text, Args&&... args) {
  LogLine(LogLevel::kWarning, Format(text, std::forward<Args>(args)...));
}

// A progress bar on one line of a terminal, for work that takes over a second.

// "loading experts [#######.............]  35 %": at most `width` characters. A `total` of
// 0 or a `done` past it counts as finished.
std::string RenderProgress(std::string_view what, uint64_t done, uint64_t total, size_t width);

// A bar on one line, for one thread. The destructor removes the line, so that no part of it stays
// in the output.
class ProgressBar {
 public:
  struct Options {
    bool enabled = false;   // false: no output at all (not a terminal)
    double delay = 1.0;     // seconds of work before the bar shows
    double interval = 0.1;  // seconds between two redraws
    size_t width = 78;
    std::function<double()> now;                  // seconds; any origin
    std::function<void(std::string_view)> write;  // output of the line
  };
  explicit ProgressBar(Options options);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  // A new `what` starts a new piece of work with its own delay. done == total removes the line.
  void Update(std::string_view what, uint64_t done, uint64_t total);
  void Clear();

  // A bar on stderr if that is a terminal, by the steady clock.
  static Options Stderr();

 private:
  Options options_;
  std::string what_;
  double started_ = 0.0;
  double drawn_ = 0.0;
  bool visible_ = false;
};

}  // namespace moestro
