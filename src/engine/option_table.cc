// SPDX-License-Identifier: MIT
#include "engine/option_table.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <vector>

#include "base/number.h"
#include "base/result.h"
#include "core/extent.h"
#include "core/kv_cells.h"
#include "decide/ahead/predictors.h"
#include "decide/layer/importance.h"
#include "decide/slots/policy.h"

namespace moestro {
namespace {

constexpr uint32_t kAny = std::numeric_limits<uint32_t>::max();

std::string KnownPoliciesText() {
  std::string text;
  for (const PolicyInfo& policy : KnownPolicies()) {
    text += Format("\n{}: {}", policy.name, policy.summary);
    for (const PolicyParameter& p : policy.parameters) {
      text +=
          Format("{}{}={}", &p == policy.parameters.data() ? "; " : ", ", p.name, p.default_value);
    }
  }
  return text;
}

std::string KnownPredictorsText() {
  std::string text;
  for (const PredictorInfo& predictor : KnownPredictors()) {
    text += Format("\n{}: {}", predictor.name, predictor.summary);
  }
  return text;
}

std::string KnownImportancesText() {
  std::string text;
  for (const ImportanceInfo& info : KnownImportances()) {
    text += Format("\n{}: {}", info.name, info.summary);
  }
  return text;
}

Status SetRam(EngineOptions& options, const std::string& text) {
  TRY(options.ram_bytes, ParseBytes(text));
  if (options.ram_bytes > 0) return {};
  return Fail(Errc::kUsage, "a budget of 0 bytes holds nothing");
}

std::optional<std::string> RamText(const EngineOptions& options) {
  if (options.ram_bytes == 0) return std::nullopt;
  return Format("{}", options.ram_bytes);
}

Status SetCache(EngineOptions& options, const std::string& text) {
  TRY(options.cache, ParseCacheSize(text));
  return {};
}

std::optional<std::string> CacheText(const EngineOptions& options) {
  if (!options.cache) return std::nullopt;
  if (options.cache->bytes > 0) return Format("{}", options.cache->bytes);
  return Format("{}%", options.cache->percent);
}

Status SetCapacity(EngineOptions& options, const std::string& text) {
  if (text == "config") {
    options.capacity = kConfigCapacity;
    return {};
  }
  const uint32_t value = ParseNumber<uint32_t>(text).value_or(0);
  if (value == 0 || value == kConfigCapacity) {
    return Fail(Errc::kUsage, "'{}' is no capacity; write 1 or more, or config", text);
  }
  options.capacity = value;
  return {};
}

std::optional<std::string> CapacityText(const EngineOptions& options) {
  if (options.capacity == 0) return std::nullopt;
  return options.capacity == kConfigCapacity ? "config" : Format("{}", options.capacity);
}

Status SetPolicy(EngineOptions& options, const std::string& text) {
  options.policy.reset();
  if (text == "auto") return {};
  TRY(options.policy, ParsePolicyChoice(text));
  return {};
}

std::optional<std::string> PolicyText(const EngineOptions& options) {
  return options.policy ? ToText(*options.policy) : "auto";
}

Status SetVram(EngineOptions& options, const std::string& text) {
  std::vector<uint64_t> sizes;
  for (size_t at = 0; at <= text.size();) {
    const size_t comma = std::min(text.find(',', at), text.size());
    TRY(const uint64_t bytes, ParseBytes(text.substr(at, comma - at)));
    at = comma + 1;
    if (bytes == 0) return Fail(Errc::kUsage, "0 bytes there hold nothing; --device cpu uses none");
    sizes.push_back(bytes);
  }
  options.device.vram = std::move(sizes);
  return {};
}

std::optional<std::string> VramText(const EngineOptions& options) {
  if (options.device.vram.empty()) return std::nullopt;
  std::string text;
  for (const uint64_t bytes : options.device.vram) {
    text += Format("{}{}", text.empty() ? "" : ",", bytes);
  }
  return text;
}

Result<bool> ParseDense(const std::string& text) {
  if (text == "cpu" || text == "auto") return text == "cpu";
  return Fail(Errc::kUsage, "'{}' is no place for the dense part: auto, cpu", text);
}

Result<bool> ParseLossyMode(const std::string& text) {
  if (text == "reproducible" || text == "opportunistic") return text == "reproducible";
  return Fail(Errc::kUsage, "'{}' is no mode; write reproducible or opportunistic", text);
}

Status CheckEngine(const std::string& name) {
  if (name == "auto" || name == "native" || name == "hosted") return {};
  return Fail(Errc::kUsage, "'{}' is no engine; write auto, native or hosted", name);
}

Status CheckNuma(const std::string& text) {
  if (text == "auto" || text == "off") return {};
  return Fail(Errc::kUsage, "'{}' is no way to use memory nodes; write auto or off", text);
}

Status CheckReader(const std::string& text) {
  TRY([[maybe_unused]] const ReaderKind kind, ParseReaderKind(text));
  return {};
}

Status SetLittle(EngineOptions& options, const std::string& text) {
  return SetLittleUsed(options.little, text);
}

std::optional<std::string> LittleText(const EngineOptions& options) {
  if (!options.little.is_on()) return std::nullopt;
  return ToText(options.little);
}

OptionRow WithAccess(OptionRow row, Status (*set)(EngineOptions&, const std::string&),
                     std::optional<std::string> (*get)(const EngineOptions&)) {
  row.set = set;
  row.get = get;
  return row;
}

// NOLINTNEXTLINE(readability-function-size): a table, a row after the other.
std::vector<OptionRow> MachineRows() {
  return {
      WithAccess({.flag = "--ram",
                  .value = "SIZE",
                  .help = "peak memory of the whole process, for example 6G",
                  .usual = "what is free, cgroup limits respected, less a margin",
                  .is_knob = true,
                  .is_budget = true,
                  .counts = Counts::kSlots},
                 SetRam, RamText),
      WithAccess({.flag = "--cache",
                  .value = "SIZE|PERCENT%",
                  .help = "memory for experts alone, for example 2G or 25% of all experts",
                  .is_knob = true,
                  .is_budget = true,
                  .counts = Counts::kSlots},
                 SetCache, CacheText),
      NumberOption(
          {.flag = "-t,--threads",
           .value = "N",
           .help = "compute threads",
           .usual = "physical cores"},
          [](auto& o) -> auto& { return o.threads; }, 0U, kAny),
      TextOption(
          {.flag = "--numa",
           .value = "auto|off",
           .help = "whether threads and weights are divided among several memory nodes",
           .usual = "auto, where there are several"},
          [](auto& o) -> auto& { return o.numa; }, CheckNuma),
      NumberOption(
          {.flag = "-c,--ctx,--ctx-size",
           .value = "N",
           .help = "tokens of context, at most what the model was trained with",
           .counts = Counts::kRope},
          [](auto& o) -> auto& { return o.ctx; }, 0U, kAny),
      NamedOption(
          {.flag = "--kv-type",
           .value = "f16|q8_0|f32",
           .help = "what keys and values are stored as; q8_0 takes 53 % of the memory and "
                   "is not quite exact; f32 takes twice as much and rounds nothing",
           .is_knob = true,
           .is_by_quality = true,
           .counts = Counts::kYes},
          [](auto& o) -> auto& { return o.kv_type; },
          [](const std::string& text) { return ParseKvType(text); },
          [](KvType type) { return NameOf(type); }),
      AutoOption(
          {.flag = "--chunk",
           .value = "N|auto",
           .help = "most prompt tokens evaluated at once",
           .usual = "auto, 512 to 2048 by the model's experts",
           .counts = Counts::kRows},
          [](auto& o) -> auto& { return o.chunk; }, kAny, "tokens"),
      WithAccess({.flag = "--capacity",
                  .value = "N|config",
                  .help = "tokens of a text that an expert of the encoder takes, the first ones; "
                          "others pass it by; config: as many as the model's config says",
                  .usual = "any number",
                  .counts = Counts::kYes},
                 SetCapacity, CapacityText),
      TextOption(
          {.flag = "--engine",
           .value = "auto|native|hosted",
           .help = "the native engine, or libllama's forward pass on its residency",
           .usual = "auto, native where it knows the model's family"},
          [](auto& o) -> auto& { return o.engine; }, CheckEngine),
      TextOption(
          {.flag = "--reader", .value = "uring|pread|auto", .help = "how experts are read"},
          [](auto& o) -> auto& { return o.reader; }, CheckReader),
      AutoOption(
          {.flag = "--io-depth",
           .value = "N|auto",
           .help = "reads of up to 1 MiB that the disk gets at a time",
           .usual = "auto, as few of 4 to 32 as fill it when measured, if not all experts fit"},
          [](auto& o) -> auto& { return o.io_depth; }, 256, "reads"),
      WithAccess({.flag = "--policy",
                  .value = "NAME[:KEY=VALUE,...]",
                  .help = "which expert leaves when a slot is needed",
                  .usual = Format("auto, the file MODEL.policy.json if there is one, else {}",
                                  PolicyChoice{}.name),
                  .known = KnownPoliciesText(),
                  .is_knob = true,
                  .counts = Counts::kSlots},
                 SetPolicy, PolicyText),
      TextOption({.flag = "--policy-file",
                  .value = "FILE",
                  .help = "policies tuned for this model by 'moestro sim --tune ... -o FILE'",
                  .excludes = "--policy",
                  .counts = Counts::kSlots},
                 [](auto& o) -> auto& { return o.policy_file; }),
      TextOption(
          {.flag = "--predictor",
           .value = "NAME",
           .help = "what predicts which experts the next layers need",
           .known = KnownPredictorsText(),
           .is_knob = true,
           .counts = Counts::kSlots},
          [](auto& o) -> auto& { return o.predictor; },
          [](const std::string& text) { return CheckPredictorName(text); }),
      TextOption({.flag = "--paths",
                  .value = "FILE",
                  .help = "what 'moestro profile' learned, for --predictor paths and for who is on "
                          "a device first",
                  .usual = "MODEL.paths",
                  .counts = Counts::kSlots},
                 [](auto& o) -> auto& { return o.paths; }),
      NumberOption(
          {.flag = "--prefetch",
           .value = "N",
           .help = "layers looked ahead; 0: no prefetch",
           .is_knob = true,
           .counts = Counts::kSlots},
          [](auto& o) -> auto& { return o.prefetch; }, 0U, 8U),
  };
}

std::vector<OptionRow> DeviceRows() {
  constexpr OptionGroup kPart = OptionGroup::kDevice;
  return {
      TextOption({.flag = "--device",
                  .value = "NAME,...",
                  .help = "what computes beside the CPU: names that 'moestro devices' lists, with "
                          "commas between them, auto (the GPUs, if there are any) or cpu; the "
                          "dense part goes to the first",
                  .part = kPart,
                  .counts = Counts::kDevice,
                  .is_resolved = true},
                 [](auto& o) -> auto& { return o.device.name; }),
      WithAccess({.flag = "--vram",
                  .value = "SIZE,...",
                  .help = "memory there for experts and the dense part, for example 6G: one size "
                          "for every device, or each one's",
                  .usual = "what is free, less a margin",
                  .part = kPart,
                  .counts = Counts::kSlots},
                 SetVram, VramText),
      NamedOption(
          {.flag = "--place",
           .value = "auto|gpu-centric|cooperative|cpu",
           .help = "where an expert is computed",
           .known = "\nauto: where the layer is done soonest, by the measured costs"
                    "\ngpu-centric: on a device; what they lack is copied to one"
                    "\ncooperative: what a device has there, the rest on the CPU"
                    "\ncpu: on the CPU",
           .part = kPart,
           .counts = Counts::kDevice},
          [](auto& o) -> auto& { return o.device.place; },
          [](const std::string& text) { return ParsePlaceMode(text); },
          [](PlaceMode mode) { return NameOf(mode); }),
      NamedOption(
          {.flag = "--dense",
           .value = "auto|cpu",
           .help = "where the dense part, keys and values are",
           .known = "\nauto: on the first device if it has room\ncpu: in memory",
           .part = kPart,
           .counts = Counts::kDevice,
           .is_resolved = true},
          [](auto& o) -> auto& { return o.device.dense_on_cpu; }, ParseDense,
          [](bool on_cpu) { return on_cpu ? "cpu" : "auto"; }),
      NamedOption(
          {.flag = "--tiers",
           .value = "auto|inclusive|exclusive",
           .help = "whether memory keeps experts that have come to a device",
           .known = "\nauto: if memory has room for more than half of all experts",
           .part = kPart,
           .counts = Counts::kDevice},
          [](auto& o) -> auto& { return o.device.tiers; }, ParseTiersAsked,
          [](std::optional<Tiers> tiers) { return tiers ? NameOf(*tiers) : "auto"; }),
      TextOption({.flag = "--latency-model",
                  .value = "FILE",
                  .help = "costs to place by, as 'moestro devices MODEL --profile -o FILE' writes "
                          "them; with a file, equal runs give equal bits",
                  .usual = "measured at the first start and followed",
                  .part = kPart,
                  .counts = Counts::kDevice,
                  .is_resolved = true},
                 [](auto& o) -> auto& { return o.device.latency_model; }),
  };
}

std::vector<OptionRow> RemoteRows() {
  constexpr OptionGroup kPart = OptionGroup::kDevice;
  return {
      NamedOption(
          {.flag = "--remote",
           .value = "HOST:PORT[=SIZE],...",
           .help = "machines that run 'ggml-rpc-server' and hold a share of every layer's experts "
                   "(docs/remote.md); SIZE: what may be taken there",
           .usual = "none",
           .part = kPart,
           .counts = Counts::kDevice,
           .is_resolved = true},
          [](auto& o) -> auto& { return o.device.remote.hosts; },
          [](const std::string& text) { return ParseRemoteHosts(text); },
          [](const std::vector<RemoteHost>& hosts) { return ToText(hosts); }),
      SwitchOption({.flag = "--remote-inexact",
                    .help = "experts here are computed by the fastest kernels, and results differ "
                            "from those without hosts by rounding",
                    .part = kPart,
                    .needs = "--remote",
                    .counts = Counts::kDevice},
                   [](auto& o) -> auto& { return o.device.remote.is_inexact; }),
      SwitchOption({.flag = "--remote-always",
                    .help = "hosts compute what they have, though this machine's disk may be "
                            "quicker",
                    .part = kPart,
                    .needs = "--remote"},
                   [](auto& o) -> auto& { return o.device.remote.is_always; }),
      SwitchOption({.flag = "--remote-insecure",
                    .help = "also hosts of no private network: what goes there is not encrypted, "
                            "and anybody on the way may change it",
                    .part = kPart,
                    .needs = "--remote"},
                   [](auto& o) -> auto& { return o.device.remote.takes_public; }),
  };
}

std::vector<OptionRow> CopyRows() {
  constexpr OptionGroup kPart = OptionGroup::kCopies;
  return {
      TextOption({.flag = "--low",
                  .value = "FILE",
                  .help = "copies of the experts in a lower type, made by 'moestro quantize', or "
                          "another GGUF of the same model",
                  .part = kPart,
                  .is_knob = true,
                  .is_by_quality = true,
                  .counts = Counts::kLossy,
                  .is_resolved = true},
                 [](auto& o) -> auto& { return o.low; }),
      NumberOption(
          {.flag = "--low-share",
           .value = "S",
           .help = "share of the experts' memory for low copies",
           .part = kPart,
           .is_knob = true,
           .is_by_quality = true,
           .counts = Counts::kSlots},
          [](auto& o) -> auto& { return o.low_share; }, 0.0, 1.0, Ends::kOut),
      TextOption({.flag = "--norms",
                  .value = "FILE",
                  .help = "what 'moestro profile' measured, for --importance score-norm",
                  .usual = "MODEL.norms",
                  .part = kPart,
                  .is_knob = true,
                  .is_by_quality = true,
                  .counts = Counts::kLossy,
                  .is_resolved = true},
                 [](auto& o) -> auto& { return o.norms; }),
  };
}

// Marks a row as one of the lossy options.
OptionRow Lossy(OptionRow row) {
  row.part = OptionGroup::kLossy;
  row.is_knob = true;
  row.is_by_quality = true;
  row.counts = Counts::kLossy;
  return row;
}

std::vector<OptionRow> LossyRows() {
  return {
      NumberOption(
          Lossy({.flag = "--t1",
                 .value = "S",
                 .help = "a missing expert is read in full up to this unimportance",
                 .usual = "0.6 with --low"}),
          [](auto& o) -> auto& { return o.lossy.t1; }, 0.0, 1.0),
      NumberOption(
          Lossy({.flag = "--t2",
                 .value = "S",
                 .help = "as a low copy up to this one, and skipped above it",
                 .usual = "0.9 with --low"}),
          [](auto& o) -> auto& { return o.lossy.t2; }, 0.0, 1.0),
      NumberOption(
          Lossy({.flag = "--drop-below",
                 .value = "W",
                 .help = "a missing expert with a smaller share of its row's weight is "
                         "not read"}),
          [](auto& o) -> auto& { return o.lossy.drop_below; }, 0.0, 1.0),
      NumberOption(
          Lossy({.flag = "--prefer-resident",
                 .value = "L",
                 .help = "an absent expert gives way to a resident one whose score is "
                         "lower by at most this share of the row's range"}),
          [](auto& o) -> auto& { return o.lossy.prefer_resident; }, 0.0, 1.0),
      NumberOption(
          Lossy({.flag = "--keep",
                 .value = "N",
                 .help = "best experts of a row that never give way"}),
          [](auto& o) -> auto& { return o.lossy.keep; }, 0U, kAny),
      SwitchOption(Lossy({.flag = "--rescale,!--no-rescale",
                          .help = "the other weights grow when an expert is left out",
                          .usual = "no"}),
                   [](auto& o) -> auto& { return o.lossy.rescales; }),
      SwitchOption(Lossy({.flag = "--upgrade",
                          .help = "read the full copy of an expert that often runs as a low one"}),
                   [](auto& o) -> auto& { return o.lossy.upgrades; }),
      TextOption(
          Lossy({.flag = "--importance",
                 .value = "NAME",
                 .help = "what makes an expert important to a row",
                 .known = KnownImportancesText()}),
          [](auto& o) -> auto& { return o.lossy.importance; },
          [](const std::string& text) { return CheckImportanceName(text); }),
      NamedOption(
          Lossy({.flag = "--lossy-mode",
                 .value = "NAME",
                 .help = "what choices depend on",
                 .known = "\nreproducible: tokens and slots alone"
                          "\nopportunistic: what is there",
                 .is_resolved = true}),
          [](auto& o) -> auto& { return o.lossy.is_reproducible; }, ParseLossyMode,
          [](bool is) { return is ? "reproducible" : "opportunistic"; }),
  };
}

std::vector<OptionRow> LittleRows() {
  constexpr OptionGroup kPart = OptionGroup::kLittle;
  return {
      WithAccess({.flag = "--little",
                  .value = "N|half",
                  .help = "decode each token with N experts first, and with all of them if it is "
                          "not sure of the next",
                  .part = kPart,
                  .is_knob = true,
                  .is_by_quality = true,
                  .counts = Counts::kLossy},
                 SetLittle, LittleText),
      NumberOption(
          {.flag = "--gamma",
           .value = "G",
           .help = "it is sure if its largest probability is above this; 0: always, 1: "
                   "never",
           .part = kPart,
           .needs = "--little",
           .is_knob = true,
           .counts = Counts::kLossy},
          [](auto& o) -> auto& { return o.little.gamma; }, 0.0, 1.0),
      NamedOption(
          {.flag = "--little-misses",
           .value = "read|low|drop",
           .help = "what the first pass does about an expert that is not in memory",
           .part = kPart,
           .needs = "--little",
           .is_knob = true,
           .counts = Counts::kLossy},
          [](auto& o) -> auto& { return o.little.misses; },
          [](const std::string& text) { return ParseMisses(text); },
          [](Misses misses) { return ToString(misses); }),
  };
}

std::vector<OptionRow> AllRows() {
  std::vector<OptionRow> rows;
  for (std::vector<OptionRow> part :
       {MachineRows(), DeviceRows(), RemoteRows(), CopyRows(), LossyRows(), LittleRows()}) {
    std::ranges::move(part, std::back_inserter(rows));
  }
  return rows;
}

}  // namespace

std::string_view NameOf(Counts counts) {
  switch (counts) {
    case Counts::kNo:
      return "no";
    case Counts::kYes:
      return "yes";
    case Counts::kLossy:
      return "lossy";
    case Counts::kSlots:
      return "slots";
    case Counts::kDevice:
      return "device";
    case Counts::kRope:
      return "rope";
    case Counts::kRows:
      return "rows";
  }
  return "";
}

std::string HelpOf(const OptionRow& row) {
  std::string usual = row.usual;
  if (usual.empty() && !row.on_off) usual = row.get(EngineOptions{}).value_or("");
  std::string limits = row.range;
  if (!usual.empty()) limits += Format("{}default: {}", limits.empty() ? "" : "; ", usual);
  std::string help = row.help;
  if (!limits.empty()) help += Format(" ({})", limits);
  return row.known.empty() ? help : Format("{}:{}", help, row.known);
}

std::span<const OptionRow> OptionTable() {
  static const std::vector<OptionRow> rows = AllRows();
  return rows;
}

const OptionRow& FindOption(std::string_view name) {
  const std::span<const OptionRow> rows = OptionTable();
  const auto found = std::ranges::find(rows, name, &OptionRow::name);
  CHECK(found != rows.end());
  return *found;
}

Status CheckOptions(const EngineOptions& options, std::span<const OptionRow> table) {
  for (const OptionRow& row : table) {
    if (row.check) TRY_STATUS(row.check(options));
  }
  return {};
}

}  // namespace moestro
