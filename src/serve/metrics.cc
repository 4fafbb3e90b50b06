// SPDX-License-Identifier: MIT
#include "serve/metrics.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "base/format.h"
#include "base/system_limits.h"

namespace moestro {
namespace {

// Writes families of one value, or of one for each label.
class MetricsWriter {
 public:
  void Counter(std::string_view name, std::string_view help, double value) {
    Family(name, help, "counter");
    Value(name, "", value);
  }
  void Gauge(std::string_view name, std::string_view help, double value) {
    Family(name, help, "gauge");
    Value(name, "", value);
  }
  void Family(std::string_view name, std::string_view help, std::string_view type) {
    text_ += Format("# HELP moestro_{} {}\n# TYPE moestro_{} {}\n", name, help, name, type);
  }
  void Value(std::string_view name, std::string_view labels, double value) {
    text_ += Format("moestro_{}{} {}\n", name, labels, value);
  }
  std::string Take() { return std::move(text_); }

 private:
  std::string text_;
};

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
  out.Family("requests_total", "Requests that have ended, by how.", "counter");
  out.Value("requests_total", "{end=\"finished\"}", static_cast<double>(totals.finished));
  out.Value("requests_total", "{end=\"cancelled\"}", static_cast<double>(totals.cancelled));
  out.Value("requests_total", "{end=\"failed\"}", static_cast<double>(totals.failed));
  out.Value("requests_total", "{end=\"refused\"}", static_cast<double>(totals.refused));
  out.Counter("prompt_tokens_total", "Tokens of prompts that were computed.",
              static_cast<double>(totals.prompt_tokens));
  out.Counter("prompt_cached_tokens_total", "Tokens of prompts that were there already.",
              static_cast<double>(totals.cached_tokens));
  out.Counter("tokens_predicted_total", "Tokens of answers.",
              static_cast<double>(totals.generated));
  out.Counter("steps_total", "Steps of the engine.", static_cast<double>(totals.steps));
  out.Counter("prompt_seconds_total", "Time of steps with prompts in them.", totals.prompt_seconds);
  out.Counter("tokens_predicted_seconds_total", "Time of steps of answers alone.",
              totals.text_seconds);
  out.Family("token_gap_seconds", "Time between two tokens of an answer.", "summary");
  for (const double q : {0.5, 0.99}) {
    const double gap = totals.gap_ms.count() > 0 ? totals.gap_ms.Quantile(q) / 1e3 : 0.0;
    out.Value("token_gap_seconds", Format("{{quantile=\"{}\"}}", q), gap);
  }
  out.Value("token_gap_seconds_sum", "", totals.gap_ms.SumOfAtLeast(0.0) / 1e3);
  out.Value("token_gap_seconds_count", "", static_cast<double>(totals.gap_ms.count()));
}

void AddExperts(MetricsWriter& out, const RunStats& stats) {
  const auto both = [&](auto field) {
    return static_cast<double>(stats.prefill.*field) + static_cast<double>(stats.decode.*field);
  };
  out.Counter("expert_hits_total", "Experts that were in memory when a layer asked.",
              both(&PhaseStats::hits));
  out.Counter("expert_misses_total", "Experts that were not.", both(&PhaseStats::misses));
  out.Counter("expert_evictions_total", "Experts that left memory for others.",
              both(&PhaseStats::evictions));
  out.Counter("expert_prefetches_total", "Experts that were read before a layer asked.",
              both(&PhaseStats::prefetches));
  out.Counter("expert_prefetches_used_total", "Of these, experts that a layer asked for.",
              both(&PhaseStats::used_prefetches));
  out.Counter("disk_read_bytes_total", "Bytes of experts that were read from disk.",
              both(&PhaseStats::disk_bytes));
  out.Counter("read_wait_seconds_total",
              "Time in which there was nothing to do but wait for bytes.",
              both(&PhaseStats::wait_seconds));
}

}  // namespace

std::string MetricsText(const SchedulerStatus& status, const ReadyModel& model) {
  MetricsWriter out;
  AddRequests(out, status, model.preparing);
  AddExperts(out, status.engine);
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
  const ServeTotals& totals = status.totals;
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
      .Set("resident", ResidentMemory())
      .Set("prompt_tokens", totals.prompt_tokens)
      .Set("cached_tokens", totals.cached_tokens)
      .Set("generated", totals.generated)
      .Set("prompt_seconds", totals.prompt_seconds)
      .Set("text_seconds", totals.text_seconds)
      .Set("finished", totals.finished)
      .Set("cancelled", totals.cancelled)
      .Set("failed", totals.failed)
      .Set("hits", prefill.hits + decode.hits)
      .Set("misses", prefill.misses + decode.misses)
      .Set("decode_hits", decode.hits)
      .Set("decode_misses", decode.misses)
      .Set("disk_bytes", prefill.disk_bytes + decode.disk_bytes)
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
