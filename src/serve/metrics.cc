// SPDX-License-Identifier: MIT
#include "serve/metrics.h"

#include <algorithm>
#include <vector>

#include "base/json.h"
#include "base/system_limits.h"
#include "base/text.h"

namespace moestro {

void MetricsWriter::Family(std::string_view name, std::string_view help, std::string_view type) {
  text_ += Format("# HELP moestro_{} {}\n# TYPE moestro_{} {}\n", name, help, name, type);
}

void MetricsWriter::Value(std::string_view name, std::string_view labels, double value) {
  text_ += Format("moestro_{}{} {}\n", name, labels, value);
}

namespace {

void AddRequests(MetricsWriter& out, const SchedulerStatus& status, const Preparing& preparing) {
  const ServeTotals& totals = status.totals;
  const auto written = std::ranges::count(status.texts, true, &TextStatus::is_written);
  out.Gauge("requests_processing", "Requests that the engine works on.",
            static_cast<double>(status.texts.size()));
  out.Gauge("requests_decoding", "Of these, requests whose answer is being written.",
            static_cast<double>(written));
  out.Gauge("requests_preparing", "Requests whose body is taken apart or whose grammar is tried.",
            preparing.working());
  out.Gauge("requests_deferred", "Requests that wait for that, or for the engine.",
            status.waiting + preparing.waiting());
  const ServeCounts& counts = totals;
  out.Counters(counts);
  out.Family("token_gap_seconds", "Time between two tokens of an answer.", "summary");
  for (const double q : {0.5, 0.99}) {
    const double gap = totals.gap_ms.count() > 0 ? totals.gap_ms.Quantile(q) / 1e3 : 0.0;
    out.Value("token_gap_seconds", Format("{{quantile=\"{}\"}}", q), gap);
  }
  out.Value("token_gap_seconds_sum", "", totals.gap_ms.SumOfAtLeast(0.0) / 1e3);
  out.Value("token_gap_seconds_count", "", static_cast<double>(totals.gap_ms.count()));
}

}  // namespace

std::string MetricsText(const SchedulerStatus& status, const ReadyModel& model) {
  MetricsWriter out;
  AddRequests(out, status, model.preparing);
  PhaseStats both = status.engine.prefill;
  both += status.engine.decode;
  out.Counters(both);
  out.Counters(status.engine.drafts);
  out.Counters(status.engine.slowed);
  out.Gauge("context_tokens", "Tokens that one request may have, prompt and answer.",
            model.card.n_ctx);
  out.Gauge("kv_positions", "Positions of the KV cache.", status.kv_room.all);
  out.Gauge("kv_free_positions", "Of these, positions that nobody has.", status.kv_room.free);
  out.Gauge("kept_prefixes", "Texts kept in memory as beginnings of later ones.",
            status.kept_prefixes);
  out.Gauge("kept_prefix_tokens", "Their tokens.", static_cast<double>(status.kept_tokens));
  out.Gauge("saved_prefixes", "Texts kept on disk.", status.saved_prefixes);
  out.Gauge("saved_prefix_bytes", "Their bytes.", static_cast<double>(status.saved_bytes));
  out.Gauge("memory_budget_bytes", "Memory that the process may take.",
            static_cast<double>(model.facts.ram));
  out.Gauge("memory_resident_bytes", "Memory that it takes.",
            static_cast<double>(ResidentMemory()));
  out.Gauge("memory_peak_bytes", "The most that it took.",
            static_cast<double>(PeakResidentMemory()));
  return out.Take();
}

Json PlacesJson(const SchedulerStatus& status, uint32_t n_ctx) {
  Json places = Json::Array();
  for (uint32_t i = 0; i < status.parallel; ++i) {
    Json place = Json::Object();
    const auto at = std::ranges::find(status.texts, i, &TextStatus::place);
    const bool is_processing = at != status.texts.end();
    place.Set("id", i).Set("n_ctx", n_ctx).Set("is_processing", is_processing);
    if (is_processing) {
      const TextStatus& text = *at;
      place.Set("state", text.is_written ? "decode" : "prefill")
          .Set("n_prompt_tokens", text.prompt_tokens)
          .Set("n_prompt_tokens_cache", text.cached_tokens)
          .Set("n_past", text.positions)
          .Set("n_decoded", text.generated);
    }
    places.Push(std::move(place));
  }
  return places;
}

Json DashboardState(const SchedulerStatus& status, const ReadyModel& model) {
  const ServeCounts& totals = status.totals;
  const PhaseStats& prefill = status.engine.prefill;
  const PhaseStats& decode = status.engine.decode;
  Json state = Json::Object();
  state.Set("model", model.card.id)
      .Set("n_ctx", model.card.n_ctx)
      .Set("slots", PlacesJson(status, model.card.n_ctx))
      .Set("waiting", status.waiting + model.preparing.waiting())
      .Set("preparing", model.preparing.working())
      .Set("kept_prefixes", status.kept_prefixes)
      .Set("kept_tokens", status.kept_tokens)
      .Set("saved_prefixes", status.saved_prefixes)
      .Set("saved_bytes", status.saved_bytes)
      .Set("kv_positions", status.kv_room.all)
      .Set("kv_free", status.kv_room.free)
      .Set("ram", model.facts.ram)
      .Set("resident", ResidentMemory());
  AddCounters(state, totals);
  state.Set("hits", prefill.hits + decode.hits)
      .Set("misses", prefill.misses + decode.misses)
      .Set("decode_hits", decode.hits)
      .Set("decode_misses", decode.misses)
      .Set("disk_bytes", prefill.bytes_read + decode.bytes_read)
      .Set("wait_seconds", prefill.wait_seconds + decode.wait_seconds)
      .Set("decode_seconds", decode.seconds)
      .Set("decode_tokens", decode.tokens)
      .Set("decode_wait_seconds", decode.wait_seconds)
      .Set("decode_bytes", decode.needed_bytes)
      .Set("decode_touched_bytes", decode.touched_bytes)
      .Set("disk_bandwidth", model.facts.disk_bandwidth)
      .Set("memory_bandwidth", model.facts.memory_bandwidth);
  Json resident = Json::Array();
  uint64_t slots = 0;
  for (const SlotContents& pool : status.slots) {
    slots += pool.slots;
    for (const ExpertKey& key : pool.experts) {
      // A layer that predicts further tokens is no layer of the map.
      if (key.layer.value >= model.facts.n_expert_layers) continue;
      Json expert = Json::Array();
      expert.Push(key.layer.value).Push(key.expert.value).Push(key.copy);
      resident.Push(std::move(expert));
    }
  }
  state.Set("expert_layers", model.facts.n_expert_layers)
      .Set("experts", model.facts.n_experts)
      .Set("expert_slots", slots)
      .Set("resident_experts", std::move(resident));
  return state;
}

}  // namespace moestro
