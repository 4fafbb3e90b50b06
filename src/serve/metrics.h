// SPDX-License-Identifier: MIT
// Figures of a server, for Prometheus (text format 0.0.4) and for the dashboard (JSON).
//
// Names begin with "moestro_": Prometheus' own checker refuses the colon of llama-server's.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "base/counters.h"
#include "base/json.h"
#include "serve/ready_model.h"
#include "serve/scheduler_status.h"

namespace moestro {

// Prometheus' text format, families of one value or of one for each label.

// Names are without "moestro_".
class MetricsWriter {
 public:
  void Gauge(std::string_view name, std::string_view help, double value) {
    Family(name, help, "gauge");
    Value(name, "", value);
  }
  // The head of a family; its values follow. `type`: counter, gauge, summary.
  void Family(std::string_view name, std::string_view help, std::string_view type);
  void Value(std::string_view name, std::string_view labels, double value);
  // Writes each row that has a name in /metrics. Rows of one family must be neighbours in the list.
  template <Counted T>
  void Counters(const T& counts) {
    std::string family;
    ForEachCounter(counts, &CounterText::metric,
                   [&](const std::string& name, const CounterText& text, auto number) {
                     if (name != family) Family(name, text.meaning, "counter");
                     family = name;
                     Value(name, text.label, static_cast<double>(number));
                   });
  }
  std::string Take() { return std::move(text_); }

 private:
  std::string text_;
};

inline constexpr const char* kMetricsType = "text/plain; version=0.0.4; charset=utf-8";
std::string MetricsText(const SchedulerStatus& status, const ReadyModel& model);

// The figures of MetricsText() and a page's data: texts, memory, and the experts in memory as
// [layer][expert].
Json DashboardState(const SchedulerStatus& status, const ReadyModel& model);
// One entry for each place, at which one text can be computed beside others, in the form of
// llama-server's /slots.
Json PlacesJson(const SchedulerStatus& status, uint32_t n_ctx);

}  // namespace moestro
