// SPDX-License-Identifier: MIT
#include "cli/sim_report.h"

#include <utility>

#include "base/bytes.h"
#include "base/format.h"
#include "base/json.h"
#include "cli/report.h"

namespace moestro {
namespace {

std::string Describe(const SimLine& line) {
  const ReplayResult& r = line.result;
  std::string text =
      Format("{:10} {:6} slots ({:.4g} %)  {:6.2f} % hits, {} misses, {} evictions", line.policy,
             line.slots, line.percent, 100.0 * r.hit_rate(), r.misses, r.evictions);
  if (r.prefetches > 0) {
    text += Format(", {} prefetched, {} of them needed, {} late", r.prefetches, r.used_prefetches,
                   r.late);
  }
  if (r.bytes > 0) text += ", " + FormatBytes(r.bytes) + " read";
  if (r.seconds > 0.0) {
    text +=
        Format(", {:.2f} tok/s, {:.1f} % of the time waiting, {:.1f} % of the bound",
               r.tokens_per_second(), 100.0 * r.stall_seconds / r.seconds, r.percent_of_bound());
  }
  text += "\n";
  for (size_t i = 0; i < r.predictions.size(); ++i) {
    const PredictionScore& score = r.predictions[i];
    if (score.predicted == 0) continue;
    text += Format(
        "  predict {} ahead: {:.1f} % recall, {:.1f} % precision, {:.1f} % of absent experts\n",
        i + 1, 100.0 * score.recall(), 100.0 * score.precision(), 100.0 * score.absent_precision());
  }
  return text;
}

}  // namespace

std::string DescribeLines(const std::vector<SimLine>& lines) {
  std::string text;
  for (const SimLine& line : lines) text += Describe(line);
  return text;
}

std::string LinesAsCsv(const std::vector<SimLine>& lines) {
  std::string text =
      "policy,slots,percent,tokens,requests,hits,misses,evictions,hit_rate,late,guesses,good_"
      "guesses,"
      "bytes,seconds,stall_seconds,tokens_per_second,percent_of_bound\n";
  for (const SimLine& line : lines) {
    const ReplayResult& r = line.result;
    text += Format("{},{},{:.4g},{},{},{},{},{},{:.6f},", line.policy, line.slots, line.percent,
                   r.tokens, r.requests, r.hits, r.misses, r.evictions, r.hit_rate());
    text +=
        Format("{},{},{},{},{:.6f},{:.6f},{:.4f},{:.2f}\n", r.late, r.prefetches, r.used_prefetches,
               r.bytes, r.seconds, r.stall_seconds, r.tokens_per_second(), r.percent_of_bound());
  }
  return text;
}

std::string LinesAsJson(const std::vector<SimLine>& lines) {
  Json array = Json::Array();
  for (const SimLine& line : lines) {
    const ReplayResult& r = line.result;
    Json object = Json::Object();
    object.Set("policy", line.policy)
        .Set("slots", line.slots)
        .Set("tokens", r.tokens)
        .Set("requests", r.requests)
        .Set("hits", r.hits)
        .Set("misses", r.misses)
        .Set("evictions", r.evictions)
        .Set("hit_rate", r.hit_rate())
        .Set("disk_bytes", r.bytes)
        .Set("seconds", r.seconds)
        .Set("stall_seconds", r.stall_seconds)
        .Set("decode_tps", r.tokens_per_second())
        .Set("percent_of_bound", r.percent_of_bound())
        .Set("late", r.late)
        .Set("guesses", r.prefetches)
        .Set("good_guesses", r.used_prefetches)
        .Set("predictions", ScoresAsJson(r.predictions));
    array.Push(std::move(object));
  }
  return array.Dump() + "\n";
}

}  // namespace moestro
