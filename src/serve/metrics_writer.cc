// SPDX-License-Identifier: MIT
#include "serve/metrics_writer.h"

#include "base/format.h"

namespace moestro {

void MetricsWriter::Family(std::string_view name, std::string_view help, std::string_view type) {
  text_ += Format("# HELP moestro_{} {}\n# TYPE moestro_{} {}\n", name, help, name, type);
}

void MetricsWriter::Value(std::string_view name, std::string_view labels, double value) {
  text_ += Format("moestro_{}{} {}\n", name, labels, value);
}

}  // namespace moestro
