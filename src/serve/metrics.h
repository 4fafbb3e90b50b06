// SPDX-License-Identifier: MIT
// Figures of a server, for Prometheus (text format 0.0.4) and for the dashboard (JSON).
//
// Names begin with "moestro_": Prometheus' own checker refuses the colon of llama-server's.
#pragma once

#include <string>

#include "base/json.h"
#include "serve/ready_model.h"
#include "serve/scheduler_status.h"

namespace moestro {

inline constexpr const char* kMetricsType = "text/plain; version=0.0.4; charset=utf-8";
std::string MetricsText(const SchedulerStatus& status, const ReadyModel& model);

// The figures of MetricsText() and a page's data: texts, memory, and the experts in memory as
// [layer][expert].
Json DashboardState(const SchedulerStatus& status, const ReadyModel& model);
// One entry for each place, at which one text can be computed beside others, in the form of
// llama-server's /slots.
Json PlacesJson(const SchedulerStatus& status, uint32_t n_ctx);

}  // namespace moestro
