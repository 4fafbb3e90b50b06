// SPDX-License-Identifier: MIT
// A progress bar on one line of a terminal, for work that takes over a second.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace moestro {

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
