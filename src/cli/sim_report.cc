// SPDX-License-Identifier: MIT
#include "cli/sim_report.h"

#include <format>
#include <utility>

#include "base/bytes.h"
#include "base/json.h"

namespace moestro {
namespace {

std::string Describe(const SimLine& line) {
  const ReplayResult& r = line.result;
  std::string text = std::format(
      "{:10} {:6} slots ({:.4g} %)  {:6.2f} % hits, {} misses, {} evictions", line.policy,
      line.slots, line.percent, 100.0 * r.hit_rate(), r.misses, r.evictions);
  if (r.bytes > 0) text += ", " + FormatBytes(r.bytes) + " read";
  if (r.seconds > 0.0) {
    text += std::format(", {:.2f} tok/s, {:.1f} % of the time waiting", r.tokens_per_second(),
                        100.0 * r.stall_seconds / r.seconds);
  }
  return text + "\n";
}

}  // namespace

std::string DescribeLines(const std::vector<SimLine>& lines) {
  std::string text;
  for (const SimLine& line : lines) text += Describe(line);
  return text;
}

std::string LinesAsCsv(const std::vector<SimLine>& lines) {
  std::string text =
      "policy,slots,percent,tokens,requests,hits,misses,evictions,hit_rate,bytes,seconds,"
      "stall_seconds,tokens_per_second\n";
  for (const SimLine& line : lines) {
    const ReplayResult& r = line.result;
    text +=
        std::format("{},{},{:.4g},{},{},{},{},{},{:.6f},{},{:.6f},{:.6f},{:.4f}\n", line.policy,
                    line.slots, line.percent, r.tokens, r.requests, r.hits, r.misses, r.evictions,
                    r.hit_rate(), r.bytes, r.seconds, r.stall_seconds, r.tokens_per_second());
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
        .Set("decode_tps", r.tokens_per_second());
    array.Push(std::move(object));
  }
  return array.Dump() + "\n";
}

}  // namespace moestro
