// SPDX-License-Identifier: MIT
// Whether prefetch pays, from what the disk did lately. Pure.
//
// The disk is idle for some time between the last read that a layer waits for and the next layer's
// router. Of what a guess reads, the part that fits into that time is won if the guess is right. A
// read under way cannot be called back, so whatever does not fit delays the next layer's own reads,
// and is lost if the guess is wrong. A guess pays if p * won > (1 - p) * lost.
#pragma once

#include <cstdint>

namespace moestro {

// What one token of decode cost. Seconds may be measured or simulated.
struct TokenCost {
  double seconds = 0.0;
  double demand_seconds = 0.0;      // a read that a layer waited for was under way
  uint64_t demand_reads = 0;        // experts read in these
  double look_ahead_seconds = 0.0;  // of evaluating later layers' routers; 0: not done
};

class PrefetchControl {
 public:
  // `layers` of a token; `committed`: experts' worth of reads under way that cannot be called back.
  PrefetchControl(uint32_t layers, double committed) : layers_(layers), committed_(committed) {}

  // `right`: guesses about absent experts that were right, those that were good enough to fetch.
  void TokenDone(const TokenCost& cost, double right);

  // Guesses that are right less often than this are not worth fetching; above 1: none is.
  double least_precision() const;
  // False: evaluating routers ahead of time costs more than fetching what they say gains. Once in
  // a while it is true nonetheless, to see whether that has changed.
  bool is_on() const { return pays_ || token_ % kTryEvery == 0; }

 private:
  static constexpr uint64_t kTryEvery = 16;
  static constexpr double kNews = 0.1;  // weight of a token in the averages

  double won() const;
  double lost() const;

  uint32_t layers_;
  double committed_;
  double idle_ = 0.0;    // seconds of a layer in which no layer waits for the disk
  double read_ = 0.0;    // seconds to read an expert; 0: none was read yet
  double gained_ = 0.0;  // seconds per token
  double cost_ = 0.0;    // of looking ahead, seconds per token
  uint64_t token_ = 0;
  bool pays_ = true;
};

}  // namespace moestro
