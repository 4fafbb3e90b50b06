// SPDX-License-Identifier: MIT
#include "serve/metrics.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/counters.h"
#include "serve/scheduler_status.h"

namespace moestro {
namespace {

struct Fruit {
  uint64_t good = 3;
  uint64_t bad = 1;
  uint64_t eaten = 2;
  uint64_t hidden = 9;
  static constexpr void Visit(auto&& visit) {
    visit(&Fruit::good, CounterText{.metric = "apples_total",
                                    .label = "{is=\"good\"}",
                                    .meaning = "Apples by what they are."});
    visit(&Fruit::bad, CounterText{.metric = "apples_total", .label = "{is=\"bad\"}"});
    visit(&Fruit::eaten, CounterText{.metric = "eaten_total", .meaning = "Apples eaten."});
    visit(&Fruit::hidden, CounterText{.json = "hidden"});
  }
};

TEST(Metrics, EachNamedCounterIsThereUnderItsFamily) {
  MetricsWriter out;
  out.Counters(Fruit{});
  EXPECT_EQ(out.Take(),
            "# HELP moestro_apples_total Apples by what they are.\n"
            "# TYPE moestro_apples_total counter\n"
            "moestro_apples_total{is=\"good\"} 3\n"
            "moestro_apples_total{is=\"bad\"} 1\n"
            "# HELP moestro_eaten_total Apples eaten.\n"
            "# TYPE moestro_eaten_total counter\n"
            "moestro_eaten_total 2\n");
}

template <Counted T>
std::vector<std::string> Names(const T& counts) {
  std::vector<std::string> names;
  ForEachCounter(counts, &CounterText::metric,
                 [&](const std::string& name, const CounterText& text, auto) {
                   names.push_back(name + std::string(text.label));
                 });
  return names;
}

TEST(Metrics, NamesThatDashboardsReadStay) {
  EXPECT_EQ(Names(ServeCounts{}),
            (std::vector<std::string>{
                "requests_total{end=\"finished\"}", "requests_total{end=\"cancelled\"}",
                "requests_total{end=\"failed\"}", "requests_total{end=\"refused\"}",
                "prompt_tokens_total", "prompt_cached_tokens_total",
                "prompt_recomputed_tokens_total", "tokens_predicted_total", "steps_total",
                "prompt_seconds_total", "tokens_predicted_seconds_total"}));
  EXPECT_EQ(Names(PhaseStats{}),
            (std::vector<std::string>{"expert_hits_total", "expert_misses_total",
                                      "expert_evictions_total", "expert_prefetches_total",
                                      "expert_prefetches_used_total", "disk_read_bytes_total",
                                      "read_wait_seconds_total", "table_read_bytes_total"}));
}

// Without a sentence a family of metrics would have no HELP line.
template <Counted T>
void ExpectMeanings(const T& counts) {
  std::string family;
  ForEachCounter(counts, &CounterText::metric,
                 [&](const std::string& name, const CounterText& text, auto) {
                   EXPECT_EQ(text.meaning.empty(), name == family) << name;
                   family = name;
                 });
}

TEST(Metrics, EachFamilySaysWhatItCounts) {
  ExpectMeanings(ServeCounts{});
  ExpectMeanings(PhaseStats{});
}

}  // namespace
}  // namespace moestro
