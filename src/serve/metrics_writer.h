// SPDX-License-Identifier: MIT
// Prometheus' text format, families of one value or of one for each label.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "base/counters.h"

namespace moestro {

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

}  // namespace moestro
